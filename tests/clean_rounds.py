"""`rampup clean` beside a next attempt, at random moments, with a checkpoint that takes a second or
more to verify.

Whatever their order, no checkpoint that an attempt writes may be removed while it lives, and the
newest one is there at every moment. tests/local and tests/slurm start the attempt in two ways: by
`rampup resume`, and by a requeue that knows no lock of ours. `make test-slow` runs them.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rampup.rundir import checkpoints
from rampup.rundir.files import RunDir

LOOP = """
import os, sys, time, rampup
from pathlib import Path

run = rampup.init()
found = Path(os.environ["RAMPUP_RUN_DIR"], "checkpoints").glob("step-*")
last = max((int(path.name[5:]) for path in found if path.name[5:].isdigit()), default=0)
for step in range(last + 1, last + 7):
    run.log(step=step, loss=1.0)
    run.save({"step": step}, step)
    time.sleep(0.15)
run.finish()
sys.exit(1)
"""
"""Six steps in each attempt, each with a checkpoint; it always fails, so it can go on. It does not
read what was saved: that would take as long as `clean` takes, and be too late to meet it."""
STEPS = 6


class Rounds:
    """Rounds with one run; `begin` starts its next attempt and returns whether that was allowed."""

    def __init__(self, run: RunDir, env: dict[str, str], begin: Callable[[], bool]) -> None:
        self.run, self.env, self.begin = run, env, begin
        self.seed = int(os.environ.get("RAMPUP_TEST_SEED", time.time_ns() % 1_000_000))
        self.random = random.Random(self.seed)
        self.outcomes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.first_save_s = self._measure_first_save()
        self.verify_s = max(1.0, 1.5 * self.first_save_s)
        self.size = measure_size(self.verify_s)
        self.sum = hash_zeros(self.size)
        self.clean_s = self.verify_s

    def _measure_first_save(self) -> float:
        """Return how long after its start an attempt has saved something: verifying must take
        longer, or `clean` is always done before."""
        last, attempts = checkpoints.list_steps(self.run)[0], len(self.run.attempt_numbers())
        began = time.monotonic()
        assert self.begin()
        while checkpoints.list_steps(self.run)[0] <= last:
            time.sleep(0.01)
        found = time.monotonic() - began
        self._wait_for_end(attempts + 1)
        return found

    def play(self, count: int) -> None:
        """Begin an attempt before `clean` starts, while it works, or after that."""
        self.clean_s = self._measure_clean()
        for number in range(count):
            self._play_one(number, self._choose_moment(number))
        print(f"\nseed {self.seed}, {self.size / 1e6:,.0f} MB, {count} rounds:", flush=True)
        for outcome, times in self.outcomes.most_common():
            print(f"  {times:3d} {outcome}", flush=True)
        assert not self.violations, "\n".join(self.violations)

    def _measure_clean(self) -> float:
        """Return how long `clean` takes, with nobody beside it."""
        self._grow(checkpoints.list_steps(self.run)[0])
        began = time.monotonic()
        out, err = self._start_clean(0.0, "--dry-run").communicate(timeout=120)
        assert out, err
        return time.monotonic() - began

    def _choose_moment(self, number: int) -> float:
        """Return when an attempt begins, in seconds after `clean`. In every other round `clean` is to
        end between that and the first checkpoint: this is where it might remove too much."""
        if number % 2:
            return self.clean_s - self.random.uniform(-0.2, self.first_save_s + 0.2)
        return self.random.uniform(-0.5 * self.first_save_s, self.verify_s)

    def _play_one(self, number: int, between_s: float) -> None:
        last = checkpoints.list_steps(self.run)[0]
        self._grow(last)
        attempts = len(self.run.attempt_numbers())
        watch = Watch(self.run)
        clean = self._start_clean(max(0.0, -between_s))
        time.sleep(max(0.0, between_s))
        begun = self.begin()
        out, err = clean.communicate(timeout=120)
        if begun:
            self._wait_for_end(attempts + 1)
        watch.stop()
        cleaned = clean.returncode == 0
        removed = json.loads(out)[0]["removed"] if cleaned else []
        new = [name for name in removed if name.startswith("step-") and step_of(name) > last]
        words = "clean did its work" if cleaned else f"clean: {describe(err)}"
        self.outcomes[f"{words}; attempt {'began' if begun else 'refused'}"] += 1
        found = checkpoints.list_steps(self.run)
        expected = last + STEPS if begun else last
        if found[:1] != [expected] or watch.faults or new or "Traceback" in err:
            self.violations.append(
                f"round {number}, {between_s:+.2f} s: expected step {expected}, found {found}; "
                f"removed {removed}; {watch.faults}; {err}"
            )
        assert found, "\n".join(self.violations)
        checkpoints.verify_checkpoint(self.run, found[0])

    def _start_clean(self, after_s: float, *options: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "rampup", "clean", str(self.run.path), "--json", *options]
        delayed = ["bash", "-c", 'sleep "$1"; shift; exec "$@"', "-", str(after_s), *argv]
        return subprocess.Popen(
            delayed,
            cwd=self.run.path,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _wait_for_end(self, attempts: int) -> None:
        argv = [sys.executable, "-m", "rampup", "wait", str(self.run.path), "--timeout", "90"]
        deadline = time.monotonic() + 120
        while len(self.run.attempt_numbers()) < attempts and time.monotonic() < deadline:
            time.sleep(0.1)
        done = subprocess.run(argv, cwd=self.run.path, env=self.env, capture_output=True, text=True)
        assert done.returncode == 100, done.stderr

    def _grow(self, step: int) -> None:
        """Add a file to a checkpoint that takes long to read: zeros, without a block on the
        disk."""
        folder = self.run.checkpoint(step)
        manifest = checkpoints.read_manifest(folder, step)
        with open(folder / "zeros", "wb") as file:
            file.truncate(self.size)
        manifest["files"]["zeros"] = {"size": self.size, "sha256": self.sum}
        (folder / "manifest.json").write_bytes(checkpoints.seal_manifest(manifest))


class Watch(threading.Thread):
    """Looks at the checkpoints all the time: the newest one never goes away."""

    def __init__(self, run: RunDir) -> None:
        super().__init__(daemon=True)
        self._run, self._stop_asked = run, threading.Event()
        self.faults: list[str] = []
        self.start()

    def run(self) -> None:
        newest = 0
        while not self._stop_asked.wait(0.002):
            with suppress(FileNotFoundError):
                steps = checkpoints.list_steps(self._run)
                if max(steps, default=0) < newest:
                    self.faults.append(f"step-{newest} went away: {steps}")
                newest = max(steps, default=0)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


def measure_size(verify_s: float) -> int:
    """Return how many bytes take so long to hash here."""
    data, began = bytes(256_000_000), time.perf_counter()
    hashlib.sha256(data)
    return int(len(data) * verify_s / (time.perf_counter() - began))


def hash_zeros(size: int) -> str:
    found, piece = hashlib.sha256(), bytes(1_000_000)
    for _ in range(size // len(piece)):
        found.update(piece)
    found.update(bytes(size % len(piece)))
    return found.hexdigest()


def step_of(name: str) -> int:
    entry = checkpoints.parse_name(Path(name))
    assert entry is not None
    return entry.step


def describe(err: str) -> str:
    """Return what `clean` says, without the names that differ in each round."""
    for words in ("is being resumed", "is running", "is pending", "has begun meanwhile"):
        if words in err:
            return words
    return err.strip()


def run_once(call: Callable[..., Any], folder: Path, *options: str) -> RunDir:
    """Make the run and let its first attempt come to its end."""
    (folder / "loop.py").write_text(LOOP)
    done = call("run", *options, "--json", "--", "python", "loop.py")
    return RunDir(json.loads(done.stdout.splitlines()[-1])["dir"])
