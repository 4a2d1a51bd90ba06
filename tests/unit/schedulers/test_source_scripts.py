"""The batch scripts of the documents that rampup grew from, as facts, and what we submit for the
same training.

Every difference has its reason here. A difference without one fails, and so does a reason that
nothing needs.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rampup.config.resolve import Request, resolve
from rampup.core import software
from rampup.core.units import parse_time_limit_s
from rampup.schedulers.slurm.job_script import render
from rampup.schedulers.slurm.sbatch_options import clock
from unit.job_scripts import RUN_DIR

K80 = ["GCC/10.3.0", "OpenMPI/4.1.1"]
HOROVOD = [
    "GCC/10.2.0",
    "CUDA/11.1.1",
    "OpenMPI/4.0.5",
    "TensorFlow/2.4.1",
    "Horovod/0.21.1-TensorFlow-2.4.1",
]
VENV = "/proj/pyenvs/venv"


class Source(NamedTuple):
    """What a script of a document says, and what a user types for it now."""

    request: Request
    directives: dict[str, str]
    modules: tuple[str, ...] = ()
    launcher: str = ""
    """Empty: the program is started in the batch script itself."""
    words: dict[str, str] = {}
    """Options of srun or mpirun."""
    variables: dict[str, str] = {}
    venv: str = ""


def asks(on: str, *settings: str, slurm: tuple[str, ...] = (), **options: str) -> Request:
    return Request(
        command=("python", "train.py"), on=on, options=options, settings=settings, slurm=slurm
    )


SHORT = {"account": "SNIC2022-22-641", "time": "00:05:00"}
BUDGET = {"account": "budget"}
CPU_NODES = {"partition": "standard", "qos": "standard", "nodes": "32", "exclusive": "", **BUDGET}
SOURCES = {
    "pytorch-fit": Source(
        asks("kebnekaise", **SHORT, gpus_per_node="1", software="pytorch"),
        {**SHORT, "error": "job.%J.err", "output": "job.%J.out", "gres": "gpu:k80:1"},
        (*K80, "PyTorch/1.10.0-CUDA-11.3.1"),
        "srun",
    ),
    "tensorflow": Source(
        asks("kebnekaise", **SHORT, gpus_per_node="1", software="tensorflow", env=VENV),
        {**SHORT, "gres": "gpu:k80:1"},
        (*K80, "TensorFlow/2.6.0-CUDA-11.3.1"),
        venv=VENV,
    ),
    "variants": Source(  # three trainings, one after the other, in one job
        asks("kebnekaise", **SHORT, gpus_per_node="1", software="tensorflow"),
        {**SHORT, "gres": "gpu:k80:1"},
        (*K80, "TensorFlow/2.6.0-CUDA-11.3.1"),
    ),
    **{
        f"horovod-{nodes}": Source(
            asks(
                *("kebnekaise", "cluster.launcher=mpirun"),
                slurm=("exclusive",),
                **SHORT,
                nodes=str(nodes),
                tasks_per_node="4",
                gpus_per_node="2",
                software="horovod",
                env=VENV,
            ),
            {
                **SHORT,
                "nodes": str(nodes),
                "ntasks": str(4 * nodes),
                "output": "output_%j.out",
                "error": "error_%j.err",
                "gres": "gpu:k80:2",
                "exclusive": "",
            },
            tuple(HOROVOD),
            "mpirun",
            {"-np": str(4 * nodes), "-H": "each node:4"},
            venv=VENV,
        )
        for nodes in (1, 2)
    },
    "deepcam-gpu": Source(
        asks(
            "archer2-gpu",
            **BUDGET,
            time="1:00:00",
            nodes="2",
            tasks_per_node="4",
            gpus_per_node="4",
            env=VENV,
        ),
        {
            **BUDGET,
            "job-name": "deepcam",
            "partition": "gpu",
            "qos": "gpu-exc",
            "nodes": "2",
            "gpus": "8",
            "time": "01:00:00",
            "exclusive": "",
        },
        (),
        "srun",
        {
            "ntasks": "8",
            "ntasks-per-node": "4",  # --tasks-per-node there
            "cpu-bind": "verbose,map_cpu:0,8,16,24",
            "hint": "nomultithread",
        },
        {"OMP_NUM_THREADS": "1", "HOME": "/work/"},
        VENV,
    ),
    "deepcam-cpu": Source(
        asks("archer2", **BUDGET, time="10:00:00", nodes="32", cpus_per_task="128", env=VENV),
        {
            **CPU_NODES,
            "job-name": "deepcam",
            "ntasks-per-node": "1",
            "cpus-per-task": "128",
            "time": "10:00:00",
        },
        (),
        "srun",
        {"hint": "nomultithread"},
        {"SRUN_CPUS_PER_TASK": "128", "OMP_NUM_THREADS": "128"},
        VENV,
    ),
    "cosmoflow": Source(
        asks(
            *("archer2", 'cluster.srun=["--distribution=block:block", "--cpu-freq=2250000"]'),
            **BUDGET,
            time="3:00:00",
            nodes="32",
            tasks_per_node="8",
            cpus_per_task="16",
            software="tensorflow",
        ),
        {
            **CPU_NODES,
            "job-name": "cosmoflow",
            "ntasks-per-node": "8",
            "cpus-per-task": "16",
            "time": "01:00:00",
        },
        ("tensorflow/2.13.0",),
        "srun",
        {"hint": "nomultithread", "distribution": "block:block", "cpu-freq": "2250000"},
        {
            "UCX_MEMTYPE_CACHE": "n",
            "SRUN_CPUS_PER_TASK": "16",
            "MPICH_DPM_DIR": "beside the submission",
            "OMP_NUM_THREADS": "16",
            "TF_ENABLE_ONEDNN_OPTS": "1",
        },
    ),
    "starter-1": Source(
        asks("csiro", time="10", mem="512M", env=VENV),
        {"time": "00:10:00", "mem": "512M"},
        venv=VENV,
    ),
    "starter-3": Source(
        asks("csiro", mem="2G", cpus_per_task="5", env=VENV),
        {"mem": "2G", "cpus-per-task": "5"},
        venv=VENV,
    ),
    "starter-7": Source(
        asks("csiro", time="60", mem="10G", cpus_per_task="5", env=VENV),
        {
            "job-name": "runv0",
            "output": "slurm_out_logs/trial",
            "error": "slurm_err_logs/trial",
            "time": "1:00:00",
            "mem": "10G",
            "cpus-per-task": "5",
            "nodes": "1",
            "signal": "USR1@300",
        },
        launcher="srun",
        venv=VENV,
    ),
    "starter-8": Source(
        asks("csiro", mem="24G", nodes="2", tasks_per_node="2", gpus_per_node="2", env=VENV),
        {
            "job-name": "runv0",
            "output": "slurm_out_logs/trial",
            "error": "slurm_err_logs/trial",
            "mem": "24G",
            "nodes": "2",
            "ntasks-per-node": "2",
            "gres": "gpu:2",
            "signal": "USR1@300",
        },
        launcher="srun",
        venv=VENV,
    ),
}
CHANGED = {
    "#SBATCH job-name": "ends with the run's id, so that a job whose answer got lost is found again",
    "#SBATCH output": "the log is kept in the run directory",
    "#SBATCH error": "one log, in the order in which things happened",
    "#SBATCH ntasks": "ranks on each node are said: a number for all lets Slurm spread them as it likes",
    "#SBATCH signal": "SIGUSR2, a quarter of the time or 180 s before the end: USR1 may be taken by a library",
    "launcher": "a rank is a task of srun: the batch shell has no rank, and its end is nobody's failure",
}
"""Item -> why ours differs, in whatever script."""
ADDED = {
    "#SBATCH open-mode": "a job that is started again goes on in the same log",
    "#SBATCH requeue": "always said: the default differs from site to site",
    "#SBATCH nodes": "said, where the document leaves the 1 to Slurm",
    "#SBATCH ntasks-per-node": "said, where the document leaves the 1 to Slurm, or says a number for all nodes",
    "#SBATCH cpus-per-task": "said, where the document leaves the 1 to Slurm",
    "#SBATCH hint": "in a directive too: beside --cpu-bind srun can't have it",
    "srun nodes": "written down: an allocation may be larger than the run",
    "srun ntasks": "written down: an allocation may be larger than the run",
    "srun ntasks-per-node": "written down: an allocation may be larger than the run",
    "srun cpus-per-task": "written on the line of srun: not every version hands it on from sbatch",
    "srun kill-on-bad-exit": "a rank that fails ends all of them, whatever the site's default is",
    "srun wait": "a rank that ends well leaves the others in peace",
    "srun nodelist": "rank 0 is where MASTER_ADDR says that it is",
    "variable OMP_NUM_THREADS": "each rank gets the CPUs that it asked for",
}
"""Item -> why we say it where the document says nothing."""
HERE_ONLY = {
    ("horovod-1", "mpirun -H"): "slots by hand (:4): Open MPI asks Slurm",
    ("horovod-2", "mpirun -H"): "slots by hand (:4): Open MPI asks Slurm",
    (
        "horovod-1",
        "mpirun --map-by",
    ): "ranks fill one node after the other, the same in every attempt",
    (
        "horovod-2",
        "mpirun --map-by",
    ): "ranks fill one node after the other, the same in every attempt",
    (
        "horovod-1",
        "mpirun --bind-to",
    ): "threads are placed by the frameworks; one core for a rank would starve them",
    (
        "horovod-2",
        "mpirun --bind-to",
    ): "threads are placed by the frameworks; one core for a rank would starve them",
    ("horovod-1", "mpirun --mca"): "a rank that is told to end has seconds for its save",
    ("horovod-2", "mpirun --mca"): "a rank that is told to end has seconds for its save",
    ("deepcam-gpu", "srun hint"): "beside --cpu-bind srun can't have it: it is a directive",
    ("deepcam-cpu", "srun distribution"): "the site's own advice; the same with one rank on a node",
    (
        "deepcam-cpu",
        "variable HOME",
    ): "compute nodes see /work alone; the document needed it once and forgot it here",
    (
        "cosmoflow",
        "variable HOME",
    ): "compute nodes see /work alone; the document needed it once and forgot it here",
    (
        "deepcam-cpu",
        "variable SRUN_CPUS_PER_TASK",
    ): "written on the line of srun, which all versions read",
    (
        "cosmoflow",
        "variable SRUN_CPUS_PER_TASK",
    ): "written on the line of srun, which all versions read",
    ("deepcam-cpu", "variable UCX_MEMTYPE_CACHE"): "the profile sets it for every run there",
    ("deepcam-cpu", "variable TF_ENABLE_ONEDNN_OPTS"): "the profile sets it for every run there",
    (
        "cosmoflow",
        "variable MPICH_DPM_DIR",
    ): "a path of the user's own: exported before rampup run, it goes along",
    ("cosmoflow", "#SBATCH time"): "one hour for a training of 140 minutes: we ask for three",
}
"""Script and item -> why ours differs there."""


@pytest.fixture(autouse=True)
def ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No profile of this user's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def differences(name: str, tmp_path: Path) -> dict[str, tuple[Any, Any]]:
    source, spec = SOURCES[name], resolve(SOURCES[name].request, tmp_path)
    text, chosen = render(spec, RUN_DIR), software.of(spec, RUN_DIR)
    launcher, words = command_of(text)
    theirs = {
        **{f"#SBATCH {key}": value for key, value in source.directives.items()},
        **{f"variable {key}": value for key, value in source.variables.items()},
        **({f"{source.launcher} {key}": value for key, value in source.words.items()}),
        "launcher": source.launcher,
        "modules": list(source.modules),
        "venv": source.venv,
    }
    ours = {
        **{f"#SBATCH {key}": value for key, value in directives_of(text)},
        **{f"variable {key}": value for key, value in variables_of(text, chosen.variables)},
        **({f"{launcher} {key}": value for key, value in words.items()}),
        "launcher": launcher,
        "modules": [
            line.split()[-1] for line in text.splitlines() if line.startswith("call_module load ")
        ],
        "venv": next(
            (line[12:] for line in text.splitlines() if line.startswith("environment=")), ""
        ),
    }
    if "#SBATCH time" in theirs:
        theirs["#SBATCH time"] = clock(parse_time_limit_s(str(theirs["#SBATCH time"])))
    keys = [key for key in (*theirs, *ours) if theirs.get(key) != ours.get(key)]
    return {key: (theirs.get(key), ours.get(key)) for key in keys}


def directives_of(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if line.startswith("#SBATCH --"):
            key, _, value = line.removeprefix("#SBATCH --").partition("=")
            yield key, value


def variables_of(text: str, variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield from variables.items()
    yield "OMP_NUM_THREADS", text.partition(" --cpus=")[2].split()[0]  # rank.py sets it to that
    if "\nexport HOME=${HOME/#'/home/'/'/work/'}" in text:
        yield "HOME", "/work/"


def command_of(text: str) -> tuple[str, dict[str, str]]:
    """Who starts the ranks, and its options."""
    lines = text.splitlines()
    first = next(
        index for index, line in enumerate(lines) if line.startswith(("  srun ", "  mpirun "))
    )
    words = shlex.split(
        " ".join(line.rstrip("\\") for line in lines[first : first + 3]).partition('"$python"')[0]
    )
    found: dict[str, str] = {}
    for index, word in enumerate(words[1:], start=1):
        key, equals, value = word.partition("=")
        if word.startswith("-"):
            found[key.removeprefix("--") if words[0] == "srun" else key] = (
                value if equals else words[index + 1]
            )
    return words[0], found


def reason(name: str, item: str, theirs: Any) -> str:
    return (
        HERE_ONLY.get((name, item))
        or CHANGED.get(item)
        or (ADDED.get(item, "") if theirs is None else "")
    )


@pytest.mark.parametrize("name", SOURCES)
def test_every_difference_has_its_reason(name: str, tmp_path: Path) -> None:
    found = differences(name, tmp_path)
    assert {item: both for item, both in found.items() if not reason(name, item, both[0])} == {}


def test_every_reason_is_needed(tmp_path: Path) -> None:
    found = {name: differences(name, tmp_path) for name in SOURCES}
    assert {(name, item) for name, item in HERE_ONLY if item not in found[name]} == set()
    assert {item for item in CHANGED if not any(item in each for each in found.values())} == set()
    added = {item for each in found.values() for item, both in each.items() if both[0] is None}
    assert ADDED.keys() - added == set()
