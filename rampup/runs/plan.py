"""From a RunSpec to what is written and started. Pure: no I/O, so a plan can be shown and checked
before anything runs. diagnose/preflight.py checks a plan; only a checked one becomes a run.
"""

import sys
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from rampup.core import software
from rampup.core.engines import find_engine
from rampup.core.engines.base import EngineInfo, EngineNeeds
from rampup.core.finding import Finding
from rampup.core.software import Software
from rampup.core.spec import RunSpec
from rampup.core.units import parse_time_limit_s
from rampup.errors import Refused
from rampup.launchers import find_launcher
from rampup.launchers.base import Launcher
from rampup.schedulers import find_scheduler
from rampup.schedulers.base import Scheduler


class Plan(Struct, frozen=True, kw_only=True):
    """A run that could be made: its roles, where it will live, and the script that its scheduler
    gets."""

    spec: RunSpec
    run_dir: Path
    scheduler: Scheduler
    launcher: Launcher
    engine: EngineInfo | None
    """None for a command, and for a recipe that is a script."""
    ranks: int
    needs: EngineNeeds
    """What the engine needs for the settings of this run."""
    software: Software
    """What the ranks run in."""
    command: tuple[str, ...] = ()
    """The user's own command as it is started: that of a resumed run has the script of its code/."""
    script: str | None = None
    """job.sh; None where the scheduler starts no script."""


class CheckedPlan(Struct, frozen=True):
    """A plan that has passed the checks of diagnose/preflight.py, which alone makes these. Creating
    and resuming a run demand one, so a run that was not checked is a type error."""

    plan: Plan
    notes: tuple[Finding, ...] = ()
    """What is only doubtful about it."""

    @property
    def spec(self) -> RunSpec:
        return self.plan.spec


def make_plan(spec: RunSpec, run_dir: Path, command: tuple[str, ...] | None = None) -> Plan:
    """The whole plan. The script is rendered here, once for every submission. `command` is that of a
    resumed run, where it is not what the user typed."""
    plan = outline_plan(spec, run_dir, command)
    return replace(plan, script=plan.scheduler.render_script(spec, run_dir))


def outline_plan(spec: RunSpec, run_dir: Path, command: tuple[str, ...] | None = None) -> Plan:
    """The plan without the script, for checks of many runs that differ in their settings alone."""
    cluster, scheduler = spec.cluster, find_scheduler(spec.cluster.scheduler)
    if cluster.launcher not in scheduler.launchers:
        raise Refused(
            f"cluster {cluster.name} can't start ranks with launcher {cluster.launcher!r}",
            f"with scheduler {cluster.scheduler}: {', '.join(scheduler.launchers)}",
        )
    ranks = spec.resources.world_size
    engine = find_engine(spec.recipe.engine) if spec.recipe else None
    return Plan(
        spec=spec,
        run_dir=run_dir,
        scheduler=scheduler,
        launcher=find_launcher(cluster.launcher),
        engine=engine,
        ranks=ranks,
        needs=engine.find_needs(spec.train, ranks) if engine else EngineNeeds(),
        software=software.of(spec, run_dir),
        command=spec.command if command is None else command,
    )


def find_program(spec: RunSpec, run_dir: Path) -> tuple[str, ...]:
    """The argv that every rank becomes; in a container, the one that it becomes there."""
    if spec.kind == "engine":
        return (software.python_of(spec), "-P", "-m", "rampup.worker", str(run_dir))
    if spec.kind == "function":
        python = software.python_of(spec)
        return (python, "-P", "-m", "rampup.runtime.function", str(run_dir))
    if spec.kind == "script":
        assert spec.recipe is not None
        return (software.python_of(spec), str(Path(spec.recipe.folder) / spec.recipe.entry))
    return spec.command


def make_config(
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
        "function": to_builtins(spec.function) if spec.function else None,
        "argv": list(argv),
        "environment": to_builtins(software.of(spec, run_dir)),
        "cwd": spec.cwd,
        "smoke": spec.smoke,
        "after": to_builtins(spec.after),
        "as_at_home": spec.as_at_home,
        "time_s": parse_time_limit_s(limit) if limit else None,
        "train": spec.train,
        "checkpoint": spec.checkpoint,
        "program": to_builtins(spec.program),
        "watcher": sys.executable if spec.kind == "command" else None,
        "resources": to_builtins(spec.resources),
        "cluster": to_builtins(spec.cluster),
        "origins": spec.origins,
    }
