"""`rampup drill`: inject faults into a run, all that the place allows, and show whether it
recovers."""

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from rampup.cli import output
from rampup.cli.guesses import RunCommand
from rampup.cli.options import complete_words, dry_run_option, json_option
from rampup.cli.run import (
    PROGRAM_GROUP,
    RESOURCE_GROUPS,
    make_request,
    on_option,
    program_options,
    resource_options,
)
from rampup.config.resolve import resolve
from rampup.core.spec import RunSpec

if TYPE_CHECKING:
    from rampup.drill.faults.catalogue import Fault
    from rampup.drill.verdict import Result, Trial

HEAD = ("fault", "verdict", "attempts", "resumed", "steps redone", "seconds lost", "bit for bit")


@click.command(
    cls=RunCommand,
    groups={
        "Faults": ("faults", "kills", "seed"),
        **RESOURCE_GROUPS,
        **PROGRAM_GROUP,
        "What happens": ("keep", "dry_run"),
        "Output": ("as_json",),
    },
)
@click.argument(
    "words",
    nargs=-1,
    shell_complete=complete_words,
    metavar="[RECIPE | FILE.toml] [KEY=VALUE]... [-- CMD]",
)
@on_option("Where to run it (default: local).")
@click.option(
    "--fault", "faults", multiple=True, metavar="NAME", help="Only this fault; may be repeated."
)
@click.option(
    "--kills",
    type=click.IntRange(1),
    metavar="N",
    help="Total number of kills (default: one of each kind).",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    default=0,
    show_default=True,
    help="Random seed: when the faults happen and which ranks they hit.",
)
@click.option("--keep", is_flag=True, help="Keep the runs of the drill.")
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
    faults: tuple[str, ...],
    kills: int | None,
    seed: int,
    keep: bool,
    slurm: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run a training once without faults, then once with each fault, and show what was lost.

    \b
    rampup drill mnist epochs=1 --tasks-per-node 2
    rampup drill mnist --on sandbox --nodes 2
    rampup drill mnist --fault rank-killed --kills 5
    rampup drill --on sandbox -- python train.py

    Exit code 0: the run survived every fault that could be injected, with a bit-identical result
    where that is promised. 1: it did not survive all; failed runs are kept.
    """
    spec = resolve(make_request(words, ctx.obj, on, None, options, slurm, False), Path.cwd())
    from rampup.drill.drill import choose_faults

    wanted, impossible = choose_faults(spec, faults)
    if dry_run:
        return show_faults(spec, faults, as_json)
    with interruptible():
        return hold(spec, wanted, impossible, kills, seed, keep, as_json)


def hold(
    spec: RunSpec,
    wanted: list["Fault"],
    impossible: dict[str, str],
    kills: int | None,
    seed: int,
    keep: bool,
    as_json: bool,
) -> int:
    from rampup.drill.drill import Drill
    from rampup.rundir import find as runs

    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{spec.name}-{runs.new_run_id()}"
    root = runs.default_root(spec.cluster) / "drills" / name
    output.say(f"drill: {output.count(len(wanted), 'fault')}, in {root}")
    done = False
    try:
        found = Drill(spec, root, seed, keep, output.say).run(wanted, impossible, kills)
        done = found.ok
    finally:
        if done and not keep:
            shutil.rmtree(root)
        elif root.exists():
            output.say(f"the runs are kept in {root}")
    show_result(found, as_json)
    return 0 if found.ok else 1


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the drill; nothing interrupts the end itself."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        output.say("ending the runs of the drill ...")
        raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, interrupt)
    yield


def show_faults(spec: RunSpec, names: tuple[str, ...], as_json: bool) -> int:
    from rampup.drill.faults.catalogue import list_faults
    from rampup.drill.place import find_obstacle, find_place

    place = find_place(spec)
    listed = [
        (each.name, each.about, find_obstacle(each.name, place, spec))
        for each in list_faults(place)
    ]
    listed = [row for row in listed if not names or row[0] in names]
    if as_json:
        keys = ("fault", "about", "why_not")
        output.emit_json([dict(zip(keys, row, strict=True)) for row in listed])
        return 0
    rows = [(name, about, f"no: {why}" if why else "yes") for name, about, why in listed]
    output.table(("fault", "what is done", "here"), rows)
    output.next_step("the same command without --dry-run")
    return 0


# the table ----------------------------------------------------------------------------------------


def show_result(found: "Result", as_json: bool) -> None:
    if as_json:
        from msgspec import to_builtins

        output.emit_json({**to_builtins(found), "ok": found.ok})
        return
    output.table(HEAD, rows_of(found), right=frozenset({2, 3, 4, 5}))
    for trial in found.trials:
        if not trial.ok:
            output.write_whole(f"{trial.fault}: {trial.why}; see rampup show {trial.dir}")
    if found.bad:
        output.next_step(f"rampup why {found.bad[0].dir}")
    else:
        output.next_step("the same with --on CLUSTER, or start the real run")


def rows_of(found: "Result") -> list[tuple[str, ...]]:
    """Return one row for each fault; of several kills the worst."""
    by_name: dict[str, list[Trial]] = {}
    for trial in found.trials:
        by_name.setdefault(trial.fault, []).append(trial)
    rows = [row_of(name, trials) for name, trials in by_name.items()]
    return rows + [
        (name, f"not possible here: {why}", "", "", "", "", "")
        for name, why in found.impossible.items()
    ]


def row_of(name: str, trials: list["Trial"]) -> tuple[str, ...]:
    survived = sum(trial.survived for trial in trials)
    verdict = "survived" if survived == len(trials) else "LOST"
    if len(trials) > 1:
        verdict += f" {survived} of {len(trials)}"
    return (
        name,
        verdict,
        str(max(trial.attempts for trial in trials)),
        str(max(trial.helped for trial in trials)),
        str(max(trial.redone for trial in trials)),
        f"{max(0.0, *(trial.lost_s for trial in trials)):.1f}",
        equality_words([trial for trial in trials if trial.survived]),
    )


def equality_words(trials: list["Trial"]) -> str:
    if any(trial.equal is False for trial in trials):
        return "NO" if any(trial.promised for trial in trials) else "no, and not promised"
    if any(trial.equal is None for trial in trials):
        return "not applicable"
    return "yes" if trials else ""
