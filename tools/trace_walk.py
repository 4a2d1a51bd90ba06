"""Trace the walk of one command through the package, to see how far a reader has to travel.

    rampup sandbox up --nodes 2
    python tools/trace_walk.py sandbox             # rampup run mnist --on sandbox --nodes 2
    python tools/trace_walk.py sandbox --dry-run   # the same with --dry-run
    python tools/trace_walk.py sandbox --list      # and every change of file, in order

The command runs in this process. Without --dry-run the walk ends where sbatch would be called to
submit the job, so no job is submitted. What is counted:

files     files of the package in which at least one function is called. Files that are only
          imported do not count, nor do calls that an import makes (decorators, tables).
changes   calls from a function of the package to a function in another of its files. A call that
          is repeated (the same caller, the same function) counts once: the walk of a reader. A call
          through other people's code (click, msgspec) counts as made by our last function before.

The figures in docs/about/architecture.md come from here.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import rampup
from rampup.cli import app

PACKAGE = str(Path(rampup.__file__).parent) + os.sep
Place = tuple[str, str]
"""A file of the package and the name of a function in it."""


class Submitted(BaseException):
    """The walk has come to sbatch."""


class Walk:
    """The functions of the package in the order in which they are called."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.changes: dict[tuple[Place, Place], None] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call; sys.setprofile calls this."""
        if event != "call" or not is_function(frame) or is_importing(frame):
            return
        here, caller = place(frame), calling_function(frame)
        self.files.setdefault(here[0])
        if caller is not None and caller[0] != here[0]:
            self.changes.setdefault((caller, here))


def is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGE)


def is_function(frame: FrameType) -> bool:
    """Whether a frame is a function of the package; comprehensions and lambdas are not."""
    return is_ours(frame) and not frame.f_code.co_name.startswith("<")


def is_importing(frame: FrameType | None) -> bool:
    """Whether a module of the package is being imported further up."""
    while frame is not None:
        if is_ours(frame) and frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


def calling_function(frame: FrameType) -> Place | None:
    caller = frame.f_back
    while caller is not None and not is_function(caller):
        caller = caller.f_back
    return None if caller is None else place(caller)


def place(frame: FrameType) -> Place:
    return frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname


def stop_at_sbatch(event: str, arguments: tuple[Any, ...]) -> None:
    """End the walk before a job is submitted; an audit hook, because it sees every process."""
    if event != "subprocess.Popen":
        return
    words = [os.fsdecode(word) for word in arguments[1]]
    if any(Path(word).name == "sbatch" for word in words) and "--test-only" not in words:
        sys.setprofile(None)
        raise Submitted


def trace(words: list[str]) -> Walk:
    """Trace one command line; what it prints is thrown away."""
    walk = Walk()
    sys.argv = ["rampup", *words]
    sys.addaudithook(stop_at_sbatch)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        sys.setprofile(walk)
        try:
            app.main()
        except SystemExit as ended:
            sys.setprofile(None)
            if ended.code != 0:
                raise
        except Submitted:
            pass
    return walk


def main() -> None:
    options = argparse.ArgumentParser(description="Trace rampup run mnist --on CLUSTER --nodes 2.")
    options.add_argument("cluster")
    options.add_argument("--dry-run", action="store_true")
    options.add_argument("--list", action="store_true", help="print every change of file")
    asked = options.parse_args()
    words = ["run", "mnist", "--on", asked.cluster, "--nodes", "2"]
    words += ["--dry-run"] if asked.dry_run else []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAMPUP_RUNS"] = folder
        walk = trace(words)
    if asked.list:
        for (file, function), (other, called) in walk.changes:
            print(f"{file}:{function} -> {other}:{called}")
    print(f"rampup {' '.join(words)}: {len(walk.files)} files, {len(walk.changes)} changes of file")


if __name__ == "__main__":
    main()
