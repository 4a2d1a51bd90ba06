"""The house keeps its shape: which room may import which, what the command line must not load,
what rank.py may use."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rampup

PACKAGE = Path(rampup.__file__).parent
ROOT = Path(__file__).parents[3]
HEAVY = (
    *("torch", "tensorflow", "numpy", "rich", "altair", "sklearn", "lightning"),
    *("mlflow", "wandb", "tensorboard"),
)

SHARED = {
    "errors": (),
    "rank": (),
    "contact": (),
    "after": (),
    "core": ("errors",),
    "datasets": ("core",),
    "rundir": ("core", "after"),
}
CONTROL = {
    "config": ("rundir",),
    "launchers": ("rundir",),
    "schedulers": ("launchers", "config", "datasets"),
    "runs": ("schedulers", "rank", "contact"),
    "diagnose": ("runs",),
    "study": ("diagnose",),
    "report": ("diagnose",),
    "export": ("diagnose",),
    "sandbox": ("config",),
    "drill": ("diagnose", "sandbox"),
    "cli": ("study", "drill", "report", "export"),
    "functions": ("cli",),
    "__main__": ("cli",),
}
JOB = {
    "runtime": ("rundir", "rank"),
    "data": ("datasets",),
    "engines": ("runtime", "data"),
    "worker": ("engines",),
}
ALLOWED = SHARED | CONTROL | JOB
"""Each room with the rooms below it: it may import those, and what they may import. The same list
is drawn in docs/about/architecture.md."""
PUBLIC = {
    "__init__": ("runtime", "functions", "errors", "torch", "keras", "recipe"),
    "torch": ("engines",),
    "keras": ("engines",),
    "recipe": ("datasets",),
}
"""The public modules, with the rooms that they export from."""
FRAMEWORK_ROOMS = (
    "engines",
    "recipes",
    "data/memory.py",
    "data/augment.py",
    "templates/",
    "torch.py",
)


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports, and the names that it takes from them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module} | {f"{node.module}.{alias.name}" for alias in node.names})
    return found


def rooms_of(path: Path) -> set[str]:
    """The rooms that a file imports from; the package itself is `__init__`."""
    found = set()
    for name in imports_of(path):
        first, _, rest = name.partition(".")
        room = rest.partition(".")[0]
        if first == "rampup" and room and _is_module(room):
            found.add(room)
    return found


def _is_module(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def below(room: str) -> set[str]:
    """All rooms that a room may import from."""
    found = {room}
    for lower in (ALLOWED | PUBLIC).get(room, ()):
        found |= below(lower)
    return found


def sources() -> Iterator[tuple[str, Path]]:
    """Every file of the package with its room; templates are a user's own programs."""
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room != "templates":
            yield room, path


def test_every_room_imports_only_what_lies_below_it() -> None:
    wrong = set()
    for room, path in sources():
        allowed = {"recipes", *PUBLIC} if room == "recipes" else below(room)
        wrong |= {(room, other) for other in rooms_of(path) - allowed}
    assert wrong == set()


def test_no_import_is_relative() -> None:
    """The rule above reads whole names: it would not see `from ..engines import base`."""
    relative = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for _, path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_every_room_is_on_the_list() -> None:
    rooms = {room for room, _ in sources()}
    assert rooms - {"recipes"} == set(ALLOWED) | {name for name in PUBLIC if _is_module(name)}


def test_unit_tests_lie_in_the_rooms_of_what_they_test() -> None:
    folders = {path.name for path in (ROOT / "tests" / "unit").iterdir() if path.is_dir()}
    rooms = {room for room, path in sources() if path.parent != PACKAGE}
    assert folders - {"house", "__pycache__"} <= rooms


def test_the_page_shows_the_list() -> None:
    rooms = {"shared": SHARED, "control": CONTROL, "job": JOB}
    lines = []
    for half, allowed in rooms.items():
        lines.append(half)
        lines += [f"  {room:14}{' '.join(lower)}".rstrip() for room, lower in allowed.items()]
    page = (ROOT / "docs" / "about" / "architecture.md").read_text()
    shown = page.partition("<!-- allowed")[2].partition("```text\n")[2].partition("```")[0]
    assert shown == "\n".join(lines) + "\n"
    described = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert {*ALLOWED, "recipes"} - described == set(), "each has a line in the table of rooms"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/about/architecture.md"])
def test_pages_for_contributors_name_what_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:rampup|tests|tools|docs|\.ci)/[\w./-]+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_control_and_job_meet_only_in_the_shared_rooms() -> None:
    for room in CONTROL:
        assert not below(room) & set(JOB)
    for room in JOB:
        assert not below(room) & set(CONTROL)


def test_frameworks_stay_in_their_rooms() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        if not name.startswith(FRAMEWORK_ROOMS):
            frameworks = ("torch", "tensorflow", "lightning")
            wrong += [(name, it) for it in imports_of(path) if it.split(".")[0] in frameworks]
    assert wrong == []


@pytest.mark.parametrize(
    ("verb", "heavy"),
    [
        # what reads the files of runs, what cuts wide letters, and what only mistakes need
        ("--help", (*HEAVY, "msgspec", "hashlib", "unicodedata", "rampup.cli.guesses")),
        ("list", (*HEAVY, "hashlib")),
        *((verb, HEAVY) for verb in ("recipe list", "run mnist --dry-run", "show")),
    ],
)
def test_the_command_line_is_light(
    verb: str, heavy: tuple[str, ...], tmp_path: Path, mnist: Path
) -> None:
    code = (
        "import sys; sys.argv = ['rampup', *sys.argv[1:]]\n"
        "import rampup.cli.app as app\n"
        "try: app.main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
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


@pytest.mark.parametrize("program", ["rank.py", "contact.py", "after.py"])
def test_rank_runs_on_an_old_python_without_rampup(program: str) -> None:
    source = (PACKAGE / program).read_text()
    ast.parse(source, feature_version=(3, 6))
    assert all(
        name.split(".")[0] in sys.stdlib_module_names for name in imports_of(PACKAGE / program)
    )


def test_files_stay_small() -> None:
    long = {
        str(path.relative_to(PACKAGE)): count
        for path in PACKAGE.rglob("*.py")
        # one file, to copy, with all that a program under Slurm has of us
        if (count := len(path.read_text().splitlines())) > (900 if path.name == "rank.py" else 470)
    }
    assert long == {}


def test_programs_that_are_to_run_unchanged_know_nothing_of_rampup() -> None:
    programs = list((Path(__file__).parents[2] / "foreign").glob("*.py"))
    assert programs and not [
        path.name for path in programs if any("rampup" in it for it in imports_of(path))
    ]


NAMES = {
    *("local", "slurm", "spark"),
    *("spawn", "srun", "pmix", "mpirun", "torchrun", "barrier"),
    *("torch", "lightning", "keras"),
}
OWN_ROOMS = ("schedulers", "launchers", "engines", "core/engines")


def compared_names(path: Path) -> Iterator[str]:
    """Names of schedulers, launchers and engines that a file compares something with."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                for part in ast.walk(side):
                    if isinstance(part, ast.Constant) and part.value in NAMES:
                        yield f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}"


def test_nobody_asks_for_the_name_of_a_scheduler_launcher_or_engine() -> None:
    """They are objects with facts and methods: docs/about/architecture.md."""
    found = [
        line
        for _, path in sources()
        if not str(path.relative_to(PACKAGE)).startswith(OWN_ROOMS)
        for line in compared_names(path)
    ]
    assert found == []
