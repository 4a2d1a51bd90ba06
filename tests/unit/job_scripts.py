"""Job scripts for the tests: one case for each interesting request, with nothing of this machine.

`python -m tests.unit.job_scripts` writes tests/golden anew and tells what changed: look at that
before you keep it. With names of cases it writes nothing, and prints these scripts as a whole.
"""

import sys
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rampup.config import clusters as load
from rampup.core.spec import Before, Cluster, Resources, RunSpec
from rampup.schedulers import SCHEDULERS
from rampup.schedulers.slurm import job_script as slurm_script

GOLDEN = Path(__file__).parent.parent / "golden"
RUN_DIR = Path("/shared/runs/20260102-030405-mnist-abc234")
PYTHON = "/shared/env/bin/python3"


def make_spec(resources: dict[str, Any] | None = None, **profile: Any) -> RunSpec:
    return RunSpec(
        name="mnist",
        kind="command",
        recipe=None,
        command=("python", "train.py"),
        train={},
        resources=Resources(**(resources or {})),
        cluster=Cluster(**{"name": "site", "scheduler": "slurm", "launcher": "srun", **profile}),
        origins={},
        config_file=None,
        cwd="/home/me",
    )


def render(spec: RunSpec, run_dir: Path = RUN_DIR, python: str = PYTHON) -> str:
    return slurm_script.render(spec, run_dir, python, version="1.2.3")


TWO_BY_TWO = {"nodes": 2, "tasks_per_node": 2, "gpus_per_node": 2, "cpus_per_task": 8, "time": "90"}
EVERYTHING = {
    "nodes": 4,
    "tasks_per_node": 2,
    "gpus_per_node": 2,
    "cpus_per_task": 12,
    "mem": "64G",
    "time": "1-12:30:00",
    "partition": "gpu,long",
    "account": "proj_17",
    "qos": "high",
    "reservation": "maintenance week",
    "constraint": "a100&[rack1|rack2]",
    "exclude": "node[1-3,17]",
    "mail": "me@example.org",
    "slurm": [
        'comment=it\'s 100 % "ours" \\o/ #1 $(id)',
        "exclusive",
        "gres=nvme:100",
        "mail-type=END",
        "no-requeue",
    ],
}
SITE = {
    "partition": "batch",
    "account": "all",
    "cpu_bind": "mask_cpu:0x1,0x10",
    "hint": "nomultithread",
    "master_suffix": "-ib",
    "variables": {
        "FI_PROVIDER": "verbs",
        "GREETING": 'it\'s "a" $HOME `id` \\ line\nand another',
        "EMPTY": "",
    },
    "sbatch": {"licenses": "scratch:1", "mem-per-cpu": "4G", "exclusive": "", "constraint": "fast"},
}
SOFTWARE = {
    "modules": ["CUDA/11.1.1"],
    "software": {"tensorflow": ["GCC/10.3.0", "OpenMPI/4.1.1", "TensorFlow/2.6.0-CUDA-11.3.1"]},
    "default_software": "tensorflow",
    "module_use": ["/proj/our modules"],
    "module_init": "/usr/share/lmod/lmod/init/bash",
    "home": ["/home/", "/work/"],
    "variables": {"TF_CPP_MIN_LOG_LEVEL": "2"},
}
CASES = {
    "plain": make_spec(),
    "gpus-per-node": make_spec(TWO_BY_TWO),
    "gres": make_spec(TWO_BY_TWO, gpu_directive="gres", gpu_type="a100"),
    "gpus": make_spec(TWO_BY_TWO, gpu_directive="gpus", gpu_type="h100"),
    "everything": make_spec(EVERYTHING, gpu_directive="gres"),
    "site": make_spec({"nodes": 2}, **SITE),
    "site-and-user": make_spec({"mem": "8G", "constraint": "big", "partition": "debug"}, **SITE),
    "hint": make_spec({"cpus_per_task": 4}, hint="nomultithread"),
    "no-requeue": make_spec(requeue=False),
    "torchrun": make_spec(TWO_BY_TWO, launcher="torchrun"),
    "mpirun": make_spec(TWO_BY_TWO, launcher="mpirun"),
    "pmix": make_spec(TWO_BY_TWO, launcher="pmix"),
    "modules-and-venv": make_spec({**TWO_BY_TWO, "env": "/proj/it's mine/vpyenv"}, **SOFTWARE),
    "conda": make_spec({"env": "conda:torch2"}),
    "container": make_spec({**TWO_BY_TWO, "env": "container:/sw/torch.sif"}, modules=["apptainer"]),
    "after": replace(
        make_spec(TWO_BY_TWO),
        after=(
            Before(id="abc233", dir="/r/a", job="77"),
            Before(id="abc232", dir="/r/b", job="8_1"),
        ),
    ),
    "smoke": replace(make_spec({"time": "0:02:00"}, partition="debug"), kind="engine", smoke=True),
}

NO_GPUS = ("archer2",)
"""Profiles of machines without GPUs."""
REQUEST = {
    "nodes": 2,
    "tasks_per_node": 2,
    "cpus_per_task": 4,
    "time": "60",
    "account": "my-project",
}


def profiles() -> dict[str, Cluster]:
    """Ours, whatever this user has."""
    found = [load.read(file).cluster for file in sorted(load.HERE.glob("*.toml"))]
    return {cluster.name: cluster for cluster in found if cluster.scheduler == "slurm"}


def of_a_profile(cluster: Cluster, launcher: str, gpus: int) -> RunSpec:
    software = "pytorch" if "pytorch" in cluster.software else ""
    resources = Resources(**REQUEST, gpus_per_node=gpus, software=software)
    return replace(make_spec(), resources=resources, cluster=replace(cluster, launcher=launcher))


PROFILE_CASES = {
    f"{name}-{launcher}-{'gpu' if gpus else 'cpu'}": of_a_profile(cluster, launcher, gpus)
    for name, cluster in profiles().items()
    for launcher in SCHEDULERS["slurm"].launchers
    for gpus in (0, 1)
    if not (gpus and name in NO_GPUS)
}

GOLDENS = {f"slurm/{name}": spec for name, spec in CASES.items()}
GOLDENS |= {f"slurm/profiles/{name}": spec for name, spec in PROFILE_CASES.items()}
FULL = {"slurm": "slurm/profiles/slurm-srun-cpu"}
"""For each scheduler the case that is kept as a whole, in full.sh; of others the difference."""


def file_of(name: str) -> Path:
    scheduler = name.partition("/")[0]
    return GOLDEN / (f"{scheduler}/full.sh" if name == FULL[scheduler] else f"{name}.diff")


def kept(name: str) -> str:
    """The whole script as tests/golden has it."""
    full = FULL[name.partition("/")[0]]
    text = file_of(full).read_bytes().decode()
    return text if name == full else applied(text, file_of(name).read_bytes().decode())


def difference(old: str, new: str) -> str:
    """What tests/golden/README.md describes: `@@ the line before @@`, then lines with - and +.

    No line numbers: they would change in all files with every line that is added to full.sh. The
    place is the line before instead, and as many more as it takes to be the only such place.
    """
    before, after = old.split("\n"), new.split("\n")
    found, here = [], 0
    for kind, a, b, c, d in SequenceMatcher(None, before, after, False).get_opcodes():
        if kind == "equal":
            continue
        start = a - 1
        while start >= here and not (before[start].strip() and once(before, start, b, here)):
            start -= 1
        found.append(f"@@ {before[start]} @@" if start >= here else "@@ @@")
        found += [f" {line}" if line else "" for line in before[max(start + 1, here) : a]]
        found += [f"-{line}" for line in before[a:b]] + [f"+{line}" for line in after[c:d]]
        here = b
    return "".join(f"{line}\n" for line in found)


def once(lines: list[str], start: int, end: int, here: int) -> bool:
    """From `here` on there is one place alone with lines[start:end]."""
    return len(places(lines, lines[start:end], here)) == 1


def places(lines: list[str], wanted: list[str], here: int) -> list[int]:
    ends = range(here + len(wanted), len(lines) + 1)
    return [end for end in ends if lines[end - len(wanted) : end] == wanted]


def applied(old: str, differences: str) -> str:
    """The new text; a difference that does not fit to the letter is a ValueError."""
    before = old.split("\n")
    after: list[str] = []
    here = 0
    top, *parts = f"\n{differences}".removesuffix("\n").split("\n@@ ")
    if top:
        raise ValueError(f"a difference begins with @@ and not with {top.strip()!r}")
    for part in parts:
        head, *lines = part.split("\n")
        line_before = [head.removesuffix(" @@")] if head != "@@" else []
        if {line[:1] for line in lines} - {" ", "-", "+", ""}:
            raise ValueError(f"no line of a difference, below: @@ {head}")
        gone = line_before + [line[1:] for line in lines if line[:1] != "+"]
        come = line_before + [line[1:] for line in lines if line[:1] != "-"]
        ends = places(before, gone, here) if line_before else [here + len(gone)]
        if not ends or before[ends[0] - len(gone) : ends[0]] != gone:
            raise ValueError(f"there is no such place: @@ {head}")
        after += before[here : ends[0] - len(gone)] + come
        here = ends[0]
    return "\n".join(after + before[here:])


def refresh() -> None:
    """Write all files; print each change of a script once, and whose scripts have it."""
    told: dict[str, list[str]] = {}
    texts = {name: render(spec) for name, spec in GOLDENS.items()}
    for name, text in texts.items():
        try:
            news = difference(kept(name), text)
        except (FileNotFoundError, ValueError) as error:
            news = f"was not there, or could not be read: {type(error).__name__}\n"
        if news:
            told.setdefault(news, []).append(name)
    files = {file_of(name) for name in GOLDENS}
    for path in sorted({*GOLDEN.rglob("*.sh"), *GOLDEN.rglob("*.diff")} - files):
        path.unlink()
        told.setdefault("is gone\n", []).append(str(path.relative_to(GOLDEN)))
    for name, text in texts.items():
        full = FULL[name.partition("/")[0]]
        file_of(name).parent.mkdir(parents=True, exist_ok=True)
        new = text if name == full else difference(texts[full], text)
        file_of(name).write_bytes(new.encode())
    for news, names in told.items():
        print(f"{len(names)} of {len(GOLDENS)} scripts: {', '.join(names)}\n{news}")
    if not told:
        print(f"{len(GOLDENS)} scripts, and none has changed")


if __name__ == "__main__":
    if sys.argv[1:]:
        print("".join(kept(name) for name in sys.argv[1:]), end="")
    else:
        refresh()
