"""A launched function, as its caller holds it: wait, cancel, and what rank 0 returned.

Made by `rampup.launch` and `rampup.attach`. Everything it knows it reads from the run directory, so
a job can be held by several processes, and the one that launched it may end.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rampup.cli import output
from rampup.cli.follow import poll_interval_s
from rampup.errors import NotFinished, RampupError, RunFailed
from rampup.functions.view import View, open_view
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record
from rampup.rundir.results import read_result
from rampup.runs import stop
from rampup.runs.state import State, state_of
from rampup.schedulers import find_recorded

POLL_S, LATER_POLL_S = 0.02, 0.2
AT_FIRST_S = 5.0
SHARED_WITHIN_S = 60.0
"""So long a shared file system may take to show what another node has written."""
SECOND_CTRL_C_S = 45.0


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Let errors show their hint: Python prints the notes of an exception below it."""
    try:
        yield
    except RampupError as error:
        note = f"hint: {error.hint}"
        if error.hint and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


class Job:
    """A function that runs on many ranks, or has run. `result()` waits, and returns what rank 0
    returned."""

    def __init__(self, run: RunDir, process: subprocess.Popen[bytes] | None = None) -> None:
        self._run, self._process = run, process
        self._since = time.monotonic()

    @property
    def id(self) -> str:
        """The id of the run: `rampup show ID`, `rampup.attach(ID)`."""
        return self._run.id

    @property
    def dir(self) -> Path:
        """The run directory."""
        return self._run.path

    @property
    def state(self) -> str:
        """Return pending, running, completed, failed, cancelled or timeout."""
        return self._observe().name

    def done(self) -> bool:
        """Return whether the run has ended, in whatever way."""
        return self._observe().ended

    def cancel(self) -> None:
        """End all ranks."""
        stop.cancel(self._run)
        self._reap()

    def resume(self) -> "Job":
        """Start a run again that has ended, from its last checkpoint. A run of your own Spark
        session continues in the session of this process."""
        from rampup.functions.launch import resume_run

        with explained():
            self._process = resume_run(self._run)
            self._since = time.monotonic()
        return self

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait until the run has ended, and return what rank 0 returned.

        Raise RunFailed if a rank failed, with its rank, type and line, and NotFinished after
        `timeout_s`. Ctrl-C cancels a run of this machine; on a cluster it only stops waiting.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with explained():
            self.wait(open_view(self._run), deadline)
            return self._read()

    def wait(self, view: View, deadline: float | None = None) -> None:
        """Follow the run until it has ended; the view shows it."""
        later = time.monotonic() + AT_FIRST_S
        try:
            while True:
                ended = self._has_ended()  # asked before reading: nothing at the end is missed
                view.renew()
                if ended:
                    return
                if deadline is not None and time.monotonic() > deadline:
                    raise NotFinished(
                        f"run {self.id} has not ended yet", f"rampup.attach({self.id!r}).result()"
                    )
                time.sleep(POLL_S if time.monotonic() < later else LATER_POLL_S)
        except KeyboardInterrupt:
            self._interrupt()
            raise
        finally:
            view.close()

    def _repr_html_(self) -> str:
        from rampup.functions.curves import draw_run

        return draw_run(self._run, self._observe())

    def __repr__(self) -> str:
        return f"<rampup job {self.id}: {self.state}>"

    # how it ends ----------------------------------------------------------------------------------

    def _observe(self) -> State:
        self._reap()
        return state_of(self._run)

    def _has_ended(self) -> bool:
        if self._process is not None:
            return self._process.poll() is not None
        fresh_s = poll_interval_s(time.monotonic() - self._since)
        return state_of(self._run, fresh_s).ended

    def _reap(self) -> None:
        if self._process is not None:
            self._process.poll()

    def _is_driven_here(self) -> bool:
        return find_recorded(self._run.config.get("cluster", {}).get("scheduler")).driven_here

    def _interrupt(self) -> None:
        """Ctrl-C: end a run of this machine; leave alone one that is elsewhere."""
        if not self._is_driven_here():
            output.say(f"{self.id} is still {self.state}; stopped waiting")
            output.next_step(f"rampup.attach({self.id!r}).result()")
            return
        output.say(f"stopping {self.id} ...")
        with contextlib.suppress(RampupError, OSError):
            self.cancel()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(SECOND_CTRL_C_S)

    def _read(self) -> Any:
        state = state_of(self._run, 0.0)
        if state.name != "completed":
            raise describe_failure(self._run, state)
        attempt = self._run.last_attempt()
        deadline = time.monotonic() + (0.0 if self._is_driven_here() else SHARED_WITHIN_S)
        while attempt is not None and not attempt.result_file.exists():
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"run {self.id} completed without a result: rank 0 ended its process by itself",
                    f"rampup logs {self.id}",
                    run=self.id,
                )
            time.sleep(POLL_S)
            os.listdir(attempt.path)  # makes NFS look again
        assert attempt is not None, "a run that has completed has an attempt"
        return read_result(attempt, self.id)


def describe_failure(run: RunDir, state: State) -> RunFailed:
    """Return the exception for a run that ended without a result: the rank, the type of its error
    and the line, in one sentence."""
    attempt = run.last_attempt()
    errors = attempt.errors() if attempt is not None else []
    mine = [each for each in errors if each.get("rank") == state.failed_rank]
    error: Record = mine[0] if mine and state.name == "failed" else {}
    failed = RunFailed(
        f"run {run.id} {state.name}: {state.cause or 'cause unknown'}{describe_place(error)}",
        error.get("hint") or f"rampup why {run.id}",
        run=run.id,
        state=state.name,
        rank=state.failed_rank,
        error=error,
    )
    is_explained = bool(error.get("hint")) and not failed.file
    if failed.traceback and not is_explained:  # one with a hint and no line has only our frames
        failed.add_note(f"rank {failed.rank}:\n{failed.traceback.rstrip()}")
    return failed


def describe_place(error: Record) -> str:
    """Return the line of an error in words. A cell of a notebook has a file that nobody knows."""
    file, line = error.get("file"), error.get("line")
    if not file:
        return ""
    if "/ipykernel_" in file:
        return f" (line {line} of a notebook cell)"
    return f" ({os.path.basename(file)}, line {line})"
