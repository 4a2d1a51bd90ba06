"""Where runs live, and which run a user means by what was typed.

Every command that takes a run calls `find`, or `find_to_read` if it only reads. An id is found by
the names of directories, so it is quick with thousands of runs; a job id is looked up in the
records of the runs. The roots that a user has used are remembered, so that `list` works from any
directory, except temporary ones. "Latest" is the newest run of this place.
"""

import os
import re
import time
from calendar import timegm
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from rampup.core import paths
from rampup.core.spec import Cluster
from rampup.errors import RunNotFound, UsageError
from rampup.rundir import opening
from rampup.rundir.files import RunDir

LETTERS = "abcdefghjkmnpqrstuvwxyz"
ID_LENGTH = 6
STAMP = len("20260131-235959")
JOB_ID = re.compile(r"[0-9]+(_[0-9]+)?")
"""A job, or a task of an array: a run id never looks like that."""
CLOCKS_DIFFER_S = 60.0
"""A run is dated in the future when it is further ahead than clocks of machines may be."""


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
    if root not in remembered_roots() and not is_temporary(root):
        roots_file().parent.mkdir(parents=True, exist_ok=True)
        with open(roots_file(), "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{root}\n")


def is_temporary(root: Path) -> bool:
    """Return whether a root lies in the folder for temporary files, as those of tests do."""
    return root.is_relative_to(os.environ.get("TMPDIR") or "/tmp")


def known_roots() -> list[Path]:
    """Return the default root, then the remembered ones that still exist."""
    kept = [root for root in remembered_roots() if not is_temporary(root)]
    found = [default_root(), *kept]
    return [root for root in dict.fromkeys(found) if os.path.isdir(root)]


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
    """Return the run with that id, unique prefix of an id, directory name, path, job id or unique
    name; the latest one for None."""
    if wanted is None:
        return latest()
    if "/" in wanted or wanted in (".", ".."):
        return open_run(Path(wanted).absolute())
    runs = all_runs()
    found = [run for run in runs if run.id.startswith(wanted) or run.path.name == wanted]
    exact = [run for run in found if run.id == wanted or run.path.name == wanted]
    if len(exact) == 1:
        return exact[0]
    found = found or find_by_job(wanted, runs) or find_by_name(wanted, runs)
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(run.id for run in found[:8])
        hint = "give the id, or more letters of it"
        if parse_run_name(found[0])[0] == wanted:
            hint = f"give the id of one; rampup list {wanted} shows them"
        raise UsageError(f"{wanted!r} fits {len(found)} runs: {ids}", hint)
    if os.path.isdir(wanted):
        return open_run(Path(wanted).absolute())
    raise RunNotFound(f"no run {wanted!r}", "rampup list shows the runs")


def find_by_job(wanted: str, runs: Iterable[RunDir]) -> list[RunDir]:
    """Return the runs that were given to a job, or to a task of that array."""
    if not JOB_ID.fullmatch(wanted):
        return []
    return [run for run in runs if any(fits_job(job, wanted) for job in run.jobs())]


def fits_job(job: str, wanted: str) -> bool:
    return job == wanted or job.startswith(f"{wanted}_")


def find_by_name(wanted: str, runs: Iterable[RunDir]) -> list[RunDir]:
    return [run for run in runs if parse_run_name(run)[0] == wanted]


def open_run(path: Path) -> RunDir:
    """Return the run at a path that a user gave."""
    run = RunDir(path)
    if not opening.is_file(run.run_file) and not is_closed(run):
        raise RunNotFound(f"no run in {path}: it has no run.json", "rampup list shows the runs")
    return run


def is_closed(run: RunDir) -> bool:
    """Return whether there is a directory with the name of a run, into which we may not look."""
    return is_run_name(run.path.name) and run.path.is_dir() and not os.access(run.path, os.X_OK)


def find_to_read(wanted: str | None) -> RunDir:
    """Like `find`, for commands that only show what is there: take also the newest run of a name or
    of a job, and a directory whose run.json is lost. Commands that change a run call `find`."""
    try:
        return find(wanted)
    except UsageError:
        newest = find_by_job(wanted or "", all_runs()) or find_by_name(wanted or "", all_runs())
        here = [run for run in newest if run.path.parent == default_root()]
        if newest:
            return (here or newest)[0]
        raise
    except RunNotFound:
        run = RunDir(Path(wanted or "").absolute())
        if wanted is not None and (run.attempt_numbers() or opening.is_file(run.config_file)):
            return run
        raise


def latest() -> RunDir:
    """Return the newest run of this directory's runs folder, or of RAMPUP_RUNS; without RAMPUP_RUNS
    also one that was started from this directory and lives elsewhere. One that is dated in the
    future is left out."""
    here, ahead = Path.cwd(), time.time() + CLOCKS_DIFFER_S
    for run in all_runs():
        created = parse_run_name(run)[1]
        if (created is None or created <= ahead) and belongs_here(run, here):
            return run
    hint = "rampup list shows the runs of other places" if all_runs() else "rampup run digits"
    raise RunNotFound(f"there are no runs yet in {default_root()}", hint)


def belongs_here(run: RunDir, here: Path) -> bool:
    if run.path.parent == default_root():
        return True
    return not os.environ.get("RAMPUP_RUNS") and run.config.get("cwd") == str(here)
