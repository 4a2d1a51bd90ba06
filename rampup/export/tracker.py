"""What every tracker gets and answers: a run as a `Source` with the rows of all its attempts, the
`Target`, and `Sent`; and the protocol `Tracker` itself.

A tracker is a module of this folder that fulfils the protocol; `rampup export` loads it by its
name. The runs are only read.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from rampup.rundir import find, schema
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.runs.state import state_of


class Source(Struct):
    """One run to export, as its directory describes it."""

    run: RunDir
    id: str
    """As in run.json, for a directory may be renamed; without characters that trackers refuse."""
    name: str
    state: str
    created: float
    """Seconds since 1970, like `ended`."""
    ended: float | None
    settings: Record
    """[train] as it was resolved, with what the user's own loop recorded."""
    rows: list[Record]

    @property
    def finished(self) -> bool:
        return self.state not in ("running", "pending")


class Target(Struct):
    """Where to export, as the user gave it."""

    out: Path | None = None
    tracking_uri: str | None = None
    project: str | None = None


class Sent(Struct):
    """What became of one run."""

    id: str
    where: str
    rows: int
    """Metric rows that the run has."""
    written: int
    """Of its points, those that were not there yet."""
    created: bool
    """Whether the tracker did not know the run before."""
    note: str = ""


class Tracker(Protocol):
    """What a module of this folder has: three functions, and what they need."""

    PACKAGES: tuple[str, ...]
    """Packages that must be installed."""
    OPTIONS: tuple[str, ...]
    """The fields of `Target` that mean something to it."""
    CHANGED: str
    """What is said of a run that it had already and that has changed; empty to say nothing of
    single runs."""

    @staticmethod
    def destination(target: Target) -> str:
        """Return where the runs go, in words for the user."""

    @staticmethod
    def export(sources: Sequence[Source], target: Target) -> list[Sent]:
        """Export the runs. Repeating it adds nothing twice."""

    @staticmethod
    def next_command(where: str, sent: Sequence[Sent]) -> str:
        """Return what a user would do now."""


def read_source(run: RunDir) -> Source:
    identity, attempt = run.run, run.last_attempt()
    created = parse_time(identity.get("created"))
    settings = run.used_config.get("train", {})
    return Source(
        run=run,
        id=safe_name(str(identity.get("id") or id_from_name(run))),
        name=str(identity.get("name") or run.path.name),
        state=state_of(run).name,
        created=created or run.path.stat().st_mtime,
        ended=parse_time(attempt.facts.get("ended")) if attempt else None,
        settings=settings if isinstance(settings, dict) else {},
        rows=run.history(),
    )


def id_from_name(run: RunDir) -> str:
    """Return the id where run.json is lost. A directory that somebody has named has no id in its
    name: then it is the whole name."""
    return run.path.name if find.parse_run_name(run)[1] is None else run.id


def safe_name(words: str) -> str:
    """Make an id or the name of a folder safe: run.json may hold anything, `../..` too."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", words)


def parse_time(value: Any) -> float | None:
    return float(value) if value and schema.is_moment(value) else None
