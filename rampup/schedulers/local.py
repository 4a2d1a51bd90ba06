"""The scheduler `local`: this machine, at once, no queue. It starts the supervisor of a run, and
ends it."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rampup.core import processes, stdin
from rampup.core.spec import Cluster, RunSpec
from rampup.errors import SchedulerError
from rampup.rundir import claims, records
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.schedulers.base import NO_SHARE, Command, JobRef, Scheduler
from rampup.schedulers.held_start import Gate

CANCEL_WAIT_S = 45.0
"""A run that saves before it ends may take so long."""


class Local(Scheduler):
    name = "local"
    title = "this machine"
    launchers = ("spawn", "mpirun")
    is_here = driven_here = can_wait = signals_programs = True

    def render_command(self, spec: RunSpec, run_dir: Path) -> Command:
        from rampup.launchers import find_launcher  # only for a run that starts

        before = find_launcher(spec.cluster.launcher).command_here(spec.resources.tasks_per_node)
        env: dict[str, str] = {}
        if spec.resources.devices is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, spec.resources.devices))
        return Command(supervisor_argv(run_dir, before), env, spec.cwd)

    def submit(
        self, run: RunDir, spec: RunSpec, detach: bool, share: Mapping[str, str] = NO_SHARE
    ) -> subprocess.Popen[bytes]:
        is_heard = spec.kind == "command" and not detach and not share
        return start_supervisor(run, self.render_command(spec, run.path), detach, hears=is_heard)

    def cancel(self, run: RunDir, cluster: Cluster, job: JobRef | None) -> None:
        stop_supervisor(run)


def supervisor_argv(run_dir: Path, ranks_by: Sequence[str] = ()) -> tuple[str, ...]:
    """The supervisor of a run; `ranks_by` are the words before rank.py where another program starts
    the ranks."""
    # -P: a file named like a module of ours in the user's directory must not be imported instead
    argv = (sys.executable, "-P", "-m", "rampup.runtime.supervisor", str(run_dir))
    return (*argv, *(f"--ranks-by={word}" for word in ranks_by))


def start_supervisor(
    run: RunDir,
    command: Command,
    detach: bool,
    scheduler: str = Local.name,
    hears: bool = False,
) -> subprocess.Popen[bytes]:
    """Start the launcher. In the foreground it ends with us; detached it outlives us and the
    terminal. With `hears`, rank 0 gets our standard input, if that is a file or a pipe."""
    argv, before_us = list(command.argv), len(run.attempt_numbers())
    if not detach:
        argv.append(f"--foreground-of={os.getpid()}")
    entry = os.dup(stdin.STDIN) if hears and stdin.is_piped() else None
    if entry is not None:
        argv.append(f"--stdin={entry}")
    # A signal that comes while Python starts up waits, blocked, until the launcher asks for it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        # Ctrl-C at the terminal reaches us alone: the gate has a session of its own
        gate = Gate(
            argv,
            {**os.environ, **command.env},
            cwd=command.cwd,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if detach else None,
            pass_fds=() if entry is None else (entry,),
        )
    finally:
        if entry is not None:
            os.close(entry)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    start_recorded(run, gate, scheduler=scheduler)
    if detach and not run.config.get("after"):
        wait_for_start(run, gate.process, before_us)
    return gate.process


def start_recorded(run: RunDir, gate: Gate, **facts: Any) -> None:
    """Write down which process has the run, then let it go. Without the record there is no run."""
    try:
        start = claims.describe_start(run)
        run.record("submitted", durable=True, **start, **facts, **gate.identify())
    except BaseException as error:
        gate.kill()
        if isinstance(error, OSError):
            raise records.refuse_write(run.control_file, error) from None
        raise
    gate.open()


def wait_for_start(run: RunDir, launcher: subprocess.Popen[bytes], before_us: int) -> None:
    """Return when the launcher has claimed its attempt; a launcher that can't is an error now, not
    later."""
    assert launcher.stderr is not None
    while len(run.attempt_numbers()) == before_us:
        readable, _, _ = select.select([launcher.stderr], [], [], 0.02)
        if readable and launcher.poll() is not None:
            said = launcher.stderr.read().decode(errors="replace").strip()
            number, _ = claims.newest_claim(run)
            run.record("not submitted", number=number, why="its launcher ended at once")
            raise SchedulerError(
                f"the launcher of {run.id} ended at once: {said[-500:]}", f"see {run.path}"
            )


def find_supervisor(run: RunDir) -> Record | None:
    """Return the supervisor, or the job script inside an allocation, that has the run. One of
    another machine is refused: nobody here can stop it."""
    attempt = run.last_attempt()
    launcher = attempt.facts if attempt is not None else None
    if not launcher or "pid" not in launcher:  # not begun, or a job script inside an allocation
        launcher = run.recorded("submitted")
    if not launcher:
        return None
    if launcher.get("host") != processes.host():
        raise SchedulerError(
            f"run {run.id} lives on {launcher.get('host')}, not here",
            f"rampup cancel {run.id} on {launcher.get('host')}",
        )
    return launcher


def refuse_other_process(run: RunDir, pid: int) -> None:
    """Refuse to end a process that a run names and that does not have this run: a file may name any
    process of the user."""
    words = processes.read_command(pid)
    if words is None or is_supervisor(run, words):
        return
    raise SchedulerError(
        f"process {pid}, which run {run.id} names, does not belong to it: it is left alone",
        f"see what it is: ps -fp {pid}",
    )


def is_supervisor(run: RunDir, words: Sequence[str]) -> bool:
    """Whether these are the words of a program that we start to have a run: a module of ours with
    its directory, or bash with its job script."""
    ours = any(word.startswith("rampup.") for word in words)
    return any(
        (ours and is_same(word, run.path)) or is_same(word, run.job_script)
        for word in words
        if os.path.isabs(word)
    )


def is_same(word: str, path: Path) -> bool:
    try:
        return os.path.samefile(word, path)
    except (OSError, ValueError):
        return False


def stop_supervisor(run: RunDir) -> None:
    """Ask the process that has the run to end it; wait until it has."""
    launcher = find_supervisor(run)
    if launcher is None:
        return
    if processes.is_alive(launcher):
        refuse_other_process(run, launcher["pid"])
        os.kill(launcher["pid"], signal.SIGTERM)
    deadline = time.monotonic() + CANCEL_WAIT_S
    while processes.is_alive(launcher):
        if time.monotonic() > deadline:
            raise SchedulerError(
                f"run {run.id} did not end within {CANCEL_WAIT_S:.0f} s",
                f"kill -9 {launcher['pid']}",
            )
        time.sleep(0.05)
