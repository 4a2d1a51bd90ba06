"""What every exporter gets: one run as its directory tells it, all attempts as one story. Reads,
never writes."""

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from rampup.rundir import find as runs
from rampup.rundir import schema as shapes
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.runs.state import state_of


class Source(Struct):
    run: RunDir
    id: str
    """As in run.json, for a directory may be renamed; without signs that trackers do not take."""
    name: str
    state: str
    created: float
    """Seconds since 1970, like `ended`."""
    ended: float | None
    settings: Record
    """[train] as it was resolved."""
    rows: list[Record]

    @property
    def finished(self) -> bool:
        return self.state not in ("running", "pending")


class Target(Struct):
    """Where to, as the user said it."""

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


def read(run: RunDir) -> Source:
    identity, attempt = run.run, run.last_attempt()
    created = seconds(identity.get("created"))
    settings = run.config.get("train", {})
    return Source(
        run=run,
        id=plain(str(identity.get("id") or id_by_name(run))),
        name=str(identity.get("name") or run.path.name),
        state=state_of(run).name,
        created=created or run.path.stat().st_mtime,
        ended=seconds(attempt.facts.get("ended")) if attempt else None,
        settings=settings if isinstance(settings, dict) else {},
        rows=run.history(),
    )


def id_by_name(run: RunDir) -> str:
    """Where run.json is lost. A directory that somebody has named has no id in its name: the whole
    name tells more."""
    return run.path.name if runs.parse_run_name(run)[1] is None else run.id


def plain(words: str) -> str:
    """For ids and for names of folders: what is in run.json may be anything, `../..` too."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", words)


def seconds(value: Any) -> float | None:
    return float(value) if value and shapes.is_moment(value) else None
