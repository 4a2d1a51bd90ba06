"""Pure: a RunSpec becomes what is written and started. No I/O, so a plan can be shown before
anything runs."""

from pathlib import Path
from typing import Any

from msgspec import to_builtins

from rampup.core import environment as software
from rampup.core.spec import Plan, RunSpec
from rampup.core.units import parse_time_limit_s
from rampup.launchers import mpirun, pmix, spawn, srun, torchrun
from rampup.schedulers.slurm import script as slurm_script

LAUNCHERS = {"srun": srun.start_and_wait, "pmix": pmix.start_and_wait}
LAUNCHERS |= {"mpirun": mpirun.start_and_wait, "torchrun": torchrun.start_and_wait}


def program_of(spec: RunSpec, run_dir: Path) -> tuple[str, ...]:
    """The argv that every rank becomes; in a container, what it becomes there."""
    if spec.kind == "engine":
        return (software.python_of(spec), "-P", "-m", "rampup.worker", str(run_dir))
    if spec.kind == "script":
        assert spec.recipe is not None
        return (software.python_of(spec), str(Path(spec.recipe.folder) / spec.recipe.entry))
    return spec.command


def job_config(
    spec: RunSpec, run_dir: Path, argv: tuple[str, ...], builtin: bool
) -> dict[str, Any]:
    """config.json: all that the job side knows. `command` is what the user typed, `argv` what the
    ranks become."""
    recipe = spec.recipe
    limit = spec.resources.time
    return {
        "name": spec.name,
        "kind": spec.kind,
        "recipe": recipe.name if recipe else None,
        "engine": recipe.engine if recipe else None,
        "entry": recipe.entry if recipe else None,
        "folder": recipe.folder if recipe else None,
        "builtin": builtin,
        "command": list(spec.command),
        "argv": list(argv),
        "environment": to_builtins(software.of(spec, run_dir)),
        "cwd": spec.cwd,
        "smoke": spec.smoke,
        "time_s": parse_time_limit_s(limit) if limit else None,
        "train": spec.train,
        "checkpoint": spec.checkpoint,
        "resources": to_builtins(spec.resources),
        "cluster": to_builtins(spec.cluster),
        "origins": spec.origins,
    }


def plan(spec: RunSpec, run_dir: Path) -> Plan:
    env: dict[str, str] = {}
    if spec.resources.devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, spec.resources.devices))
    return Plan(argv=spawn.argv(run_dir), env=env, cwd=spec.cwd)


def job_script(spec: RunSpec, run_dir: Path) -> str:
    """job.sh: the scheduler's text around the launcher's."""
    return slurm_script.job_script(spec, run_dir, LAUNCHERS[spec.cluster.launcher](spec))
