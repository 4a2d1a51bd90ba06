"""The runner of a drill: makes, starts, watches, resumes and ends its runs.

Drill and FaultRun use it. It calls the functions behind `rampup run` and `rampup resume`, and
keeps all runs in one folder. Local runs are started in the foreground, so they end with this
process, even when it is killed. Never causes a fault and never judges a run.
"""

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rampup.core.spec import RunSpec
from rampup.diagnose.preflight import preflight
from rampup.drill import run_processes
from rampup.drill.place import Place
from rampup.errors import RampupError, SchedulerError
from rampup.rundir.files import RunDir
from rampup.runs import resume
from rampup.runs.create import create_run, plan_new_run
from rampup.runs.plan import CheckedPlan, Plan, make_plan
from rampup.runs.state import State, state_of
from rampup.schedulers import find_scheduler
from rampup.schedulers.slurm import query as slurm_query
from rampup.schedulers.slurm import sbatch_options as slurm_options
from rampup.schedulers.slurm import submit as slurm
from rampup.schedulers.slurm.commands import call

POLL_FILES_S = {"here": 0.01, "sandbox": 0.01, "cluster": 1.0}
POLL_STATE_S = {"here": 0.1, "sandbox": 0.7, "cluster": 5.0}
"""Slower on a real cluster, which others use too."""
END_TIMEOUT_S = 30.0
LONG_DELAY_S = 4.0
SLURM_TIMEOUT_S = 15.0


class Runner:
    """The runs of one drill at one place."""

    def __init__(self, place: Place, root: Path, say: Callable[[str], None]) -> None:
        self.place, self.root, self._say = place, root, say
        self._specs: dict[Path, RunSpec] = {}
        self._launchers: list[subprocess.Popen[bytes]] = []
        self._last_state: tuple[Path, float, State] | None = None

    # acting ---------------------------------------------------------------------------------------

    def start(self, spec: RunSpec, root: Path | None = None) -> RunDir:
        """Make and start a run, in the folder of the drill unless another is given."""
        run = create_run(self._check(plan_new_run(spec, root or self.root)))
        self._say = lambda note: None  # the notes are the same for every run
        self._specs[run.path] = spec
        self._launch(run, spec)
        return run

    def resume(self, run: RunDir, options: dict[str, str]) -> None:
        """Start a run again that has ended, as `rampup resume` does."""
        resume.refuse_unless_ended(run)
        spec = resume.rebuild_spec(run, None, options, ())
        with resume.start_again(run):
            resume.rewrite(run, self._check(make_plan(spec, run.path)), None)
            self._launch(run, spec)

    def _check(self, plan: Plan) -> CheckedPlan:
        checked = preflight(plan)
        for note in checked.notes:
            self._say(f"note: {note.cause}; try: {note.remedy}")
        return checked

    def _launch(self, run: RunDir, spec: RunSpec) -> None:
        launcher = find_scheduler(spec.cluster.scheduler).submit(run, spec, detach=False)
        if launcher is not None:
            self._launchers.append(launcher)
        self._last_state = None

    # looking --------------------------------------------------------------------------------------

    def state(self, run: RunDir) -> State:
        """Return the state of the run as any reader sees it, at most one polling interval old."""
        for launcher in self._launchers:
            launcher.poll()  # one that was killed must not stay as a zombie
        every_s, now = POLL_STATE_S[self.place.kind], time.monotonic()
        if self._last_state is not None:
            path, asked, state = self._last_state
            if path == run.path and now - asked <= every_s:
                return state
        state = state_of(run, fresh_s=every_s / 2)
        self._last_state = run.path, now, state
        return state

    def pause(self) -> None:
        """Sleep between two looks at files."""
        time.sleep(POLL_FILES_S[self.place.kind])

    def current_job(self, run: RunDir) -> str:
        """Return the id of the Slurm job that executes the run just now."""
        attempt = run.last_attempt()
        facts = attempt.facts if attempt else {}
        job = facts.get("next_job") or facts.get("job") or (run.recorded("submitted") or {})["job"]
        return str(job)

    def call_slurm(self, *argv: str) -> str:
        """Call one of Slurm's programs and return what it prints."""
        done = call(self.place.cluster, list(argv), SLURM_TIMEOUT_S)
        if done.returncode != 0:
            raise SchedulerError(
                f"{' '.join(argv)}: {done.stderr.strip()}", "see the log of the job"
            )
        return done.stdout.strip()

    def skip_requeue_delay(self, run: RunDir) -> None:
        """Let a requeued job start at once: Slurm would delay it by two minutes."""
        job = self.current_job(run)
        queue = slurm_query.squeue(self.place.cluster)
        rows = [row for key, row in queue.items() if key.partition(":")[0] == job]
        if not rows or rows[0].reason != "BeginTime":
            return
        if seconds_until(rows[0].start) > LONG_DELAY_S:
            # Slurm refuses this within a second of the requeue; the next call succeeds
            with contextlib.suppress(SchedulerError):
                self.call_slurm("scontrol", "update", f"jobid={job}", "starttime=now+2seconds")

    # ending ---------------------------------------------------------------------------------------

    def forget(self, run: RunDir) -> None:
        """Note that the run has ended by itself, so that `end_all` skips it."""
        self._specs.pop(run.path, None)

    def end(self, run: RunDir) -> None:
        """End the run, and wait until its processes are gone."""
        spec = self._specs.pop(run.path, None)
        if spec is None:
            return
        if self.place.on_slurm:
            slurm.cancel(self.place.cluster, slurm_options.job_name(spec, run.id))
        for launcher in self._launchers:  # those of other runs have ended
            launcher.kill()  # its guardians end the ranks
            launcher.wait()
        self._launchers.clear()
        deadline = time.monotonic() + END_TIMEOUT_S
        while self._is_alive(run) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _is_alive(self, run: RunDir) -> bool:
        if self.place.on_slurm:
            return not state_of(run, fresh_s=0.3).ended
        return any(run_processes.find_ranks(run, number) for number in run.attempt_numbers())

    def end_all(self) -> None:
        """End every run that still lives; raises the last error after all were tried."""
        problem: RampupError | None = None
        for path in list(self._specs):
            try:
                self.end(RunDir(path))
            except RampupError as error:
                problem = error
        if problem is not None:
            raise problem


def seconds_until(start: str) -> float:
    """Convert a time of day from Slurm, local time such as 2026-01-31T23:59:59, to a distance."""
    try:
        return time.mktime(time.strptime(start, "%Y-%m-%dT%H:%M:%S")) - time.time()
    except ValueError:  # N/A
        return 0.0
