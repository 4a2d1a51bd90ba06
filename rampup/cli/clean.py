"""`rampup clean`: free the space of checkpoints that a run no longer needs."""

from typing import Any

import click

from rampup.cli import output
from rampup.cli.checkpoints import MB
from rampup.cli.options import complete_run, dry_run_option, json_option
from rampup.cli.selection import title
from rampup.rundir import find as runs
from rampup.rundir.checkpoints import DAMAGED
from rampup.rundir.files import RunDir
from rampup.rundir.trust import refuse_foreign
from rampup.runs.checkpoints import Cleaning, clean, refuse_unless_ended


@click.command()
@click.argument("wanted", nargs=-1, required=True, shell_complete=complete_run, metavar="RUN...")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Remove every checkpoint; the run can no longer be resumed.",
)
@dry_run_option
@json_option
def command(wanted: tuple[str, ...], everything: bool, dry_run: bool, as_json: bool) -> int:
    """Delete checkpoints that are no longer needed. RUN is an id or its first letters, a job id, a
    name that only one run has, or a path; there is no default.

    Removes unfinished checkpoints, and all others except the newest valid one and the best. Damaged
    checkpoints are set aside and named; only --all removes them. Runs that have not ended are
    refused.
    """
    found = [runs.find(name) for name in wanted]
    for run in found:
        refuse_foreign(run, "clean it")
        refuse_unless_ended(run)
    rows = []
    for run in found:
        plan = clean(run, everything, dry_run)
        rows.append(describe(run, plan))
        if not as_json:
            for line in format_lines(run, plan, dry_run):
                output.say(line)
    if as_json:
        output.emit_json(rows)
        return 0
    output.next_step("rampup list" if everything else f"rampup show {found[0].id} --checkpoints")
    return 0


def describe(run: RunDir, plan: Cleaning) -> dict[str, Any]:
    aside = [f"{DAMAGED}{entry.name}" for entry in plan.aside]
    return {
        "id": run.id,
        "removed": sorted(entry.name for entry in plan.removed),
        "kept": [entry.name for entry in plan.kept],
        "damaged": aside + [entry.name for entry in plan.damaged],
        "left": plan.left,
        "freed_bytes": plan.freed_bytes,
    }


def format_lines(run: RunDir, plan: Cleaning, dry_run: bool) -> list[str]:
    facts, name = describe(run, plan), title(run)
    first = f"{name}: nothing to remove"
    if plan.removed:
        would = "would free" if dry_run else "freed"
        size = f"{plan.freed_bytes / MB:,.1f} MB"
        first = f"{name}: {would} {size} ({', '.join(facts['removed'])})"
    if plan.kept:
        first += f"; kept {', '.join(facts['kept'])}"
    if plan.left:
        first += f"; left alone: {', '.join(plan.left)}"
    lines = [first]
    for entry in plan.aside:
        would = "would be" if dry_run else "was"
        lines.append(
            f"{name}: {entry.name} is damaged; it {would} set aside as {DAMAGED}{entry.name}"
        )
    if plan.damaged:
        names = ", ".join(entry.name for entry in plan.damaged)
        lines.append(f"{name}: damaged: {names}; only --all removes what is damaged")
    return lines
