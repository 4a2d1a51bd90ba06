"""What the metrics of an attempt and the samples of its machines show: silence, memory that is
full, losses that became NaN.

clues.py makes clues of these signs. They are measured, never guessed; nothing here reads a log.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rampup.core import metrics
from rampup.diagnose.why.logs import clean
from rampup.rundir import opening
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record, read_jsonl
from rampup.runs.apart import find_apart
from rampup.runs.state import State

MEMORY_FULL = 0.95
SILENT_S = 300.0
"""A run that writes nothing for so long may hang, if its ranks are idle too or if they used to
write much more often."""
SILENT_INTERVALS = 20
IDLE_CPUS = 0.02
SAMPLES_TAIL_BYTES = 4096


class Sign(NamedTuple):
    """Something measured that may tell why a run ended, and where it stands."""

    text: str
    file: Path
    line: int | None = None


def find_lost_losses(attempt: AttemptDir) -> Iterator[Sign]:
    """Yield each loss that is null from some step to the end: JSON has no other word for NaN and
    infinity."""
    began: dict[str, tuple[int, int]] = {}
    for number, row in enumerate(attempt.metrics(), start=1):
        for name, value in row.items():
            if value is not None:
                began.pop(name, None)
            elif "loss" in name:
                began.setdefault(name, (number, read_count(row, "step")))
    for name, (number, step) in began.items():
        text = f"{clean(name, 40)} became NaN or infinite at step {step}"
        yield Sign(text, attempt.metrics_file, number)


def find_apart_ranks(run: RunDir, attempt: AttemptDir, state: State) -> Iterator[Sign]:
    """Yield a sign if the ranks never talked to each other."""
    apart = find_apart(run, attempt, attempt.facts.get("world_size"), state.name)
    if apart is not None:
        yield Sign(apart.words, attempt.contact_file(0))


def find_full_memory(attempt: AttemptDir) -> Iterator[Sign]:
    """Yield each node whose memory was nearly full in its last sample."""
    for path in sorted(attempt.path.glob(attempt.system_file("*").name)):
        rows = read_jsonl(path, tail_bytes=SAMPLES_TAIL_BYTES)
        last = rows[-1] if rows else {}
        used, total = read_count(last, "mem_used_mb"), read_count(last, "mem_total_mb")
        if total and used >= MEMORY_FULL * total:
            share, used_gb = used / total, used / 1024
            text = f"{share:.0%} of the memory of the machine was in use ({used_gb:.1f} GB)"
            yield Sign(text, path)


def read_count(row: Record, name: str) -> int:
    """Return a count of the row, or 0 where it has none."""
    value = row.get(name)
    return int(value) if value is not None and metrics.is_number(value) else 0


# silence ------------------------------------------------------------------------------------------


def find_silence(attempt: AttemptDir, until: float) -> Iterator[Sign]:
    """Yield a sign if no rank has written anything for long, although they used to write more often
    or although they compute nothing."""
    newest, file = _last_sign_of_life(attempt)
    silent_s = until - newest
    if silent_s < SILENT_S:
        return
    interval_s, busy = _metrics_interval_s(attempt), _busy_cpus(attempt, until)
    text = f"nothing was written for {silent_s:.0f} s"
    if busy is not None and busy < IDLE_CPUS:
        text = f"{text}, and the ranks use no CPU: they wait for something"
        yield Sign(text, file)
    elif interval_s is not None and silent_s > SILENT_INTERVALS * interval_s:
        text = f"{text}, although there was a row of metrics every {interval_s:.1f} s"
        yield Sign(text, file)


def _last_sign_of_life(attempt: AttemptDir) -> tuple[float, Path]:
    """Return when a rank wrote last, and the file. The sampler does not count: it lives on beside
    ranks that hang."""
    written = (attempt.metrics_file, attempt.events_file, attempt.progress_file)
    logs = attempt.rank_logs()
    there = (path for path in (*written, *logs) if opening.is_file(path))
    times = [(path.lstat().st_mtime, path) for path in there]
    started = float(attempt.facts.get("started") or time.time())
    return max(times, default=(started, attempt.facts_file))


def _metrics_interval_s(attempt: AttemptDir) -> float | None:
    rows = read_jsonl(attempt.metrics_file, tail_bytes=SAMPLES_TAIL_BYTES)
    times = [row["t"] for row in rows if metrics.is_number(row.get("t"))]
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def _busy_cpus(attempt: AttemptDir, until: float) -> float | None:
    """Return how many CPUs the ranks kept busy in their last samples; None without recent ones."""
    busy = []
    started = {"t": attempt.facts.get("started", 0.0), "cpu_s": 0.0}
    for path in attempt.path.glob(attempt.system_file("*").name):
        samples = read_jsonl(path, tail_bytes=SAMPLES_TAIL_BYTES)
        rows = [started, *(row for row in samples if _is_sample(row))]
        if len(rows) > 1 and until - rows[-1]["t"] < SILENT_S:
            before, last = rows[-2:]
            busy.append((last["cpu_s"] - before["cpu_s"]) / max(1.0, last["t"] - before["t"]))
    return sum(busy) if busy else None


def _is_sample(row: Record) -> bool:
    return metrics.is_number(row.get("t")) and metrics.is_number(row.get("cpu_s"))
