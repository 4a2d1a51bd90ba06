"""The problems rampup knows: what is looked at, why it matters, what to do about it. This file: before a run starts.

One catalogue in this folder, four readers: `doctor` tells all that it finds, `preflight` refuses a run at the first
problem, the report gives advice (advice.py), `why` names the cause of an end (why_endings.py, why_errors.py). Each
check here is a small function that yields findings. Nothing is changed, no framework is imported.
"""

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from rampup import __version__
from rampup.clusters.load import load
from rampup.data import fetch
from rampup.data.sets import SETS
from rampup.diagnose import machine
from rampup.errors import Refused
from rampup.spec import Cluster, RunSpec

FRAMEWORKS = {"torch": "torch", "numpy": "torch", "scikit-learn": "", "lightning": ""}
FRAMEWORKS |= {"tensorflow": "", "tf-keras": ""}
"""Each with the extra that brings it; one without is named only where it is installed."""
MIN_FREE_MB, GOOD_FREE_MB = 50, 1000
MIN_INODES = 1000
GOOD_MEMORY_MB, GOOD_SHM_MB = 1000, 500
ANOTHER_ROOT = "set RAMPUP_RUNS to a directory that you can write"

Level = Literal["ok", "note", "problem"]


class Finding(NamedTuple):
    id: str
    level: Level
    about: str
    """What was looked at, and what is there."""
    cause: str = ""
    """Why that is not good: a whole sentence."""
    remedy: str = ""
    """One command or edit."""


def doctor(cluster_name: str, runs_root: Path) -> list[Finding]:
    """All there is to say of this machine, or of that cluster's Slurm, and of the place where its runs live."""
    cluster = load(cluster_name)
    about_jobs = this_machine() if cluster.scheduler == "local" else slurm_site(cluster, runs_root)
    return [
        *interpreter(),
        Finding("cluster", "ok", f"cluster {cluster.name}: {cluster.about or cluster.scheduler}"),
        *about_jobs,
        *frameworks(),
        *data_sets(),
        *runs_root_writable(runs_root),
        *runs_root_room(runs_root),
    ]


def this_machine() -> Iterator[Finding]:
    """What decides where a run stays here."""
    for check in (cpus, memory, shared_memory, gpus, bf16):
        yield from check()


def slurm_site(cluster: Cluster, runs_root: Path) -> Iterator[Finding]:
    from rampup.diagnose.slurm_survey import survey  # builds on the records of this file

    return survey(cluster, runs_root)


def preflight(spec: RunSpec, runs_root: Path) -> list[Finding]:
    """Refuse a run that can't work, before anything of it is written; returns what is only worth a note."""
    from rampup.diagnose import request, request_software  # they build on the records of this file

    of_software = (request_software.environment, request_software.imports)
    of_resources = (request.size, request.launcher, request.device, request.ranks_and_gpus)
    checks = (request.data, *of_resources, request.precision, request.program)
    findings = [finding for check in (*of_software, *checks) for finding in _passed(check(spec))]
    findings += _passed(runs_root_writable(runs_root))
    findings += _passed(runs_root_room(runs_root))
    if spec.cluster.scheduler == "slurm":
        from rampup.diagnose import slurm

        findings += _passed(slurm.request(spec, runs_root))
    return [finding for finding in findings if finding.level == "note"]


def preflight_alike(spec: RunSpec) -> None:
    """For a run that differs from one that has passed in its settings alone: refuse what those can spoil."""
    from rampup.diagnose import request, request_software

    of_needs = (request_software.imports, request.data)
    for check in (*of_needs, request.size, request.launcher, request.device, request.precision, request.program):
        for _ in _passed(check(spec)):
            continue


def _passed(findings: Iterator[Finding]) -> Iterator[Finding]:
    """All findings, up to the first that hinders the run."""
    for finding in findings:
        if finding.level == "problem":
            raise Refused(finding.cause, finding.remedy)
        yield finding


# the machine ----------------------------------------------------------------------------------------------------


def interpreter() -> Iterator[Finding]:
    yield Finding("python", "ok", f"rampup {__version__} on Python {platform.python_version()} ({sys.executable})")


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
        yield Finding("memory", "ok", "memory: this system does not tell")
        return
    about = f"memory: {found.free / 1e9:.1f} GB free of {found.total / 1e9:.1f} GB"
    if found.free > GOOD_MEMORY_MB * 1e6:
        yield Finding("memory", "ok", about)
    else:
        yield Finding("memory", "note", about, "training may be killed for lack of memory", "end other programs")


def shared_memory(place: Path = Path("/dev/shm")) -> Iterator[Finding]:
    if not place.is_dir():
        yield Finding("shm", "ok", f"{place}: none on this system")
        return
    free = machine.room(place).free
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
    from rampup.engines.cpu import bf16_is_fast

    if bf16_is_fast():
        yield Finding("bf16", "ok", "bf16 on the CPU: fast")
    else:
        cause = "this CPU has neither AVX512-BF16 nor AMX and would be about 10 times slower than with fp32"
        yield Finding("bf16", "note", "bf16 on the CPU: emulated", cause, "precision=fp32 on the CPU")


def frameworks() -> Iterator[Finding]:
    from importlib import metadata  # slow to import, and preflight does not need it

    for name, extra in FRAMEWORKS.items():
        try:
            yield Finding(f"framework-{name}", "ok", f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            if extra:
                cause = f"recipes that need {name} are refused"
                yield Finding(f"framework-{name}", "note", f"{name}: not installed", cause, install(extra))


def install(extra: str) -> str:
    return f"pip install 'rampup[{extra}]'"


def data_sets() -> Iterator[Finding]:
    for name in SETS:
        yield from data_set(name, absent="note")


def data_set(name: str, absent: Level) -> Iterator[Finding]:
    """A damaged set is a problem for everyone, an absent one only for who needs it."""
    topic, about = f"data-{name}", f"data set {name}"
    try:
        place = fetch.folder(name)
    except Refused as error:
        yield Finding(topic, absent, f"{about}: not here", error.message, error.hint)
        return
    try:
        fetch.check(name)
        yield Finding(topic, "ok", f"{about}: {place}")
    except Refused as error:
        yield Finding(topic, "problem", f"{about}: damaged", error.message, error.hint)


# the place of the runs ------------------------------------------------------------------------------------------


def runs_root_writable(root: Path) -> Iterator[Finding]:
    about = f"runs live in {root}"
    place = machine.existing_parent(root)
    if not place.is_dir():
        why = f"{place} is not a directory"
    elif not os.access(place, os.W_OK | os.X_OK):
        why = f"{place} is not writable"
    else:
        yield Finding("runs-root", "ok", about)
        return
    yield Finding("runs-root", "problem", about, f"can't make a run directory in {root}: {why}", ANOTHER_ROOT)


def runs_root_room(root: Path) -> Iterator[Finding]:
    free, inodes = machine.room(root)
    about = f"room for runs: {free / 1e9:.1f} GB" + ("" if inodes is None else f", {inodes:,} files")
    remedy = f"make room (df -h, df -i), or {ANOTHER_ROOT}"
    if free < MIN_FREE_MB * 1e6:
        cause = f"only {free / 1e6:.0f} MB are free for runs in {root}, at least {MIN_FREE_MB} are needed"
        yield Finding("runs-room", "problem", about, cause, remedy)
    elif inodes is not None and inodes < MIN_INODES:
        cause = f"only {inodes} files can be made in {root}, at least {MIN_INODES} are needed"
        yield Finding("runs-room", "problem", about, cause, remedy)
    elif free < GOOD_FREE_MB * 1e6:
        yield Finding("runs-room", "note", about, "checkpoints of a large model may not fit", remedy)
    else:
        yield Finding("runs-room", "ok", about)
