"""`rampup clean`: free the space of checkpoints that a run no longer needs."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import click

from rampup.cli import output
from rampup.cli.checkpoints import MB, best_step
from rampup.cli.options import complete_run, dry_run_option, json_option
from rampup.errors import RampupError, Refused
from rampup.rundir import checkpoints
from rampup.rundir import find as runs
from rampup.rundir.checkpoints import Damaged
from rampup.rundir.files import RunDir, checkpoint_name
from rampup.runs.state import state_of


@click.command()
@click.argument("wanted", nargs=-1, required=True, shell_complete=complete_run, metavar="RUN...")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Remove every checkpoint: the run can't be resumed any more.",
)
@dry_run_option
@json_option
def command(wanted: tuple[str, ...], everything: bool, dry_run: bool, as_json: bool) -> int:
    """Free the space of checkpoints. RUN is an id or a unique prefix of one; there is no default.

    Removes what is half written and every checkpoint but the newest sound one and the best. A run
    that goes on is left alone.
    """
    found = [runs.find(name) for name in wanted]
    for run in found:
        refuse_unless_ended(run)
    rows = [clean(run, everything, dry_run) for run in found]
    if as_json:
        output.emit_json(rows)
        return 0
    for row in rows:
        output.say(describe(row, dry_run))
    output.next_step("rampup list" if everything else f"rampup show {found[0].id} --checkpoints")
    return 0


def refuse_unless_ended(run: RunDir) -> None:
    state = state_of(run, fresh_s=0.0)
    if not state.ended:
        raise Refused(
            f"run {run.id} is {state.name}: its checkpoints are left alone",
            f"rampup cancel {run.id}",
        )


def clean(run: RunDir, everything: bool, dry_run: bool) -> dict[str, Any]:
    kept = [] if everything else needed_steps(run)
    unneeded = [run.checkpoint(step) for step in checkpoints.list_steps(run) if step not in kept]
    unneeded += checkpoints.list_half_written(run)
    if everything and run.checkpoints.is_dir():
        unneeded = list(run.checkpoints.iterdir())
    freed = sum(folder_size(path) for path in unneeded)
    if not dry_run:
        for path in unneeded:
            remove(path)
    return {
        "id": run.id,
        "removed": sorted(path.name for path in unneeded),
        "kept": [checkpoint_name(step) for step in kept],
        "freed_bytes": freed,
    }


def needed_steps(run: RunDir) -> list[int]:
    """Return the newest sound one and the best; all of them when none is sound, because something
    of them may be saved."""
    steps, best = checkpoints.list_steps(run), best_step(run)
    for step in steps:
        try:
            checkpoints.verify_checkpoint(run, step)
        except Damaged:
            continue
        if best is None or best == step or best not in steps:
            return [step]
        return [step, best]
    return steps


def remove(path: Path) -> None:
    """Remove a checkpoint, by one rename first: no reader meets half of it."""
    try:
        trash = path.with_name(f"{checkpoints.TRASH}{time.time_ns()}")
        path.rename(trash)
        shutil.rmtree(trash)
    except OSError as error:
        raise RampupError(
            f"can't remove {path}: {error.strerror}", "only the owner of a run can clean it"
        ) from None


def folder_size(folder: Path) -> int:
    return sum(
        os.lstat(os.path.join(root, name)).st_size
        for root, _, names in os.walk(folder)
        for name in names
    )


def describe(row: dict[str, Any], dry_run: bool) -> str:
    if not row["removed"]:
        return f"{row['id']}: nothing to remove"
    would = "would free" if dry_run else "freed"
    kept = f"; kept {', '.join(row['kept'])}" if row["kept"] else ""
    size = f"{row['freed_bytes'] / MB:,.1f} MB"
    return f"{row['id']}: {would} {size} ({', '.join(row['removed'])}){kept}"
