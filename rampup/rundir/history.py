"""The attempts of a run as one history: where each began, how far it got, which steps were
redone, and what that cost.

`show`, `list`, the report and the drill read it. A run that was never interrupted has one attempt,
and nothing of it is lost. What stood in a torn or missing file is unknown: None, or 0 steps. It
writes nothing.
"""

from msgspec import Struct
from msgspec.structs import replace

from rampup.core.metrics import is_number
from rampup.rundir import schema
from rampup.rundir.attempt import TAIL_BYTES
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record, read_json, read_jsonl

KILLED_OR_LOST = "killed or lost"
"""How an attempt ended whose launcher could not record it: it was killed, or its machine was lost.
Or it is still running."""
REASONS = {
    "timeout": "time limit",
    "again: timeout": "time limit",
    "again: preempt": "preemption",
    "again: requeued": "requeued by Slurm",
    "again: asked": "it requested a restart",
    "cancelled": "cancelled",
    "stopped": "stopped by Slurm",
    KILLED_OR_LOST: "killed or lost",
}


class Attempt(Struct, frozen=True):
    number: int
    began: float
    """0.0 when it is unknown."""
    ended: float | None
    how: str
    """completed, failed, cancelled, timeout, stopped; `again: timeout` when the launcher started
    the run again."""
    first_step: int
    """The step of the checkpoint from which it resumed; 0 when it began anew."""
    last_step: int
    """The furthest step that it is known to have reached."""
    exact: bool | None
    """Whether it resumed bit for bit; None when it began anew, or does not say."""
    trained: bool = True
    """Whether it began to train: one that ended before has first and last step 0, and nothing is
    redone."""
    trained_from: float | None = None
    """When its first step began."""
    heard: float | None = None
    """When its rank 0 last wrote something."""
    step_s: float = 0.0
    """The time of one step, on average."""
    cause: str = ""
    redone: int = 0
    """Steps at its end that a later attempt had to do again."""
    lost_s: float = 0.0
    """The time that those steps had taken."""

    @property
    def took_s(self) -> float | None:
        """The time to its end, or to its last sign of life where the end was not recorded."""
        end = self.ended or self.heard
        return max(0.0, end - self.began) if end and self.began else None

    @property
    def reason(self) -> str:
        """Why it ended, in a few words: for the mark where the next one resumed."""
        if self.how == "failed" and self.cause:
            return self.cause
        return REASONS.get(self.how, self.how)


def read_attempts(run: RunDir, is_running: bool = False) -> list[Attempt]:
    """Return all attempts of a run, the oldest first. A caller that knows the run to be running says
    so: then its last attempt has not ended."""
    found: list[Attempt] = []
    later: list[int] = []  # the steps where later attempts resumed, the next one's last
    for attempt in reversed([read_attempt(directory) for directory in run.attempts()]):
        if attempt.trained and later:
            reached = max(attempt.last_step, later[-1])  # it has saved that one
            # any of them may have gone back further
            redone = reached - max(attempt.first_step, min(later))
            attempt = replace(
                attempt, last_step=reached, redone=redone, lost_s=attempt.step_s * redone
            )
        if attempt.trained:
            later.append(attempt.first_step)
        found.append(attempt)
    if is_running and found and found[0].how == KILLED_OR_LOST:
        found[0] = replace(found[0], how="running")
    return found[::-1]


def read_attempt(attempt: AttemptDir) -> Attempt:
    facts, events = attempt.facts, attempt.events()
    resumed = find_last_event(events, "resumed") if attempt.number > 1 else None
    rows = read_jsonl(attempt.metrics_file, TAIL_BYTES)
    words = (*rows, read_json(attempt.progress_file), find_last_event(events, "stopped") or {})
    known = [
        (int(step), get_moment(row, "t") or 0.0)
        for row in words
        if (step := get_number(row, "step")) is not None
    ]
    first = max(0, int(resumed.get("step", 0))) if resumed else 0
    furthest = max(known, default=(0, 0.0))
    times = [t for row in (*words, *events[-1:]) if (t := get_moment(row, "t")) is not None]
    start = get_moment(resumed or find_last_event(events, "start") or read_first_row(attempt), "t")
    exact = resumed.get("exact") if resumed else None
    return Attempt(
        number=attempt.number,
        began=get_moment(facts, "started") or min(times, default=0.0),
        ended=get_moment(facts, "ended"),
        how=describe_ending(facts),
        first_step=first,
        last_step=max(first, furthest[0]),
        exact=exact if isinstance(exact, bool) else None,
        trained=attempt.number == 1 or resumed is not None or bool(known),
        trained_from=start,
        heard=max(times, default=None),
        step_s=seconds_per_step(furthest[0] - first, start, furthest[1]),
        cause=str(facts.get("cause") or ""),
    )


def find_last_event(events: list[Record], what: str) -> Record | None:
    return next((row for row in reversed(events) if row.get("what") == what), None)


def read_first_row(attempt: AttemptDir) -> Record:
    """Return the first row of metrics. The user's own loop does not say when it starts; its first
    row comes soon after."""
    return next(iter(read_jsonl(attempt.metrics_file)), {})


def describe_ending(facts: Record) -> str:
    outcome = facts.get("outcome")
    if outcome == "again":
        return f"again: {facts.get('why') or 'asked'}"
    return str(outcome) if outcome else KILLED_OR_LOST


def get_number(row: Record, key: str) -> float | None:
    value = row.get(key)
    return value if is_number(value) else None


def get_moment(row: Record, key: str) -> float | None:
    value = row.get(key)
    return value if schema.is_moment(value) else None


def seconds_per_step(steps: int, start: float | None, t: float) -> float:
    """Return the seconds per step, from the start of training to the time `t`."""
    return max(0.0, t - start) / steps if steps > 0 and start is not None else 0.0


def attempt_duration_s(attempt: AttemptDir, facts: Record) -> float | None:
    """Return `took_s` for a caller that has read attempt.json already and looks at thousands of
    runs: mostly its facts are enough."""
    began, ended = get_moment(facts, "started"), get_moment(facts, "ended")
    if began is None or ended is None:
        return read_attempt(attempt).took_s
    return max(0.0, ended - began)


def effective_ratio(found: list[Attempt]) -> float | None:
    """Return the effective training time ratio: time spent on steps that count, over all time from
    the first start to the last sign of life. Time counts from an attempt's first step to its last
    sign of life, without the steps that were redone; starting up, work done twice and waiting
    between attempts do not count. None where no steps are recorded."""
    begins = [attempt.began for attempt in found if attempt.began]
    ends = [end for attempt in found if (end := attempt.ended or attempt.heard)]
    useful = sum(useful_s(attempt) for attempt in found)
    if not begins or not ends or useful <= 0 or max(ends) <= min(begins):
        return None
    return min(1.0, useful / (max(ends) - min(begins)))


def useful_s(attempt: Attempt) -> float:
    if (
        attempt.trained_from is None
        or attempt.heard is None
        or attempt.last_step <= attempt.first_step
    ):
        return 0.0
    return max(0.0, attempt.heard - attempt.trained_from - attempt.lost_s)
