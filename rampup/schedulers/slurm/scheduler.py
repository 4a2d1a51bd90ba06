"""The scheduler `slurm`: this class is the door; the files beside it do the work.

Modules that only some verbs need are imported where they are used: `rampup list` must stay quick.
"""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rampup.core.finding import Finding
from rampup.core.spec import Cluster, RunSpec
from rampup.errors import SchedulerError
from rampup.rundir.files import RunDir, slurm_log_name
from rampup.rundir.records import Record
from rampup.schedulers.base import NO_SHARE, Answer, Canceller, Job, JobRef, Scheduler, Usage
from rampup.schedulers.held_start import Gate
from rampup.schedulers.local import start_recorded
from rampup.schedulers.slurm import query, submit
from rampup.schedulers.slurm.commands import SIZES
from rampup.schedulers.slurm.jobs import SlurmJob


class Slurm(Scheduler):
    name = "slurm"
    title = "Slurm"
    can_wait = signals_programs = restarts_at_limit = True
    launchers = ("srun", "pmix", "mpirun", "torchrun")
    logs = slurm_log_name("*")

    def render_script(self, spec: RunSpec, run_dir: Path) -> str:
        from rampup.schedulers.slurm.job_script import render

        return render(spec, run_dir)

    def submit(
        self, run: RunDir, spec: RunSpec, detach: bool, share: Mapping[str, str] = NO_SHARE
    ) -> subprocess.Popen[bytes] | None:
        if self.is_inside(spec.cluster):
            return start_in_allocation(run, spec.cluster, share)
        from rampup.schedulers.slurm.sbatch_options import job_name

        submit.submit(run, spec.cluster, job_name(spec, run.id))
        return None

    def cancel(self, run: RunDir, cluster: Cluster, job: JobRef | None) -> None:
        name = run.run.get("name")
        if not name or "," in name:  # of scancel a comma would be another name
            raise SchedulerError(
                f"{run.run_file} does not say the name of its jobs",
                f"scancel by hand: see {run.path}",
            )
        own_name = f"{name}-{run.id}"
        if job is None:
            submit.cancel(cluster, own_name)
        else:
            submit.cancel(cluster, own_name, job.job, job.name)

    def is_inside(self, cluster: Cluster) -> bool:
        which = os.environ.get("SLURM_CONF")
        return self.grants_this_process() and cluster.slurm_conf in (None, which)

    def grants_this_process(self) -> bool:
        return "SLURM_JOB_ID" in os.environ

    def ask(self, cluster: Cluster, keys: Iterable[str], fresh_s: float) -> Answer:
        return query.ask(cluster, keys, fresh_s)

    def restore_job(self, state: str, reason: str) -> Job:
        return SlurmJob(state, reason)

    def find_jobs(
        self, cluster: Cluster, names: Sequence[str], patient: bool
    ) -> Mapping[str, Sequence[str]]:
        limits = (submit.SQUEUE_S, submit.SACCT_S) if patient else (query.SQUEUE_S, query.SACCT_S)
        return submit.find_by_name(cluster, names, *limits)

    def read_usage(self, cluster: Cluster, job: str, ranks: int) -> Usage | None:
        from rampup.schedulers.slurm.usage import from_sacct

        return from_sacct(cluster, job, ranks)

    def find_canceller(self, cluster: Cluster, job: str) -> Canceller | None:
        return query.find_canceller(cluster, job)

    def check(self, spec: RunSpec, run_dir: Path, script: str | None) -> Iterator[Finding]:
        from rampup.schedulers.slurm.check import check_request

        return check_request(spec, run_dir, script or "", self.is_inside(spec.cluster))

    def find_absence(self, cluster: Cluster) -> str:
        from rampup.schedulers.slurm.site import check_that_it_answers

        if self.is_inside(cluster):
            return ""
        try:
            check_that_it_answers(cluster)
        except SchedulerError as error:
            return error.message
        return ""

    def find_unsaid(self, spec: RunSpec, run_dir: Path) -> list[str]:
        from rampup.schedulers.slurm.check import TRY_ID
        from rampup.schedulers.slurm.sbatch_options import DIRECTIVES, options_of

        given = options_of(spec, run_dir, TRY_ID)
        return [key for key in spec.cluster.needs if DIRECTIVES.get(key, key) not in given]

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
        self,
        study: str,
        folder: Path,
        name: str,
        spec: RunSpec,
        starts: Sequence[int],
        at_once: int,
    ) -> str:
        from rampup.schedulers.slurm import packs

        return packs.script(study, folder, name, spec, starts, at_once)

    def scale(self, spec: RunSpec, at_once: int) -> RunSpec:
        from rampup.schedulers.slurm import packs

        return packs.scale(spec, at_once)

    def share(self, spec: RunSpec) -> Mapping[str, str]:
        from rampup.schedulers.slurm import packs

        return packs.share_of(spec)

    def submit_script(
        self, cluster: Cluster, script: Path, name: str, announce: Callable[[Record], None]
    ) -> str:
        return submit.submit_script(cluster, script, name, announce=announce)

    def cancel_jobs(self, cluster: Cluster, name: str, jobs: Sequence[str]) -> None:
        submit.cancel_jobs(cluster, name, jobs)


def start_in_allocation(
    run: RunDir, cluster: Cluster, share: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start the job script inside the allocation (salloc, an interactive node) of this process: here
    and now, and its srun uses what has been granted. It is the same script as under sbatch, so all
    else is the same too. `share` are variables for srun, where several runs have the allocation
    together."""
    job = os.environ["SLURM_JOB_ID"]
    env = {name: value for name, value in os.environ.items() if name not in SIZES} | dict(share)
    with open(run.slurm_log(job), "ab") as log:
        # as its first line says: a login shell has `module`
        gate = Gate(["bash", "-l", str(run.job_script)], env, stdout=log, stderr=log)
    whose = {
        "allocation": job,
        "job_name": os.environ.get("SLURM_JOB_NAME", ""),
        "cluster": cluster.name,
    }
    start_recorded(run, gate, scheduler="local", **whose)
    return gate.process
