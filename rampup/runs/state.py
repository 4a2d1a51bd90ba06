"""The state of a run: computed from what is in its directory and, for a job that still matters,
from one question to its scheduler. It is never stored. Every verb that shows or judges runs asks
here, so that all say the same. It never changes a run, except that it records how a job ended
before the scheduler forgets it.
"""

import contextlib
import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rampup.core import processes
from rampup.rundir import claims, clocks, opening
from rampup.rundir.failures import explain_failure
from rampup.rundir.files import AttemptDir, RunDir, find_last
from rampup.rundir.records import Record, read_bytes
from rampup.rundir.trust import name_owner, owns
from rampup.runs.places import Place, Places, ask
from rampup.runs.submissions import find_submissions
from rampup.schedulers.base import FRESH_S, Answer, Job, JobRef, Scheduler, job_key

UNREADABLE = "unreadable"
ENDED = ("completed", "failed", "cancelled", "timeout")
TORN = "which records how it ended, is torn or missing"
GONE = "its launcher disappeared without recording an exit: killed, out of memory, or the machine went down"
SILENT_AFTER_S = 120.0
"""A run of another machine that wrote nothing for so long is taken for dead (its sampler writes
every 10 s)."""
SUBMITTED_WITHIN_S = 10.0
"""From making the run directory to recording the submission."""


class State(Struct, frozen=True):
    """What a reader says of a run: pending, running, completed, failed, cancelled, timeout; or
    unreadable, where its files are closed to this user."""

    name: str
    exit_code: int | None = None
    cause: str = ""
    failed_rank: int | None = None
    as_of_s: float | None = None
    """How old this is, when the scheduler does not answer."""

    @property
    def ended(self) -> bool:
        return self.name in ENDED


class Observation(NamedTuple):
    """A run with what its newest attempt says of itself: read once, however many ask."""

    run: RunDir
    attempt: AttemptDir | None
    facts: Record


class Question(NamedTuple):
    """A run whose state depends on a job."""

    key: str
    seen: Observation
    packed: bool
    """Whether the job has other runs, too."""
    place: Place


def observe(run: RunDir) -> Observation:
    attempt = run.last_attempt()
    return Observation(run, attempt, attempt.facts if attempt else {})


def state_of(run: RunDir, fresh_s: float = FRESH_S) -> State:
    return states_of([observe(run)], fresh_s)[run.path]


def state_for_sure(run: RunDir, fresh_s: float = 0.0) -> State:
    """The state for a verb that changes the run. Records that can't be read now are an error: a run
    without any would look as if it had never been started."""
    from rampup.rundir.checkpoints import MISSING, Unreadable  # `list` does without

    newest = run.last_attempt()
    for path in (run.control_file, *([newest.facts_file] if newest else [])):
        try:
            read_bytes(path)
        except OSError as error:
            if error.errno not in MISSING:
                raise Unreadable(path, error.strerror) from None
    return state_of(run, fresh_s)


def states_of(
    runs: Iterable[Observation], fresh_s: float = FRESH_S, causes: bool = True
) -> dict[Path, State]:
    """One question per cluster, however many runs there are; none for jobs that are known to have
    ended. Without causes no logs are read for them: for a reader of thousands."""
    runs = list(runs)
    controls = {run: run.control() for run, _, facts in runs if facts.get("outcome") != "completed"}
    lost = find_submissions(controls, patient=fresh_s == 0)
    found = {path: State("pending", cause=cause) for path, cause in lost.items()}
    questions: dict[tuple[object, ...], list[Question]] = {}
    places = Places()
    for seen in runs:
        run, attempt, facts = seen
        if run.path in found:
            continue
        read = explained_state if causes else state_from_files
        if facts.get("outcome") == "completed":
            found[run.path] = read(run, attempt, facts)
            continue
        submitted = find_last(controls[run], "submitted") or {}
        if "pid" in facts and "job" not in submitted:  # a process of a machine, and of no queue
            found[run.path] = read(run, attempt, facts, submitted)
            continue
        job = find_job(seen, submitted)
        if attempt is not None and facts and was_resubmitted_since(run, attempt, facts, submitted):
            # what the attempt before says no longer counts
            seen, facts = Observation(run, attempt, {}), {}
        if job is None:
            found[run.path] = state_in_allocation(run, attempt, facts, submitted, fresh_s)
            continue
        packed = bool(submitted.get("packed")) and job.job == submitted.get("job")
        place = places.find(job.cluster, run)
        question = Question(job_key(job.job, job.name), seen, packed, place)
        questions.setdefault(place.key, []).append(question)
    for asked in questions.values():
        keys, began, place = [each.key for each in asked], time.time(), asked[0].place
        answer = ask(place, keys, fresh_s)
        if fresh_s > 0 and not answer.problem:
            outdated = [each.key for each in asked if is_outdated(each, answer, began)]
            if outdated:
                answer = ask(place, outdated, 0.0)
        for key, seen, packed, _ in asked:
            judge = state_of_packed if packed else state_from_scheduler
            known = find_known_job(seen, key, place.scheduler, answer)
            found[seen.run.path] = judge(seen, known, place.scheduler, answer)
    return found


# which job, and what is known of it ---------------------------------------------------------------


def find_job(seen: Observation, submitted: Record) -> JobRef | None:
    """The job to ask for: of the last submission, unless the script was started by hand after it;
    None for a process of this machine."""
    run, attempt, facts = seen
    name = f"{run.run.get('name')}-{run.id}"
    cluster = submitted.get("cluster") or run.config.get("cluster", {}).get("name", "")
    is_later = attempt is not None and is_after(attempt.number, facts.get("started"), submitted)
    # where a site does not requeue, the job script puts another job behind its own
    behind = facts.get("next_job")
    if behind and is_later:
        return JobRef(cluster, behind, name)
    known = (submitted.get("job"), submitted.get("allocation"))
    if "job" in facts and facts["job"] not in known and is_later:
        return JobRef(cluster, facts["job"], name)
    if "job" in submitted:  # a job of several runs has a name of its own
        return JobRef(
            submitted.get("cluster", ""), submitted["job"], submitted.get("job_name") or name
        )
    return None


def is_after(number: int, moment: float | None, submitted: Record) -> bool:
    """Whether an attempt came after a submission. Its number decides: the clock of a node may be
    wrong. A submission that names no attempt was made by an older rampup, or on this machine."""
    if "after" in submitted:
        return bool(number > submitted["after"])
    return bool((moment or 0.0) > submitted.get("t", 0.0))


def is_outdated(question: Question, answer: Answer, asked: float) -> bool:
    """Whether the attempt says that it runs, while an answer from before says that its job waits or
    has ended. An ended job starts once more when somebody requeues it."""
    job, seen = answer.jobs.get(question.key), question.seen
    if job is None or job.running or seen.attempt is None or "outcome" in seen.facts:
        return False
    if not job.ended:
        return bool(seen.facts) and answer.t < asked
    last = find_recorded_end(seen, question.key)
    return last is None or has_begun_since(seen, last)


def find_recorded_end(seen: Observation, key: str) -> Record | None:
    """The end of a job as a reader recorded it."""
    last = seen.run.recorded("ended")
    return last if last is not None and last.get("job") == key else None


def has_begun_since(seen: Observation, end: Record) -> bool:
    """Whether an attempt has begun since a reader recorded the end of the job. Numbers decide where
    there are some: the clock of a node may be wrong."""
    if "attempt" in end:
        return (
            bool(seen.facts) and seen.attempt is not None and seen.attempt.number > end["attempt"]
        )
    return bool(seen.facts.get("started", 0.0) > end.get("t", 0.0))


def find_known_job(seen: Observation, key: str, scheduler: Scheduler, answer: Answer) -> Job | None:
    """A scheduler forgets, and a sandbox is taken down: the owner records how a job ended as soon as
    it is heard. Other readers never write into a run; they have the cache of the scheduler."""
    job, last = answer.jobs.get(key), find_recorded_end(seen, key)
    if job is None and last is not None:
        return scheduler.restore_job(last.get("state", ""), last.get("reason", ""))
    is_news = job is not None and job.ended and (last is None or has_begun_since(seen, last))
    if job is not None and is_news and owns(seen.run.path):
        # a full disk: the scheduler will be asked again
        with contextlib.suppress(OSError):
            number = seen.attempt.number if seen.attempt else 0
            seen.run.record("ended", job=key, state=job.state, reason=job.reason, attempt=number)
    return job


# from the files alone -----------------------------------------------------------------------------


def state_from_files(
    run: RunDir, attempt: AttemptDir | None, facts: Record, submitted: Record | None = None
) -> State:
    """The state by what the last attempt says of itself, and by whether its process lives.
    `submitted` is the last submission, if the caller has read it."""
    if attempt is None or not facts or was_resubmitted_since(run, attempt, facts, submitted):
        return state_before_start(run, attempt)
    if facts.get("outcome", "again") != "again":
        return State(
            facts["outcome"],
            facts.get("exit_code"),
            facts.get("cause", ""),
            facts.get("failed_rank"),
        )
    is_elsewhere = facts.get("host") != processes.host()
    if processes.is_alive(facts) or (is_elsewhere and attempt.silent_s() < SILENT_AFTER_S):
        return State("running")
    return state_of_the_gone(run, facts.get("started", 0.0), GONE)


def explained_state(
    run: RunDir, attempt: AttemptDir | None, facts: Record, submitted: Record | None = None
) -> State:
    """The same, and where it failed without a recorded cause, the cause that its files show."""
    state = state_from_files(run, attempt, facts, submitted)
    if state.name != "failed" or state.cause or attempt is None:
        return state
    rank, cause = explain_failure(attempt, state.failed_rank, state.exit_code)
    return replace(state, failed_rank=rank, cause=cause)


def was_resubmitted_since(
    run: RunDir, attempt: AttemptDir, facts: Record, submitted: Record | None = None
) -> bool:
    """Whether the run was given to another process or job after its newest attempt had begun
    (`resume`). `facts` are what the attempt says of itself."""
    if facts.get("outcome") == "completed":
        return False
    if submitted is None:
        submitted = run.recorded("submitted") or {}
    if "job" in submitted or "allocation" in submitted:
        same = facts.get("job") == submitted.get("job", submitted.get("allocation"))
    else:
        same = all(facts.get(key) == submitted.get(key) for key in ("pid", "pid_start"))
    since = facts.get("ended", facts.get("started", 0.0))
    return bool(submitted) and not same and not is_after(attempt.number, since, submitted)


def state_before_start(run: RunDir, newest: AttemptDir | None) -> State:
    """Of a run whose newest attempt says nothing, or that has none."""
    submitted = run.recorded("submitted")
    has_no_record = newest is not None and newest.has_no_record()
    torn = f"attempts/{newest.number}/attempt.json, {TORN}" if newest is not None else ""
    if submitted is None:
        if is_closed(run):
            owner = name_owner(run.path)
            return State(UNREADABLE, None, f"not readable: it belongs to {owner}")
        if claims.is_being_started(run) or is_older_and_young(run):
            return State("pending")
        if has_no_record:
            return State("failed", None, f"{torn}, and so is control.jsonl")
        refused = (run.recorded("not submitted") or {}).get("why")
        why = refused or "no submission is recorded in control.jsonl"
        return State("failed", None, f"it was never started: {why}")
    if submitted.get("waits") and run.is_cancelled():  # its turn in a study will not come
        return State("cancelled", None, "it was cancelled")
    is_elsewhere = submitted.get("host") != processes.host()
    if processes.is_alive(submitted) or (
        is_elsewhere and clocks.age_of_file(run.control_file) < SILENT_AFTER_S
    ):
        return State("pending", cause=describe_wait(run))
    cause = torn if has_no_record else "its launcher ended before it could record what it does"
    return state_of_the_gone(run, 0.0, cause)


def describe_wait(run: RunDir) -> str:
    """Say for which runs a process waits that has not begun an attempt."""
    before = run.config.get("after")
    names = [str(each.get("id")) for each in before or [] if isinstance(each, dict)]
    return f"it waits for run {', '.join(names)}" if names else ""


def is_closed(run: RunDir) -> bool:
    """Whether this user may not read what the control side wrote down."""
    try:
        os.close(opening.open_file(run.control_file))
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EPERM)
    return False


def is_older_and_young(run: RunDir) -> bool:
    """Whether a rampup that did not claim its starts (0.1.0) may just be submitting the run."""
    number, _ = claims.newest_claim(run)
    return number == 0 and 0 <= time.time() - run.run.get("created", 0) < SUBMITTED_WITHIN_S


def state_of_the_gone(run: RunDir, since: float, cause: str) -> State:
    """Return the state of a run whose process has ended; its attempt, if any, started `since`."""
    if run.is_cancelled(since):
        return State("cancelled", None, "it was cancelled")
    return State("failed", None, cause)


def state_in_allocation(
    run: RunDir, attempt: AttemptDir | None, facts: Record, submitted: Record, fresh_s: float
) -> State:
    """A job script that runs inside an allocation is a process of the host where it was started."""
    if facts.get("outcome") in ("failed", "stopped"):
        key = job_key(submitted.get("allocation", ""), submitted.get("job_name", ""))
        place = Places().find(submitted.get("cluster", ""), run)
        answer = ask(place, [key], fresh_s)
        job = find_known_job(Observation(run, attempt, facts), key, place.scheduler, answer)
        if job is not None and job.cause:  # the allocation itself came to its end
            return state_by_scheduler(job, facts)
        if facts["outcome"] == "stopped":
            return State("cancelled", facts.get("exit_code"), "stopped by a signal")
        return explained_state(run, attempt, facts)
    process = {
        key: value
        for key, value in submitted.items()
        if key in ("host", "boot", "pid", "pid_start")
    }
    return state_from_files(run, attempt, {**facts, **process} if facts else {})


# from the scheduler -------------------------------------------------------------------------------


def state_from_scheduler(
    seen: Observation, job: Job | None, scheduler: Scheduler, answer: Answer
) -> State:
    """The state of a job that has not said itself that it ended well."""
    run, attempt, facts = seen
    outcome, exit_code = facts.get("outcome"), facts.get("exit_code")
    if outcome in ("cancelled", "timeout") and (job is None or job.ended):
        return explained_state(run, attempt, facts)
    if outcome == "failed" and (job is None or job.ended_itself or answer.problem):
        return explained_state(run, attempt, facts)
    if job is None:
        return state_of_unknown_job(seen, scheduler, answer)
    if job.running:
        return State("running", as_of_s=age_of(answer))
    if not job.ended:
        return State("pending", cause=job.waits_for, as_of_s=age_of(answer))
    if job.end == "completed":
        return State("completed", 0)
    if job.end == "cancelled":
        return State("cancelled", exit_code, "the job was cancelled")
    if job.cause:
        return state_by_scheduler(job, facts)
    if attempt is None:
        says = f"{scheduler.title} says {job.state} ({job.reason})"
        return State("failed", None, f"{says}; the job never began: see {scheduler.logs}")
    rank, cause = explain_failure(attempt, None, exit_code)
    return State("failed", exit_code, cause, rank)


def state_by_scheduler(job: Job, facts: Record) -> State:
    """Of a job that its scheduler ended."""
    name = "timeout" if job.end == "timeout" else "failed"
    return State(name, facts.get("exit_code"), job.cause)


def state_of_packed(
    seen: Observation, job: Job | None, scheduler: Scheduler, answer: Answer
) -> State:
    """A run that shares its job with others, a few at a time: what it says of itself counts,
    whatever the job does."""
    run, attempt, facts = seen
    outcome, gone = facts.get("outcome"), job is None or job.ended
    since = facts.get("started", 0.0)
    if (outcome in ("failed", "stopped") or not facts) and run.is_cancelled(since):
        return State("cancelled", facts.get("exit_code"), "it was cancelled")
    timed_out = outcome == "timeout" and (gone or facts.get("cause"))
    if outcome in ("failed", "cancelled") or timed_out:
        return explained_state(run, attempt, facts)
    if job is not None and job.ended and job.ended_itself:
        words = "the run was interrupted" if facts else "the run had not started"
        return State("failed", None, f"the job that it shares with others has ended: {words}")
    if job is None or job.ended or not (job.running and (outcome or not facts)):
        return state_from_scheduler(seen, job, scheduler, answer)
    waits = "waiting for its turn: the job is running others of the study"
    return State("pending", cause=waits, as_of_s=age_of(answer))


def state_of_unknown_job(seen: Observation, scheduler: Scheduler, answer: Answer) -> State:
    """The scheduler does not answer, or has forgotten the job and keeps no accounts."""
    run, attempt, facts = seen
    title = scheduler.title
    if not answer.is_known and facts.get("outcome", "again") == "again":
        return state_by_silence(attempt, facts, answer.problem)
    if answer.problem and answer.is_known and facts.get("outcome", "again") == "again":
        name = "running" if facts else "pending"
        return State(name, cause=f"{title} does not answer: {answer.problem}")
    if run.is_cancelled(facts.get("started", 0.0)):
        return State("cancelled", facts.get("exit_code"), "the job was cancelled")
    if facts.get("outcome") == "stopped":
        limit = run.config.get("time_s")
        spent = facts.get("ended", 0.0) - facts.get("started", 0.0)
        if limit and spent > limit - 5:
            return State("timeout", facts.get("exit_code"), "the time limit was reached")
        cause = f"{title} stopped the job; without accounting the reason is unknown"
        return State("failed", facts.get("exit_code"), cause)
    cause = f"{title} no longer knows the job, and it recorded no exit"
    return State("failed", None, cause)


def state_by_silence(attempt: AttemptDir | None, facts: Record, problem: str) -> State:
    """The state of a job of which its files alone can tell: its sampler writes every few seconds,
    as long as it runs."""
    if attempt is None or not facts:
        return State("pending", cause=f"{problem}, so its queue is not asked")
    if attempt.silent_s() < SILENT_AFTER_S:
        return State("running", cause=problem)
    return State("failed", None, f"it stopped writing and recorded no exit; {problem}")


def age_of(answer: Answer) -> float | None:
    """How old an answer is, when the scheduler does not give a newer one."""
    is_old = answer.problem and answer.is_known and answer.t
    return answer.age_s if is_old else None
