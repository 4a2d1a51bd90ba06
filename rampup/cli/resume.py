"""`rampup resume`: start runs again that were stopped, failed or ran out of time, each from its last
good checkpoint.

One run is followed to its end on this machine, several one after the other; on a cluster each is
submitted as a job of its own.
"""

import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rampup.cli import output
from rampup.cli.guesses import RunCommand
from rampup.cli.options import (
    complete_cluster,
    complete_run,
    dry_run_option,
    json_option,
    study_option,
)
from rampup.cli.run import (
    RESOURCE_GROUPS,
    follow_or_return,
    given_resources,
    resource_options,
)
from rampup.cli.selection import Selection, select, states_by_run, title
from rampup.errors import OUTCOME_CODES, RampupError, Refused, UsageError
from rampup.rundir.files import RunDir
from rampup.rundir.trust import may_change, refuse_foreign

if TYPE_CHECKING:
    from rampup.core.spec import RunSpec


@click.command(
    cls=RunCommand,
    groups={
        "Which runs": ("study",),
        **RESOURCE_GROUPS,
        "What happens": ("code", "before", "follow", "detach", "dry_run"),
        "Output": ("as_json",),
    },
)
@click.argument("wanted", nargs=-1, shell_complete=complete_run, metavar="[RUN]...")
@study_option("All runs of this study that ended before they were complete.")
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
    wanted: tuple[str, ...],
    study: str | None,
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
    """Resume runs that were stopped, failed or ran out of time. RUN is an id or its first letters,
    a job id, a name that only one run has, or a path; there is no default.

    \b
    rampup resume 3kx9ab
    rampup resume 3kx9ab --time 8:00:00 --follow
    rampup resume 3kx9ab --on sandbox --nodes 2
    rampup resume 3kx9ab --before 1200
    rampup resume --study mnist

    Each run gets one more attempt: it continues from its newest valid checkpoint, with the settings
    and the code that it was submitted with. Several runs continue one after the other on this
    machine, and as one job each on a cluster. A run can continue on another number of ranks too, but
    then the result is not bit-identical.

    If the newest checkpoint can't be read (an I/O error), the run does not fall back to an older
    one by itself: try again, or ask for an older one with --before.
    """
    if study is None and not wanted:
        raise UsageError("which run? there is no default", "rampup resume RUN, or --study STUDY")
    runs = list_to_resume(select(wanted, study))
    if len(runs) > 1:
        refuse_for_one_only(follow, as_json)
    again = Again(on, given_resources(resources), slurm, code, before)
    if dry_run:
        from rampup.cli.dry_run import show_plan

        for run in runs:
            spec, command = again.plan(run)
            show_plan(spec, as_json, run.path, command)
        return 0
    return resume_each(runs, again, detach, follow, as_json)


def list_to_resume(selection: Selection) -> list[RunDir]:
    """Return the runs that are named, or those of a study that are not complete and not active."""
    if selection.study is None:
        return list(dict.fromkeys(selection.named))
    states = states_by_run(selection.runs(), 0.0)
    names = {run: state.name for run, state in states.items() if state.ended}
    found = [run for run in names if names[run] != "completed" and may_change(run.path)]
    if not found:
        name = selection.study.name
        raise Refused(f"study {name} has no run to resume", f"rampup list --study {name}")
    return found[::-1]  # as they were started


def refuse_for_one_only(follow: bool, as_json: bool) -> None:
    if follow:
        raise UsageError("--follow follows one run", "rampup wait RUN... waits for several")
    if as_json:
        raise UsageError("--json describes one run", "rampup list --json afterwards")


class Again:
    """What the user asks for, the same for each run."""

    def __init__(
        self,
        on: str | None,
        resources: dict[str, str],
        slurm: tuple[str, ...],
        code: str,
        before: int | None,
    ) -> None:
        self.on, self.resources, self.slurm = on, resources, slurm
        self.code, self.before = code, before

    def plan(self, run: RunDir) -> "tuple[RunSpec, tuple[str, ...]]":
        """Return what the run becomes, and the command that its next attempt starts."""
        from rampup.runs import resume
        from rampup.runs.checkpoints import find_skipped

        refuse_foreign(run, "resume it")
        resume.refuse_unless_ended(run)
        spec = resume.rebuild_spec(run, self.on, self.resources, self.slurm)
        if self.before is not None:
            find_skipped(run, self.before)  # refuses when there is none to continue from
        return spec, resume.find_command(run, spec, self.code)

    def start(self, run: RunDir, detach: bool, as_json: bool) -> "subprocess.Popen[bytes] | None":
        """Start the next attempt; the process is that of a run on this machine."""
        from rampup.diagnose.preflight import preflight
        from rampup.runs import resume
        from rampup.runs.checkpoints import skip_from
        from rampup.runs.code import take
        from rampup.runs.plan import make_plan

        spec, command = self.plan(run)
        with resume.start_again(run):
            resume.end_leftovers(run, spec.cluster)
            checked = preflight(make_plan(spec, run.path, command))
            output.say_notes(checked.notes)
            note = resume.rewrite(run, checked, take if self.code == "current" else None)
            if note:
                output.say(f"note: {note}")
            if not as_json:
                number = len(run.attempt_numbers()) + 1
                output.say_path(f"{title(run)}: attempt {number}, in ", run.path)
            with skip_from(run, self.before) as skipped:
                for name in skipped:
                    output.say(f"note: set aside {name}")
                return checked.plan.scheduler.submit(run, spec, detach)


def resume_each(
    runs: Sequence[RunDir], again: Again, detach: bool, follow: bool, as_json: bool
) -> int:
    """Resume one after the other, and return the exit code of the worst. Of several, one that can't
    be resumed does not keep the others from it; the last problem is raised at the end."""
    from rampup.cli import follow as following

    codes: set[int] = set()
    problem: RampupError | None = None
    with following.interrupt_flag() as interrupted:
        for run in runs:
            try:
                launcher = again.start(run, detach, as_json)
            except RampupError as error:
                if len(runs) > 1:
                    output.say(f"{title(run)} was not resumed: {error.message}")
                problem = error
                continue
            codes.add(follow_or_return(run, launcher, detach, follow, interrupted, as_json))
            if interrupted:
                break
    if problem is not None:
        raise problem
    worst = [OUTCOME_CODES[name] for name in ("failed", "timeout", "cancelled")]
    return next((code for code in worst if code in codes), max(codes, default=0))
