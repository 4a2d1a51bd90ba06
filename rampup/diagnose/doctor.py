"""`rampup doctor`: all there is to say of this machine, or of a cluster, and of the place where its
runs live. Each check is a small function that yields findings; nothing is changed, and no framework
is imported."""

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from rampup import __version__
from rampup.config.clusters import load
from rampup.core.finding import Finding
from rampup.datasets.sets import SETS
from rampup.diagnose.checks import machine, storage
from rampup.schedulers import find_scheduler

FRAMEWORKS = {"torch": "torch", "numpy": "torch", "scikit-learn": "", "lightning": ""}
FRAMEWORKS |= {"tensorflow": "", "tf-keras": ""}
"""Each with the extra that brings it; one without is named only where it is installed."""
GOOD_MEMORY_MB, GOOD_SHM_MB = 1000, 500


def doctor(cluster_name: str, runs_root: Path) -> list[Finding]:
    cluster = load(cluster_name)
    scheduler = find_scheduler(cluster.scheduler)
    about_jobs = this_machine() if scheduler.is_here else scheduler.survey(cluster, runs_root)
    return [
        *interpreter(),
        Finding("cluster", "ok", f"cluster {cluster.name}: {cluster.about or cluster.scheduler}"),
        *about_jobs,
        *frameworks(),
        *data_sets(),
        *storage.runs_root(runs_root),
    ]


def this_machine() -> Iterator[Finding]:
    """The facts that decide where a run stays here."""
    for check in (cpus, memory, shared_memory, gpus, bf16):
        yield from check()


def interpreter() -> Iterator[Finding]:
    yield Finding(
        "python",
        "ok",
        f"rampup {__version__} on Python {platform.python_version()} ({sys.executable})",
    )


def cpus() -> Iterator[Finding]:
    found = machine.cpus()
    about = f"CPUs: {found.allowed} of {found.machine}"
    if found.limit is None:
        yield Finding("cpus", "ok", about)
    else:
        cause = f"a cgroup grants the time of {found.limit:g} CPUs, and programs start threads for {found.allowed}"
        yield Finding("cpus", "note", about, cause, f"--cpus-per-task {max(1, int(found.limit))}")


def memory() -> Iterator[Finding]:
    found = machine.memory()
    if found is None:
        yield Finding("memory", "ok", "memory: unknown on this system")
        return
    about = f"memory: {found.free / 1e9:.1f} GB free of {found.total / 1e9:.1f} GB"
    if found.free > GOOD_MEMORY_MB * 1e6:
        yield Finding("memory", "ok", about)
    else:
        yield Finding(
            "memory",
            "note",
            about,
            "training may be killed for lack of memory",
            "end other programs",
        )


def shared_memory(place: Path = Path("/dev/shm")) -> Iterator[Finding]:
    if not place.is_dir():
        yield Finding("shm", "ok", f"{place}: none on this system")
        return
    free = storage.measure_room(place).free
    about = f"{place}: {free / 1e9:.1f} GB free"
    if free > GOOD_SHM_MB * 1e6:
        yield Finding("shm", "ok", about)
    else:
        cause = "loader processes hand over their batches there, and die when it is full"
        yield Finding("shm", "note", about, cause, "in a container: docker run --shm-size=2g")


def gpus() -> Iterator[Finding]:
    found = machine.gpus()
    files = machine.gpu_files()
    if found or not files:
        yield Finding("gpus", "ok", f"GPUs: {', '.join(found) or 'none, training uses the CPU'}")
    else:
        cause = "the device files are there, but the driver does not answer"
        yield Finding("gpus", "problem", f"GPUs: {', '.join(files)}", cause, "nvidia-smi")


def bf16() -> Iterator[Finding]:
    from rampup.core.hardware import bf16_is_fast

    if bf16_is_fast():
        yield Finding("bf16", "ok", "bf16 on the CPU: fast")
    else:
        cause = "this CPU has neither AVX512-BF16 nor AMX and would be about 10 times slower than with fp32"
        yield Finding(
            "bf16", "note", "bf16 on the CPU: emulated", cause, "precision=fp32 on the CPU"
        )


def frameworks() -> Iterator[Finding]:
    from importlib import metadata  # slow to import, and preflight does not need it

    for name, extra in FRAMEWORKS.items():
        try:
            yield Finding(f"framework-{name}", "ok", f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            if extra:
                cause = f"recipes that need {name} are refused"
                yield Finding(
                    f"framework-{name}", "note", f"{name}: not installed", cause, install(extra)
                )


def install(extra: str) -> str:
    return f"pip install 'rampup[{extra}]'"


def data_sets() -> Iterator[Finding]:
    for name in SETS:
        yield from storage.data_set(name, absent="note")
