"""Following a run: pass on what rank 0 prints, draw the bar on a terminal, and report the end.

Called by `run`, `resume` and `sweep`; `logs` and `wait` use parts of it. It reads files of the run
directory like any other reader; the run does not know that somebody follows it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from rampup.cli import output
from rampup.cli.ending import report_end
from rampup.core import processes
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import read_json
from rampup.runs.state import state_of, was_resubmitted_since

POLL_S, LATER_POLL_S = 0.05, 0.25
AT_FIRST_S = 5.0
"""So long it is polled often: a short run ends at once. Later, following must not take time from
the run."""
DRAW_EVERY_S = 1.0
NARROW = 80
"""Columns below which the bar leaves out loss and speed."""


class Tail:
    """New bytes of a growing file; it may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return b""
        self.offset += len(data)
        return data


class Bar:
    """The progress bar, from the heartbeat of rank 0. Without a terminal or a heartbeat nothing is
    drawn."""

    def __init__(self) -> None:
        self.live: Any = None
        self.task: Any = None
        self.drawn = 0.0

    def update(self, beat: dict[str, Any], printing: bool) -> None:
        """Drawn once a second, or together with lines that are printed above it."""
        due = printing or time.monotonic() - self.drawn >= DRAW_EVERY_S
        if not due or not beat.get("steps") or not sys.stderr.isatty():
            return
        self.drawn = time.monotonic()
        if self.live is None:
            self._start(beat)
        loss = beat.get("train_loss")
        about = f"epoch {beat['epoch']}/{beat['epochs']}" if beat.get("epochs") else "step"
        facts = f"loss {loss:.4g}" if isinstance(loss, int | float) else ""
        speed = f"{beat['samples_s']:,.0f} samples/s" if beat.get("samples_s") else ""
        self.live.update(
            self.task, completed=beat.get("step", 0), description=about, facts=f"{facts}  {speed}"
        )
        if not printing:
            self.live.refresh()

    def _start(self, beat: dict[str, Any]) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        facts = TextColumn("{task.fields[facts]} ETA" if console.width >= NARROW else "")
        columns = (BarColumn(), TaskProgressColumn(), facts, TimeRemainingColumn())
        # No thread of its own, which would take time from the training.
        self.live = Progress(
            "{task.description}", *columns, console=console, transient=True, auto_refresh=False
        )
        self.task = self.live.add_task("", total=beat["steps"], facts="")
        self.live.start()

    def above(self, text: bytes) -> None:
        """Print whole lines over the bar."""
        self.live.console.print(
            text.decode(errors="replace"), end="", markup=False, highlight=False, soft_wrap=True
        )

    def stop(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None


class Screen:
    """Where rank 0's output goes: stdout, or stderr when stdout is for JSON; above the bar while
    there is one."""

    def __init__(self, as_json: bool) -> None:
        self.stream = sys.stderr if as_json else sys.stdout
        self.bar = Bar()
        self.rest = b""
        self.closed = False

    def show(self, data: bytes) -> None:
        if self.bar.live is None or not self.stream.isatty():
            self._write(self.rest + data)
            self.rest = b""
            return
        lines, newline, self.rest = (self.rest + data).rpartition(b"\n")
        if newline:
            self.bar.above(lines + newline)

    def _write(self, data: bytes) -> None:
        if not data or self.closed:
            return
        try:
            self.stream.buffer.write(data)
            self.stream.flush()
        except BrokenPipeError:
            # `| head`: nobody reads any more, which is no reason to stop training
            self.closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            output.say("note: nobody reads the output any more; the run continues")

    def close(self) -> None:
        self.bar.stop()
        self._write(self.rest)


def poll_interval_s(waited_s: float) -> float:
    """Return how old an answer of Slurm may be: after an hour of waiting, a little longer is
    fine."""
    return min(30.0, 2.0 + waited_s / 20)


def follow(
    run: RunDir, is_running: Callable[[], bool], interrupted: list[int], as_json: bool
) -> None:
    """Show a run until it ends, or until the user interrupts."""
    screen, tail, attempt = Screen(as_json), Tail(Path()), None
    later = time.monotonic() + AT_FIRST_S
    while not interrupted:
        more = is_running()  # asked before reading: what is written until the end is not missed
        newest = run.last_attempt()
        is_new = newest is not None and (attempt is None or newest.number != attempt.number)
        if newest is not None and is_new and is_current(run, newest):
            attempt, tail = newest, Tail(newest.rank_log(0))
        if attempt is not None:
            data = tail.read()
            screen.bar.update(read_json(attempt.progress_file), printing=bool(data))
            screen.show(data)
        if not more:
            break
        time.sleep(POLL_S if time.monotonic() < later else LATER_POLL_S)
    screen.close()


def is_current(run: RunDir, attempt: AttemptDir) -> bool:
    """Tell whether the attempt belongs to what was started last: after `resume` the newest attempt
    is an old one for a while."""
    return not was_resubmitted_since(run, attempt.facts)


def follow_foreground(
    run: RunDir, launcher: subprocess.Popen[bytes], interrupted: list[int], as_json: bool
) -> int:
    """Follow a run of this terminal: Ctrl-C cancels it."""
    follow(run, lambda: launcher.poll() is None, interrupted, as_json)
    if interrupted:
        output.say(f"stopping {run.id} ...")
        with contextlib.suppress(OSError):  # on a full disk the run must still be stopped
            run.record("cancelled", by=processes.name_interrupt(interrupted[0]))
        launcher.send_signal(signal.SIGTERM)
    launcher.wait()
    code = report_end(run, launcher.returncode, as_json)
    return 128 + interrupted[0] if interrupted else code


def follow_job(run: RunDir, interrupted: list[int], as_json: bool) -> int:
    """Follow a job of a scheduler: Ctrl-C stops following and never cancels it."""
    begun, said = time.monotonic(), ""

    def is_running() -> bool:
        nonlocal said
        state = state_of(run, poll_interval_s(time.monotonic() - begun))
        words = f"{state.name} ({state.cause})" if state.name == "pending" else state.name
        if words != said and not state.ended:
            output.say(words)
        said = words
        return not state.ended

    follow(run, is_running, interrupted, as_json)
    if not interrupted:
        return report_end(run, None, as_json)
    output.say(f"detached; {run.id} is still running")
    output.next_step(f"rampup logs -f {run.id}")
    return 128 + interrupted[0]


@contextlib.contextmanager
def interrupt_flag() -> Iterator[list[int]]:
    """Yield a list that Ctrl-C, SIGTERM and SIGHUP fill, so that nothing is interrupted in the
    middle of what it does. Under nohup SIGHUP stays ignored."""
    seen: list[int] = []
    terminals = [number for number in (1, 2) if os.isatty(number)]
    heeded = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        heeded.append(signal.SIGHUP)

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:  # the terminal is gone: writing to it would fail
            for terminal in terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)
        seen.append(number)

    for number in heeded:
        signal.signal(number, note)
    yield seen
    for number in heeded:
        # everything is reported; a third Ctrl-C must not spoil the exit code
        signal.signal(number, signal.SIG_IGN)
