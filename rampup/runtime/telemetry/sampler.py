"""Samples of the machine while a run is going: CPU, memory, GPUs, and the run's own share of them,
every ten seconds.

On one machine the launcher samples, for any command; it sets RAMPUP_SUPERVISED. Under Slurm the
watcher of a command does (runtime/watch); around other ranks no process of ours is, so `open_job` and
`rampup.init()` call `sample_this_node`. A sampler is a daemon thread that reads /proc and, where
there is one, asks nvidia-smi. One that fails warns once and never disturbs the run.
"""

import atexit
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rampup.rundir.files import RunDir
from rampup.runtime.context import RankContext

FIRST_AFTER_S = 1.0
NVIDIA_SMI_LIMIT_S = 5.0
MB = 2**20
PROC = Path("/proc")


class Sampler:
    """`pids` names the processes whose trees are the run; by default this one's own."""

    def __init__(
        self,
        path: Path,
        interval_s: float = 10.0,
        pids: Callable[[], Iterable[int]] = lambda: [os.getpid()],
    ) -> None:
        self._path = path
        self._interval_s = interval_s
        self._pids = pids
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._sample_until_stopped, name="sampler", daemon=True
        )
        self._machine: tuple[float, float] | None = None
        self._cpu_s = 0.0
        self._nvidia_smi = shutil.which("nvidia-smi")

    def start(self) -> "Sampler":
        self._thread.start()
        return self

    def stop(self) -> None:
        """Write a last row and end the thread."""
        self._stopped.set()
        self._thread.join(timeout=NVIDIA_SMI_LIMIT_S + 1)

    def _sample_until_stopped(self) -> None:
        try:
            self._machine = read_machine_cpu_s()
            wait_s = FIRST_AFTER_S
            while not self._stopped.wait(wait_s):
                self._write(self._row())
                wait_s = self._interval_s
            self._write(self._row())
        except Exception as error:  # whatever it is, the run is worth more than its samples
            print(
                f"warning: no more samples of CPU and memory: {error}", file=sys.stderr, flush=True
            )

    def _row(self) -> dict[str, Any]:
        used_mb, total_mb = read_memory_mb()
        rss_mb, cpu_s = read_tree_usage(self._pids())
        self._cpu_s = max(self._cpu_s, cpu_s)  # processes that have ended are no longer counted
        row = {"t": time.time(), "cpus": os.cpu_count(), "cpu_percent": self._cpu_percent()}
        row |= {
            "mem_used_mb": used_mb,
            "mem_total_mb": total_mb,
            "rss_mb": rss_mb,
            "cpu_s": round(self._cpu_s, 2),
        }
        return row | self._gpus()

    def _cpu_percent(self) -> float:
        before, now = self._machine, read_machine_cpu_s()
        self._machine = now
        busy, whole = (now[0] - before[0], now[1] - before[1]) if before else now
        return round(100 * busy / whole, 1) if whole > 0 else 0.0

    def _gpus(self) -> dict[str, Any]:
        if not self._nvidia_smi:
            return {}
        try:
            return {"gpus": read_gpus(self._nvidia_smi)}
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self._nvidia_smi = None
            print(f"warning: no samples of the GPUs: {error}", file=sys.stderr, flush=True)
            return {}

    def _write(self, row: dict[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def read_machine_cpu_s() -> tuple[float, float]:
    """CPU seconds since boot that all cores were busy, and that they had."""
    with open("/proc/stat", encoding="ascii") as file:
        # guest time is in user time already
        ticks = [int(field) for field in file.readline().split()[1:9]]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) * tick_s, sum(ticks) * tick_s


def read_memory_mb() -> tuple[int, int]:
    """Used and present."""
    with open("/proc/meminfo", encoding="ascii") as file:
        kb = {
            name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in file)
        }
    return (kb["MemTotal"] - kb["MemAvailable"]) // 1024, kb["MemTotal"] // 1024


def read_tree_usage(roots: Iterable[int]) -> tuple[int, float]:
    """Resident megabytes and CPU seconds of the processes and all that descends from them."""
    stats = {pid: stat for pid in _all_pids() if (stat := _stat(pid))}
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(pid)
    found, left = set(), list(roots)
    while left:
        pid = left.pop()
        if pid in stats and pid not in found:
            found.add(pid)
            left.extend(children.get(pid, ()))
    pages = sum(int(stats[pid][21]) for pid in found)
    # with children that were waited for
    ticks = sum(int(field) for pid in found for field in stats[pid][11:15])
    return pages * os.sysconf("SC_PAGE_SIZE") // MB, ticks / os.sysconf("SC_CLK_TCK")


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may hold anything; empty when the
    process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def read_gpus(nvidia_smi: str) -> list[dict[str, float | None]]:
    """One entry for each GPU that the driver shows."""
    names = ("index", "utilization.gpu", "memory.used", "memory.total")
    query = [nvidia_smi, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(
        query, capture_output=True, text=True, timeout=NVIDIA_SMI_LIMIT_S, check=True
    ).stdout
    rows = [
        [_number(field) for field in line.split(",")]
        for line in answer.splitlines()
        if line.strip()
    ]
    return [
        dict(zip(("gpu", "util_percent", "mem_used_mb", "mem_total_mb"), row, strict=True))
        for row in rows
    ]


def _number(field: str) -> float | None:
    """Some cards answer `[N/A]`."""
    text = field.strip()
    return None if text.startswith("[") else float(text)


# under Slurm --------------------------------------------------------------------------------------


def sample_this_node(context: RankContext) -> None:
    """Take samples until this process ends, on the first rank of each node."""
    if context.run_dir is None or context.local_rank != 0 or os.environ.get("RAMPUP_SUPERVISED"):
        return
    run_dir, node = context.run_dir, context.node
    file = RunDir(run_dir).attempt(context.attempt).system_file(node)
    sampler = Sampler(file, pids=lambda: find_ranks(run_dir, node)).start()
    atexit.register(sampler.stop)


def find_ranks(run_dir: Path, node: str) -> set[int]:
    """Return the processes of this run on this node, known by what rank.py put into their
    environment."""
    marks = {b"RAMPUP_RUN_DIR=" + os.fsencode(run_dir), b"RAMPUP_NODE=" + os.fsencode(node)}
    found = {os.getpid()}
    for place in PROC.glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes()
        except OSError:  # another user's, or gone
            continue
        if marks <= set(environment.split(b"\0")):
            found.add(int(place.name))
    return found
