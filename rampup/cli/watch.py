"""`rampup list --watch`: a list that renews itself until Ctrl-C.

It draws what the verb prints, from the top of a cleared screen, cut to the height of the terminal.
What it drew last stays when it ends.
"""

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from rampup.errors import UsageError

DRAW_EVERY_S = 2.0
CLEAR, HOME, CLEAR_BELOW, CLEAR_RIGHT = "\x1b[2J", "\x1b[H", "\x1b[J", "\x1b[K"


class Page(io.StringIO):
    """Takes what is printed, and is as wide and as colourful as the terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return sys.__stdout__.fileno() if sys.__stdout__ else 1


def watch(show: Callable[[], None], as_json: bool) -> NoReturn:
    """Draw what `show` prints every few seconds. Ctrl-C ends it, as it ends every verb."""
    if as_json or not sys.stdout.isatty():
        raise UsageError("--watch needs a terminal", "rampup list prints the list once")
    start = CLEAR
    while True:
        sys.stdout.write(start + draw(read_page(show), os.get_terminal_size(1).lines))
        sys.stdout.flush()
        start = ""
        time.sleep(DRAW_EVERY_S)


def read_page(show: Callable[[], None]) -> list[str]:
    """Return the lines that `show` prints, on stdout or for people."""
    page = Page()
    with contextlib.redirect_stdout(page), contextlib.redirect_stderr(page):
        show()
    return page.getvalue().splitlines()


def draw(lines: list[str], rows: int) -> str:
    """Return what puts the lines on the screen in place of those before; the last row stays free
    for the cursor."""
    shown = lines[: max(1, rows - 1)]
    return HOME + "".join(f"{line}{CLEAR_RIGHT}\n" for line in shown) + CLEAR_BELOW
