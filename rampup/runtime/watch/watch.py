"""The watcher of a command: one process beside rank 0 that reads what the program writes anyway, and
one on every node that samples CPU and memory.

On this machine the supervisor forks it (`start_watcher`). Under Slurm nothing of ours but rank.py is
there: it starts `python -m rampup.runtime.watch`, on the first rank of each node. The watcher ends
when the pipe to whoever started it is closed, after a last look. It never touches the program.
"""

import argparse
import contextlib
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from rampup.core.program import Pattern
from rampup.rundir.files import RunDir
from rampup.runtime.telemetry.sampler import Sampler, find_ranks
from rampup.runtime.watch.files import (
    CSV_NAME,
    EVENTS_NAME,
    CsvFile,
    EventFile,
    Names,
    Reader,
    TrainerState,
)
from rampup.runtime.watch.log import Log, MlperfLines, PatternLines, Source, TrainerLines
from rampup.runtime.watch.ownership import OwnFiles, Processes
from rampup.runtime.watch.recorder import Recorder

LOOK_EVERY_S = 1.0
FIRST_LOOKS, FIRST_EVERY_S = 20, 0.1
"""A short program may have ended before the first look after a second."""
LAST_LOOK_S = 10.0
"""So long the end of a run waits for what is not read yet of a large log."""
NICENESS = 5
DEAF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Watcher:
    """Reads the log of rank 0, and the files that its processes write."""

    def __init__(self, run: RunDir, attempt: int, started: float) -> None:
        config, self._began = run.config, time.monotonic()
        directory = run.attempt(attempt)
        self._recorder = Recorder(run, directory)
        self._log = Log(directory.rank_log(0))
        asked = config.get("program", {}).get("metric", [])
        patterns = [Pattern(text) for text in asked]
        self._trainer = TrainerLines()
        self._sources: list[Source] = [
            MlperfLines(),
            self._trainer,
            PatternLines(patterns, self._recorder.warn),
        ]
        processes = Processes(run.path, attempt)
        self._files = OwnFiles(run, processes, Path(config.get("cwd") or "."), started)
        self._names = Names()
        self._readers: dict[Path, Reader] = {}

    def watch(self, pipe: int) -> None:
        """Look now and then, until the pipe is closed."""
        looks, ended = 0, False
        while not ended:
            wait_s = FIRST_EVERY_S if looks < FIRST_LOOKS else LOOK_EVERY_S
            ended, looks = is_closed(pipe, wait_s), looks + 1
            if self._recorder.retired:
                return
            self._look(ended)
        self._recorder.close()

    def _look(self, at_end: bool) -> None:
        until = time.monotonic() + LAST_LOOK_S
        # nobody waits for a look while the program runs
        lines = self._log.read(lambda: at_end and time.monotonic() > until)
        for line in lines:
            self._look_at(line)
        if at_end:
            for line in self._log.read_rest():
                self._look_at(line)
            for found in self._trainer.flush():
                self._recorder.add(found)
        for path in self._files.look(at_end):
            self._readers[path] = self._open(path)
        for reader in self._readers.values():
            if not (self._trainer.seen and isinstance(reader, TrainerState)):
                for found in reader.read():
                    self._recorder.add(found)
        self._recorder.flush()

    def _look_at(self, line: str) -> None:
        for source in self._sources:
            for found in source.look(line):
                self._recorder.add(found)

    def _open(self, path: Path) -> Reader:
        if EVENTS_NAME in path.name:
            return EventFile(path, self._names.prefix_of(path))
        kind = CsvFile if path.name == CSV_NAME else TrainerState
        return kind(path, self._recorder.known)


def is_closed(pipe: int, within_s: float) -> bool:
    """Return whether the other end of the pipe is gone, after at most so many seconds."""
    readable, _, _ = select.select([pipe], [], [], within_s)
    return bool(readable) and not os.read(pipe, 1)


def start_watcher(run: RunDir, attempt: int, started: float) -> "Started":
    """Fork the watcher of rank 0 from a process without threads. What it returns ends it."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(send)
        run_quietly(lambda: Watcher(run, attempt, started).watch(receive))
        os._exit(0)
    os.close(receive)
    return Started(pid, send)


class Started:
    """A watcher that runs."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid, self._pipe = pid, pipe

    def end(self) -> None:
        """Let it take its last look, and wait for it; one that hangs in a file system is killed."""
        os.close(self._pipe)
        until = time.monotonic() + 2 * LAST_LOOK_S
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > until:
                    os.kill(self.pid, signal.SIGKILL)
                time.sleep(0.005)


def run_quietly(watch: Any) -> None:
    """Watch, below the program in the order of the processor. An error is written down where the
    launcher writes, and nothing else happens: the run is worth more than its metrics."""
    for number in DEAF:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGVTALRM})
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    try:
        watch()
    except Exception:
        print("rampup: warning: no more metrics of this command:", file=sys.stderr)
        traceback.print_exc()
        sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--started", type=float, required=True)
    parser.add_argument("--metrics", action="store_true", help="this is the node of rank 0")
    options = parser.parse_args()
    run = RunDir(options.run_dir)
    file = run.attempt(options.attempt).system_file(options.node)
    own = os.getpid()

    def watch() -> None:
        sampler = Sampler(file, pids=lambda: find_ranks(run.path, options.node) - {own}).start()
        if options.metrics:
            Watcher(run, options.attempt, options.started).watch(sys.stdin.fileno())
        while not is_closed(sys.stdin.fileno(), LOOK_EVERY_S):
            continue
        sampler.stop()

    run_quietly(watch)
