"""The attempts of a run as one story: what each began with, how far it came, what of it was redone,
what that cost.

Read by `show`, `list`, the report and the drill. A run that was never interrupted has one attempt,
and nothing of it is lost. Files that are torn or missing cost what was in them: what nobody knows
is None, or 0 steps. It writes nothing.
"""

from msgspec import Struct
from msgspec.structs import replace

from rampup.core.metrics import is_number
from rampup.rundir import schema as shapes
from rampup.rundir.attempt import TAIL_BYTES
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record, read_json, read_jsonl

NO_WORD = "no word"
"""How an attempt ended whose launcher could not say it: it was killed, or its machine was lost. Or
it goes on."""
REASONS = {
    "timeout": "time limit",
    "again: timeout": "time limit",
    "again: preempt": "preemption",
    "again: requeued": "requeued by Slurm",
    "again: asked": "it asked to be started again",
    "cancelled": "cancelled",
    "stopped": "stopped by Slurm",
    NO_WORD: "killed without a word",
}


class Attempt(Struct, frozen=True):
    number: int
    began: float
    """0.0 when nobody knows."""
    ended: float | None
    how: str
    """completed, failed, cancelled, timeout, stopped; `again: timeout` when the launcher started
    the run again."""
    first_step: int
    """The step of the checkpoint that it went on from; 0 when it began anew."""
    last_step: int
    """The furthest step that it is known to have reached."""
    exact: bool | None
    """Whether it went on bit for bit; None when it began anew, or does not say."""
    trained: bool = True
    """Whether it came so far: one that ended before it took up has first and last step 0, and
    nothing is redone."""
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
        """To its end, or to its last word where nobody was left to write down the end."""
        end = self.ended or self.heard
        return max(0.0, end - self.began) if end and self.began else None

    @property
    def reason(self) -> str:
        """Why it ended, in a few words: for the mark where the next one took up."""
        return (self.how == "failed" and self.cause) or REASONS.get(self.how, self.how)


def attempts_of(run: RunDir) -> list[Attempt]:
    """The oldest first."""
    found: list[Attempt] = []
    later: list[int] = []  # the steps where later attempts took up, the next one's last
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
    return found[::-1]


def read_attempt(attempt: AttemptDir) -> Attempt:
    facts, events = attempt.facts, attempt.events()
    resumed = last_event(events, "resumed") if attempt.number > 1 else None
    rows = read_jsonl(attempt.metrics_file, TAIL_BYTES)
    words = (*rows, read_json(attempt.progress_file), last_event(events, "stopped") or {})
    known = [
        (int(step), moment_in(row, "t") or 0.0)
        for row in words
        if (step := number_in(row, "step")) is not None
    ]
    first, furthest = int(resumed.get("step", 0)) if resumed else 0, max(known, default=(0, 0.0))
    times = [t for row in (*words, *events[-1:]) if (t := moment_in(row, "t")) is not None]
    start = moment_in(resumed or last_event(events, "start") or first_row(attempt), "t")
    exact = resumed.get("exact") if resumed else None
    return Attempt(
        number=attempt.number,
        began=moment_in(facts, "started") or min(times, default=0.0),
        ended=moment_in(facts, "ended"),
        how=how_it_ended(facts),
        first_step=first,
        last_step=max(first, furthest[0]),
        exact=exact if isinstance(exact, bool) else None,
        trained=attempt.number == 1 or resumed is not None or bool(known),
        trained_from=start,
        heard=max(times, default=None),
        step_s=pace(furthest[0] - first, start, furthest[1]),
        cause=str(facts.get("cause") or ""),
    )


def last_event(events: list[Record], what: str) -> Record | None:
    return next((row for row in reversed(events) if row.get("what") == what), None)


def first_row(attempt: AttemptDir) -> Record:
    """A loop of one's own does not say when it starts; its first row comes soon after."""
    return next(iter(read_jsonl(attempt.metrics_file)), {})


def how_it_ended(facts: Record) -> str:
    outcome = facts.get("outcome")
    if outcome == "again":
        return f"again: {facts.get('why') or 'asked'}"
    return str(outcome) if outcome else NO_WORD


def number_in(row: Record, key: str) -> float | None:
    value = row.get(key)
    return value if is_number(value) else None


def moment_in(row: Record, key: str) -> float | None:
    value = row.get(key)
    return value if shapes.is_moment(value) else None


def pace(steps: int, start: float | None, t: float) -> float:
    """Seconds per step from the start of training to a word about it."""
    return max(0.0, t - start) / steps if steps > 0 and start is not None else 0.0


def spent_s(attempt: AttemptDir, facts: Record) -> float | None:
    """`took_s` for who has read attempt.json already, and looks at thousands: mostly it is all that
    is needed."""
    began, ended = moment_in(facts, "started"), moment_in(facts, "ended")
    if began is None or ended is None:
        return read_attempt(attempt).took_s
    return max(0.0, ended - began)


def effective_ratio(found: list[Attempt]) -> float | None:
    """The effective training time ratio: time spent on steps that count, over all time from the
    first start to the last word. What counts is from an attempt's first step to its last word,
    without the steps that were redone; what does not is starting up, work done twice, and waiting
    between attempts. None where nobody counts steps."""
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
