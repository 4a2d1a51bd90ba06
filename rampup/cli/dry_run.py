"""`rampup run --dry-run`: every setting with its origin, what would be started, and what it would
cost."""

import shlex
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from rampup.cli import output
from rampup.core import environment as software
from rampup.core.spec import RunSpec
from rampup.core.units import parse_time_limit_s
from rampup.diagnose.preflight import preflight
from rampup.rundir import find as runs
from rampup.runs.plan import job_script, plan, program_of


def show_plan(spec: RunSpec, as_json: bool, run_dir: Path | None = None) -> int:
    """For a new run, or for one that has a directory already."""
    root = run_dir.parent if run_dir else runs.default_root(spec.cluster)
    for note in preflight(spec, root):
        output.say(f"note: {note.cause}; try: {note.remedy}")
    run_dir = run_dir or root / f"TIME-{spec.name}-ID"
    script = job_script(spec, run_dir) if spec.cluster.scheduler == "slurm" else None
    if as_json:
        show_json(spec, run_dir, script)
        return 0
    rows = [
        (key, shown(value), origin)
        for key, value, origin in settings_of(spec)
        if is_told(key, value)
    ]
    output.table(("setting", "value", "origin"), rows)
    print()
    if script:
        print(script)
    elif lines := software.setup(software.of(spec, run_dir)):
        print(f"before the ranks start:\n{lines}")
    hours = node_hours(spec)
    print(
        f"{output.count(spec.resources.world_size, 'rank')}, each runs: {shlex.join(whole_program(spec, run_dir))}"
    )
    print(f"in: {spec.cwd}")
    print(f"run directory: {run_dir}")
    print(
        f"node-hours: {'no limit (--time sets one)' if hours is None else f'at most {hours:.3g}'}"
    )
    output.next_step("the same command without --dry-run")
    return 0


def show_json(spec: RunSpec, run_dir: Path, script: str | None) -> None:
    settings = [
        {"key": key, "value": value, "origin": origin} for key, value, origin in settings_of(spec)
    ]
    launcher = plan(spec, run_dir)
    output.emit_json(
        {
            "name": spec.name,
            "settings": settings,
            "program": whole_program(spec, run_dir),
            "environment": to_builtins(software.of(spec, run_dir)),
            "launcher": launcher.argv if script is None else None,
            "script": script,
            "env": launcher.env,
            "cwd": spec.cwd,
            "node_hours": node_hours(spec),
        }
    )


def whole_program(spec: RunSpec, run_dir: Path) -> tuple[str, ...]:
    return (*software.of(spec, run_dir).container, *program_of(spec, run_dir))


def is_told(key: str, value: Any) -> bool:
    """What a recipe could use is always shown; of resources and the site only what is set."""
    return key.startswith("train.") or value not in (None, [], "")


def settings_of(spec: RunSpec) -> list[tuple[str, Any, str]]:
    tables = {
        "train": spec.train,
        "checkpoint": spec.checkpoint,
        "resources": to_builtins(spec.resources),
        "cluster": to_builtins(spec.cluster),
    }
    return [
        (f"{table}.{key}", value, spec.origins[f"{table}.{key}"])
        for table, values in tables.items()
        for key, value in values.items()
        if f"{table}.{key}" in spec.origins
    ]


def shown(value: Any) -> str:
    return "none" if value is None else str(value)


def node_hours(spec: RunSpec) -> float | None:
    limit = spec.resources.time
    return spec.resources.nodes * parse_time_limit_s(limit) / 3600 if limit else None
