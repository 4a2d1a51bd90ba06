"""What can be set is declared once: parser, help, options and the pages of the reference follow."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rampup
from rampup.core import variables
from rampup.core.spec import Cluster

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


EDITS = {
    "core/resources.py": (
        "    env: Annotated[",
        "    switches: Annotated[str | None, Asked('network switches at most', 'S', CLUSTER,"
        " directive='switches', of_site=True)] = None\n",
    ),
    "core/engines/torch.py": (
        '    "seed": ',
        "    'linger_s': Setting('int', 3, 'seconds to linger', low=1),\n",
    ),
    "core/spec.py": (
        "    variables: dict[str, str] = {}",
        '    rack: str | None = None\n    """the rack that runs prefer"""\n',
    ),
    "diagnose/why/problems.toml": (
        "# before the program began",
        "[[problem]]\nid = 'on-fire'\nsigns.slurm-log = 'lp0 on fire'\ncause = 'it burns'\n"
        "remedy = 'water'\nexample.slurm-log = 'node1: lp0 on fire'\n\n",
    ),
}
"""Files of the package, each with what is written into it, and before which line."""

PROFILE = "scheduler = 'slurm'\nlauncher = 'srun'\nrack = 'r1'\nneeds = ['switches']\n"
SHOW = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import click, reference
from click.testing import CliRunner
from rampup.cli import app
from rampup.cli.options import complete_words
from rampup.config import clusters
from rampup.config.resolve import Request, resolve
from rampup.diagnose.why.clues import Clue
from rampup.diagnose.why.explain import find_match, read_problems
from rampup.errors import Refused
from rampup.functions.launch import OPTIONS
from rampup.runs import resume
from rampup.schedulers.slurm.job_script import render

here = Path.cwd()

def plan(*settings, **options):
    request = Request(target="digits", settings=settings, options=options)
    return resolve(request, here, lambda name: clusters.read(here / "site.toml"))

def refuse(setting):
    try:
        return plan(setting).name
    except Refused as error:
        return error.message

def show_help(verb):
    return CliRunner().invoke(app.cli, [verb, "--help"]).output

spec = plan("linger_s=4", switches="2")
typed = click.Context(click.Command("run"))
typed.params["words"] = ("digits",)
print(json.dumps({
    "pages": reference.write_pages(),
    "help": {verb: show_help(verb) for verb in ("run", "sweep", "resume", "drill")},
    "completed": [item.value for item in complete_words(typed, None, "")],
    "read": [spec.resources.switches, spec.train["linger_s"], spec.cluster.rack],
    "refused": [refuse("linger_s=0"), refuse("lingers=4")],
    "script": render(spec, here / "20260101-000000-digits-abc234"),
    "of_a_site": "switches" in resume.OF_A_SITE,
    "of_a_launch": "switches" in OPTIONS,
    "cause": find_match([Clue("slurm-log", "lp0 on fire")], read_problems()).problem.cause,
}))
"""


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a rampup shows in which one of each is declared, and nothing else has changed."""
    folder = tmp_path_factory.mktemp("edited")
    package = Path(rampup.__file__).parent
    shutil.copytree(package, folder / "rampup", copy_function=os.symlink)
    for name, (line, more) in EDITS.items():
        text = (package / name).read_text()
        assert text.count(f"\n{line}") == 1, f"{name} has changed: choose another line"
        (folder / "rampup" / name).unlink()
        (folder / "rampup" / name).write_text(text.replace(f"\n{line}", f"\n{more}{line}"))
    (folder / "site.toml").write_text(PROFILE)
    places = {"PYTHONPATH": str(folder), "XDG_CONFIG_HOME": str(folder), "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", SHOW, str(ROOT / "tools")],
        cwd=folder,
        env={**os.environ, **places},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_resource_is_one_edit(edited: dict[str, Any]) -> None:
    """Its field is enough for files, words and options, --help, the page, the job script, and what
    another cluster does not get."""
    assert edited["read"][0] == "2"
    for text in edited["help"].values():
        assert "--switches S" in text and "Network switches at most." in text
    assert "| `switches` | network switches at most |" in edited["pages"]["settings.md"]
    assert "--switches S" in edited["pages"]["cli.md"]
    assert "#SBATCH --switches=2\n" in edited["script"]
    assert edited["of_a_site"] and edited["of_a_launch"]


def test_a_setting_of_an_engine_is_one_edit(edited: dict[str, Any]) -> None:
    assert edited["read"][1] == 4
    assert "linger_s=" in edited["completed"]
    small, unknown = edited["refused"]
    assert "train.linger_s = 0" in small and "too small" in small
    assert "unknown setting train.lingers" in unknown
    row = "| `linger_s` | seconds to linger | a whole number, at least 1 | `3` |"
    assert row in edited["pages"]["settings.md"]


def test_a_profile_key_is_one_edit(edited: dict[str, Any]) -> None:
    assert edited["read"][2] == "r1"
    assert "| `rack` | the rack that runs prefer |" in edited["pages"]["profile-keys.md"]


def test_a_problem_is_one_row(edited: dict[str, Any]) -> None:
    assert edited["cause"] == "it burns"
    row = "| `on-fire` | it burns | water | slurm-log: `node1: lp0 on fire` |"
    assert row in edited["pages"]["problems.md"]
