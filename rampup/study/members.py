"""A study: runs that belong together, by a name within a directory of runs. Which are there, how
they are, and what is to be done with each point. Called by `sweep`, and by the verbs that take
--study.

A run says itself, in run.json, to which study it belongs and which point of it it is. Nothing else
is stored.
"""

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rampup.core.redact import redact
from rampup.core.spec import RunSpec
from rampup.diagnose.preflight import accept_alike
from rampup.errors import Refused, UsageError, nearest
from rampup.rundir import claims
from rampup.rundir import find as runs
from rampup.rundir.files import RunDir, hidden_directory
from rampup.runs import resume
from rampup.runs.create import making_run, plan_new_run
from rampup.runs.state import State, observe, states_of
from rampup.study.code import SharedCode
from rampup.study.grid import Point

Todo = Literal["done", "running", "again", "new"]


class Study(Struct, frozen=True):
    """Its name, and the directory of runs in which the name means something."""

    name: str
    root: Path

    @property
    def folder(self) -> Path:
        """Scripts of jobs that serve several runs."""
        return self.root / "studies" / self.name

    @property
    def points(self) -> Path:
        """Which run has which point: links that are made once."""
        return self.folder / "points"

    @property
    def mark(self) -> Path:
        """Held by the process that starts runs of this study."""
        return self.folder / ".sweeping"

    @property
    def report_file(self) -> Path:
        return self.folder / "report.html"

    def runs(self) -> list[RunDir]:
        """The newest first."""
        try:
            names = os.listdir(self.root)
        except OSError:
            return []
        fitting = [RunDir(self.root / name) for name in names if runs.is_run_name(name)]
        said = [(run, run.run) for run in fitting if runs.parse_run_name(run)[0] == self.name]
        mine = [
            (about.get("created", 0.0), run.path, run)
            for run, about in said
            if about.get("study") == self.name
        ]
        return [run for _, _, run in sorted(mine, reverse=True, key=lambda it: it[:2])]


class Member(Struct, frozen=True):
    """A point of a study with its run, if it has one."""

    point: Point
    known: "Known | None" = None

    @property
    def run(self) -> RunDir | None:
        return self.known.run if self.known else None

    @property
    def todo(self) -> Todo:
        if self.known is None:
            return "new"
        if self.known.state.name == "completed":
            return "done"
        return "again" if self.known.state.ended else "running"


class Known(NamedTuple):
    """A run that is there, and how it is."""

    run: RunDir
    state: State


def members_of(study: Study, points: Sequence[Point]) -> list[Member]:
    """The points, each with the newest run of it."""
    found: dict[str, RunDir] = {}
    for run in study.runs():
        found.setdefault(run.run.get("point_id", ""), run)
    states = states_of([observe(run) for run in found.values()], fresh_s=0.0)
    there = {point_id: Known(run, states[run.path]) for point_id, run in found.items()}
    return [Member(point, there.get(point.id)) for point in points]


def counts(members: Iterable[Member]) -> dict[Todo, int]:
    return dict(Counter(member.todo for member in members))


# making and making again --------------------------------------------------------------------------


class Ids:
    """New ids that no run of the directory has: with thousands of them chance alone is not
    enough."""

    def __init__(self, root: Path) -> None:
        names = os.listdir(root) if root.is_dir() else []
        self.used = {name.rpartition("-")[2] for name in names}

    def new(self) -> str:
        while (made := runs.new_run_id()) in self.used:
            continue
        self.used.add(made)
        return made


def make(study: Study, point: Point, run_id: str, code: SharedCode) -> RunDir:
    about = {"study": study.name, "point": redact(point.values), "point_id": point.id}
    checked = accept_alike(plan_new_run(point.spec, study.root, run_id))
    with making_run(checked, code.take, about) as making:
        claim_point(study, point, making.run)
    return making.run


def claim_point(study: Study, point: Point, run: RunDir) -> None:
    """Claim a point for a run that nobody sees yet, by a link that only one process can make. The
    claim of a run that is gone, or was never finished, does not count."""
    study.points.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        link = study.points / f"{point.id}.{number}"
        try:
            link.symlink_to(os.path.relpath(run.path, study.points))
            return
        except FileExistsError:
            if is_claimed(study.root / os.path.basename(os.readlink(link))):
                raise Refused(
                    f"the study {study.name} is being started by another process",
                    "wait until it is done, then the same sweep",
                ) from None


def is_claimed(other: Path) -> bool:
    """Return whether a run is being made, or exists. In this order: it may be finished between the
    two looks."""
    hidden = RunDir(hidden_directory(other))
    return claims.is_being_started(hidden) or other.exists()


def rebuild_spec(run: RunDir, spec: RunSpec) -> RunSpec:
    """What the run was, with the resources, the place and the code of today."""
    before = resume.rebuild_spec(run, None, {}, ())
    return replace(
        before, resources=spec.resources, cluster=spec.cluster, checkpoint=spec.checkpoint
    )


# --study ------------------------------------------------------------------------------------------


def find(name: str) -> Study:
    """The study of that name: of the directory of runs that is used here, or the only one that
    there is."""
    found = [study for root in runs.known_roots() if (study := Study(name, root)).runs()]
    if not found:
        raise Refused(f"there is no study {name!r}", nearest(name, names()))
    here = [study for study in found if study.root == runs.default_root()]
    if len(found) > 1 and not here:
        places = ", ".join(str(study.root) for study in found)
        raise UsageError(
            f"there are {len(found)} studies {name!r}, in {places}", f"RAMPUP_RUNS={found[0].root}"
        )
    return (here or found)[0]


def names() -> list[str]:
    """All studies that there are, by what the runs say."""
    found = {str(study) for run in runs.all_runs() if (study := run.run.get("study"))}
    return sorted(found)
