"""`rampup sweep`: one run for every combination of settings. On a cluster as arrays, or packed;
else here."""

import contextlib
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from rampup.cli import follow, output
from rampup.cli.compare import differ_words
from rampup.cli.guesses import RunCommand
from rampup.cli.options import complete_words, dry_run_option, json_option
from rampup.cli.run import (
    PROGRAM_GROUP,
    RESOURCE_GROUPS,
    allocation,
    make_request,
    place_options,
    program_options,
    remember,
    resource_options,
)
from rampup.cli.selection import report_states, worst_exit_code
from rampup.config.program import PLACE
from rampup.core import stdin
from rampup.core.metrics import lower_is_better
from rampup.core.spec import Share
from rampup.diagnose.checks import machine
from rampup.errors import Refused, UsageError
from rampup.rundir import find as runs
from rampup.rundir import locks, sharing
from rampup.rundir.files import make_root, remove_abandoned
from rampup.runs.plan import make_plan
from rampup.schedulers import find_scheduler
from rampup.study import grid
from rampup.study.code import SharedCode
from rampup.study.columns import differing, read_score
from rampup.study.here import Here
from rampup.study.launch import Launch, Way, check, with_share
from rampup.study.members import Ids, Member, Study, Todo, counts, members_of

DRY_RUN_WORDS = {
    "done": "done",
    "running": "still running",
    "again": "would be started again",
    "new": "would be started",
}
"""What becomes of a point, as --dry-run says it."""


@click.command(
    cls=RunCommand,
    groups={
        **RESOURCE_GROUPS,
        **PROGRAM_GROUP,
        "What happens": ("pack", "throttle", "dry_run"),
        "Name and output": ("name", "as_json"),
    },
)
@click.argument(
    "words",
    nargs=-1,
    shell_complete=complete_words,
    metavar="[RECIPE | FILE.toml] [KEY=A,B,...]... [-- CMD]",
)
@place_options
@click.option(
    "--name",
    "-J",
    "--job-name",
    "name",
    metavar="STUDY",
    help="A name for the study (default: the recipe's or the script's).",
)
@click.option(
    "--pack",
    type=click.IntRange(min=1),
    metavar="K",
    help="Run K runs at a time, inside one job or on this machine.",
)
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="N",
    help="On a cluster: run at most N jobs of the job array at once.",
)
@resource_options
@program_options
@dry_run_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    on: str | None,
    name: str | None,
    pack: int | None,
    throttle: int | None,
    launcher: str | None,
    slurm: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Start one run for every combination of settings; together they are a study.

    \b
    rampup sweep mnist lr=1e-2,1e-3 batch_size=16,32
    rampup sweep mnist lr=1e-2,1e-3 --on sandbox --throttle 2
    rampup sweep p=1,2,3 --on sandbox --pack 3 -- python prog.py {p}

    KEY=A,B,C tries each value; a dotted key reaches any table (resources.nodes=1,2). Repeat the
    command to start the runs that are missing or have failed; it skips those that are done.
    `rampup list --study STUDY` compares the runs.
    """
    if launcher:
        words = (*words, f"cluster.launcher={launcher}")
    request = make_request(words, ctx.obj, on or allocation(), name, options, slurm, smoke=False)
    points = grid.points(request, Path.cwd())
    for note in grid.find_unfilled(request, points):
        output.say(f"note: {note}")
    spec = points[0].spec
    refuse_mixture(points, pack, throttle)
    study, way = Study(spec.name, runs.default_root(spec.cluster)), Way(pack, throttle)
    queued = not find_scheduler(spec.cluster.scheduler).is_inside(spec.cluster)
    if len(points) == 1 and not is_named_point(study, request.command, points[0]):
        raise UsageError(
            "this sweep varies nothing: no setting has several values",
            "write them with commas: lr=1e-2,1e-3; for one run: rampup run",
        )
    members = members_of(study, points)
    note_differences(study, points)
    if dry_run and find_scheduler(spec.cluster.scheduler).find_absence(spec.cluster):
        return show_from_afar(study, members, as_json)
    check(waiting(members), study.root, pack if queued else None, output.say)
    if dry_run:
        return show_plan(study, members, way if queued else None, as_json)
    make_folder(study, points[0].spec.cluster.share)
    with (
        follow.interrupt_flag() as interrupted,
        locks.hold(study.mark, f"the study {study.name} is being started already"),
    ):
        remember(study.root)
        members = members_of(study, points)  # as it is now that nobody else can start any
        if not as_json:
            at_once = "" if queued else f", {pack or 1} at a time"
            label = f"study {study.name}: {plan_words(members)}{at_once}, in "
            output.say_path(label, study.root)
        if queued:
            return submit(study, members, way, interrupted, as_json)
        return run_here(study, members, pack or 1, interrupted, as_json)


def waiting(members: Sequence[Member]) -> list[Member]:
    return [member for member in members if member.todo in ("new", "again")]


def is_named_point(study: Study, command: Sequence[str] | None, point: grid.Point) -> bool:
    """Whether a single point is meant: of a command that takes its value, or of a study that varies
    the same settings."""
    if not point.values:
        return False
    if any(PLACE.search(word) for word in command or ()):
        return True
    return any(run.run.get("point", {}).keys() == point.values.keys() for run in study.runs())


def note_differences(study: Study, points: Sequence[grid.Point]) -> None:
    """Say when the runs that the study has already were made with other fixed settings."""
    spec = points[0].spec
    planned = {"train": spec.train, "checkpoint": spec.checkpoint}
    before = [{key: run.config.get(key, {}) for key in planned} for run in study.runs()]
    varied = {key.removeprefix("train.") for key in points[0].values}
    others = [key for key in differing([*before, planned]) if key not in varied]
    if others:
        output.say(f"note: {differ_words(others)}; --name NAME makes another study")


def refuse_mixture(points: Sequence[grid.Point], pack: int | None, throttle: int | None) -> None:
    clusters = [point.spec.cluster for point in points]
    has_queue = not find_scheduler(clusters[0].scheduler).is_here
    if len({(it.scheduler, it.runs_root, it.slurm_conf, it.slurm_cluster) for it in clusters}) > 1:
        raise Refused("a study runs in one place", "start one sweep per cluster")
    if throttle and (pack or not has_queue):
        raise UsageError("--throttle is for arrays on a cluster", "--pack K runs K at a time")


def make_folder(study: Study, share: Share) -> None:
    try:
        make_root(study.root)
        remove_abandoned(study.root)
        study.folder.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            sharing.make_folder(study.folder, share)
    except OSError as error:
        hint = "set RAMPUP_RUNS to a directory that you can write"
        raise Refused(f"can't make {study.folder}: {error.strerror}", hint) from None


# on a cluster -------------------------------------------------------------------------------------


def submit(
    study: Study, members: Sequence[Member], way: Way, interrupted: list[int], as_json: bool
) -> int:
    todo = waiting(members)
    with SharedCode(study.root, study.name) as code:
        jobs = Launch(study, way, code, output.say, interrupted).submit_all(todo)
    if as_json:
        now = members_of(study, [member.point for member in members])
        output.emit_json({**as_object(study, now), "jobs": jobs})
    else:
        output.say(submitted_words(len(todo), jobs, way))
        next_step(study, members)
    return 0


def submitted_words(count: int, jobs: Sequence[str], way: Way) -> str:
    if not jobs:
        return "nothing to start"
    listed = ", ".join(jobs[:8]) + (", ..." if len(jobs) > 8 else "")
    kind = output.count(len(jobs), "job" if way.at_once else "array")
    at_once = f", {min(way.at_once, count)} at a time" if way.at_once else ""
    return f"submitted {output.count(count, 'run')} as {kind}{at_once}: {listed}"


# here ---------------------------------------------------------------------------------------------


def run_here(
    study: Study, members: Sequence[Member], at_once: int, interrupted: list[int], as_json: bool
) -> int:
    cpus = machine.cpus().allowed
    todo = [with_share(member, cpus, at_once) for member in waiting(members)]
    screen = follow.StudyScreen()
    tell = (lambda text: None) if as_json else screen.say
    with SharedCode(study.root, study.name) as code:
        here = Here(study, code, at_once, tell, screen.update)
        here.make_all(todo, Ids(study.root), interrupted)
        stdin.keep()  # several runs can't share it
        here.go(interrupted)
    screen.line.clear()
    found = members_of(study, [member.point for member in members])
    now = [replace(member, known=here.as_known(member.known)) for member in found]
    if as_json:
        output.emit_json(as_object(study, now))
    else:
        report_states({member.known.run: member.known.state for member in now if member.known})
        if interrupted:
            output.say("stopped; the same command starts what is missing")
        next_step(study, members)
        say_best(now)
    return (
        128 + interrupted[0]
        if interrupted
        else worst_exit_code(member.known.state for member in now if member.known)
    )


def say_best(members: Sequence[Member]) -> None:
    """The last line of a study: its best point by the metric that most runs have."""
    done = [it for it in members if it.known and it.known.state.name == "completed"]
    scores = [(score, it) for it in done if it.known and (score := read_score(it.known.run))]
    if not scores:
        return
    metric = Counter(score.metric for score, _ in scores).most_common(1)[0][0]
    alike = [(score.value, it) for score, it in scores if score.metric == metric]
    mode = alike[0][1].point.spec.train.get("monitor_mode") or "auto"
    choose = min if lower_is_better(metric, str(mode)) else max
    value, best = choose(alike, key=lambda pair: pair[0])
    run = best.known.run.id if best.known else ""
    output.say(f"best: {best.point.label}: {metric} {output.number(value)}, run {run}")


# --dry-run ----------------------------------------------------------------------------------------


def show_plan(study: Study, members: Sequence[Member], way: Way | None, as_json: bool) -> int:
    """Show the points of a dry run, what would become of each, and the script of the first job. `way`
    is None where no scheduler is asked."""
    todo = [member for member in members if member.todo in ("new", "again")]
    scripts = scripts_of(study, todo, way) if way else []
    if as_json:
        output.emit_json({**describe_plan(study, members), "scripts": scripts})
        return 0
    show_points(members)
    if scripts:
        first = make_plan(todo[0].point.spec, study.root / f"TIME-{study.name}-ID")
        output.write_text(f"\n{scripts[0]}\n{first.script}")
        output.say(
            f"{output.count(len(scripts), 'call')} of sbatch; shown: the first, and job.sh of its first run"
        )
    output.next_step("the same command without --dry-run")
    return 0


def show_from_afar(study: Study, members: Sequence[Member], as_json: bool) -> int:
    """Show the points, and the plan of the first run, where the cluster can't be reached."""
    from rampup.cli import dry_run  # few sweeps need it

    if not as_json:
        show_points(members)
        output.write_whole(f"\nthe first of {output.count(len(members), 'run')}:\n")
    first = members[0].point.spec
    return dry_run.show_plan(first, as_json, study=describe_plan(study, members))


def describe_plan(study: Study, members: Sequence[Member]) -> dict[str, Any]:
    rows = [
        {
            "point": member.point.values,
            "run": member.run.id if member.run else None,
            "todo": member.todo,
        }
        for member in members
    ]
    return {"study": study.name, "root": str(study.root), "runs": rows}


def scripts_of(study: Study, todo: Sequence[Member], way: Way) -> list[str]:
    folder, name = study.folder / f"{way.kind}-N", f"{study.name}-ID"
    batches = way.batches(todo, study.root)
    return [way.script(study, folder, name, batch, [1] * len(batch.members)) for batch in batches]


def show_points(members: Sequence[Member]) -> None:
    keys = list(dict.fromkeys(key for member in members for key in member.point.values))
    rows = [
        (
            *(grid.text_of(member.point.values.get(key)) for key in keys),
            member.run.id if member.run else "-",
            DRY_RUN_WORDS[member.todo],
        )
        for member in members
    ]
    output.table((*keys, "run", ""), rows)


# words --------------------------------------------------------------------------------------------


def plan_words(members: Sequence[Member]) -> str:
    """Return for example `4 runs (2 done, 1 running, 1 started again)`."""
    found = counts(members)
    said: dict[Todo, str] = {
        "done": "{} done",
        "running": "{} running",
        "again": "{} started again",
        "new": "{} new",
    }
    parts = [said[todo].format(found[todo]) for todo in said if found.get(todo)]
    return f"{output.count(len(members), 'run')} ({', '.join(parts)})"


def next_step(study: Study, members: Sequence[Member]) -> None:
    keys = list(dict.fromkeys(key for member in members for key in member.point.values))
    monitor = members[0].point.spec.train.get("monitor")
    # without a metric that is known now `list` itself finds the one that counts
    words = (
        f" --columns {shlex.quote(','.join([*keys, monitor]))}" if isinstance(monitor, str) else ""
    )
    output.next_step(f"rampup list --study {study.name}{words}")


def as_object(study: Study, members: Sequence[Member]) -> dict[str, Any]:
    return {
        "study": study.name,
        "root": str(study.root),
        "runs": [
            {
                "id": member.run.id if member.run else None,
                "dir": str(member.run.path) if member.run else None,
                "point": member.point.values,
                "state": member.known.state.name if member.known else None,
                "cause": (member.known.state.cause or None) if member.known else None,
            }
            for member in members
        ],
    }
