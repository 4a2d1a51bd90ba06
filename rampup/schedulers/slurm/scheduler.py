"""The scheduler `slurm`: this class is the door; the files beside it do the work.

Modules that only some verbs need are imported where they are used: `rampup list` must stay quick.
"""

import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rampup.core.finding import Finding
from rampup.core.spec import Cluster, RunSpec
from rampup.rundir.files import RunDir, slurm_log_name
from rampup.schedulers.base import NO_SHARE, Answer, Canceller, Job, JobRef, Scheduler, Usage
from rampup.schedulers.slurm import allocation, query, submit
from rampup.schedulers.slurm.jobs import SlurmJob
from rampup.schedulers.slurm.options import job_name


class Slurm(Scheduler):
    name = "slurm"
    title = "Slurm"
    launchers = ("srun", "pmix", "mpirun", "torchrun")
    logs = slurm_log_name("*")

    def render_script(self, spec: RunSpec, run_dir: Path) -> str:
        from rampup.schedulers.slurm.script import render

        return render(spec, run_dir)

    def submit(
        self, run: RunDir, spec: RunSpec, detach: bool, share: Mapping[str, str] = NO_SHARE
    ) -> subprocess.Popen[bytes] | None:
        if self.is_inside(spec.cluster):
            return allocation.start(run, spec.cluster, share)
        submit.submit(run, spec.cluster, job_name(spec, run.id))
        return None

    def cancel(self, run: RunDir, cluster: Cluster, job: JobRef | None) -> None:
        own_name = f"{run.run['name']}-{run.id}"
        if job is None:
            submit.cancel(cluster, own_name)
        else:
            submit.cancel(cluster, own_name, job.job, job.name)

    def is_inside(self, cluster: Cluster) -> bool:
        return allocation.is_here(cluster)

    def grants_this_process(self) -> bool:
        return allocation.is_any()

    def ask(self, cluster: Cluster, keys: Iterable[str], fresh_s: float) -> Answer:
        return query.ask(cluster, keys, fresh_s)

    def restore_job(self, state: str, reason: str) -> Job:
        return SlurmJob(state, reason)

    def find_jobs(self, cluster: Cluster, name: str) -> list[str]:
        return submit.find_by_name(cluster, name)

    def read_usage(self, cluster: Cluster, job: str, ranks: int) -> Usage | None:
        from rampup.schedulers.slurm.usage import from_sacct

        return from_sacct(cluster, job, ranks)

    def find_canceller(self, cluster: Cluster, job: str) -> Canceller | None:
        return query.find_canceller(cluster, job)

    def check(self, spec: RunSpec, runs_root: Path, script: str | None) -> Iterator[Finding]:
        from rampup.schedulers.slurm.check import check_request

        return check_request(spec, runs_root, script or "")

    def survey(self, cluster: Cluster, runs_root: Path) -> Iterator[Finding]:
        from rampup.schedulers.slurm.survey import survey

        return survey(cluster, runs_root)

    def read_array_limit(self, cluster: Cluster) -> int:
        from rampup.schedulers.slurm import arrays

        return arrays.largest(cluster)

    def describe_request(self, spec: RunSpec, root: Path) -> tuple[tuple[str, str], ...]:
        from rampup.schedulers.slurm import arrays

        return arrays.request_of(spec, root)

    def render_array(
        self,
        study: str,
        folder: Path,
        name: str,
        request: Sequence[tuple[str, str]],
        count: int,
        throttle: int | None,
    ) -> str:
        from rampup.schedulers.slurm import arrays

        return arrays.script(study, folder, name, request, count, throttle)

    def render_pack(
        self, study: str, folder: Path, name: str, spec: RunSpec, count: int, at_once: int
    ) -> str:
        from rampup.schedulers.slurm import packs

        return packs.script(study, folder, name, spec, count, at_once)

    def scale(self, spec: RunSpec, at_once: int) -> RunSpec:
        from rampup.schedulers.slurm import packs

        return packs.scaled(spec, at_once)

    def share(self, spec: RunSpec) -> Mapping[str, str]:
        from rampup.schedulers.slurm import packs

        return packs.share_of(spec)

    def submit_script(
        self, cluster: Cluster, script: Path, name: str, before: Collection[str] = ()
    ) -> str:
        return submit.submit_script(cluster, script, name, before)

    def cancel_jobs(self, cluster: Cluster, name: str, jobs: Sequence[str]) -> None:
        submit.cancel_jobs(cluster, name, jobs)
