"""`rampup run`: settings, a run directory, and off it goes; then it is followed to its end, or left
alone."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from rampup.cli import output
from rampup.cli.guesses import RunCommand
from rampup.cli.options import (
    complete_cluster,
    complete_launcher,
    complete_run,
    complete_words,
    dry_run_option,
    json_option,
)
from rampup.config.clusters import find_fitting
from rampup.config.resolve import Request, resolve
from rampup.core.program import PROGRAM, Program
from rampup.core.resources import CLUSTER, ENVIRONMENT, SIZE, Asked, Resources, list_declared
from rampup.errors import UsageError
from rampup.rundir import find as runs


def list_options(record: type[Struct]) -> dict[str, Asked]:
    """Return the resources that are options, each with how it is described."""
    found = list_declared(record)
    return {name: asked for name, kind, asked, _ in found if asked.metavar or kind is bool}


RESOURCE_OPTIONS = list_options(Resources)
PROGRAM_OPTIONS = list_options(Program)
PROGRAM_GROUP = {PROGRAM: tuple(PROGRAM_OPTIONS)}
NEXT_TO = {CLUSTER: (("on", "launcher"), ("slurm",))}
"""Options of the same groups that are not resources: those before, and those behind."""


def group_resources() -> dict[str, tuple[str, ...]]:
    """Group the options of every verb that starts runs, for --help; each verb adds its own."""
    grouped = {}
    for group in (SIZE, CLUSTER, ENVIRONMENT):
        before, behind = NEXT_TO.get(group, ((), ()))
        own = [name for name, asked in RESOURCE_OPTIONS.items() if asked.group == group]
        grouped[group] = (*before, *own, *behind)
    return grouped


RESOURCE_GROUPS = group_resources()


def resource_options(function: Callable[..., int]) -> Callable[..., int]:
    """All of them, and --slurm for what else sbatch knows."""
    about = "Any other option of sbatch; may be repeated."
    function = click.option("--slurm", multiple=True, metavar="KEY=VALUE", help=about)(function)
    for name, asked in reversed(RESOURCE_OPTIONS.items()):
        names = (f"--{name.replace('_', '-')}", *asked.slurm)
        about = f"{asked.help[0].upper()}{asked.help[1:]}."
        if asked.metavar:
            option = click.option(name, *names, metavar=asked.metavar, help=about)
        else:
            option = click.option(name, *names, flag_value="true", default=None, help=about)
        function = option(function)
    return function


def program_options(function: Callable[..., int]) -> Callable[..., int]:
    """What a command's run is asked for besides resources: those of core/program.py."""
    declared = {name: kind for name, kind, _, _ in list_declared(Program)}
    for name, asked in reversed(PROGRAM_OPTIONS.items()):
        option, kind = f"--{name.replace('_', '-')}", declared[name]
        about = f"{asked.help[0].upper()}{asked.help[1:]}."
        if kind is bool:
            add = click.option(option, name, is_flag=True, default=None, help=about)
        else:
            many = kind == list[str]
            add = click.option(option, name, multiple=many, metavar=asked.metavar, help=about)
        function = add(function)
    return function


def place_options(function: Callable[..., int]) -> Callable[..., int]:
    """--on and --launcher, for the verbs that start runs."""
    function = click.option(
        "--launcher",
        metavar="L",
        shell_complete=complete_launcher,
        help="What starts the ranks: srun, torchrun, mpirun, pmix (default: the site's).",
    )(function)
    return on_option(
        "Where to run: a profile (see `rampup cluster list`), or auto to choose one by this "
        "machine's name.  [default: local]"
    )(function)


def on_option(about: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    return click.option(
        "--on",
        metavar="CLUSTER",
        envvar="RAMPUP_CLUSTER",
        shell_complete=complete_cluster,
        help=about,
    )


@click.command(
    cls=RunCommand,
    groups={
        **RESOURCE_GROUPS,
        **PROGRAM_GROUP,
        "What happens": ("after", "follow", "detach", "smoke", "dev", "dry_run"),
        "Name and output": ("name", "as_json"),
    },
)
@click.argument(
    "words",
    nargs=-1,
    shell_complete=complete_words,
    metavar="[RECIPE | FILE.toml | pkg.mod:Class] [KEY=VALUE]... [-- CMD]",
)
@place_options
@click.option(
    "--name",
    "-J",
    "--job-name",
    "name",
    metavar="NAME",
    help="A name for the run (default: the recipe's or the script's).",
)
@resource_options
@program_options
@click.option(
    "--after",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_run,
    help="Start when this run has completed, however often it restarts; may be repeated.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="On a cluster: stay attached and show progress; Ctrl-C detaches, the job continues.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="On this machine: return at once; the run survives this terminal.",
)
@click.option(
    "--smoke",
    is_flag=True,
    help="On a cluster: try it first in the debug queue, with one step, one checkpoint and one "
    "resume; a command after -- runs unchanged, for two minutes at most.",
)
@click.option(
    "--dev",
    is_flag=True,
    help="Try one batch of everything on this machine, whatever --on says; no checkpoint is kept.",
)
@dry_run_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    on: str | None,
    name: str | None,
    launcher: str | None,
    slurm: tuple[str, ...],
    after: tuple[str, ...],
    follow: bool,
    detach: bool,
    smoke: bool,
    dev: bool,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Train a recipe, a file of settings, or any command.

    \b
    rampup run mnist lr=3e-4 epochs=3 --tasks-per-node 2
    rampup run mnist --on sandbox --nodes 2 --follow
    rampup run my_pkg.my_module:LitModel data=my_pkg.my_data:MyData lr=1e-3
    rampup run --tasks-per-node 2 -- python my_script.py --lr 0.1

    KEY=VALUE changes a setting of the training, as in the table [train] of a rampup.toml; a dotted
    key reaches any other table (resources.nodes=2). `rampup recipe show NAME` lists the settings of
    a recipe.
    """
    if launcher:
        words = (*words, f"cluster.launcher={launcher}")
    request = make_request(words, ctx.obj, on or allocation(), name, options, slurm, smoke, dev)
    spec = resolve(request, Path.cwd())
    if after:
        from rampup.runs.after import find_before  # it asks for states

        spec = replace(spec, after=find_before(after, spec))
    if dry_run:
        from rampup.cli.dry_run import show_plan

        return show_plan(spec, as_json)
    from rampup.cli import follow as following
    from rampup.diagnose.preflight import preflight
    from rampup.runs.create import create_run, plan_new_run

    refuse_unread_input(spec, detach)
    with following.interrupt_flag() as interrupted:
        checked = preflight(plan_new_run(spec))
        output.say_notes(checked.notes)
        run = create_run(checked)
        say_left_out(run)
        remember(run.path.parent)
        if not as_json and not detach:
            ranks = output.count(checked.plan.ranks, "rank")
            output.say_path(f"run {run.id}: {ranks}, in ", run.path)
        process = checked.plan.scheduler.submit(run, spec, detach)
        return follow_or_return(run, process, detach, follow or smoke, interrupted, as_json)


def say_left_out(run: Any) -> None:
    """Name the files that are not in the copy of the code because they look like credentials."""
    from rampup.runs.code import LOOKS_SECRET

    skipped = (run.env.get("code") or {}).get("skipped", [])
    names = [words.partition(": ")[0] for words in skipped if words.endswith(LOOKS_SECRET)]
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        listed = ", ".join(names[:5])
        output.say(
            f"note: linked, not copied with your code, for they may hold secrets: {listed}{more}"
        )


def follow_or_return(
    run: Any, launcher: Any, detach: bool, follow: bool, interrupted: list[int], as_json: bool
) -> int:
    """What was started is followed to its end, or left alone."""
    from rampup.cli import follow as following

    if detach or (launcher is None and not follow):
        return report_submission(run, as_json)
    if launcher is None:
        return following.follow_job(run, interrupted, as_json)
    return following.follow_foreground(run, launcher, interrupted, as_json)


def given_resources(options: dict[str, str | None]) -> dict[str, str]:
    """Those options of [resources] that were given. An empty one is a slip (`--env "$UNSET"`); no
    devices are meant."""
    found = {key: text for key in RESOURCE_OPTIONS if (text := options[key]) is not None}
    for key, text in found.items():
        if not text and key != "devices":
            raise UsageError(
                f"--{key.replace('_', '-')} is empty", "leave it out, or give it a value"
            )
    return found


def given_program(options: dict[str, Any]) -> dict[str, Any]:
    """Those options of [program] that were given."""
    found: dict[str, Any] = {}
    for key in PROGRAM_OPTIONS:
        value = options.get(key)
        if value is not None and value != ():
            found[key] = list(value) if isinstance(value, tuple) else value
    return found


def allocation() -> str | None:
    """The cluster whose allocation (salloc, an interactive node) this process runs in: the run uses
    what is granted already."""
    from rampup.schedulers import SCHEDULERS

    granting = [name for name, each in SCHEDULERS.items() if each.grants_this_process()]
    if not granting:
        return None
    found = [
        profile.cluster for profile in find_fitting() if profile.cluster.scheduler == granting[0]
    ]
    return found[0].name if len(found) == 1 else granting[0]


def make_request(
    words: tuple[str, ...],
    user_command: tuple[str, ...] | None,
    on: str | None,
    name: str | None,
    options: dict[str, Any],
    slurm: tuple[str, ...],
    smoke: bool,
    dev: bool = False,
) -> Request:
    if user_command == ():
        raise UsageError("there is no command after --", "rampup run -- python my_script.py")
    targets = [word for word in words if "=" not in word]
    if len(targets) > 1 or (targets and user_command):
        extra = targets[0] if user_command else targets[1]
        raise UsageError(
            f"unexpected argument {extra!r}",
            "a command goes after --, a setting is KEY=VALUE",
        )
    return Request(
        target=targets[0] if targets else None,
        command=user_command,
        settings=tuple(word for word in words if "=" in word),
        options=given_resources(options),
        program=given_program(options),
        slurm=slurm,
        smoke=smoke,
        dev=dev,
        on=on,
        name=name,
    )


def refuse_unread_input(spec: Any, detach: bool) -> None:
    """Refuse a file or a pipe that no rank would read: a job has no standard input of ours."""
    from rampup.core import stdin
    from rampup.schedulers import find_scheduler

    arrives = find_scheduler(spec.cluster.scheduler).is_here and not detach
    if spec.kind == "command" and not arrives and stdin.holds_data():
        where = "with --detach" if detach else f"on {spec.cluster.name}"
        raise UsageError(
            f"standard input can't reach a program {where}",
            "name the file in the command; or leave it empty: < /dev/null",
        )


def remember(root: Path) -> None:
    try:
        runs.remember_root(root)
    except OSError as error:
        output.say(
            f"note: can't write {runs.roots_file()} ({error.strerror}): `list` finds this run only from here"
        )


def report_submission(run: Any, as_json: bool) -> int:
    if as_json:
        from rampup.runs.summary import describe

        output.emit_json(describe(run))
    else:
        job = (run.recorded("submitted") or {}).get("job")
        if job:
            output.say(f"run {run.id} submitted as job {job}")
        else:
            output.say_path(f"run {run.id} started in the background: ", run.path)
        if not sys.stdout.isatty():  # for scripts
            output.write_whole(run.id)
        output.next_step(f"rampup logs -f {run.id}")
    sys.stdout.flush()
    return 0
