"""The MLPerf log of a run: the events of all its attempts as one log.

Every attempt leaves its events in events.jsonl. An attempt that continues from a checkpoint takes
back what came after it, as with rows of metrics; the clock runs on, so the lost time stays in the
log. The job side writes the log of the newest attempt with it, `rampup export` writes it again.
"""

from collections.abc import Iterable, Sequence

from rampup.core.metrics import is_number
from rampup.core.mlperf import KINDS, format_line
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.rundir.schema import is_moment

EVENT = "mlperf"
"""How these events are called in events.jsonl."""
RUN_STOP = "run_stop"
ABORTED, SUCCESS = "aborted", "success"


def read_events(run: RunDir, before: int | None = None) -> list[Record]:
    """Return the events of all attempts, or of those before an attempt, as one log."""
    found: list[Record] = []
    for attempt in run.attempts():
        if before is not None and attempt.number >= before:
            break
        own = [row for row in attempt.events() if is_event(row)]
        if own:
            found = continue_log(found, attempt.resume_step(), own)
    return found


def continue_log(earlier: Iterable[Record], step: int, own: Sequence[Record]) -> list[Record]:
    """Return the events up to a step, followed by those of the attempt that continued there."""
    found = [row for row in earlier if row["step"] <= step and row["key"] != RUN_STOP]
    begun = {epoch_of(row) for row in found if row["key"] == "epoch_start"}
    for row in own:
        if row["key"] == "epoch_start" and epoch_of(row) in begun:
            continue  # it was interrupted, and began when it began first
        found.append(row)
    return found


def epoch_of(row: Record) -> object:
    return (row.get("metadata") or {}).get("epoch_num")


def is_event(row: Record) -> bool:
    """Return whether a record is a whole event of the log; a damaged one is left out."""
    if row.get("what") != EVENT or row.get("kind") not in KINDS:
        return False
    has_place = is_moment(row.get("t")) and is_number(row.get("step"))
    return has_place and isinstance(row.get("key"), str)


def is_complete(events: Iterable[Record]) -> bool:
    return any(row["key"] == RUN_STOP for row in events)


def make_abort(events: Sequence[Record], t: float) -> Record:
    """Return the end of a run that did not record one."""
    last = events[-1]
    metadata = {"status": ABORTED, "step_num": last["step"]}
    return {
        "what": EVENT,
        "t": max(t, last["t"]),
        "kind": "end",
        "key": RUN_STOP,
        "step": last["step"],
        "metadata": metadata,
    }


def write_log(events: Iterable[Record]) -> str:
    return "".join(f"{format_line(row)}\n" for row in events)
