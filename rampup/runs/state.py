"""The states of runs, computed: from what is in their directories, and for jobs that still matter
from one question to their scheduler. Every verb that looks at runs asks here, so that all say the
same."""

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from rampup.config.clusters import of_run
from rampup.errors import RampupError
from rampup.rundir.failures import explain_failure
from rampup.rundir.files import AttemptDir, RunDir, State
from rampup.rundir.records import Record
from rampup.schedulers.slurm import query as slurm_query
from rampup.schedulers.slurm.query import ACTIVE, FRESH_S, Answer, Job, key_of
from rampup.schedulers.slurm.reasons import reason_in_words

CAUSES = {
    "TIMEOUT": "the time limit was reached",
    "NODE_FAIL": "a node of the job failed",
    "OUT_OF_MEMORY": "the job used more memory than it asked for (--mem)",
    "PREEMPTED": "a job with a higher priority took its nodes",
    "BOOT_FAIL": "a node did not boot",
    "DEADLINE": "its deadline passed",
}
SAYS_NO_MORE = ("FAILED", "COMPLETED", "COMPLETING")
"""Of a job whose script wrote down a failure. In other states Slurm knows better: it ended the job,
or has it again."""


class Seen(NamedTuple):
    """A run with what its newest attempt says of itself: read once, however many ask."""

    run: RunDir
    attempt: AttemptDir | None
    facts: Record


def look(run: RunDir) -> Seen:
    attempt = run.last_attempt()
    return Seen(run, attempt, attempt.facts if attempt else {})


def state_of(run: RunDir, fresh_s: float = FRESH_S) -> State:
    return states_of([look(run)], fresh_s)[run.path]


def states_of(
    runs: Iterable[Seen], fresh_s: float = FRESH_S, causes: bool = True
) -> dict[Path, State]:
    """One question per cluster, however many runs there are; none for jobs that are known to have
    ended.

    Without causes, no logs are read for them: for who looks at thousands.
    """
    found: dict[Path, State] = {}
    waiting: dict[str, list[tuple[str, Seen, bool]]] = {}
    for seen in runs:
        run, attempt, facts = seen
        if facts.get("launcher") == "spawn" or facts.get("outcome") == "completed":
            found[run.path] = (
                settled(run, attempt, facts) if causes else run.state_of(attempt, facts)
            )
            continue
        submitted = run.recorded("submitted") or {}
        asked = job_of(run, facts, submitted)
        if facts and run.handed_over_after(facts):  # what the attempt before says no longer counts
            seen = Seen(run, attempt, facts := {})
        if asked is not None:
            packed = bool(submitted.get("packed")) and asked[1] == submitted.get("job")
            waiting.setdefault(asked[0], []).append((key_of(*asked[1:]), seen, packed))
        else:
            found[run.path] = in_allocation(run, attempt, facts, submitted, fresh_s)
    for cluster, jobs in waiting.items():
        answer = ask(cluster, jobs[0][1].run, [job for job, _, _ in jobs], fresh_s)
        for job, seen, packed in jobs:
            found[seen.run.path] = (judge_packed if packed else judge)(
                *seen, known_job(seen.run, job, answer), answer
            )
    return found


def known_job(run: RunDir, key: str, answer: Answer) -> Job | None:
    """Slurm forgets, and a sandbox is taken down: how a job ended is written down by the first who
    hears of it."""
    job, last = answer.jobs.get(key), run.recorded("ended")
    told_before = last is not None and last.get("job") == key
    if job is None and last is not None and told_before:
        return Job(last.get("state", ""), last.get("reason", ""))
    if job is not None and job.ended and not told_before:
        # somebody else's run, or a full disk: Slurm will be asked again
        with contextlib.suppress(OSError):
            run.record("ended", job=key, state=job.state, reason=job.reason)
    return job


def job_of(run: RunDir, facts: Record, submitted: Record) -> tuple[str, str, str] | None:
    """Cluster, job and its name to ask for: of the last submission, unless the script was started
    by hand after it."""
    name = f"{run.run.get('name')}-{run.id}"
    # where a site does not requeue, the job script puts another job behind its own
    behind = facts.get("next_job")
    if behind and facts.get("started", 0.0) > submitted.get("t", 0.0):
        return (
            submitted.get("cluster") or run.config.get("cluster", {}).get("name", ""),
            behind,
            name,
        )
    by_hand = facts.get("launcher") == "srun" and facts.get("job") not in (
        submitted.get("job"),
        submitted.get("allocation"),
    )
    if by_hand and facts.get("started", 0.0) > submitted.get("t", 0.0):
        return (
            submitted.get("cluster") or run.config.get("cluster", {}).get("name", ""),
            facts.get("job", ""),
            name,
        )
    if submitted.get("scheduler") == "slurm":  # a job of several runs has a name of its own
        return (
            submitted.get("cluster", ""),
            submitted.get("job", ""),
            submitted.get("job_name") or name,
        )
    return None


def in_allocation(
    run: RunDir, attempt: AttemptDir | None, facts: Record, submitted: Record, fresh_s: float
) -> State:
    """A job script that runs inside an allocation is a process of the host where it was started."""
    if facts.get("outcome") in ("failed", "stopped"):
        key = key_of(submitted.get("allocation", ""), submitted.get("job_name", ""))
        job = known_job(run, key, ask(submitted.get("cluster", ""), run, [key], fresh_s))
        if job is not None and job.state in CAUSES:  # the allocation itself came to its end
            name = "timeout" if job.state == "TIMEOUT" else "failed"
            return State(name, facts.get("exit_code"), CAUSES[job.state])
        if facts["outcome"] == "stopped":
            return State("cancelled", facts.get("exit_code"), "stopped by a signal")
        return settled(run, attempt, facts)
    process = {
        key: value
        for key, value in submitted.items()
        if key in ("host", "boot", "pid", "pid_start")
    }
    return run.state_of(attempt, {**facts, **process} if facts else {})


def settled(run: RunDir, attempt: AttemptDir | None, facts: Record) -> State:
    """What the directory alone tells."""
    state = run.state_of(attempt, facts)
    if state.name != "failed" or state.cause or attempt is None:
        return state
    rank, cause = explain_failure(attempt, state.failed_rank, state.exit_code)
    return replace(state, failed_rank=rank, cause=cause)


def ask(cluster: str, run: RunDir, jobs: Iterable[str], fresh_s: float) -> Answer:
    """`run` is one that was given to that cluster: from another directory its profile may not be
    seen."""
    try:
        profile = of_run(cluster, run.config.get("cluster", {}))
    except RampupError:  # a sandbox that was taken down, and its jobs with it
        return Answer({}, time.time())
    return slurm_query.ask(profile, jobs, fresh_s)


def as_of(answer: Answer) -> float | None:
    """How old it is, when Slurm does not answer."""
    return answer.age_s if answer.problem and answer.t else None


def judge(
    run: RunDir, attempt: AttemptDir | None, facts: Record, job: Job | None, answer: Answer
) -> State:
    """The state of a job that has not said itself that it ended well."""
    if facts.get("outcome") in ("cancelled", "timeout") and (job is None or job.ended):
        return settled(run, attempt, facts)
    if facts.get("outcome") == "failed" and (
        job is None or job.state in SAYS_NO_MORE or answer.problem
    ):
        return settled(run, attempt, facts)
    if job is None:
        return without_slurm(run, attempt, facts, answer)
    if job.state in ACTIVE:
        return State("running", as_of_s=as_of(answer))
    if not job.ended:
        return State("pending", cause=reason_in_words(job), as_of_s=as_of(answer))
    if job.state == "COMPLETED":
        return State("completed", 0)
    if job.state == "CANCELLED":
        return State("cancelled", facts.get("exit_code"), "the job was cancelled")
    if job.state == "TIMEOUT":
        return State("timeout", facts.get("exit_code"), CAUSES["TIMEOUT"])
    if job.state in CAUSES:
        return State("failed", facts.get("exit_code"), CAUSES[job.state])
    if attempt is None:
        return State(
            "failed",
            None,
            f"Slurm says {job.state} ({job.reason}); the job never began: see slurm-*.log",
        )
    rank, cause = explain_failure(attempt, None, facts.get("exit_code"))
    return State("failed", facts.get("exit_code"), cause, rank)


def judge_packed(
    run: RunDir, attempt: AttemptDir | None, facts: Record, job: Job | None, answer: Answer
) -> State:
    """A run that shares its job with others, a few at a time: what it says of itself counts,
    whatever the job does."""
    outcome, gone = facts.get("outcome"), job is None or job.ended
    since = max(facts.get("started", 0.0), (run.recorded("submitted") or {}).get("t", 0.0))
    if (outcome in ("failed", "stopped") or not facts) and run.cancelled_after(since):
        return State("cancelled", facts.get("exit_code"), "it was cancelled")
    if outcome in ("failed", "cancelled") or (
        outcome == "timeout" and (gone or facts.get("cause"))
    ):
        return settled(run, attempt, facts)
    if job is not None and job.state in ("COMPLETED", "FAILED"):
        words = "it was cut short" if facts else "its turn had not come"
        return State("failed", None, f"the job that it shares with others has ended: {words}")
    if job is None or job.ended or not (job.state in ACTIVE and (outcome or not facts)):
        return judge(run, attempt, facts, job, answer)
    return State(
        "pending",
        cause="its turn will come: the job runs others of the study",
        as_of_s=as_of(answer),
    )


def without_slurm(run: RunDir, attempt: AttemptDir | None, facts: Record, answer: Answer) -> State:
    """Slurm does not answer, or has forgotten the job and keeps no accounts."""
    submitted = run.recorded("submitted") or {}
    if answer.problem and facts.get("outcome", "again") == "again":
        name = "running" if facts else "pending"
        return State(name, cause=f"Slurm does not answer: {answer.problem}")
    if run.cancelled_after(max(facts.get("started", 0.0), submitted.get("t", 0.0))):
        return State("cancelled", facts.get("exit_code"), "the job was cancelled")
    if facts.get("outcome") == "stopped":
        limit, spent = run.config.get("time_s"), facts.get("ended", 0.0) - facts.get("started", 0.0)
        if limit and spent > limit - 5:
            return State("timeout", facts.get("exit_code"), CAUSES["TIMEOUT"])
        return State(
            "failed",
            facts.get("exit_code"),
            "Slurm stopped the job; there are no accounts to tell why",
        )
    return State(
        "failed",
        None,
        "Slurm knows nothing of the job any more, and it left no word of how it ended",
    )
