"""The checks before a run is made: refuse what can't work, note what is doubtful. Reads, never
changes; no framework is imported.

`run`, `resume`, `sweep` and their --dry-run call it with a plan, a dry run away from its cluster
calls `check_from_afar`; only a plan that has passed becomes
a run (CheckedPlan). The checks themselves are small functions that yield findings: in checks/, where
each file lists its own, and in the rooms of the schedulers.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from rampup.core.finding import Finding
from rampup.core.spec import RunSpec
from rampup.diagnose.checks import request, software, storage
from rampup.errors import Refused
from rampup.runs.plan import CheckedPlan, Plan, outline_plan


def preflight(plan: Plan) -> CheckedPlan:
    """Refuse a run that can't work, before anything of it is written; notes come with the result."""
    findings = [
        *refuse_problems(software.check(plan)),
        *refuse_problems(request.check(plan)),
        *refuse_problems(storage.runs_root(plan.run_dir.parent)),
        *refuse_problems(plan.scheduler.check(plan.spec, plan.run_dir, plan.script)),
    ]
    notes = tuple(finding for finding in findings if finding.level == "note")
    return CheckedPlan(plan, notes)


class Outlook(Struct, frozen=True):
    """What can be said of a plan on a machine that does not reach its cluster."""

    notes: tuple[Finding, ...]
    refusals: tuple[Finding, ...]
    """What would be refused if it were submitted from here."""
    unchecked: tuple[str, ...]


def check_from_afar(plan: Plan) -> Outlook:
    """For a dry run away from the cluster: refuse a request that is wrong wherever it is made, and
    list what else hinders it, or can't be checked here."""
    findings = [
        *refuse_problems(request.check_itself(plan)),
        *software.check(plan),
        *request.data(plan),
        *request.program(plan),
    ]
    return Outlook(
        notes=tuple(finding for finding in findings if finding.level == "note"),
        refusals=tuple(finding for finding in findings if finding.level == "problem"),
        unchecked=(plan.scheduler.title, "shared storage", "account"),
    )


def preflight_alike(spec: RunSpec) -> None:
    """For a run that differs from one that has passed in its settings alone: refuse what those can
    spoil."""
    plan = outline_plan(spec, Path())
    for check in (software.imports(plan), request.check_settings(plan)):
        for _ in refuse_problems(check):
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
