"""Job scripts for the tests: one case for each interesting request, rendered with nothing of this
machine in it.

`python -m tests.unit.job_scripts` writes tests/golden anew; look at the difference before you keep
it.
"""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rampup.config import clusters as load
from rampup.core.spec import Cluster, Resources, RunSpec
from rampup.runs.plan import LAUNCHERS
from rampup.schedulers.slurm import script as slurm_script

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
    return slurm_script.job_script(
        spec, run_dir, LAUNCHERS[spec.cluster.launcher](spec), python, version="1.2.3"
    )


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
    "env": {
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
    "env": {"TF_CPP_MIN_LOG_LEVEL": "2"},
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
    f"{name}-{launcher}{'-gpu' if gpus else ''}": of_a_profile(cluster, launcher, gpus)
    for name, cluster in profiles().items()
    for launcher in LAUNCHERS
    for gpus in (0, 1)
    if not (gpus and name in NO_GPUS)
}

if __name__ == "__main__":
    for folder, cases in ((GOLDEN, CASES), (GOLDEN / "profiles", PROFILE_CASES)):
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.sh"):
            old.unlink()
        for name, spec in cases.items():
            (folder / f"{name}.sh").write_text(render(spec))
