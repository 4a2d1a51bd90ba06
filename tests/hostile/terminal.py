"""The command line in this process, on a terminal that keeps what it is sent: quick enough for
thousands of calls."""

import io
import os
import re
import signal
import stat
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from types import FrameType
from typing import NamedTuple

from rampup.cli import app

HANGS_S = 30.0
"""By the clock, on a machine that has other things to do; `cpu_s` is what is promised."""
SGR = re.compile(r"\x1b\[[0-9;:]*m")
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal must never be sent."""


class Hang(Exception):
    """A verb takes too long."""


class FakeTerminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode("utf-8", "replace")


class Called(NamedTuple):
    code: int | str | None
    out: str
    err: str
    seconds: float
    cpu_s: float
    problem: str
    """A traceback, or that it hung; empty if neither."""

    def find_faults(self, is_log: bool = False) -> list[str]:
        """Return what is wrong with a call, whatever it was asked."""
        found = [self.problem] if self.problem else []
        if self.cpu_s > 5:
            found.append(f"it took {self.cpu_s:.1f} s")
        for text in (self.out, self.err):
            shown = SGR.sub("", text).replace("\r", "") if is_log else text
            if bad := OBEYED.search(shown):
                found.append(f"sent to the terminal: {shown[max(0, bad.start() - 40) :][:90]!r}")
            if "\nnext: rm" in shown and not is_log:
                found.append("a name made a line of its own")
        return found


def call(*words: str) -> Called:
    """Call a verb as the program does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    out, err, code, problem = FakeTerminal(), FakeTerminal(), None, ""
    before, sys.argv = sys.argv, ["rampup", *words]
    handler = signal.signal(signal.SIGALRM, stop)
    began, cpu = time.monotonic(), time.process_time()
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            app.main()
    except SystemExit as error:
        code = error.code
    except Hang:
        problem = f"it hung: {traceback.format_exc()[-600:]}"
    except BaseException:
        problem = traceback.format_exc()[-700:]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        sys.argv = before
    seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu
    return Called(code, out.text(), err.text(), seconds, cpu_s, problem)


def read_tree(folder: str) -> dict[str, tuple[int, int, bytes]]:
    """Return all that lies in a folder: modes, times and contents."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            facts = os.lstat(path)
            content = b""
            if stat.S_ISREG(facts.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            found[path] = (facts.st_mode, facts.st_mtime_ns, content)
    return found
