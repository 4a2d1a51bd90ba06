"""Following a run: pass on what rank 0 prints, say how far it is, and report the end.

Called by `run`, `resume` and `sweep`; `logs` and `wait` use parts of it. It reads files of the run
directory like any other reader; the run does not know that somebody follows it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from rampup.cli import output, width
from rampup.cli.ending import report_end
from rampup.cli.screen import MovingLine, Progress, Screen, format_place
from rampup.core import processes
from rampup.core.metrics import share_done
from rampup.rundir import opening
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record, read_json
from rampup.runs.state import state_of, was_resubmitted_since
from rampup.runs.stop import record_cancelled

POLL_S, LATER_POLL_S = 0.05, 0.25
PART_BYTES = 4 * 2**20
"""More is not read at once."""
AT_FIRST_S = 5.0
"""So long it is polled often: a short run ends at once. Later, following must not take time from
the run."""


class Tail:
    """New bytes of a growing file; it may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def read(self) -> bytes:
        """Return what is new, or the first part of it: a caller that wants all asks again."""
        try:
            file = opening.open_file(self.path)
        except OSError:
            return b""
        try:
            size = os.fstat(file).st_size
            for begin, end in opening.find_written(file, self.offset, size):
                data = os.pread(file, min(PART_BYTES, end - begin), begin)
                self.offset = begin + len(data)
                return data
        except OSError:  # the disk is gone for a moment
            return b""
        finally:
            os.close(file)
        return b""


def poll_interval_s(waited_s: float) -> float:
    """Return how old an answer of Slurm may be: after an hour of waiting, a little longer is
    fine."""
    return min(30.0, 2.0 + waited_s / 20)


def follow(
    run: RunDir,
    is_running: Callable[[], bool],
    interrupted: list[int],
    screen: Screen,
    waits_for: Callable[[], str] = lambda: "",
) -> None:
    """Show a run until it ends, or until the user interrupts. `waits_for` says what a run waits
    for that has not begun."""
    tail, rows, attempt = Tail(Path()), Tail(Path()), None
    later = time.monotonic() + AT_FIRST_S
    while not interrupted:
        more = is_running()  # asked before reading: what is written until the end is not missed
        newest = run.last_attempt()
        is_new = newest is not None and (attempt is None or newest.number != attempt.number)
        if newest is not None and is_new and is_current(run, newest):
            attempt, tail = newest, Tail(newest.rank_log(0))
            rows = Tail(newest.metrics_file if screen.wants_metrics else Path())
        screen.show(tail.read())
        screen.show_metrics(rows.read())
        if screen.line.is_due():
            beat = read_json(attempt.progress_file) if attempt else {}
            words = describe_start(attempt, beat, screen.is_engine) if attempt else waits_for()
            screen.update(beat, words or "starting")
        if not more:
            while printed := tail.read():
                screen.show(printed)
            while written := rows.read():
                screen.show_metrics(written)
            break
        time.sleep(POLL_S if time.monotonic() < later else LATER_POLL_S)
    screen.close()


class StudyScreen:
    """The moving line while the runs of a study are started here: how many of them have ended, and
    how far the active ones are."""

    def __init__(self) -> None:
        self.line = MovingLine()
        self.progress: dict[str, Progress] = {}

    def say(self, words: str) -> None:
        """Print a line for people, in place of the moving one."""
        self.line.clear()
        output.say(words)

    def update(self, active: Sequence[RunDir], ended: int, count: int) -> None:
        if not self.line.is_due():
            return
        place = f"{ended} of {count} ended  "
        room = (width.columns(sys.stderr) or width.DEFAULT_COLUMNS) - 1 - len(place)
        if len(active) == 1:
            words = self._describe(active[0], room)
        else:
            words = width.join_fitting("", [describe_share(run) for run in active], room)
        self.line.draw(place + words)

    def _describe(self, run: RunDir, room: int) -> str:
        attempt = current_attempt(run)
        beat = read_json(attempt.progress_file) if attempt else {}
        if "step" in beat:
            return self.progress.setdefault(run.id, Progress()).format(beat, room)
        is_engine = bool(run.config.get("engine"))
        return describe_start(attempt, beat, is_engine) if attempt else "starting"


def describe_share(run: RunDir) -> str:
    """Say how far one of several runs is."""
    attempt = current_attempt(run)
    beat = read_json(attempt.progress_file) if attempt else {}
    share = share_done(beat)
    if share is not None:
        return f"{run.id} {share:.0%}"
    return f"{run.id} {format_place(beat) if 'step' in beat else 'starting'}"


def current_attempt(run: RunDir) -> AttemptDir | None:
    """Return the newest attempt, if it belongs to what was started last."""
    newest = run.last_attempt()
    return newest if newest is not None and is_current(run, newest) else None


def open_screen(run: RunDir, as_json: bool) -> Screen:
    config = run.config
    return Screen(as_json, config.get("train") or {}, bool(config.get("engine")))


def describe_start(attempt: AttemptDir, beat: Record, is_engine: bool) -> str:
    """Say what an attempt does that has not taken its first step."""
    if isinstance(beat.get("stage"), str):
        return str(beat["stage"])
    if attempt.rank_log(0).exists():
        return "starting Python" if is_engine else "running, no output yet"
    size = attempt.facts.get("world_size") or 1
    if size == 1:
        return "starting 1 rank"
    joined = attempt.count_joined() or 1
    return f"starting {size} ranks: {joined} of {size} have joined"


def is_current(run: RunDir, attempt: AttemptDir) -> bool:
    """Tell whether the attempt belongs to what was started last: after `resume` the newest attempt
    is an old one for a while."""
    return not was_resubmitted_since(run, attempt, attempt.facts)


def follow_foreground(
    run: RunDir, launcher: subprocess.Popen[bytes], interrupted: list[int], as_json: bool
) -> int:
    """Follow a run of this terminal: Ctrl-C cancels it."""
    before = ", ".join(each["id"] for each in run.config.get("after", []))
    screen, waits = open_screen(run, as_json), f"waiting for run {before}" if before else ""
    if waits and not screen.line.can_move:
        output.say(waits)
    follow(run, lambda: launcher.poll() is None, interrupted, screen, lambda: waits)
    if interrupted:
        output.say(f"stopping {run.id} ...")
        record_cancelled(run, processes.name_interrupt(interrupted[0]))
        launcher.send_signal(signal.SIGTERM)
    launcher.wait()
    code = report_end(run, launcher.returncode, as_json)
    return 128 + interrupted[0] if interrupted else code


def follow_job(run: RunDir, interrupted: list[int], as_json: bool) -> int:
    """Follow a job of a scheduler: Ctrl-C stops following and never cancels it."""
    begun, said, screen = time.monotonic(), "", open_screen(run, as_json)

    def is_running() -> bool:
        nonlocal said
        state = state_of(run, poll_interval_s(time.monotonic() - begun))
        words = f"{state.name} ({state.cause})" if state.name == "pending" else state.name
        # on a terminal the moving line says so while the run waits
        if words != said and not state.ended and not screen.line.can_move:
            output.say(words)
        said = words
        return not state.ended

    follow(run, is_running, interrupted, screen, lambda: said)
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
