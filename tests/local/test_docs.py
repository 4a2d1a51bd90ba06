"""The README's and the guides' commands are run as they stand, with the files that the guides show."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_BY_CI = ("make ",)
"""These make the environment that the tests run in; .ci/run calls both."""


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_of(page: Path) -> list[str]:
    blocks = [block["text"] for block in BLOCK.finditer(page.read_text()) if block["kind"] == "sh"]
    lines = [line.partition("  #")[0].strip() for text in blocks for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(RUN_BY_CI)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_the_commands_of_a_page_work(cli, page: Path, mnist: Path) -> None:
    for block in BLOCK.finditer(page.read_text()):
        if block["file"]:
            target = cli.cwd / block["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block["text"])
    for command in commands_of(page):
        done = subprocess.run(
            command, shell=True, cwd=cli.cwd, env=cli.env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_pages_have_commands_and_links_lead_somewhere() -> None:
    assert len(commands_of(ROOT / "README.md")) >= 10
    assert commands_of(ROOT / "docs" / "add-a-recipe.md")
    for page in pages():
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_map_names_what_is_there() -> None:
    text = (ROOT / "README.md").read_text()
    rooms = [path for path in (ROOT / "rampup").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    missing = [path.name for path in rooms if path.name.strip("_") not in text and not path.name.startswith("__")]
    assert missing == []
