"""The pages about Slurm are run as they stand; each brings up its own sandbox and takes it down."""

from pathlib import Path

import pytest
from pages import pages, run_page


@pytest.mark.parametrize("page", pages(with_slurm=True), ids=lambda page: page.stem)
def test_the_commands_of_a_page_work(cli, page: Path, packages: None, tmp_path: Path) -> None:
    cli.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    try:
        run_page(cli, page)
    finally:
        cli("sandbox", "down")
