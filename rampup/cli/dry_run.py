"""`rampup run --dry-run`: every setting with its origin, what would be started, and what it would cost."""

from typing import Any

from msgspec import to_builtins

from rampup import runs
from rampup.cli import output
from rampup.diagnose.catalogue import preflight
from rampup.plan import plan, program_of
from rampup.spec import RunSpec
from rampup.times import seconds_of


def show_plan(spec: RunSpec, as_json: bool) -> int:
    root = runs.default_root(spec.cluster)
    for note in preflight(spec, root):
        output.say(f"note: {note.cause}; try: {note.remedy}")
    run_dir = root / "RUN"
    settings = settings_of(spec)
    program, launcher = program_of(spec, run_dir), plan(spec, run_dir)
    hours = node_hours(spec)
    if as_json:
        output.emit_json(
            {
                "name": spec.name,
                "settings": [{"key": key, "value": value, "origin": origin} for key, value, origin in settings],
                "program": program,
                "launcher": launcher.argv,
                "env": launcher.env,
                "cwd": launcher.cwd,
                "node_hours": hours,
            }
        )
        return 0
    output.table(("setting", "value", "origin"), [(key, shown(value), origin) for key, value, origin in settings])
    print()
    print(f"each of {spec.resources.world_size} ranks runs: {' '.join(map(repr, program))}")
    print(f"in: {launcher.cwd}")
    print(f"run directory: {root}/")
    print(f"node-hours: {'no limit (--time sets one)' if hours is None else f'at most {hours:g}'}")
    output.next_step("the same command without --dry-run")
    return 0


def settings_of(spec: RunSpec) -> list[tuple[str, Any, str]]:
    tables = {"train": spec.train, "resources": to_builtins(spec.resources), "cluster": to_builtins(spec.cluster)}
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
    return spec.resources.nodes * seconds_of(limit) / 3600 if limit else None
