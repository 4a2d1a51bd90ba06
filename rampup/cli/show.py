"""`rampup show`: one run as its files tell it."""

from typing import Any

import click

from rampup import runs
from rampup.cli import output
from rampup.cli.arguments import json_option, run_argument
from rampup.cli.ending import best_line, metrics_line, phases_line
from rampup.cli.usage import usage_json, usage_lines, usage_when_ended
from rampup.rundir import RunDir
from rampup.schedulers.slurm_usage import Usage
from rampup.summary import describe, phases_of, total_wall_s


@click.command()
@run_argument
@click.option("--history", is_flag=True, help="The metric rows of all attempts, as one story.")
@json_option
def command(run: str | None, history: bool, as_json: bool) -> int:
    """One run: its state, settings, metrics, time. RUN is an id or a prefix of one (default: the latest)."""
    found = runs.find(run)
    if history:
        return show_history(found, as_json)
    facts = describe(found)
    usage = usage_when_ended(found, facts["state"])
    if as_json:
        spent = {"phases": phases_of(found), "usage": usage_json(usage, facts["state"])}
        output.emit_json({**facts, **spent, "config": found.config, "run": found.run})
        return 0
    show_people(found, facts, usage)
    return 0


def show_history(run: RunDir, as_json: bool) -> int:
    rows = run.history()
    if as_json:
        output.emit_json(rows)
        return 0
    keys = list(dict.fromkeys(key for row in rows for key in row if key != "t"))
    output.table(
        keys, [[output.number(row[key]) if key in row else "" for key in keys] for row in rows] or [[""] * len(keys)]
    )
    return 0


def show_people(run: RunDir, facts: dict[str, Any], usage: Usage | None) -> None:
    state, spent = facts["state"], total_wall_s(run)
    took = f" after {output.duration(spent)}" if spent is not None else ""
    if facts["as_of_s"] is not None:
        took = f", as it was {output.duration(facts['as_of_s'])} ago: the scheduler does not answer"
    name = output.paint(facts["name"] or "?", output.BOLD)
    print(f"{name}  {run.id}  {output.paint(state, output.STATE_COLOURS[state])}{took}")
    if facts["cause"]:
        print(facts["cause"] if state == "pending" else f"cause: {facts['cause']}")
    print(f"directory: {run.path}")
    for line in (
        metrics_line(facts["metrics"]),
        best_line(facts["best"]),
        phases_line(phases_of(run)),
        usage_line(run),
        *usage_lines(usage, state),
    ):
        if line:
            print(line)
    show_settings(run)
    missing = [path.name for path in (run.run_file, run.config_file, run.env_file) if not path.exists()]
    if missing:
        output.say(f"note: missing or unreadable: {', '.join(missing)}")
    output.next_step(next_of(run, state))


def usage_line(run: RunDir) -> str:
    attempt = run.last_attempt()
    facts = attempt.facts if attempt else {}
    if "cpu_s" not in facts:
        return ""
    largest = f"{facts['max_rss_mb']:,.0f} MB in the largest process"
    return f"used: {output.count(facts['world_size'], 'rank')}, {output.duration(facts['cpu_s'])} of CPU, {largest}"


def show_settings(run: RunDir) -> None:
    config = run.config
    origins = config.get("origins", {})
    rows = [
        (key, "none" if value is None else str(value), origins.get(f"{table}.{key}", ""))
        for table in ("train", "resources")
        for key, value in config.get(table, {}).items()
        if table == "train" or value not in (None, [])
    ]
    if config.get("command"):
        print(f"command: {' '.join(config['command'])}")
    if rows:
        print()
        output.table(("setting", "value", "origin"), rows)


def next_of(run: RunDir, state: str) -> str:
    if state in ("running", "pending"):
        return f"rampup logs -f {run.id}"
    return f"rampup logs {run.id}" if state != "completed" else f"rampup show {run.id} --history"
