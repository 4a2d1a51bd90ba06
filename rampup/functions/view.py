"""What the caller of `rampup.launch` sees while it waits: what rank 0 prints, and how far it is.

On a terminal this is the screen of `rampup run`. In a notebook one output of the cell renews itself:
a bar, the last values and the last lines. Elsewhere the lines of rank 0 are passed on as they come.
"""

import html
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from rampup.cli import follow
from rampup.cli.screen import Screen, format_facts, format_place
from rampup.core.metrics import share_done
from rampup.functions.curves import draw_bar, draw_run
from rampup.rundir.attempt import AttemptDir
from rampup.rundir.files import RunDir
from rampup.rundir.records import read_json
from rampup.runs.state import State, state_of

RENEW_S = 0.5
LAST_LINES, LONGEST_LINE = 12, 400
MOST_BYTES = 1_000_000
"""Of a flood of output a caller that is not a terminal gets the first bytes of each second."""


class View(Protocol):
    """Shows a run to somebody who waits for it."""

    def renew(self) -> None: ...

    def close(self) -> None: ...


class Tail:
    """What rank 0 of the newest attempt has printed since the last look."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.attempt: AttemptDir | None = None
        self._tail = follow.Tail(run.path / "none")

    def read(self) -> bytes:
        newest = self.run.last_attempt()
        is_new = newest is not None and (
            self.attempt is None or newest.number != self.attempt.number
        )
        if newest is not None and is_new and follow.is_current(self.run, newest):
            self.attempt, self._tail = newest, follow.Tail(newest.rank_log(0))
        return b"".join(iter(self._tail.read, b""))


class TerminalView:
    """The screen of `rampup run`: rank 0's output, and one line below that moves."""

    def __init__(self, run: RunDir) -> None:
        self.tail, self.screen = Tail(run), Screen(False, {}, is_engine=False)

    def renew(self) -> None:
        self.screen.show(self.tail.read())
        if self.screen.line.is_due():
            attempt = self.tail.attempt
            beat = read_json(attempt.progress_file) if attempt is not None else {}
            words = follow.describe_start(attempt, beat, False) if attempt is not None else ""
            self.screen.update(beat, words or "starting")

    def close(self) -> None:
        self.screen.close()


class PlainView:
    """Passes on what rank 0 prints, as text."""

    def __init__(self, run: RunDir) -> None:
        self.run, self.tail = run, Tail(run)
        self.second, self.written = 0, 0

    def renew(self) -> None:
        data = self.tail.read()
        if not data:
            return
        if int(time.monotonic()) != self.second:
            self.second, self.written = int(time.monotonic()), 0
        kept = data[: max(0, MOST_BYTES - self.written)]
        self.written += len(data)
        sys.stdout.write(kept.decode(errors="replace"))
        if len(kept) < len(data):
            skipped = f"[{len(data) - len(kept):,} bytes left out: rampup logs {self.run.id}]"
            sys.stdout.write(f"\n{skipped}\n")
        sys.stdout.flush()

    def close(self) -> None:
        self.renew()


class NotebookView:
    """One output of a cell, which renews itself."""

    def __init__(self, run: RunDir, show: Callable[[str], Callable[[str], None]]) -> None:
        """`show` displays HTML, and returns what replaces it."""
        self.run, self.tail = run, Tail(run)
        self.lines: deque[str] = deque(maxlen=LAST_LINES)
        self.due = 0.0
        self.replace = show(self.format(State("pending")))

    def renew(self) -> None:
        for line in self.tail.read().decode(errors="replace").splitlines()[-LAST_LINES:]:
            self.lines.append(line[:LONGEST_LINE])
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + RENEW_S
            self.replace(self.format(State("running")))

    def close(self) -> None:
        self.replace(self.format(state_of(self.run)))

    def format(self, state: State) -> str:
        text = html.escape("\n".join(self.lines))
        said = f"<pre style='margin:4px 0;max-height:16em;overflow:auto'>{text}</pre>"
        if state.ended:
            return draw_run(self.run, state) + (said if text else "")
        attempt = self.tail.attempt if hasattr(self, "tail") else None
        beat: dict[str, Any] = read_json(attempt.progress_file) if attempt is not None else {}
        share = share_done(beat)
        facts = [format_place(beat), *format_facts(beat)] if "step" in beat else [state.name]
        bar = draw_bar(share) if share is not None else ""
        return f"<div><b>{self.run.id}</b> {bar} {html.escape('  '.join(facts))}</div>{said}"


def open_view(run: RunDir) -> View:
    """Return the view that fits where the caller runs."""
    show = notebook_display()
    if show is not None:
        return NotebookView(run, show)
    if hasattr(sys.stdout, "buffer") and sys.stdout.isatty():
        return TerminalView(run)
    return PlainView(run)


def notebook_display() -> Callable[[str], Callable[[str], None]] | None:
    """Return how to display HTML in the cell that is being executed; None outside of notebooks."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display: Any = sys.modules["IPython.display"]

    def show(text: str) -> Callable[[str], None]:
        handle = display.display(display.HTML(text), display_id=True)
        return lambda newer: handle.update(display.HTML(newer))

    return show
