"""The house keeps its shape: who may import whom, what the control side must not load, what rank.py
may use."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rampup

PACKAGE = Path(rampup.__file__).parent
HEAVY = (
    "torch",
    "tensorflow",
    "numpy",
    "rich",
    "altair",
    "sklearn",
    "lightning",
    "mlflow",
    "wandb",
    "tensorboard",
)
FORBIDDEN = {
    # who: whom it must not import
    "errors": ("rampup",),
    "spec": ("rampup",),
    "rundir": (
        "rampup.cli",
        "rampup.config.resolve",
        "rampup.launchers",
        "rampup.schedulers",
        "rampup.engines",
        "rampup.runtime",
    ),
    "runtime": (
        "rampup.cli",
        "rampup.config.resolve",
        "rampup.launchers",
        "rampup.schedulers",
        "rampup.engines",
        "rampup.runs.plan",
    ),
    "launchers": (
        "rampup.cli",
        "rampup.config.resolve",
        "rampup.schedulers",
        "rampup.engines",
        "rampup.runs.plan",
    ),
    "schedulers": (
        "rampup.cli",
        "rampup.config.resolve",
        "rampup.launchers",
        "rampup.engines",
        "rampup.runtime",
    ),
    "engines": (
        "rampup.cli",
        "rampup.config.resolve",
        "rampup.launchers",
        "rampup.schedulers",
        "rampup.runs.plan",
    ),
    "": ("rampup.cli",),
}
FRAMEWORK_ROOMS = ("engines", "recipes", "data/memory.py", "data/augment.py", "templates/")


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module} | {f"{node.module}.{alias.name}" for alias in node.names})
    return found


def test_imports_point_one_way() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE)).removesuffix(".py")
        if name.startswith("cli/") or name == "__main__":
            continue
        rooms = [
            room for room in FORBIDDEN if name == room or name.startswith(f"{room}/") or room == ""
        ]
        for room in rooms:
            wrong += [(name, it) for it in imports_of(path) if it.startswith(FORBIDDEN[room])]
    assert wrong == []


def test_frameworks_stay_in_their_rooms() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        if not name.startswith(FRAMEWORK_ROOMS):
            wrong += [
                (name, it)
                for it in imports_of(path)
                if it.split(".")[0] in ("torch", "tensorflow", "lightning")
            ]
    assert wrong == []


@pytest.mark.parametrize("verb", ["--help", "list", "recipe list", "run mnist --dry-run", "show"])
def test_the_command_line_is_light(verb: str, tmp_path: Path, mnist: Path) -> None:
    code = (
        "import sys; sys.argv = ['rampup', *sys.argv[1:]]\n"
        "import rampup.cli.app as app\n"
        "try: app.main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(Path.home()),
        "RAMPUP_RUNS": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *verb.split()], env=env, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr


def test_rank_runs_on_an_old_python_without_rampup() -> None:
    source = (PACKAGE / "rank.py").read_text()
    ast.parse(source, feature_version=(3, 6))
    assert all(
        name.split(".")[0] in sys.stdlib_module_names for name in imports_of(PACKAGE / "rank.py")
    )


def test_files_stay_small() -> None:
    long = {
        str(path.relative_to(PACKAGE)): count
        for path in PACKAGE.rglob("*.py")
        # one file, to copy
        if (count := len(path.read_text().splitlines())) > (450 if path.name == "rank.py" else 400)
    }
    assert long == {}


def test_programs_that_are_to_run_unchanged_know_nothing_of_rampup() -> None:
    programs = list((Path(__file__).parents[1] / "foreign").glob("*.py"))
    assert programs and not [
        path.name for path in programs if any("rampup" in it for it in imports_of(path))
    ]
