"""The README's and the guides' commands are run as they stand, with the files that the guides
show."""

import re
from pathlib import Path

import pytest
from pages import ROOT, commands_of, pages, run_page


@pytest.mark.parametrize("page", pages(with_slurm=False), ids=lambda page: page.stem)
def test_the_commands_of_a_page_work(cli, page: Path, mnist: Path) -> None:
    if page.stem in ("keras", "ucluster"):
        pytest.importorskip(
            "tf_keras", reason="the commands of this page need tensorflow and tf_keras"
        )
    run_page(cli, page)


def test_pages_have_commands_and_links_lead_somewhere() -> None:
    assert len(commands_of(ROOT / "README.md")) >= 10
    assert commands_of(ROOT / "docs" / "add-a-recipe.md")
    ours = [*pages(with_slurm=False), *pages(with_slurm=True)]
    for page in [*ours, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_readme_links_every_guide() -> None:
    text = (ROOT / "README.md").read_text()
    listed = text[text.index("## Documentation") :]
    guides = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/README.md")]
    missing = [page.name for page in guides if f"({page.relative_to(ROOT)})" not in listed]
    assert missing == []


def test_the_map_names_what_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    text = text[text.index("## Source layout") : text.index("## Where a new thing goes")]
    rooms = [
        path
        for path in (ROOT / "rampup").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    ]
    missing = [
        path.name
        for path in rooms
        if path.name.strip("_") not in text and not path.name.startswith("__")
    ]
    assert missing == []
