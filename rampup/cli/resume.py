"""`rampup resume`: start a run again that was stopped, failed or ran out of time, from its last
good checkpoint."""

import click

from rampup.cli import output
from rampup.cli.guesses import RunCommand
from rampup.cli.options import complete_cluster, complete_run, dry_run_option, json_option
from rampup.cli.run import (
    RESOURCE_GROUPS,
    follow_or_return,
    given_resources,
    resource_options,
)
from rampup.cli.selection import title
from rampup.rundir import find as runs
from rampup.rundir.trust import refuse_foreign


@click.command(
    cls=RunCommand,
    groups={
        **RESOURCE_GROUPS,
        "What happens": ("code", "before", "follow", "detach", "dry_run"),
        "Output": ("as_json",),
    },
)
@click.argument("wanted", shell_complete=complete_run, metavar="RUN")
@click.option(
    "--on",
    metavar="CLUSTER",
    shell_complete=complete_cluster,
    help="Where to continue (default: where it ran).",
)
@resource_options
@click.option(
    "--code",
    type=click.Choice(["submitted", "current"]),
    default="submitted",
    help="The code as it was submitted (default), or as it is today.",
)
@click.option(
    "--before",
    type=click.IntRange(min=1),
    metavar="STEP",
    help="Continue from the newest checkpoint before this step; later ones are set aside.",
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
@dry_run_option
@json_option
def command(
    wanted: str,
    on: str | None,
    slurm: tuple[str, ...],
    code: str,
    before: int | None,
    follow: bool,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **resources: str | None,
) -> int:
    """Resume a run that was stopped, failed or ran out of time. RUN is an id or its first letters,
    a job id, a name that only one run has, or a path; there is no default.

    \b
    rampup resume 3kx9ab
    rampup resume 3kx9ab --time 8:00:00 --follow
    rampup resume 3kx9ab --on sandbox --nodes 2
    rampup resume 3kx9ab --before 1200

    The run gets one more attempt: it continues from its newest valid checkpoint, with the settings
    and the code that it was submitted with. It can continue on another number of ranks too, but
    then the result is not bit-identical.

    If the newest checkpoint can't be read (an I/O error), the run does not fall back to an older
    one by itself: try again, or ask for an older one with --before.
    """
    from rampup.runs import resume
    from rampup.runs.checkpoints import find_skipped, skip_from

    run = runs.find(wanted)
    refuse_foreign(run, "resume it")
    resume.refuse_unless_ended(run)
    spec = resume.rebuild_spec(run, on, given_resources(resources), slurm)
    if before is not None:
        find_skipped(run, before)  # refuses when there is none to continue from
    started = resume.find_command(run, spec, code)
    if dry_run:
        from rampup.cli.dry_run import show_plan

        return show_plan(spec, as_json, run.path, started)
    from rampup.cli import follow as following
    from rampup.diagnose.preflight import preflight
    from rampup.runs.code import take
    from rampup.runs.plan import make_plan

    with following.interrupt_flag() as interrupted:
        with resume.start_again(run):
            resume.end_leftovers(run, spec.cluster)
            checked = preflight(make_plan(spec, run.path, started))
            output.say_notes(checked.notes)
            note = resume.rewrite(run, checked, take if code == "current" else None)
            if note:
                output.say(f"note: {note}")
            if not as_json:
                number = len(run.attempt_numbers()) + 1
                output.say_path(f"{title(run)}: attempt {number}, in ", run.path)
            with skip_from(run, before) as skipped:
                for name in skipped:
                    output.say(f"note: set aside {name}")
                launcher = checked.plan.scheduler.submit(run, spec, detach)
        return follow_or_return(run, launcher, detach, follow, interrupted, as_json)
