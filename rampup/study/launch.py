"""From the members of a study to jobs: arrays, or packs of K at a time. Called by `sweep`.

Runs that ask the scheduler for the same are one group, and each group is checked once against the site.
All runs are made before the first is submitted. A submission is written down in its runs before and
after: whatever happens in between, it is not made twice.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rampup.core.finding import Finding
from rampup.core.spec import Cluster, RunSpec, Share
from rampup.diagnose.preflight import accept_alike, preflight, preflight_alike
from rampup.errors import RampupError, Refused, Rejected, SchedulerError
from rampup.rundir import claims, records, sharing
from rampup.rundir import find as runs
from rampup.rundir.files import RunDir
from rampup.runs import resume
from rampup.runs.create import plan_new_run
from rampup.runs.plan import make_plan
from rampup.runs.state import find_job, observe
from rampup.schedulers import find_scheduler
from rampup.schedulers.base import Scheduler
from rampup.study.code import SharedCode
from rampup.study.members import (
    Ids,
    Member,
    Study,
    make,
    rebuild_spec,
)

Tell = Callable[[str], None]


class Group(Struct, frozen=True):
    """Members that can share a job, because they ask for the same."""

    members: list[Member]
    request: tuple[tuple[str, str], ...]

    @property
    def spec(self) -> RunSpec:
        return self.members[0].point.spec

    @property
    def scheduler(self) -> Scheduler:
        return find_scheduler(self.spec.cluster.scheduler)


class Way(Struct, frozen=True):
    """How the runs of a study become jobs."""

    at_once: int | None = None
    """K of --pack; None for arrays."""
    throttle: int | None = None

    @property
    def kind(self) -> str:
        return "pack" if self.at_once else "array"

    def batches(self, members: Sequence[Member], root: Path) -> list[Group]:
        """What one sbatch submits: the whole group in a pack, or as much of it as an array may
        have."""
        groups = groups_of(members, root)
        size = len(members)
        if groups and not self.at_once:
            size = groups[0].scheduler.read_array_limit(groups[0].spec.cluster)
        return [
            Group(group.members[first : first + size], group.request)
            for group in groups
            for first in range(0, len(group.members), size)
        ]

    def script(
        self, study: Study, folder: Path, name: str, group: Group, starts: Sequence[int]
    ) -> str:
        """The text of one job; `starts` says of each run which of its submissions this is."""
        count = len(group.members)
        if self.at_once:
            at_once = min(self.at_once, count)
            return group.scheduler.render_pack(
                study.name, folder, name, group.spec, starts, at_once
            )
        return group.scheduler.render_array(
            study.name, folder, name, group.request, count, self.throttle
        )


def groups_of(members: Sequence[Member], root: Path) -> list[Group]:
    found: dict[tuple[tuple[str, str], ...], list[Member]] = {}
    for member in members:
        spec = member.point.spec
        request = find_scheduler(spec.cluster.scheduler).describe_request(spec, root)
        found.setdefault(request, []).append(member)
    return [Group(mine, request) for request, mine in found.items()]


# before anything is written -----------------------------------------------------------------------


def check(members: Sequence[Member], root: Path, at_once: int | None, tell: Tell) -> None:
    """Refuse what can't work. Runs that differ in their settings alone cost no further question to
    Slurm."""
    specs = {member.point.label: member.point.spec for member in members}
    refuse_one_of(specs, preflight_alike)
    groups = {group.members[0].point.label: group for group in groups_of(members, root)}
    notes: dict[Finding, None] = {}

    def alone(spec: RunSpec) -> None:
        notes.update(dict.fromkeys(preflight(plan_new_run(spec, root)).notes))

    def together(spec: RunSpec) -> None:
        try:
            preflight(plan_new_run(spec, root))  # its notes are of a size that nobody typed
        except RampupError as error:
            hint = f"a smaller K, or {error.hint}"
            raise type(error)(
                f"--pack {at_once} runs too many at once: {error.message}", hint
            ) from None

    refuse_one_of({label: group.spec for label, group in groups.items()}, alone)
    if at_once:
        whole = {
            label: group.scheduler.scale(group.spec, min(at_once, len(group.members)))
            for label, group in groups.items()
        }
        refuse_one_of(whole, together)
    for note in notes:
        tell(f"note: {note.cause}; try: {note.remedy}")


def refuse_one_of(specs: Mapping[str, RunSpec], look_at: Callable[[RunSpec], None]) -> None:
    """Refuse what hinders one point, with its name; and what hinders all of them, without one."""
    for label, spec in specs.items():
        problem = problem_of(spec, look_at)
        if problem is not None:
            if not all(is_same(problem, problem_of(other, look_at)) for other in specs.values()):
                raise type(problem)(f"{problem.message}, in the point {label}", problem.hint)
            raise problem


def problem_of(spec: RunSpec, look_at: Callable[[RunSpec], None]) -> RampupError | None:
    try:
        look_at(spec)
    except RampupError as error:
        return error
    return None


def is_same(one: RampupError, other: RampupError | None) -> bool:
    return other is not None and one.message == other.message


# submitting ---------------------------------------------------------------------------------------


class Batch(Struct, frozen=True):
    """Runs that are ready, for one sbatch."""

    group: Group
    runs: list[RunDir]
    undo: contextlib.ExitStack
    """Those that ran before become what they were, unless they are started."""


class Launch(Struct, frozen=True):
    study: Study
    way: Way
    code: SharedCode
    tell: Tell
    interrupted: Sequence[int] = ()
    """Filled when somebody has had enough."""

    def submit_all(self, members: Sequence[Member]) -> list[str]:
        """The jobs. When Slurm refuses one, those before it stay, and are told."""
        jobs: list[str] = []
        ids = Ids(self.study.root)
        with contextlib.ExitStack() as undo:
            batches = [
                self.make_ready(group, ids, undo)
                for group in self.way.batches(members, self.study.root)
            ]
            for batch in batches:
                self.go_on_or_stop(f"{len(jobs)} of {len(batches)} jobs were submitted")
                try:
                    jobs.append(self.submit(batch))
                except SchedulerError as error:
                    raise after(error, len(jobs), len(batches)) from None
                batch.undo.close()
        return jobs

    def go_on_or_stop(self, so_far: str) -> None:
        if self.interrupted:
            self.tell(f"stopped: {so_far}; the same sweep continues")
            raise KeyboardInterrupt

    def make_ready(self, group: Group, ids: Ids, undo: contextlib.ExitStack) -> Batch:
        end_leftovers(
            [member.run for member in group.members if member.run is not None], group.spec.cluster
        )
        mine = undo.enter_context(contextlib.ExitStack())
        return Batch(group, [self.ready(member, ids, mine) for member in group.members], mine)

    def ready(self, member: Member, ids: Ids, undo: contextlib.ExitStack) -> RunDir:
        """Its run directory, with what the next attempt is to do."""
        self.go_on_or_stop("nothing was submitted")
        if member.run is None:
            return make(self.study, member.point, ids.new(), self.code)
        undo.enter_context(resume.start_again(member.run, fresh_s=2.0))
        plan = make_plan(rebuild_spec(member.run, member.point.spec), member.run.path)
        note = resume.rewrite(member.run, accept_alike(plan), self.code.take)
        if note:
            self.tell(f"note: {note}")
        return member.run

    def submit(self, batch: Batch) -> str:
        """One sbatch."""
        cluster, name = batch.group.spec.cluster, f"{self.study.name}-{runs.new_run_id()}"
        begun = [claims.describe_start(run) for run in batch.runs]
        starts = [start["number"] for start in begun]
        folder = make_folder(self.study.folder, self.way.kind)
        script = self.way.script(self.study, folder, name, batch.group, starts)
        file = write_job(folder, batch.runs, script, cluster.share)
        shared = {
            "scheduler": cluster.scheduler,
            "cluster": cluster.name,
            "job_name": name,
            **({"packed": True} if self.way.at_once else {}),
        }
        asked = [{**start, "task": task, **shared} for task, start in enumerate(begun)]

        def announce(program: records.Record) -> None:
            for run in batch.runs:
                claims.find_own_claim(run)  # refuses: we may have been away for long
            for run, mine in zip(batch.runs, asked, strict=True):
                claims.record_submitting(run, mine, program)

        try:
            with claims.reserved_room(batch.runs[0], len(batch.runs)):
                job = batch.group.scheduler.submit_script(cluster, file, name, announce)
        except Rejected as error:
            for run, mine in zip(batch.runs, asked, strict=True):
                run.record("not submitted", number=mine["number"], why=error.message)
            raise
        for run, mine in zip(batch.runs, asked, strict=True):
            claims.keep_submitted(run, mine, job)
        return job


def make_folder(parent: Path, kind: str) -> Path:
    """The next array-<n> or pack-<n>."""
    number = 1
    while True:
        folder = parent / f"{kind}-{number}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise Refused(f"can't make {folder}: {error.strerror}", "set RAMPUP_RUNS") from None


def write_job(folder: Path, runs: Sequence[RunDir], text: str, share: Share) -> Path:
    """The script, which has the variables of the profile, and a link to each run."""
    file = folder.with_name(f"{folder.name}.sh")
    try:
        for number, run in enumerate(runs):
            (folder / str(number)).symlink_to(os.path.relpath(run.path, folder))
        sharing.write_private(file, text.encode(), share)
    except OSError as error:
        raise records.refuse_write(folder, error) from None
    return file


def after(error: SchedulerError, done: int, count: int) -> SchedulerError:
    """A site may allow only so many jobs of one user: what was submitted has not failed."""
    if done == 0:
        return error
    hint = f"{error.hint}; the same sweep, later, submits what is missing"
    return SchedulerError(f"{done} of {count} jobs were submitted; then {error.message}", hint)


def end_leftovers(again: Sequence[RunDir], cluster: Cluster) -> None:
    """As resume.end_leftovers, with one call for each array."""
    jobs: dict[str, list[str]] = {}
    for run in again:
        submitted = run.recorded("submitted") or {}
        asked = find_job(observe(run), submitted)
        if asked is None or asked.cluster != cluster.name:
            resume.end_leftovers(run)
        elif not submitted.get("packed"):  # a pack is the job of other runs too
            jobs.setdefault(asked.name, []).append(asked.job)
    for name, mine in jobs.items():
        find_scheduler(cluster.scheduler).cancel_jobs(cluster, name, mine)


def with_share(member: Member, cpus: int, at_once: int) -> Member:
    """On this machine: of runs that go side by side each has its part of the CPUs, unless the user
    said how many."""
    resources = member.point.spec.resources
    if at_once == 1 or resources.cpus_per_task:
        return member
    each = max(1, cpus // (at_once * resources.tasks_per_node))
    spec = replace(member.point.spec, resources=replace(resources, cpus_per_task=each))
    return replace(member, point=replace(member.point, spec=spec))
