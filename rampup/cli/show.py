"""`rampup show`: one run as its files tell it."""

import sys
from typing import Any

import click
from msgspec import to_builtins

from rampup.cli import output, width
from rampup.cli.ending import best_line, checkpoints_line, metrics_line, phases_line
from rampup.cli.options import json_option, run_argument
from rampup.cli.usage import usage_json, usage_lines, usage_when_ended
from rampup.rundir import clocks
from rampup.rundir import find as runs
from rampup.rundir.damage import find_damage
from rampup.rundir.files import RunDir
from rampup.rundir.history import effective_ratio, read_attempts
from rampup.runs.summary import checkpoints_of, describe, phases_of, total_wall_s
from rampup.schedulers.base import Usage


@click.command()
@run_argument
@click.option("--history", is_flag=True, help="The metric rows of all attempts, as one story.")
@click.option(
    "--checkpoints", is_flag=True, help="Its checkpoints: step, age, size, which is the best."
)
@click.option(
    "--verify", is_flag=True, help="Read the checkpoints through; exits 1 when one is damaged."
)
@json_option
def command(run: str | None, history: bool, checkpoints: bool, verify: bool, as_json: bool) -> int:
    """One run: its state, settings, metrics, time. RUN is an id or a prefix of one (default: the
    latest)."""
    found = runs.find_to_read(run)
    if checkpoints or verify:
        from rampup.cli.checkpoints import show_checkpoints  # it takes long to import

        return show_checkpoints(found, verify, as_json)
    if history:
        return show_history(found, as_json)
    facts = describe(found)
    usage = usage_when_ended(found, facts["state"])
    if as_json:
        output.emit_json({**facts, **further_facts(found, facts["state"], usage)})
        return 0
    show_run(found, facts, usage)
    return 0


def further_facts(run: RunDir, state: str, usage: Usage | None) -> dict[str, Any]:
    """Return what only the JSON of `show` has. `tries` are the attempts: `attempts` is their
    number already."""
    attempts = read_attempts(run, state == "running")
    return {
        "phases": phases_of(run),
        "usage": usage_json(usage, state),
        "tries": [to_builtins(attempt) for attempt in attempts],
        "effective_ratio": effective_ratio(attempts),
        "config": run.used_config,
        "run": run.run,
    }


def show_history(run: RunDir, as_json: bool) -> int:
    rows = run.history()
    if as_json:
        output.emit_json(rows)
        return 0
    keys = list(dict.fromkeys(key for row in rows for key in row if key != "t"))
    cells = [[output.number(row[key]) if key in row else "" for key in keys] for row in rows]
    output.table(keys, cells or [[""] * len(keys)])
    return 0


def show_run(run: RunDir, facts: dict[str, Any], usage: Usage | None) -> None:
    state = facts["state"]
    took = how_long(run, state)
    if facts["as_of_s"] is not None:
        took = f", as it was {output.duration(facts['as_of_s'])} ago: the scheduler does not answer"
    name = output.paint(facts["name"] or "?", output.BOLD)
    output.write(f"{name}  {run.id}  {output.paint_state(state)}{took}")
    cause = read_cause(run, facts)
    if cause:
        output.write(cause if state == "pending" else f"cause: {cause}")
    output.write_path("directory: ", run.path)
    lines = (
        metrics_line(facts["metrics"], width.columns(sys.stdout)),
        best_line(facts["best"]),
        phases_line(phases_of(run)),
        checkpoints_line(checkpoints_of(run)),
        usage_line(run),
        environment_line(run),
        profile_line(run),
        *usage_lines(usage, state),
    )
    for line in filter(None, lines):
        output.write(line)
    show_attempts(run, state)
    show_settings(run)
    for words in find_damage(run):
        output.say(f"note: {words}")
    output.next_step(next_command(run, state))


def read_cause(run: RunDir, facts: dict[str, Any]) -> str:
    """Return the cause; for a run that ended badly it is the first line of `rampup why`."""
    if facts["state"] not in ("failed", "timeout", "cancelled"):
        return facts["cause"] or ""
    from rampup.diagnose.why.explain import explain  # not for runs that went well

    return explain(run).finding.cause


def how_long(run: RunDir, state: str) -> str:
    """Say how long a run took; of one that runs, how long its attempt has been running."""
    attempt = run.last_attempt()
    started = attempt.facts.get("started") if attempt else None
    if state == "running" and attempt is not None and started is not None:
        which = f", attempt {attempt.number}" if attempt.number > 1 else ""
        return f" for {output.duration(clocks.age(started))}{which}"
    spent = total_wall_s(run)
    return f" after {output.duration(spent)}" if spent is not None else ""


def show_attempts(run: RunDir, state: str) -> None:
    """Show what each of several attempts did, and what the interruptions cost."""
    found = read_attempts(run, state == "running")
    if len(found) < 2:
        return
    ratio = effective_ratio(found)
    redone = output.count(sum(attempt.redone for attempt in found), "step")
    lost = output.duration(sum(attempt.lost_s for attempt in found))
    effective = f", effective training time {ratio:.0%}" if ratio is not None else ""
    output.write(f"{len(found)} attempts, {redone} redone ({lost}){effective}")
    rows = [
        (
            str(attempt.number),
            str(attempt.first_step) if attempt.trained else "-",
            str(attempt.last_step) if attempt.trained else "-",
            str(attempt.redone),
            output.duration(attempt.took_s) if attempt.took_s is not None else "-",
            attempt.how,
            {None: "", True: "bit for bit", False: "not bit for bit"}[attempt.exact],
        )
        for attempt in found
    ]
    head = ("attempt", "from step", "to step", "redone", "took", "ended", "resumed")
    output.table(head, rows, right=frozenset(range(5)))


def usage_line(run: RunDir) -> str:
    attempt = run.last_attempt()
    facts = attempt.facts if attempt else {}
    if not {"cpu_s", "max_rss_mb", "world_size"} <= facts.keys():
        return ""
    largest = f"{facts['max_rss_mb']:,.0f} MB in the largest process"
    ranks = output.count(facts["world_size"], "rank")
    return f"used: {ranks}, {output.duration(facts['cpu_s'])} of CPU, {largest}"


def profile_line(run: RunDir) -> str:
    attempt = run.last_attempt()
    found = attempt.profile_file() if attempt else None
    return f"profile: {found}" if found else ""


def environment_line(run: RunDir) -> str:
    """Say what the ranks ran in: the modules that were loaded, or, where none were, those that were
    requested."""
    chosen, attempt = run.config.get("environment") or {}, run.last_attempt()
    asked = chosen.get("modules") or []
    loaded = attempt.modules() if attempt else []
    parts = [f"environment: {chosen['env']}"] if chosen.get("env") else []
    if asked and loaded:
        parts.append(f"modules: {' '.join(loaded)}")
    elif asked:
        parts.append(f"modules asked for: {' '.join(asked)}")
    return ", ".join(parts)


def show_settings(run: RunDir) -> None:
    config = run.used_config
    origins = config.get("origins", {})
    rows = []
    for table in ("train", "checkpoint", "resources"):
        for key, value in config.get(table, {}).items():
            if table != "train" and value in (None, [], ""):
                continue
            name = f"checkpoint.{key}" if table == "checkpoint" else key
            shown = "none" if value is None else str(value)
            rows.append((name, shown, origins.get(f"{table}.{key}", "")))
    if config.get("command"):
        output.write(f"command: {' '.join(config['command'])}")
    if rows:
        print()
        output.table(("setting", "value", "origin"), rows)


def next_command(run: RunDir, state: str) -> str:
    if state in ("running", "pending"):
        return f"rampup logs -f {run.id}"
    if state == "cancelled":
        return f"rampup resume {run.id}"
    if state in ("failed", "timeout"):
        return f"rampup why {run.id}"
    return f"rampup show {run.id} --history"
