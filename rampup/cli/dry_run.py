"""`rampup run --dry-run`: every setting with its origin, what would be started, and what it would
cost."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from rampup.cli import output
from rampup.core import software
from rampup.core.finding import Finding
from rampup.core.spec import RunSpec
from rampup.core.units import parse_time_limit_s
from rampup.diagnose.preflight import check_from_afar, preflight
from rampup.rundir import find as runs
from rampup.runs.plan import Plan, find_program, make_plan
from rampup.schedulers import find_scheduler

PLACEHOLDERS = {"time": "1:00:00"}
"""Where a name would not do."""
NO_STUDY: Mapping[str, Any] = {}


def show_plan(
    spec: RunSpec,
    as_json: bool,
    run_dir: Path | None = None,
    command: tuple[str, ...] | None = None,
    study: Mapping[str, Any] = NO_STUDY,
) -> int:
    """Show a new run; or one that has a directory already, with the command that it would start.
    Where the cluster can't be reached, the plan is shown with placeholders, and below it what could
    not be checked. `study` is what the JSON of a sweep has besides."""
    run_dir = run_dir or runs.default_root(spec.cluster) / f"TIME-{spec.name}-ID"
    scheduler = find_scheduler(spec.cluster.scheduler)
    absence = scheduler.find_absence(spec.cluster)
    unsaid = scheduler.find_unsaid(spec, run_dir) if absence else []
    plan = make_plan(fill_placeholders(spec, unsaid), run_dir, command)
    if not absence:
        output.say_notes(preflight(plan).notes)
        show(plan, as_json)
        if not as_json:
            output.next_step("the same command without --dry-run")
        return 0
    outlook = check_from_afar(plan)
    output.say_notes(outlook.notes)
    refusals = [*(name_unsaid(spec, key) for key in unsaid), *map(describe, outlook.refusals)]
    if as_json:
        gaps = {"unchecked": list(outlook.unchecked), "refused": refusals}
        show_json(plan, {**gaps, **study})
        return 0
    show(plan, as_json)
    output.say(f"not checked: {', '.join(outlook.unchecked)} ({absence})")
    for words in refusals:
        output.say(f"would be refused: {words}")
    output.next_step(f"the same command on {spec.cluster.name}, without --dry-run")
    return 0


def fill_placeholders(spec: RunSpec, unsaid: Sequence[str]) -> RunSpec:
    """The same with a stand-in for each setting that only the user knows."""
    values = {key: PLACEHOLDERS.get(key, f"your-{key}") for key in unsaid}
    origins = {f"resources.{key}": "placeholder" for key in unsaid}
    return replace(
        spec,
        resources=replace(spec.resources, **values),
        origins={**spec.origins, **origins},
    )


def name_unsaid(spec: RunSpec, key: str) -> str:
    return f"{spec.cluster.name} requires --{key}"


def describe(finding: Finding) -> str:
    return f"{finding.cause}; try: {finding.remedy}" if finding.remedy else finding.cause


def show(plan: Plan, as_json: bool) -> None:
    if as_json:
        show_json(plan, {})
        return
    spec = plan.spec
    rows = [
        (key, format_value(value), origin)
        for key, value, origin in settings_of(spec)
        if is_shown(key, value)
    ]
    output.table(("setting", "value", "origin"), rows)
    output.write_whole()
    if plan.script:
        output.write_text(plan.script)
    elif lines := software.setup(plan.software):
        output.write_text(f"before the ranks start:\n{lines}")
    hours = node_hours(spec)
    program = shlex.join(whole_program(plan))
    output.write_whole(f"{output.count(plan.ranks, 'rank')}, each runs: {program}")
    output.write_whole(f"in: {spec.cwd}")
    output.write_whole(f"run directory: {plan.run_dir}")
    output.write_whole(
        f"node-hours: {'no limit (--time sets one)' if hours is None else f'at most {hours:.3g}'}"
    )


def show_json(plan: Plan, further: dict[str, Any]) -> None:
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
            **further,
        }
    )


def whole_program(plan: Plan) -> tuple[str, ...]:
    program = plan.command or find_program(plan.spec, plan.run_dir)
    return (*plan.software.container, *program)


def is_shown(key: str, value: Any) -> bool:
    """What a recipe could use is always shown; of resources and the site only what is set."""
    if key.startswith("train."):
        return True
    return value not in (None, [], "") and (key, value) != ("program.again", False)


def settings_of(spec: RunSpec) -> list[tuple[str, Any, str]]:
    tables = {
        "train": spec.train,
        "checkpoint": spec.checkpoint,
        "resources": to_builtins(spec.resources),
        "program": to_builtins(spec.program),
        "cluster": to_builtins(spec.cluster),
    }
    return [
        (f"{table}.{key}", value, spec.origins[f"{table}.{key}"])
        for table, values in tables.items()
        for key, value in values.items()
        if f"{table}.{key}" in spec.origins
    ]


def format_value(value: Any) -> str:
    return "none" if value is None else str(value)


def node_hours(spec: RunSpec) -> float | None:
    limit = spec.resources.time
    return spec.resources.nodes * parse_time_limit_s(limit) / 3600 if limit else None
