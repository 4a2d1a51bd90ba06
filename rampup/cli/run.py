"""`rampup run`: settings, a run directory, and off it goes; then it is followed to its end, or left alone."""

import sys
from pathlib import Path
from typing import Any

import click

from rampup import runs
from rampup.cli import output
from rampup.cli.arguments import complete_recipe, dry_run_option, json_option
from rampup.config import Request, resolve
from rampup.errors import UsageError

RESOURCE_OPTIONS = ("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "time", "devices")


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument(
    "words", nargs=-1, shell_complete=complete_recipe, metavar="[RECIPE | FILE.toml] [KEY=VALUE]... [-- CMD]"
)
@click.option("--on", metavar="CLUSTER", envvar="RAMPUP_CLUSTER", help="Where to run (default: local).")
@click.option("--name", help="A name for the run (default: the recipe's or the script's).")
@click.option("--nodes", metavar="N", help="Machines.")
@click.option("--tasks-per-node", metavar="T", help="Ranks on each machine.")
@click.option("--gpus-per-node", metavar="G", help="GPUs on each machine.")
@click.option("--cpus-per-task", metavar="C", help="CPUs of each rank (default: a fair share).")
@click.option("--time", metavar="T", help="Time limit: minutes, H:MM:SS or D-HH:MM:SS.")
@click.option("--devices", metavar="0,1", help="Which GPUs, by index; an empty list hides them all.")
@click.option("--detach", is_flag=True, help="Return at once; the run survives this terminal.")
@dry_run_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    on: str | None,
    name: str | None,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **resources: str | None,
) -> int:
    """Train a recipe, a file of settings, or any command.

    \b
    rampup run mnist lr=3e-4 epochs=3 --tasks-per-node 2
    rampup run rampup.toml
    rampup run --tasks-per-node 2 -- python my_script.py --lr 0.1

    KEY=VALUE sets a value of [train]; a dotted key reaches any table (resources.nodes=2). `rampup recipe show NAME`
    lists the settings of a recipe.
    """
    request = make_request(words, ctx.obj, on, name, resources)
    spec = resolve(request, Path.cwd())
    if dry_run:
        from rampup.cli.dry_run import show_plan

        return show_plan(spec, as_json)
    from rampup.submit import make_run, start

    run = make_run(spec)
    remember(run.path.parent)
    if detach:
        start(run, spec, detach=True)
        return tell_started(run, as_json)
    from rampup.cli.follow import follow_foreground

    return follow_foreground(run, lambda: start(run, spec, detach=False), as_json)


def make_request(
    words: tuple[str, ...],
    user_command: tuple[str, ...] | None,
    on: str | None,
    name: str | None,
    resources: dict[str, Any],
) -> Request:
    if user_command == ():
        raise UsageError("there is no command after --", "rampup run -- python my_script.py")
    targets = [word for word in words if "=" not in word]
    if len(targets) > 1 or (targets and user_command):
        extra = targets[0] if user_command else targets[1]
        raise UsageError(
            f"{extra!r} is one target too many", "a command of your own goes after --, a setting is key=value"
        )
    return Request(
        target=targets[0] if targets else None,
        command=user_command,
        settings=tuple(word for word in words if "=" in word),
        options={key: text for key in RESOURCE_OPTIONS if (text := resources[key]) is not None},
        on=on,
        name=name,
    )


def remember(root: Path) -> None:
    try:
        runs.remember_root(root)
    except OSError as error:
        output.say(f"note: can't write {runs.roots_file()} ({error.strerror}): `list` finds this run only from here")


def tell_started(run: Any, as_json: bool) -> int:
    if as_json:
        from rampup.summary import describe

        output.emit_json(describe(run))
    else:
        print(run.id)
        output.say(f"started in the background: {run.path}")
        output.next_step(f"rampup logs -f {run.id}")
    sys.stdout.flush()
    return 0
