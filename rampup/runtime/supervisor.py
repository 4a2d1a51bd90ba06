"""The process that runs the ranks of an attempt on this machine, for the launchers `spawn` and
`mpirun`.

It claims the attempt, starts each rank under a guardian, or mpirun under one, ends the others when
one fails, keeps the time limit, and writes how it all ended into attempt.json. It never imports a
framework and never reads the user's settings.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rampup import after, rank
from rampup.core import processes, software
from rampup.core.program import parse_lead_s
from rampup.errors import RampupError
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.outcome import Outcome, add_cause, conclude
from rampup.rundir.records import Record, overwrite, write_reserved
from rampup.runtime import guardian
from rampup.runtime.environment import environment_of
from rampup.runtime.telemetry.sampler import Sampler
from rampup.runtime.watch.watch import Started, start_watcher

WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
PORT_RETRIES = 3
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL, for a program that does not listen."""
SAVE_WITHIN_S = 30.0
"""The same for one that finishes its step and saves: as long as Slurm gives by default."""
WAIT_POLL_S = 1.0
"""How often a run that waits for others asks their directories."""
LATE_S = 3.0
"""A guardian that does not end in this time after its rank was to be killed is killed itself; what
it leaves is swept up."""


class Ranks:
    """The guardians of one attempt: one for each rank, or one for mpirun, which starts them all."""

    def __init__(
        self,
        run: RunDir,
        attempt: AttemptDir,
        size: int,
        started: float,
        ranks_by: Sequence[str],
        entry: int = subprocess.DEVNULL,
    ) -> None:
        self.run, self.attempt, self.size, self.started = run, attempt, size, started
        self.entry = entry
        """The standard input of rank 0, or of the program that starts all ranks."""
        self.ranks_by = ranks_by
        """The words before rank.py where another program, as mpirun, starts all ranks."""
        self.guardians: dict[int, subprocess.Popen[bytes]] = {}
        self.codes: dict[int, int] = {}
        self.env: dict[str, str] = {}
        self.kill_at: float | None = None
        self.stop_at: float | None = None
        """When a program gets the signal that it asked for."""
        self.watcher: Started | None = None
        """Of a command: the process that reads its metrics."""

    def end_watcher(self) -> None:
        """Let the watcher take its last look: nothing below it is killed before."""
        if self.watcher is not None:
            self.watcher.end()
            self.watcher = None

    def start(self, port_retry: int) -> None:
        self.codes.clear()
        self.kill_at = None
        # CPU and memory are watched here, not in the ranks
        env = {**self.env, "RAMPUP_SUPERVISED": "1"}
        for number in range(1 if self.ranks_by else self.size):
            argv = self._argv(number, port_retry)
            entry = self.entry if number == 0 else subprocess.DEVNULL
            self.guardians[number] = subprocess.Popen(argv, stdin=entry, env=env)

    def _argv(self, number: int, port_retry: int) -> list[str]:
        facts = {
            "attempt": self.attempt.number,
            "port-retry": port_retry,
            "node": processes.host(),
            "master-addr": "127.0.0.1",
            "started": self.started,
        }
        if not self.ranks_by:  # which tells each rank itself who it is
            facts |= {"rank": number, "local-rank": number, "node-rank": 0}
            facts |= {"world-size": self.size, "local-world-size": self.size}
        python = (sys.executable, "-I", "-S")  # the standard library is enough, and starts sooner
        options = [f"--{name}={value}" for name, value in facts.items()]
        # a code 85 would be a failure to mpirun
        stop_signal = self.run.config.get("program", {}).get("stop_signal")
        if (self.ranks_by and self.run.config["kind"] != "engine") or stop_signal:
            options.append("--stay")
        if stop_signal and self.stop_at is not None:
            options.append(f"--stop-at={self.stop_at}")
        rank_program = (*python, str(self.run.rank_program), str(self.run.path), *options)
        stays = "--stay" in options
        watch = [] if stays or self.ranks_by else self._contact(number, port_retry)
        guard = [*python, guardian.__file__, str(os.getpid()), *watch]
        return [*guard, *self.ranks_by, *rank_program]

    def _contact(self, number: int, port_retry: int) -> list[str]:
        """What the guardian of a rank needs to see whether it meets others. Engines let them meet,
        and where rank.py stays the parent of the program, it looks itself."""
        config, program = self.run.config, self.run.contact_program
        independent = config["resources"].get("independent") or config.get("kind") == "engine"
        if self.size == 1 or independent or not program.exists():
            return []
        identity = f"{self.run.path}/{self.attempt.number}"
        facts = {
            "folder": str(self.attempt.path),
            "rank": number,
            "size": self.size,
            "node": processes.host(),
            "first_port": rank.first_port(identity, port_retry),
            "ports": rank.PORTS_IN_BLOCK,
            "log": str(self.attempt.rank_log(number)),
        }
        return ["--contact", json.dumps({"program": str(program), "facts": facts})]

    def pids(self) -> list[int]:
        return [
            process.pid for number, process in self.guardians.items() if number not in self.codes
        ]

    def reap(self) -> list[int]:
        """Ranks that ended since the last call."""
        ended = []
        for number, process in self.guardians.items():
            code = process.poll() if number not in self.codes else None
            if code is not None:
                self.codes[number] = 128 - code if code < 0 else code
                ended.append(number)
        return ended

    def stop(self, within_s: float) -> None:
        """End the ranks: the first time cleanly, asked again, at once."""
        if self.kill_at is None:
            self._signal(signal.SIGTERM)
            self.kill_at = time.monotonic() + within_s
        else:
            self.kill_at = min(self.kill_at, time.monotonic() + within_s)

    def kill_if_late(self) -> None:
        if self.kill_at is not None and time.monotonic() > self.kill_at:
            late = time.monotonic() > self.kill_at + LATE_S
            self._signal(signal.SIGKILL if late else signal.SIGINT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @property
    def done(self) -> bool:
        return len(self.codes) == len(self.guardians)


def watch(ranks: Ranks, deadline: float | None) -> Outcome | None:
    """Until all ranks ended. None means: all ended well, or asked to be started again."""
    outcome: Outcome | None = None
    while not ranks.done:
        got = signal.sigtimedwait(WATCHED, 0.5)
        asked = got is not None and got.si_signo != signal.SIGCHLD
        patience = SAVE_WITHIN_S if ranks.attempt.listens_file.exists() else GRACE_S
        # of several that ended since the last look, one that a signal killed comes first: the
        # others fell after it
        for number in sorted(ranks.reap(), key=lambda number: -ranks.codes[number]):
            if ranks.codes[number] not in (0, rank.AGAIN) and outcome is None:
                outcome = Outcome("failed", None if ranks.ranks_by else number, ranks.codes[number])
                ranks.stop(GRACE_S)
        if outcome is not None and asked:  # somebody is in a hurry
            ranks.stop(0.0)
        elif got is not None and asked:
            outcome = Outcome("cancelled", cause=f"stopped by {signal.Signals(got.si_signo).name}")
            ranks.stop(patience)
        if outcome is None and deadline is not None and time.time() > deadline:
            outcome = Outcome("timeout", cause="the time limit was reached")
            ranks.stop(patience)
        if outcome is None and not ranks.run.run_file.exists():
            outcome = Outcome(
                "failed",
                cause=f"the run directory {ranks.run.path} vanished during the run",
            )
            ranks.stop(GRACE_S)
        ranks.kill_if_late()
    return outcome


def set_up(ranks: Ranks) -> Outcome | None:
    """Make ready what the ranks run in; an outcome when that fails."""
    try:
        ranks.env = environment_of(ranks.run.config, ranks.attempt)
    except RampupError as error:
        return Outcome("failed", exit_code=software.NOT_READY, cause=error.message)
    return None


def find_lead_s(config: Record) -> float:
    """Return how long before the time limit a program gets its signal."""
    asked = config.get("program", {}).get("stop_lead")
    lead_s = parse_lead_s(asked) if asked else config["resources"].get("lead_s", 0)
    return min(lead_s, config["time_s"] / 4)  # type: ignore[no-any-return]


def run_ranks(ranks: Ranks, deadline: float | None) -> Outcome:
    for retry in range(PORT_RETRIES):
        ranks.start(retry)
        outcome = watch(ranks, deadline)
        if outcome is None or not ranks.attempt.port_taken_file.exists():
            ranks.end_watcher()
        guardian.kill_all_children(spared=ranks.watcher.pid if ranks.watcher else 0)
        if outcome is None:
            return conclude(ranks.attempt, ranks.codes.values(), is_limited=deadline is not None)
        if outcome.name != "failed" or not ranks.attempt.port_taken_file.exists():
            return add_cause(outcome, ranks.attempt)
        ranks.attempt.port_taken_file.unlink()
    return Outcome(
        "failed",
        0,
        rank.PORT_TAKEN,
        f"no free port for the ranks to meet, after {PORT_RETRIES} tries",
    )


def supervise(
    run: RunDir,
    foreground_of: int | None,
    ranks_by: Sequence[str] = (),
    entry: int = subprocess.DEVNULL,
) -> int:
    """All attempts until the run ends or has used up its restarts; returns the exit code of this
    process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    guardian.prctl(guardian.PR_SET_CHILD_SUBREAPER, 1)
    if foreground_of is not None:
        guardian.prctl(guardian.PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != foreground_of:
            return Outcome("cancelled").code
    config, words = run.config, None
    refusal = wait_for_others(run) if config.get("after") else ""
    if refusal:
        return refuse(run, refusal)
    started = time.time()
    deadline = started + config["time_s"] if config.get("time_s") else None
    left = config["resources"].get("requeues", 0)
    while True:
        attempt = run.claim_attempt()
        words = words or speak_into(attempt.job_log, keep_terminal=foreground_of is not None)
        size = config["resources"]["tasks_per_node"]
        ranks = Ranks(run, attempt, size, time.time(), ranks_by, entry)
        outcome = attempt_once(ranks, deadline, left, words)
        if outcome.name != "again":
            return outcome.code
        left -= 1


def wait_for_others(run: RunDir) -> str:
    """Return when the runs before this one have completed; a text says why that will never be."""
    while True:
        word, detail = after.decide(str(run.path), processes.is_alive)
        if word == after.GO:
            return ""
        if word == after.NEVER:
            return detail
        got = signal.sigtimedwait(WATCHED - {signal.SIGCHLD}, WAIT_POLL_S)
        if got is not None:
            return f"stopped by {signal.Signals(got.si_signo).name} while it waited for other runs"


def refuse(run: RunDir, cause: str) -> int:
    """Record that the run was cancelled before any rank began."""
    attempt, started = run.claim_attempt(), time.time()
    facts = {"started": started, **processes.identify(os.getpid())}
    outcome = Outcome("cancelled", cause=cause)
    write_reserved(attempt.facts_file, facts)
    overwrite(attempt.facts_file, {**facts, **outcome.facts(started)})
    return outcome.code


def attempt_once(ranks: Ranks, deadline: float | None, restarts_left: int, words: Any) -> Outcome:
    """One attempt, from its first record to its last; `words` takes what can't be recorded."""
    attempt, started = ranks.attempt, ranks.started
    cluster = ranks.run.config.get("cluster", {})
    facts: dict[str, Any] = {
        "scheduler": cluster.get("scheduler", ""),
        "launcher": cluster.get("launcher", ""),
        "started": started,
        "world_size": ranks.size,
        **processes.identify(os.getpid()),
    }
    write_reserved(attempt.facts_file, facts)
    if ranks.run.config.get("kind") == "command":  # before any thread is started
        ranks.watcher = start_watcher(ranks.run, attempt.number, started)
    sampler = Sampler(attempt.system_file(processes.host()), pids=ranks.pids)
    sampler.start()
    if deadline is not None:
        ranks.stop_at = deadline - find_lead_s(ranks.run.config)
    outcome = set_up(ranks) or run_ranks(ranks, deadline)
    ranks.end_watcher()
    if outcome.name == "again" and restarts_left <= 0:
        cause = "it asked to be started again (code 85) more often than resources.requeues allows"
        outcome = Outcome("failed", exit_code=rank.AGAIN, cause=cause)
    sampler.stop()
    try:
        overwrite(attempt.facts_file, {**facts, **outcome.facts(started)})
    except OSError as error:
        print(
            f"rampup: {outcome.cause or outcome.name}; can't record it: {error.strerror}",
            file=words,
            flush=True,
        )
    return outcome


def speak_into(log: Path, keep_terminal: bool) -> Any:
    """Our own output goes to job.log; returns where last words go when nothing can be written there
    any more."""
    terminal = os.fdopen(os.dup(2), "w") if keep_terminal else sys.stderr
    job_log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(job_log, 1)
    os.dup2(job_log, 2)
    os.close(job_log)
    return terminal


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument(
        "--foreground-of", type=int, help="pid of the command line that must not outlive us"
    )
    parser.add_argument(
        "--ranks-by",
        action="append",
        default=[],
        metavar="WORD",
        help="a word of the command that starts all ranks; one option for each word",
    )
    parser.add_argument(
        "--stdin",
        type=int,
        default=subprocess.DEVNULL,
        metavar="FD",
        help="an open file for the standard input of rank 0",
    )
    options = parser.parse_args()
    run, parent = RunDir(options.run_dir), options.foreground_of
    sys.exit(supervise(run, parent, options.ranks_by, options.stdin))


if __name__ == "__main__":
    main()
