"""The scheduler `spark`: this class is the door. A run is driven by a thread of the process that has
a Spark session, or by a process of its own that makes one."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from rampup.core import software
from rampup.core.finding import Finding
from rampup.core.spec import Cluster, RunSpec
from rampup.errors import SchedulerError
from rampup.rundir import claims, opening
from rampup.rundir.files import RunDir
from rampup.schedulers.base import NO_SHARE, Command, JobRef, Scheduler
from rampup.schedulers.local import (
    CANCEL_WAIT_S,
    find_supervisor,
    start_supervisor,
    stop_supervisor,
)
from rampup.schedulers.spark import session as sessions

DRIVER = "rampup.schedulers.spark.driver"
THREAD = "thread"
POLL_S = 0.05


class Spark(Scheduler):
    name = "spark"
    title = "Spark"
    launchers = ("barrier",)
    driven_here = True

    def render_command(self, spec: RunSpec, run_dir: Path) -> Command | None:
        if sessions.find_active() is not None:
            return None
        return Command((sys.executable, "-P", "-m", DRIVER, str(run_dir)), {}, spec.cwd)

    def submit(
        self, run: RunDir, spec: RunSpec, detach: bool, share: Mapping[str, str] = NO_SHARE
    ) -> subprocess.Popen[bytes] | None:
        command = self.render_command(spec, run.path)
        if command is not None:
            return start_supervisor(run, command, detach, self.name)
        start_thread(run)
        return None

    def cancel(self, run: RunDir, cluster: Cluster, job: JobRef | None) -> None:
        self.stop_process(run)

    def stop_process(self, run: RunDir) -> None:
        if (run.recorded("submitted") or {}).get("driver") != THREAD:
            stop_supervisor(run)
            return
        find_supervisor(run)  # refuses a run of another machine
        attempt = run.last_attempt()
        if attempt is None or "outcome" in attempt.facts:
            return
        opening.touch(attempt.end_file)
        deadline = time.monotonic() + CANCEL_WAIT_S
        while "outcome" not in attempt.facts:
            if time.monotonic() > deadline:
                raise SchedulerError(
                    f"run {run.id} did not end within {CANCEL_WAIT_S:.0f} s",
                    "stop the Spark session that runs it",
                )
            time.sleep(POLL_S)

    def is_inside(self, cluster: Cluster) -> bool:
        return True

    def check(self, spec: RunSpec, run_dir: Path, script: str | None) -> Iterator[Finding]:
        yield from check_software(spec)
        yield from check_session(spec)

    def find_absence(self, cluster: Cluster) -> str:
        if find_spec("pyspark") is None:
            return "pyspark is not installed"
        if sessions.find_active() is None and not sessions.has_java():
            return "there is no java on this machine"
        return ""


def start_thread(run: RunDir) -> None:
    """Drive a run in the session of this process."""
    from rampup.schedulers.spark.driver import Driver

    context = sessions.find_context(sessions.find_active())
    number, _ = claims.newest_claim(run)
    attempt = run.claim_attempt()
    facts = claims.describe_process()
    run.record(
        "submitted", durable=True, number=number, scheduler=Spark.name, driver=THREAD, **facts
    )
    driver = Driver(run, context)
    threading.Thread(
        target=driver.drive, args=(attempt,), name=f"rampup-{run.id}", daemon=True
    ).start()


def check_software(spec: RunSpec) -> Iterator[Finding]:
    """pyspark, Java, and an environment that a task can give to its rank."""
    if find_spec("pyspark") is None:
        yield problem("pyspark is not installed", "pip install 'rampup[spark]'")
    elif sessions.find_active() is None and not sessions.has_java():
        yield problem(
            "there is no java here: neither on PATH nor in JAVA_HOME",
            "apt-get install default-jre-headless",
        )
    kind, path = software.kind_of(software.env_of(spec))
    if kind in software.KINDS or spec.cluster.modules or software.list_modules(spec):
        what = f"env={kind}:{path}" if kind else "modules"
        yield problem(
            f"{what} can't be set up in a Spark executor",
            "env=PATH of a venv that all executors see",
        )


def check_session(spec: RunSpec) -> Iterator[Finding]:
    """A session, or where to make one; with the GPUs that were asked for."""
    session = sessions.find_active()
    if session is None and not spec.cluster.spark_master:
        yield problem(
            "there is no Spark session in this process, and the profile has no spark_master",
            find_remedy(spec),
        )
    conf: Mapping[str, str] = spec.cluster.spark
    if session is not None:
        conf = dict(sessions.find_context(session).getConf().getAll())
    if spec.resources.gpus_per_node > 0 and "spark.task.resource.gpu.amount" not in conf:
        yield problem(
            f"gpus_per_node={spec.resources.gpus_per_node}, but the session gives no GPU to a task",
            "set spark.task.resource.gpu.amount=1 and spark.executor.resource.gpu.amount",
        )


def find_remedy(spec: RunSpec) -> str:
    """A launched function is resumed where its session is; `rampup resume` has none."""
    if spec.function is not None:
        return "create a SparkSession first; an old run: rampup.attach(ID).resume() in its process"
    return "create a SparkSession first, or add cluster.spark_master=local-cluster[2,1,1024]"


def problem(cause: str, remedy: str) -> Finding:
    return Finding("spark", "problem", "spark", cause, remedy)
