"""Runs the ranks of a run as one barrier stage, and writes down how it ended.

It is the supervisor of a run on Spark: in a thread of the process that has the session, or as
`python -m rampup.schedulers.spark.driver RUN_DIR`, which makes one. It claims the attempt, ends all
ranks when one has failed, keeps the time limit, and never lets Spark start a rank twice.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import rampup
from rampup.core import processes
from rampup.errors import PORT_TAKEN, START_AGAIN, RampupError, Refused
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.outcome import Outcome, add_cause, conclude
from rampup.rundir.records import Record, overwrite, write_reserved
from rampup.schedulers.spark import session as sessions
from rampup.schedulers.spark import task as tasks

GUARDIAN = Path(rampup.__file__).with_name("runtime") / "guardian.py"
POLL_S, STATUS_EVERY_S = 0.1, 0.3
SLOTS_WITHIN_S = 60.0
FILES_WITHIN_S = 10.0
CANCEL_AFTER_S = 7.0
"""Ranks that were asked to end get so long before Spark kills their tasks; longer where they save."""
GONE_WITHIN_S = 20.0
PORT_RETRIES = 3
PYTHON_ERROR = re.compile(r"(?!org\.|java\.)[\w.]*(Error|Exception|Exit|Interrupt)\b")


class Stage(threading.Thread):
    """The barrier stage of one attempt: Spark's own call blocks, so it has a thread."""

    def __init__(self, context: Any, order: Record, size: int) -> None:
        super().__init__(name="rampup-spark", daemon=True)
        self.context, self.order, self.size = context, order, size
        # one for each start: Spark keeps the failed jobs of an earlier attempt in its group
        name = os.path.basename(order["run_dir"])
        self.group = f"rampup-{name}-{order['attempt']}-{order['port_retry']}"
        self.ends: list[Record] = []
        self.error = ""
        """What Spark says when the stage has failed."""

    def run(self) -> None:
        from pyspark import cloudpickle

        pickler: Any = cloudpickle
        pickler.register_pickle_by_value(tasks)  # executors need no rampup
        try:
            self.context.setJobGroup(self.group, f"rampup run {self.order['run_dir']}", True)
            rows = self.context.parallelize(range(self.size), self.size)
            found = rows.barrier().mapPartitions(tasks.make_task(self.order)).collect()
            self.ends = [json.loads(each) for each in found]
        except Exception as error:
            self.error = str(error) or type(error).__name__

    def cancel(self) -> None:
        with contextlib.suppress(Exception):  # the session may be gone
            self.context.cancelJobGroup(self.group)

    def find_failures(self) -> dict[int, str]:
        """Return the messages of tasks that have failed, by rank; of the first attempt at the stage,
        because Spark begins others."""
        try:
            tracker = self.context.statusTracker()
            for job in tracker.getJobIdsForGroup(self.group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    now = tracker.getStageInfo(stage)
                    if now and (now.numFailedTasks or now.currentAttemptId):
                        errors = sessions.find_task_errors(self.context, stage, 0)
                        return errors or {-1: "a task of the stage failed"}
        except Exception:  # the session was stopped: the stage's own end says so
            return {}
        return {}


class Driver:
    """All attempts at one run, until it has ended."""

    def __init__(self, run: RunDir, context: Any) -> None:
        self.run, self.context = run, context
        self.config = run.config
        resources = self.config["resources"]
        self.size = resources["nodes"] * resources["tasks_per_node"]
        self.stop_asked = ""
        """Why to end all ranks; set by a signal handler."""
        limit = self.config.get("time_s")
        self.deadline = time.time() + limit if limit else None
        self.lead_s = min(resources.get("lead_s", 0), limit / 4) if limit else 0

    def drive(self, attempt: AttemptDir) -> Outcome:
        """Run attempts until the run has ended; the first one is claimed already."""
        left = self.config["resources"].get("requeues", 0)
        while True:
            outcome = self.try_once(attempt, left)
            if outcome.name != "again":
                return outcome
            left, attempt = left - 1, self.run.claim_attempt()

    def try_once(self, attempt: AttemptDir, restarts_left: int) -> Outcome:
        """One attempt, from its first record to its last."""
        started = time.time()
        facts = describe_attempt(self.config, started, self.size)
        write_reserved(attempt.facts_file, facts)
        try:
            outcome = self.run_ranks(attempt, started)
        except RampupError as error:
            cause = f"{error.message}; {error.hint}" if error.hint else error.message
            outcome = Outcome("failed", cause=cause)
        if outcome.name == "again" and restarts_left <= 0:
            cause = "it asked to be restarted (code 85) more often than resources.requeues allows"
            outcome = Outcome("failed", exit_code=START_AGAIN, cause=cause)
        kept = ("cpu_s", "max_rss_mb")  # of this process, which is not a rank
        ended = {key: it for key, it in outcome.facts(started).items() if key not in kept}
        with contextlib.suppress(OSError):  # a full disk, or the run directory is gone
            overwrite(attempt.facts_file, {**facts, **ended})
        return outcome

    def run_ranks(self, attempt: AttemptDir, started: float) -> Outcome:
        self.check_context()
        if not self.run.guardian_program.exists():
            shutil.copyfile(GUARDIAN, self.run.guardian_program)
        for retry in range(PORT_RETRIES):
            stage = Stage(self.context, self.make_order(attempt, started, retry), self.size)
            stage.start()
            outcome = self.watch(stage, attempt)
            if outcome.name != "failed" or not attempt.port_taken_file.exists():
                return add_cause(outcome, attempt)
            attempt.port_taken_file.unlink()
            attempt.end_file.unlink(missing_ok=True)
        cause = f"no free port for the ranks to meet, after {PORT_RETRIES} tries"
        return Outcome("failed", 0, PORT_TAKEN, cause)

    def make_order(self, attempt: AttemptDir, started: float, retry: int) -> Record:
        """Return what the tasks must know."""
        stop_at = self.deadline - self.lead_s if self.deadline is not None else ""
        return {
            "run_dir": str(self.run.path),
            "attempt_dir": str(attempt.path),
            "attempt": attempt.number,
            "port_retry": retry,
            "started": started,
            "stop_at": stop_at,
            "run_hash": hashlib.sha256(self.run.run_file.read_bytes()).hexdigest(),
            "files_within": FILES_WITHIN_S,
            "variables": self.config.get("environment", {}).get("variables", {}),
            "again": START_AGAIN,
        }

    def check_context(self) -> None:
        """Refuse a session that can't run all ranks at once: Spark itself would wait for minutes."""
        if self.context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
            raise Refused(
                "this Spark session allocates executors dynamically, which has no barrier stages",
                "spark.dynamicAllocation.enabled=false",
            )
        until = time.monotonic() + SLOTS_WITHIN_S
        slots = sessions.count_slots(self.context)
        while slots is not None and slots < self.size and not self.stop_asked:
            if time.monotonic() > until:
                fewer = (
                    f"np={slots}" if self.config.get("function") else f"--tasks-per-node {slots}"
                )
                raise Refused(
                    f"the run has {self.size} ranks, and the executors can run {slots} tasks at once",
                    f"{fewer}, or more executors" if slots else "start executors",
                )
            time.sleep(POLL_S)
            slots = sessions.count_slots(self.context)

    # one stage ------------------------------------------------------------------------------------

    def watch(self, stage: Stage, attempt: AttemptDir) -> Outcome:
        """Return when the stage has ended, and all of its ranks as far as Spark says."""
        outcome: Outcome | None = None
        cancel_at, look_at = float("inf"), 0.0
        while stage.is_alive():
            now = time.monotonic()
            if outcome is None and now >= look_at:
                look_at = now + STATUS_EVERY_S
                outcome = self.find_end(stage, attempt)
                if outcome is not None:
                    cancel_at = now + self.end_ranks(attempt, outcome)
            if now >= cancel_at:
                stage.cancel()
                cancel_at = now + GONE_WITHIN_S
            time.sleep(POLL_S)
        if outcome is None:
            outcome = self.find_end(stage, attempt) or conclude_stage(stage, attempt)
            if outcome.name == "failed":  # Spark ends the others within seconds; this is sooner
                self.end_ranks(attempt, outcome)
        return outcome

    def find_end(self, stage: Stage, attempt: AttemptDir) -> Outcome | None:
        """Return why the ranks must be ended now; None where nothing is wrong."""
        failures = stage.find_failures()
        if failures:
            return explain_failures(failures)
        if self.stop_asked:
            return Outcome("cancelled", cause=self.stop_asked)
        if attempt.end_file.exists():
            return Outcome("cancelled", cause="it was cancelled")
        if self.deadline is not None and time.time() > self.deadline:
            return Outcome("timeout", cause="the time limit was reached")
        if not self.run.run_file.exists():
            cause = f"the run directory {self.run.path} vanished during the run"
            return Outcome("failed", cause=cause)
        return None

    def end_ranks(self, attempt: AttemptDir, outcome: Outcome) -> float:
        """Ask all tasks to end their ranks. Return after how many seconds Spark is to kill them."""
        with contextlib.suppress(OSError):
            attempt.end_file.write_text(f"{outcome.name}\n", encoding="utf-8")
        if outcome.name == "failed":
            return 0.0 if not attempt.path.exists() else CANCEL_AFTER_S
        return (
            tasks.SAVE_WITHIN_S + CANCEL_AFTER_S
            if attempt.listens_file.exists()
            else CANCEL_AFTER_S
        )


def describe_attempt(config: Record, started: float, size: int) -> Record:
    cluster = config.get("cluster", {})
    return {
        "scheduler": cluster.get("scheduler", ""),
        "launcher": cluster.get("launcher", ""),
        "started": started,
        "world_size": size,
        **processes.identify(os.getpid()),
    }


def conclude_stage(stage: Stage, attempt: AttemptDir) -> Outcome:
    """Return the outcome of a stage that ended by itself."""
    if not stage.error:
        return conclude(attempt, [end["code"] for end in stage.ends])
    if "cancelled" in stage.error.lower():
        return Outcome("cancelled", cause="the job was cancelled in Spark")
    return Outcome("failed", cause=f"Spark: {cause_line(stage.error)}")


def explain_failures(failures: dict[int, str]) -> Outcome:
    """Return the outcome for tasks that have failed: the first rank that ended badly, or else what
    Spark says of a task."""
    ends, others = [], []
    for rank, message in sorted(failures.items()):
        _, mark, rest = message.partition(tasks.MARK)
        if not mark:
            others.append((rank, message))
            continue
        with contextlib.suppress(ValueError):
            ends.append(json.JSONDecoder().raw_decode(rest)[0])
    refused = [end for end in ends if "cause" in end]
    if refused:
        cause = "; ".join(filter(None, (refused[0]["cause"], refused[0].get("hint"))))
        return Outcome("failed", cause=cause)
    lost = [(rank, words) for rank, words in others if is_death(words)]
    if lost and not ends:
        rank, words = lost[0]
        return Outcome("failed", rank, None, f"rank {rank}: {describe_death(words)}")
    if ends:
        first = min(ends, key=lambda end: float(end.get("t", 0.0)))
        return Outcome("failed", first["rank"], first["code"])
    rank, words = others[0] if others else (-1, "a task of the stage failed")
    return Outcome("failed", rank if rank >= 0 else None, None, f"Spark: {cause_line(words)}")


def is_death(words: str) -> bool:
    return "ExecutorLost" in words or "Python worker exited" in words or "crashed" in words


def describe_death(words: str) -> str:
    """Say what died under a rank."""
    line = first_line(words)
    if "ExecutorLost" in words:
        reason = words.partition("Reason:")[2].strip() or line
        return f"its executor died: {first_line(reason)}"
    return "its Python worker died: killed, or out of memory"


def cause_line(text: str) -> str:
    """Return the line that says most: of a Python traceback the last, else the first."""
    named = [line.strip() for line in text.splitlines() if PYTHON_ERROR.match(line)]
    return named[-1][:300] if named else first_line(text)


def first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no reason given"


# as a process of its own --------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--foreground-of", type=int, help="pid of the command line")
    options = parser.parse_args()
    sys.exit(supervise(RunDir(options.run_dir), options.foreground_of))


def supervise(run: RunDir, foreground_of: int | None) -> int:
    """Make a session, run all attempts in it, and return the exit code."""
    asked: list[str] = []
    driver: list[Driver] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(f"stopped by {signal.Signals(number).name}")
        for each in driver:
            each.stop_asked = asked[0]

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, note)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    attempt = run.claim_attempt()
    write_into(attempt.job_log)
    if foreground_of is not None:
        threading.Thread(target=watch_parent, args=(foreground_of,), daemon=True).start()
    cluster, started = run.config.get("cluster", {}), time.time()
    write_reserved(attempt.facts_file, describe_attempt(run.config, started, 0))
    try:
        session = sessions.open_session(
            cluster.get("spark_master") or "", cluster.get("spark") or {}, f"rampup {run.id}"
        )
    except Exception as error:
        outcome = Outcome("failed", cause=f"no Spark session: {first_line(str(error))}")
        facts = describe_attempt(run.config, started, 0)
        overwrite(attempt.facts_file, {**facts, **outcome.facts(started)})
        return outcome.code
    driver.append(Driver(run, session.sparkContext))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, note)  # pyspark has put its own in the place of one
    driver[0].stop_asked = asked[0] if asked else ""
    try:
        return driver[0].drive(attempt).code
    finally:
        session.stop()


def watch_parent(pid: int) -> None:
    """End like Ctrl-C when the command line that waits for us is gone."""
    while os.getppid() == pid:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def write_into(log: Path) -> None:
    """Our own output, and that of Spark's JVM, goes to job.log."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


if __name__ == "__main__":
    main()
