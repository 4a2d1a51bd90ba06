"""The checks before a run is made: refuse what can't work, note what is doubtful. Reads, never
changes; no framework is imported.

`run`, `resume`, `sweep` and their --dry-run call it with a plan; only a plan that has passed becomes
a run (CheckedPlan). The checks themselves are small functions that yield findings, in checks/ and
in the rooms of the schedulers.
"""

from collections.abc import Iterator
from pathlib import Path

from rampup.core.finding import Finding
from rampup.core.spec import RunSpec
from rampup.diagnose.checks import request, software
from rampup.diagnose.checks.storage import runs_root_room, runs_root_writable
from rampup.errors import Refused
from rampup.runs.plan import CheckedPlan, Plan, outline_plan


def preflight(plan: Plan) -> CheckedPlan:
    """Refuse a run that can't work, before anything of it is written; notes come with the result."""
    root = plan.run_dir.parent
    of_software = (software.environment, software.imports)
    of_resources = (
        request.trial,
        request.size,
        request.launcher,
        request.device,
        request.ranks_and_gpus,
    )
    checks = (*of_software, request.data, *of_resources, request.precision, request.program)
    findings = [finding for check in checks for finding in refuse_problems(check(plan))]
    findings += refuse_problems(runs_root_writable(root))
    findings += refuse_problems(runs_root_room(root))
    findings += refuse_problems(plan.scheduler.check(plan.spec, root, plan.script))
    notes = tuple(finding for finding in findings if finding.level == "note")
    return CheckedPlan(plan, notes)


def preflight_alike(spec: RunSpec) -> None:
    """For a run that differs from one that has passed in its settings alone: refuse what those can
    spoil."""
    plan = outline_plan(spec, Path())
    of_needs = (software.imports, request.data)
    of_settings = (request.size, request.launcher, request.device, request.precision)
    for check in (*of_needs, *of_settings, request.program):
        for _ in refuse_problems(check(plan)):
            continue


def accept_alike(plan: Plan) -> CheckedPlan:
    """The plan of a run that has passed `preflight_alike`, like one that has passed `preflight`."""
    return CheckedPlan(plan)


def refuse_problems(findings: Iterator[Finding]) -> Iterator[Finding]:
    """All findings, up to the first that hinders the run."""
    for finding in findings:
        if finding.level == "problem":
            raise Refused(finding.cause, finding.remedy)
        yield finding
