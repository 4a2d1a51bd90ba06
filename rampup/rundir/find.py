"""Where runs live, and which run a user means by what was typed.

Every command that takes a run calls `find`. It reads directory names only, so it is quick with
thousands of runs. The roots that a user has used are remembered, so that `list` works from any
directory. Nothing here looks into a run beyond run.json.
"""

import os
from calendar import timegm
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rampup.core import paths
from rampup.core.spec import Cluster
from rampup.errors import RunNotFound, UsageError
from rampup.rundir.files import RunDir

LETTERS = "abcdefghjkmnpqrstuvwxyz"
ID_LENGTH = 6
STAMP = len("20260131-235959")


def new_run_id() -> str:
    """Return six characters, the first a letter: never mistaken for a job number."""
    import random  # slow to import, and only new runs need one

    chance = random.SystemRandom()
    return chance.choice(LETTERS) + "".join(chance.choices(LETTERS + "23456789", k=ID_LENGTH - 1))


def default_root(cluster: Cluster | None = None) -> Path:
    asked = os.environ.get("RAMPUP_RUNS") or (cluster.runs_root if cluster else None) or "runs"
    return Path(asked).expanduser().absolute()


def roots_file() -> Path:
    return paths.state_home() / "rampup" / "roots"


def remembered_roots() -> list[Path]:
    try:
        lines = roots_file().read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [Path(line) for line in lines if line]


def remember_root(root: Path) -> None:
    if root not in remembered_roots():
        roots_file().parent.mkdir(parents=True, exist_ok=True)
        with open(roots_file(), "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{root}\n")


def known_roots() -> list[Path]:
    """Return the default root, then the remembered ones that still exist."""
    found = [default_root(), *remembered_roots()]
    return [root for root in dict.fromkeys(found) if root.is_dir()]


def all_runs() -> list[RunDir]:
    """Return every run that can be found, the newest first."""
    found: list[tuple[str, Path]] = []
    for root in known_roots():
        try:
            names = os.listdir(root)
        except OSError:  # a remembered root that can't be read any more
            continue
        found.extend((name, root) for name in names if is_run_name(name))
    return [RunDir(root / name) for name, root in sorted(found, key=_age_key(found), reverse=True)]


def _age_key(found: list[tuple[str, Path]]) -> Callable[[tuple[str, Path]], tuple[str, float]]:
    """Return the sort key: a name gives the second; among runs of one second, run.json decides."""
    seconds = Counter(name[:STAMP] for name, _ in found)

    def key(row: tuple[str, Path]) -> tuple[str, float]:
        name, root = row
        alone = seconds[name[:STAMP]] == 1
        return name[:STAMP], 0.0 if alone else float(RunDir(root / name).run.get("created", 0.0))

    return key


def is_run_name(name: str) -> bool:
    """Return whether a name has the form <date>-<time>-<name>-<id>."""
    return name.count("-") >= 3 and name[:8].isdigit() and len(name.rpartition("-")[2]) == ID_LENGTH


def parse_run_name(run: RunDir) -> tuple[str, float | None]:
    """Return the name of a run and when it was made, to the second, without opening a file."""
    name = run.path.name
    stamp, words = name[:STAMP], name[STAMP + 1 : -ID_LENGTH - 1]
    try:
        date = [
            int(stamp[low:high])
            for low, high in ((0, 4), (4, 6), (6, 8), (9, 11), (11, 13), (13, 15))
        ]
        return words, float(timegm(tuple(date)))
    except ValueError:  # a directory that somebody has named
        return words, None


def find(wanted: str | None) -> RunDir:
    """Return the run with that id, unique prefix of an id, directory name or path; the latest one
    for None."""
    if wanted is None:
        return latest()
    if "/" in wanted or wanted in (".", ".."):
        return open_run(Path(wanted).absolute())
    runs = all_runs()
    found = [run for run in runs if run.id.startswith(wanted) or run.path.name == wanted]
    exact = [run for run in found if run.id == wanted or run.path.name == wanted]
    if len(found) == 1 or len(exact) == 1:
        return (exact or found)[0]
    if found:
        ids = ", ".join(run.id for run in found[:8])
        raise UsageError(f"{wanted!r} fits {len(found)} runs: {ids}", "give more letters of the id")
    if Path(wanted).is_dir():
        return open_run(Path(wanted).absolute())
    raise RunNotFound(f"no run {wanted!r}", "rampup list shows the runs")


def open_run(path: Path) -> RunDir:
    """Return the run at a path that a user gave."""
    run = RunDir(path)
    if not run.run_file.is_file():
        raise RunNotFound(f"no run in {path}: it has no run.json", "rampup list shows the runs")
    return run


def find_to_read(wanted: str | None) -> RunDir:
    """Like `find`, but take also a directory whose run.json is lost, for commands that only show
    what is left. Commands that change a run call `find`."""
    try:
        return find(wanted)
    except RunNotFound:
        run = RunDir(Path(wanted or "").absolute())
        if wanted is not None and (run.attempt_numbers() or run.config_file.exists()):
            return run
        raise


def latest() -> RunDir:
    runs = all_runs()
    if not runs:
        raise RunNotFound("there are no runs yet", "rampup run digits")
    return runs[0]
