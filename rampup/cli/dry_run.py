"""`rampup run --dry-run`: every setting with its origin, what would be started, and what it would
cost."""

import shlex
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from rampup.cli import output
from rampup.cli.run import say_notes
from rampup.core import environment
from rampup.core.spec import RunSpec
from rampup.core.units import parse_time_limit_s
from rampup.diagnose.preflight import preflight
from rampup.rundir import find as runs
from rampup.runs.plan import Plan, find_program, make_plan


def show_plan(spec: RunSpec, as_json: bool, run_dir: Path | None = None) -> int:
    """For a new run, or for one that has a directory already."""
    run_dir = run_dir or runs.default_root(spec.cluster) / f"TIME-{spec.name}-ID"
    checked = preflight(make_plan(spec, run_dir))
    say_notes(checked)
    plan = checked.plan
    if as_json:
        show_json(plan)
        return 0
    rows = [
        (key, shown(value), origin)
        for key, value, origin in settings_of(spec)
        if is_told(key, value)
    ]
    output.table(("setting", "value", "origin"), rows)
    print()
    if plan.script:
        print(plan.script)
    elif lines := environment.setup(plan.software):
        print(f"before the ranks start:\n{lines}")
    hours = node_hours(spec)
    program = shlex.join(whole_program(plan))
    print(f"{output.count(plan.ranks, 'rank')}, each runs: {program}")
    print(f"in: {spec.cwd}")
    print(f"run directory: {run_dir}")
    print(
        f"node-hours: {'no limit (--time sets one)' if hours is None else f'at most {hours:.3g}'}"
    )
    output.next_step("the same command without --dry-run")
    return 0


def show_json(plan: Plan) -> None:
    spec = plan.spec
    settings = [
        {"key": key, "value": value, "origin": origin} for key, value, origin in settings_of(spec)
    ]
    command = plan.scheduler.render_command(spec, plan.run_dir)
    output.emit_json(
        {
            "name": spec.name,
            "settings": settings,
            "program": whole_program(plan),
            "environment": to_builtins(plan.software),
            "launcher": command.argv if command else None,
            "script": plan.script,
            "env": command.env if command else {},
            "cwd": spec.cwd,
            "node_hours": node_hours(spec),
        }
    )


def whole_program(plan: Plan) -> tuple[str, ...]:
    return (*plan.software.container, *find_program(plan.spec, plan.run_dir))


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
