"""A scheduler that exists only here: a directory of queued scripts, and a shell that runs them one
by one. That it works from one file, found by its entry point, proves the door."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from rampup.core.spec import Cluster, RunSpec
from rampup.rundir.files import RunDir
from rampup.schedulers.base import NO_SHARE, Answer, End, Job, JobRef, Scheduler, job_key
from rampup.schedulers.local import supervisor_argv

ENDS: dict[str, End] = {"done": "completed", "failed": "failed", "cancelled": "cancelled"}
WORKER = """
while :; do
  for script in queued/*.sh; do
    [ -e "$script" ] || continue
    job=$(basename "$script" .sh)
    mv "$script" "running/$job.sh" || continue
    bash "running/$job.sh" > "running/$job.log" 2>&1 & echo $! > "running/$job.pid"
    if wait $!; then end=done; else end=failed; fi
    [ ! -e "running/$job.sh" ] || mv "running/$job.sh" "$end/$job.sh"
  done
  sleep 0.1
done
"""


def start_worker(place: Path) -> subprocess.Popen[bytes]:
    """The other side: what takes scripts from the directory and runs them."""
    for state in ("queued", "running", *ENDS):
        (place / state).mkdir(parents=True)
    return subprocess.Popen(["bash", "-c", WORKER], cwd=place, start_new_session=True)


class DirectoryJob(Job, frozen=True):
    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def ended(self) -> bool:
        return self.state in ENDS

    @property
    def end(self) -> End:
        return ENDS[self.state]

    @property
    def ended_itself(self) -> bool:
        return self.state in ("done", "failed")


class DirectoryQueue(Scheduler):
    name = "directory"
    title = "the directory"
    launchers = ("spawn",)

    def render_script(self, spec: RunSpec, run_dir: Path) -> str:
        import shlex

        return f"cd {shlex.quote(spec.cwd)}\nexec {shlex.join(supervisor_argv(run_dir))}\n"

    def submit(
        self, run: RunDir, spec: RunSpec, detach: bool, share: Mapping[str, str] = NO_SHARE
    ) -> None:
        job = str(time.time_ns())
        queued = place() / "queued" / f"{job}.sh"
        beside = queued.with_suffix(".new")
        beside.write_text(run.job_script.read_text())
        beside.rename(queued)
        run.record("submitted", scheduler=self.name, cluster=spec.cluster.name, job=job)

    def cancel(self, run: RunDir, cluster: Cluster, job: JobRef | None) -> None:
        if job is None:
            return
        for state in ("queued", "running"):
            with contextlib.suppress(FileNotFoundError):
                script = place() / state / f"{job.job}.sh"
                script.rename(place() / "cancelled" / script.name)
                if state == "running":
                    os.kill(int(script.with_suffix(".pid").read_text()), signal.SIGTERM)

    def ask(self, cluster: Cluster, keys: Iterable[str], fresh_s: float) -> Answer:
        found: dict[str, Job] = {}
        for key in keys:
            job, _, name = key.partition(":")
            for state in ("queued", "running", *ENDS):
                if (place() / state / f"{job}.sh").exists():
                    found[job_key(job, name)] = DirectoryJob(state)
        return Answer(found, time.time())

    def restore_job(self, state: str, reason: str) -> Job:
        return DirectoryJob(state, reason)


def place() -> Path:
    return Path(os.environ["QUEUE_PLACE"])


SCHEDULER = DirectoryQueue()
