"""The `local` scheduler: this machine, at once, no queue. Starts, cancels and asks for the launcher
of a run."""

import os
import select
import signal
import subprocess
import time

from rampup.core import processes
from rampup.core.spec import Plan
from rampup.errors import SchedulerError
from rampup.rundir.files import RunDir

CANCEL_WAIT_S = 45.0
"""A run that saves before it ends may take so long."""


def submit(run: RunDir, plan: Plan, detach: bool) -> subprocess.Popen[bytes]:
    """Start the launcher. In the foreground it ends with us; detached it outlives us and the
    terminal."""
    argv, before_us = list(plan.argv), len(run.attempt_numbers())
    if not detach:
        argv.append(f"--foreground-of={os.getpid()}")
    # A signal that comes while Python starts up waits, blocked, until the launcher asks for it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        launcher = subprocess.Popen(
            argv,
            cwd=plan.cwd,
            env={**os.environ, **plan.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if detach else None,
            # Ctrl-C at the terminal reaches us alone; we pass it on in good order
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    run.record("submitted", scheduler="local", **processes.identify(launcher.pid))
    if detach:
        wait_for_start(run, launcher, before_us)
    return launcher


def wait_for_start(run: RunDir, launcher: subprocess.Popen[bytes], before_us: int) -> None:
    """Return when the launcher has claimed its attempt; a launcher that can't is an error now, not
    later."""
    assert launcher.stderr is not None
    while len(run.attempt_numbers()) == before_us:
        readable, _, _ = select.select([launcher.stderr], [], [], 0.02)
        if readable and launcher.poll() is not None:
            said = launcher.stderr.read().decode(errors="replace").strip()
            raise SchedulerError(
                f"the launcher of {run.id} ended at once: {said[-500:]}", f"see {run.path}"
            )


def cancel(run: RunDir) -> None:
    """Ask the launcher to stop the run in good order, and wait until it has."""
    attempt = run.last_attempt()
    launcher = attempt.facts if attempt is not None else None
    if not launcher or "pid" not in launcher:  # not begun, or a job script inside an allocation
        launcher = run.recorded("submitted")
    if not launcher:
        return
    if launcher.get("host") != processes.host():
        raise SchedulerError(
            f"run {run.id} lives on {launcher.get('host')}, not here",
            f"rampup cancel {run.id} on {launcher.get('host')}",
        )
    if processes.is_alive(launcher):
        os.kill(launcher["pid"], signal.SIGTERM)
    deadline = time.monotonic() + CANCEL_WAIT_S
    while processes.is_alive(launcher):
        if time.monotonic() > deadline:
            raise SchedulerError(
                f"run {run.id} did not end within {CANCEL_WAIT_S:.0f} s",
                f"kill -9 {launcher['pid']}",
            )
        time.sleep(0.05)
