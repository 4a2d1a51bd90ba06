"""The README and the guides as tests read them: files to write, commands to run."""

import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
RUN_BY_CI = ("make ",)
"""These make the environment that the tests run in; .ci/run calls both."""


def pages(with_slurm: bool) -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in found if needs_slurm(page) == with_slurm]


def needs_slurm(page: Path) -> bool:
    return any(command.startswith("rampup sandbox") for command in commands_of(page))


def commands_of(page: Path) -> list[str]:
    blocks = [block["text"] for block in BLOCK.finditer(page.read_text()) if block["kind"] == "sh"]
    lines = [line.partition("  #")[0].strip() for text in blocks for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(RUN_BY_CI)]


def run_page(cli: Any, page: Path) -> None:
    """Write the files that the page shows, and run its commands one after the other."""
    for block in BLOCK.finditer(page.read_text()):
        if block["file"]:
            target = cli.cwd / block["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block["text"])
    for command in commands_of(page):
        argv = ["bash", "-c", command]
        done = subprocess.run(
            argv, cwd=cli.cwd, env=cli.env, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
