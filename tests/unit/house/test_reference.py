"""What can be set is declared once: parser, help, options and the pages of the reference follow."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import click
import msgspec
import pytest
from click.testing import CliRunner

import rampup
from rampup.cli import run
from rampup.config import setting_tables
from rampup.core import variables
from rampup.core.engines import ENGINES
from rampup.core.resources import Asked, Resources, describe_settings
from rampup.core.spec import Cluster, Setting

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import reference  # noqa: E402


def test_the_pages_are_what_the_declarations_say() -> None:
    """In a process of its own: click keeps the options of help as the first test saw them."""
    words = [sys.executable, str(ROOT / "tools" / "reference.py"), "--check"]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "python tools/reference.py"


def test_every_key_of_a_profile_has_its_help() -> None:
    assert reference.read_docstrings(Cluster).keys() == {
        field.name for field in msgspec.structs.fields(Cluster)
    }


def test_every_variable_is_on_the_page() -> None:
    known = {*variables.YOURS, *variables.OF_A_RANK, *variables.INTERNAL}
    files = [
        path
        for path in Path(rampup.__file__).parent.rglob("*")
        if path.suffix in (".py", ".sh") and path.name != "variables.py"
    ]
    used = {name for path in files for name in re.findall(r"RAMPUP_[A-Z_]+", path.read_text())}
    assert used - known <= {"RAMPUP_", "RAMPUP_COMPLETE"}  # a prefix; click's own
    assert {name for name in known if name.startswith("RAMPUP_")} <= used


class More(Resources, frozen=True, kw_only=True):
    switches: Annotated[int, Asked("network switches at most", "S", low=1)] = 4


def test_a_resource_is_one_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its field is enough: it can be read from a file and from a word, and --help and the page show
    it."""
    monkeypatch.setattr(
        More, "__annotations__", {**Resources.__annotations__, **More.__annotations__}
    )
    settings = describe_settings(More)
    table = setting_tables.Table("resources", settings)
    table.put_text("switches", "2", "command line")
    assert table.values["switches"] == 2
    with pytest.raises(rampup.errors.Refused, match="too small"):
        table.put("switches", 0, "rampup.toml")
    monkeypatch.setattr(run, "RESOURCE_OPTIONS", run.list_options(More))

    @click.command()
    @run.resource_options
    def command(**_: object) -> None: ...

    shown = CliRunner().invoke(command, ["--help"]).output
    assert "--switches S" in shown and "Network switches at most." in shown
    assert "| `switches` | network switches at most |" in reference.list_settings(settings)


def test_a_setting_of_an_engine_is_one_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {**ENGINES["torch"].settings, "patience_s": Setting("int", 3, "seconds to wait", low=1)}
    monkeypatch.setattr(type(ENGINES["torch"]), "settings", more)
    assert "| `patience_s` | seconds to wait | a whole number, at least 1 | `3` |" in (
        reference.write_settings()
    )
    recipe = reference.load("mnist", ROOT)
    assert recipe.settings["patience_s"].default == 3  # so run, sweep, completion, recipe show


def test_a_profile_key_is_one_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wider(Cluster, frozen=True, kw_only=True, forbid_unknown_fields=True):
        rack: str | None = None
        """the rack that runs prefer"""

    found = msgspec.convert({"name": "site", "rack": "r1"}, Wider)
    assert found.rack == "r1"
    assert reference.read_docstrings(Wider) == {"rack": "the rack that runs prefer"}
