"""Starting a program in two steps, so that it is recorded before it does anything.

The first step starts a process that waits. Its caller writes down which process that is, and then
lets it go: it becomes the program, and stays the same process. A caller that dies in between has
started nothing. The program has a process session of its own: Ctrl-C at the terminal does not reach
it. Slurm's sbatch, job scripts inside an allocation and supervisors are started like this.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rampup.core import processes
from rampup.rundir.records import Record

SHELL = "/bin/sh"
SCRIPT = Path(__file__).with_name("held_start.sh")


class Gate:
    """A program that waits to be let go."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], **options: Any) -> None:
        """Raise FileNotFoundError where there is no such program; `options` are of Popen."""
        if shutil.which(argv[0], path=env.get("PATH")) is None:
            raise FileNotFoundError(argv[0])
        self.argv = tuple(argv)
        self.process: subprocess.Popen[Any] = subprocess.Popen(
            [SHELL, str(SCRIPT), *argv],
            env=env,
            stdin=subprocess.PIPE,
            start_new_session=True,
            **options,
        )

    def identify(self) -> Record:
        """Return what to write down, so that others can see whether the program is alive."""
        return processes.identify(self.process.pid)

    def open(self) -> None:
        """Let the program go."""
        entry = self.process.stdin
        assert entry is not None
        self.process.stdin = None  # communicate() has nothing to write
        with contextlib.suppress(
            BrokenPipeError
        ):  # somebody killed it: its caller sees how it ended
            os.write(entry.fileno(), b"go\n")
        entry.close()

    def kill(self) -> None:
        """End the program and all that it has started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
