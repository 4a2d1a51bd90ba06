"""Clues that stand in no log, for `rampup why`: a loss that is no number, memory that was full, a
run that is silent, a file that is in the user's folder and not in the copy that ran. Measured or
looked up, never guessed.
"""

import os
import pwd
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rampup.config.clusters import of_run
from rampup.core.metrics import is_number
from rampup.diagnose.why.logs import clean
from rampup.diagnose.why.problems import Clue
from rampup.errors import RampupError
from rampup.rundir.files import AttemptDir, RunDir
from rampup.rundir.records import Record, read_jsonl
from rampup.runs.code import script_index
from rampup.schedulers.slurm.commands import call

MEMORY_FULL = 0.95
SILENT_S = 300.0
"""A run that writes nothing for so long may hang: when its ranks are idle too, or used to write
much more often."""
SILENT_TIMES = 20
IDLE = 0.02
"""Of one CPU."""
SAMPLES_TAIL = 4096
SACCT_S = 2.0
MODULE = re.compile(r"No module named '(?P<name>[^']+)'")
NO_FILE = re.compile(r"No such file or directory: '(?P<path>[^']+)'")


def metrics(run: RunDir, attempt: AttemptDir) -> Iterator[Clue]:
    """A loss that is null from some step to the end: JSON has no other word for NaN and
    infinity."""
    began: dict[str, tuple[int, int]] = {}
    for number, row in enumerate(attempt.metrics(), start=1):
        for name, value in row.items():
            if value is not None:
                began.pop(name, None)
            elif "loss" in name:
                began.setdefault(name, (number, whole_of(row, "step")))
    for name, (number, step) in began.items():
        text = f"{clean(name, 40)} is no finite number from step {step} on"
        yield Clue("metric", text, str(attempt.metrics_file.relative_to(run.path)), number)


def memory(run: RunDir, attempt: AttemptDir) -> Iterator[Clue]:
    """A node whose memory was nearly full when it was looked at last."""
    for path in sorted(attempt.path.glob(attempt.system_file("*").name)):
        rows = list(read_jsonl(path, tail_bytes=SAMPLES_TAIL))
        last = rows[-1] if rows else {}
        used, total = whole_of(last, "mem_used_mb"), whole_of(last, "mem_total_mb")
        if total and used >= MEMORY_FULL * total:
            text = (
                f"{used / total:.0%} of the memory of the machine was in use ({used / 1024:.1f} GB)"
            )
            yield Clue("memory", text, str(path.relative_to(run.path)))


def cancelled_in_slurm(run: RunDir, facts: Record) -> Iterator[Clue]:
    """Who ended a job that rampup did not cancel. Slurm keeps the number of that user, where it
    keeps accounts."""
    submitted = run.recorded("submitted") or {}
    job = facts.get("job") or submitted.get("job")
    if submitted.get("scheduler") != "slurm" or not job:
        return
    try:
        cluster = of_run(submitted["cluster"], run.config.get("cluster", {}))
        told = call(cluster, ["sacct", "-X", "-n", "-P", "-j", job, "-o", "State"], SACCT_S)
    except RampupError:  # no Slurm here, or a profile that is gone
        return
    user = re.search(r"CANCELLED by (\d+)", told.stdout)
    if user:
        yield Clue(
            "cancel",
            f"user {_user_name(int(user[1]))} ended the job with scancel",
            f"sacct -j {job}",
        )


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


# silence ------------------------------------------------------------------------------------------


def silence(run: RunDir, attempt: AttemptDir, until: float) -> Iterator[Clue]:
    """No rank has written anything for long, although it used to, or although it has nothing to
    compute."""
    newest, file = _last_sign_of_life(attempt)
    silent_s = until - newest
    if silent_s < SILENT_S:
        return
    usual_s, busy = _usual_interval_s(attempt), _cpus_busy(attempt, until)
    text = f"nothing was written for {silent_s:.0f} s"
    if busy is not None and busy < IDLE:
        yield Clue(
            "silence", f"{text}, and the ranks use no CPU: they wait for something", _in(run, file)
        )
    elif usual_s is not None and silent_s > SILENT_TIMES * usual_s:
        yield Clue(
            "silence",
            f"{text}, although there was a row of metrics every {usual_s:.1f} s",
            _in(run, file),
        )


def _last_sign_of_life(attempt: AttemptDir) -> tuple[float, Path]:
    """Of the ranks, not of the sampler, which lives on beside ranks that hang."""
    own = (
        attempt.metrics_file,
        attempt.events_file,
        attempt.progress_file,
        *attempt.rank_logs(),
    )
    signs = [(path.stat().st_mtime, path) for path in own if path.exists()]
    return max(
        signs, default=(float(attempt.facts.get("started") or time.time()), attempt.facts_file)
    )


def _usual_interval_s(attempt: AttemptDir) -> float | None:
    rows = read_jsonl(attempt.metrics_file, tail_bytes=SAMPLES_TAIL)
    times = [row["t"] for row in rows if is_number(row.get("t"))]
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def _cpus_busy(attempt: AttemptDir, until: float) -> float | None:
    """How many CPUs the ranks kept busy when they were sampled last; None when nobody has looked
    for long."""
    busy = []
    for path in attempt.path.glob(attempt.system_file("*").name):
        rows = [row for row in read_jsonl(path, tail_bytes=SAMPLES_TAIL) if _is_sample(row)]
        if rows and until - rows[-1]["t"] < SILENT_S:
            before = (
                rows[-2]
                if len(rows) > 1
                else {"t": attempt.facts.get("started", 0.0), "cpu_s": 0.0}
            )
            busy.append(
                (rows[-1]["cpu_s"] - before["cpu_s"]) / max(1.0, rows[-1]["t"] - before["t"])
            )
    return sum(busy) if busy else None


def _is_sample(row: Record) -> bool:
    return is_number(row.get("t")) and is_number(row.get("cpu_s"))


def whole_of(row: Record, name: str) -> int:
    """A count, or 0 where there is none."""
    value = row.get(name)
    return int(value) if value is not None and is_number(value) else 0


# what was not copied ------------------------------------------------------------------------------


def left_out(run: RunDir, config: Record, clues: Iterable[Clue]) -> Iterator[Clue]:
    """A module or file that was looked for in vain, and lies in the user's folder, out of reach of
    the copy."""
    told = " ".join(clue.text for clue in clues if clue.kind in ("error", "said"))
    copied, original = roots_of_copy(run, config)
    module, file = MODULE.search(told), NO_FILE.search(told)
    if original is None:
        return
    if module:
        name = module["name"].partition(".")[0]
        near = (original, original.parent)
        there = [
            path
            for place in near
            for form in (f"{name}.py", name, f"*/{name}.py")
            for path in place.glob(form)
        ]
        for path in there:
            if (
                not path.is_relative_to(original)
                or not (copied / path.relative_to(original)).exists()
            ):
                yield Clue("left-out", f"{clean(str(path))} is not in the copy")
                return
    if file and os.path.normpath(file["path"]).startswith(f"{run.path}{os.sep}"):
        meant = Path(
            os.path.normpath(original / os.path.relpath(os.path.normpath(file["path"]), copied))
        )
        if meant.exists():
            yield Clue("left-out", f"{clean(str(meant))} is not in the copy")


def roots_of_copy(run: RunDir, config: Record) -> tuple[Path, Path | None]:
    """The copy of the user's code, and the folder that it was made of; None where nothing was
    copied."""
    command, argv = config.get("command") or [], config.get("argv") or []
    index = script_index(command) if command else None
    if index is None or index >= len(argv) or not argv[index].startswith(f"{run.code}{os.sep}"):
        return run.code, None
    inner = os.path.relpath(argv[index], run.code)
    script = os.path.normpath(Path(config.get("cwd") or ".") / command[index])
    return run.code, Path(script.removesuffix(inner)) if script.endswith(
        f"{os.sep}{inner}"
    ) else None


def folders(run: RunDir, config: Record) -> list[Path]:
    """Where the user's own code is."""
    return [run.code, *(Path(config[key]) for key in ("folder", "cwd") if config.get(key))]


def _in(run: RunDir, path: Path) -> str:
    return str(path.relative_to(run.path))
