"""`rampup show`: one run as its files tell it, on one screen of 24 rows and 80 columns; --all shows
the rest."""

import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from rampup.cli import output, width
from rampup.cli.ending import (
    best_line,
    checkpoints_line,
    metrics_line,
    phases_line,
    relative_path,
)
from rampup.cli.options import json_option, run_argument
from rampup.cli.selection import explain_unreadable, title
from rampup.cli.usage import usage_json, usage_lines, usage_when_ended
from rampup.core.redact import redact
from rampup.rundir import clocks
from rampup.rundir import find as runs
from rampup.rundir.damage import find_damage
from rampup.rundir.files import RunDir
from rampup.rundir.history import effective_ratio, read_attempts
from rampup.runs.apart import find_apart_of
from rampup.runs.summary import (
    checkpoints_of,
    command_of,
    describe,
    describe_reading,
    phases_of,
    place_of,
    reading_of,
    total_wall_s,
)
from rampup.schedulers.base import Usage

if TYPE_CHECKING:
    from rampup.export.mlperf import Verdict

DEFAULT = "default"
"""The origin of a setting that nobody has set."""
ATTEMPTS_SHOWN = 2


@click.command()
@run_argument
@click.option("--all", "show_all", is_flag=True, help="Every setting and every attempt.")
@click.option(
    "--history", is_flag=True, help="Metric rows of all attempts, merged into one history."
)
@click.option(
    "--checkpoints", is_flag=True, help="List its checkpoints: step, age, size, and which is best."
)
@click.option(
    "--verify", is_flag=True, help="Read and verify all checkpoints; exit code 1 if one is damaged."
)
@json_option
def command(
    run: str | None,
    show_all: bool,
    history: bool,
    checkpoints: bool,
    verify: bool,
    as_json: bool,
) -> int:
    """Show one run: its state, progress, numbers, place and settings. RUN is an id or its first
    letters, a job id, a name or a path (default: the latest run of this directory)."""
    found = runs.find_to_read(run)
    if explain_unreadable(found, as_json):
        return 0
    if (checkpoints or verify or history) and not as_json:
        output.say(title(found))
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
    show_run(found, facts, usage, show_all)
    return 0


def further_facts(run: RunDir, state: str, usage: Usage | None) -> dict[str, Any]:
    """Return what only the JSON of `show` has. `attempts` is the number of them, and `tries` was the
    name of the list in rampup 0.1.0: it stays for one release."""
    attempts = read_attempts(run, state == "running")
    listed = [to_builtins(attempt) for attempt in attempts]
    return {
        "phases": phases_of(run),
        "data": reading_of(run),
        "usage": usage_json(usage, state),
        "each_attempt": listed,
        "tries": listed,
        "mlperf": to_builtins(ask_mlperf(run, state)),
        "effective_ratio": effective_ratio(attempts),
        "config": run.used_config,
        "run": redact(run.run),
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


def show_run(run: RunDir, facts: dict[str, Any], usage: Usage | None, show_all: bool) -> None:
    state = facts["state"]
    name = output.paint(facts["name"] or "?", output.BOLD)
    output.write(f"{name}  {run.id}  {output.paint_state(state)}{elapsed_words(run, facts)}")
    cause = read_cause(run, facts)
    if cause:
        output.write(cause if state == "pending" else f"cause: {cause}", most=3)
    lines = (
        progress_line(facts["progress"]),
        metrics_line(facts["metrics"], width.columns(sys.stdout)),
        best_line(facts["best"]),
        phases_line(phases_of(run), width.columns(sys.stdout)),
        reading_line(run),
        checkpoints_line(checkpoints_of(run)),
        mlperf_line(run, state),
        *(usage_lines(usage, state) or [usage_line(run)]),
        place_line(place_of(run)),
        threads_line(run),
        environment_line(run),
        profile_line(run),
        code_line(run),
    )
    for line in filter(None, lines):
        output.write(line, most=2)
    command_line = f"command: {command_of(run)}" if run.config else ""
    if show_all and command_line:
        output.write_whole(command_line)
    elif command_line:
        output.write(command_line, most=2)
    output.write_whole(directory_line(run))
    show_attempts(run, state, show_all)
    show_settings(run, show_all)
    for words in find_damage(run):
        output.say(f"note: {words}")
    if apart := find_apart_of(run, state):
        output.say(f"note: {apart.words}: rampup why {run.id}")
    output.next_step(next_command(run, facts))


def elapsed_words(run: RunDir, facts: dict[str, Any]) -> str:
    """Say for how long it has been running, in this attempt, or how long it took in all."""
    if facts["as_of_s"] is not None:
        ago = output.duration(facts["as_of_s"])
        return f", as of {ago} ago: the scheduler does not respond"
    if facts["state"] == "running":
        attempt = run.last_attempt()
        began = attempt.facts.get("started") if attempt else None
        several = f", attempt {facts['attempts']}" if facts["attempts"] > 1 else ""
        return f" for {output.duration(clocks.age(began))}{several}" if began else several
    spent = total_wall_s(run)
    return f" after {output.duration(spent)}" if spent is not None else ""


def progress_line(progress: dict[str, Any] | None) -> str:
    """Say how far it is: epoch 3/20, step 135/900 (15%), 1 min 05 s left."""
    if progress is None:
        return ""
    step, steps = progress["step"], progress["steps"]
    parts = []
    if progress["epoch"] is not None:
        parts.append(f"epoch {progress['epoch']:,}{out_of(progress['epochs'])}")
    share = f" ({step / steps:.0%})" if steps else ""
    parts.append(f"step {step:,}{out_of(steps)}{share}")
    if progress["left_s"] is not None:
        parts.append(f"{output.duration(progress['left_s'])} left")
    return f"progress: {', '.join(parts)}"


def out_of(number: int | None) -> str:
    return f"/{number:,}" if number else ""


def directory_line(run: RunDir) -> str:
    """Say where its files are. People copy the path: it is never folded or cut, and where it is
    too long for the terminal it is written as seen from here."""
    line, room = f"directory: {run.path}", width.columns(sys.stdout)
    fits = room is None or width.measure(line) <= room
    return line if fits else f"directory: {relative_path(run.path)}"


def place_line(place: dict[str, Any]) -> str:
    """Say where: the cluster, the job, the nodes, the ranks."""
    parts = [place["cluster"] or ""]
    parts.append(f"job {place['job']}" if place["job"] else "")
    parts.append(place["nodes"] or "")
    parts.append(output.count(place["ranks"], "rank") if place["ranks"] else "")
    found = ", ".join(part for part in parts if part)
    return f"where: {found}" if found else ""


def threads_line(run: RunDir) -> str:
    """Say with which threads TensorFlow computed: what is not given has a default."""
    attempt = run.last_attempt()
    found = (attempt.event("start") or {}).get("thread_settings") if attempt else None
    if not isinstance(found, dict):
        return ""
    numbers = [
        f"{name}_threads={found[name] or 'auto'}" for name in ("intra", "inter") if name in found
    ]
    variables = [f"{name}={value}" for name, value in found.items() if name.isupper()]
    return f"threads: {' '.join([*numbers, *variables])}"


def code_line(run: RunDir) -> str:
    """Say which code it ran: the commit of the user's project, or the rampup of a built-in recipe."""
    env = run.env
    code = env.get("code")
    if isinstance(code, dict):
        dirty = ", with uncommitted changes" if code.get("dirty") else ""
        return f"code: commit {code['commit']}{dirty}" if code.get("commit") else ""
    version = env.get("packages", {}).get("rampup")
    return f"code: rampup {version}" if version and run.config.get("builtin") else ""


def read_cause(run: RunDir, facts: dict[str, Any]) -> str:
    """Return the cause; for a run that ended badly it is the first line of `rampup why`."""
    if facts["state"] not in ("failed", "timeout", "cancelled"):
        return facts["cause"] or ""
    from rampup.diagnose.why.explain import explain  # not for runs that went well

    return explain(run).finding.cause


def reading_line(run: RunDir) -> str:
    """Say what was read sample by sample."""
    words = describe_reading(reading_of(run))
    return f"data: {words}" if words else ""


def show_attempts(run: RunDir, state: str, show_all: bool) -> None:
    """Show what each of several attempts did, and what the interruptions cost."""
    found = read_attempts(run, state == "running")
    if len(found) < 2:
        return
    ratio = effective_ratio(found)
    redone = output.count(sum(attempt.redone for attempt in found), "step")
    lost = output.duration(sum(attempt.lost_s for attempt in found))
    effective = f", effective training time {ratio:.0%}" if ratio is not None else ""
    shown = found if show_all else found[-ATTEMPTS_SHOWN:]
    newest = "" if len(shown) == len(found) else f" (the newest {len(shown)}; --all)"
    output.write(f"{len(found)} attempts{newest}, {redone} redone ({lost}){effective}")
    rows = [
        (
            str(attempt.number),
            str(attempt.first_step) if attempt.trained else "-",
            str(attempt.last_step) if attempt.trained else "-",
            str(attempt.redone),
            output.duration(attempt.took_s) if attempt.took_s is not None else "-",
            "running" if state == "running" and attempt is found[-1] else attempt.how,
            {None: "", True: "bit for bit", False: "not bit for bit"}[attempt.exact],
        )
        for attempt in shown
    ]
    head = ("attempt", "from step", "to step", "redone", "took", "ended", "resumed")
    output.table(head, rows, right=frozenset(range(5)))


def ask_mlperf(run: RunDir, state: str) -> "Verdict | None":
    """Return what MLPerf's own checker says of the run's log; None without a log."""
    if not any(attempt.mlperf_file.exists() for attempt in run.attempts()):
        return None
    from rampup.export.mlperf import check  # few runs have such a log

    return check(run, state not in ("running", "pending"))


def mlperf_line(run: RunDir, state: str) -> str:
    found = ask_mlperf(run, state)
    if found is None:
        return ""
    known = {True: "accepted by the official checker", False: "not accepted", None: "not checked"}
    why = f": {'; '.join(found.why)}" if found.why else ""
    return f"mlperf: {known[found.accepted]} ({found.division} division){why}"


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


def show_settings(run: RunDir, show_all: bool) -> None:
    """Show the settings that somebody has set, by who set them; with --all every one."""
    rows = list_settings(run)
    if show_all and rows:
        output.write_whole()
        output.table(("setting", "value", "origin"), rows)
    if show_all:
        return
    by_origin: dict[str, list[str]] = {}
    for name, value, origin in rows:
        if origin != DEFAULT:
            group = "options" if origin.startswith("--") else origin
            by_origin.setdefault(group, []).append(f"{name}={value}")
    for origin, words in by_origin.items():
        label = f"settings ({origin})" if origin else "settings"
        output.write(f"{label}: {'  '.join(words)}", most=2)
    defaults = sum(origin == DEFAULT for _, _, origin in rows)
    if defaults:
        output.write_whole(f"{output.count(defaults, 'default')}: --all")


def list_settings(run: RunDir) -> list[tuple[str, str, str]]:
    """Return the name, value and origin of every setting that says something."""
    config = run.used_config
    origins = config.get("origins", {})
    rows = []
    for table in ("train", "checkpoint", "resources", "program"):
        for key, value in config.get(table, {}).items():
            origin = origins.get(f"{table}.{key}", "")
            if table != "train" and value in (None, [], ""):
                continue
            if table == "program" and origin == DEFAULT:
                continue
            name = f"{table}.{key}" if table in ("checkpoint", "program") else key
            shown = "none" if value is None else str(value)
            rows.append((name, shown, origin))
    return rows


def next_command(run: RunDir, facts: dict[str, Any]) -> str:
    state = facts["state"]
    if state in ("running", "pending"):
        return f"rampup logs -f {run.id}"
    if state == "cancelled" and any(run.checkpoints.glob("step-*")):
        return f"rampup resume {run.id}"
    if state in ("failed", "timeout"):
        return f"rampup why {run.id}"
    return f"rampup show {run.id} --history" if facts["metrics"] else f"rampup logs {run.id}"
