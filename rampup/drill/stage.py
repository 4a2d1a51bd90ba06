"""The runs of one drill: made in a folder of their own, started, watched and resumed by the
functions that `rampup run` and `rampup resume` use, and ended whatever happens to the drill.

Local runs are started in the foreground: they end with this process, even when it is killed.
"""

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rampup.core.spec import RunSpec
from rampup.diagnose.preflight import preflight
from rampup.drill import victims
from rampup.drill.place import Place
from rampup.errors import RampupError, SchedulerError
from rampup.rundir.files import RunDir
from rampup.runs import resume
from rampup.runs.create import create_run, plan_new_run
from rampup.runs.plan import CheckedPlan, Plan, make_plan
from rampup.runs.start import start
from rampup.runs.state import State, state_of
from rampup.schedulers.slurm import options as slurm_options
from rampup.schedulers.slurm import query as slurm_query
from rampup.schedulers.slurm import submit as slurm
from rampup.schedulers.slurm.commands import call

POLL_S = {"here": 0.01, "sandbox": 0.01, "cluster": 1.0}
LOOK_EVERY_S = {"here": 0.1, "sandbox": 0.7, "cluster": 5.0}
"""At the state of a run; a real cluster is others' too."""
ENDED_WITHIN_S = 30.0
SOON_S = 4.0
SLURM_S = 15.0


class Stage:
    def __init__(self, place: Place, root: Path, tell: Callable[[str], None]) -> None:
        self.place, self.root, self._tell = place, root, tell
        self._specs: dict[Path, RunSpec] = {}
        self._launchers: list[subprocess.Popen[bytes]] = []
        self._seen: tuple[Path, float, State] | None = None

    # acting ---------------------------------------------------------------------------------------

    def start(self, spec: RunSpec, root: Path | None = None) -> RunDir:
        run = create_run(self._check(plan_new_run(spec, root or self.root)))
        self._tell = lambda note: None  # the same notes for every run
        self._specs[run.path] = spec
        self._hand_over(run, spec)
        return run

    def resume(self, run: RunDir, options: dict[str, str]) -> None:
        """As `rampup resume` does."""
        resume.refuse_unless_ended(run)
        spec = resume.rebuild_spec(run, None, options, ())
        with resume.resume_alone(run):
            resume.refuse_unless_ended(run)
            resume.rewrite(run, self._check(make_plan(spec, run.path)), None)
            self._hand_over(run, spec)

    def _hand_over(self, run: RunDir, spec: RunSpec) -> None:
        launcher = start(run, spec, detach=False)
        if launcher is not None:
            self._launchers.append(launcher)
        self._seen = None

    # looking --------------------------------------------------------------------------------------

    def _check(self, plan: Plan) -> CheckedPlan:
        checked = preflight(plan)
        for note in checked.notes:
            self._tell(f"note: {note.cause}; try: {note.remedy}")
        return checked

    def state(self, run: RunDir) -> State:
        """As a reader sees it, not older than a moment."""
        for launcher in self._launchers:
            launcher.poll()  # one that was killed must not stay as a zombie
        every_s, now = LOOK_EVERY_S[self.place.kind], time.monotonic()
        if self._seen is None or self._seen[0] != run.path or now - self._seen[1] > every_s:
            self._seen = run.path, now, state_of(run, fresh_s=every_s / 2)
        return self._seen[2]

    def pause(self) -> None:
        """Between two looks at files."""
        time.sleep(POLL_S[self.place.kind])

    def job(self, run: RunDir) -> str:
        """The Slurm job that has the run just now."""
        attempt = run.last_attempt()
        facts = attempt.facts if attempt else {}
        return str(
            facts.get("next_job") or facts.get("job") or (run.recorded("submitted") or {})["job"]
        )

    def slurm(self, *argv: str) -> str:
        """What one of Slurm's programs prints."""
        done = call(self.place.cluster, list(argv), SLURM_S)
        if done.returncode != 0:
            raise SchedulerError(
                f"{' '.join(argv)}: {done.stderr.strip()}", "see the log of the job"
            )
        return done.stdout.strip()

    def start_soon(self, run: RunDir) -> None:
        """Slurm makes a requeued job wait for two minutes; its owner may lift that."""
        job = self.job(run)
        found = [
            each
            for key, each in slurm_query.squeue(self.place.cluster).items()
            if key.partition(":")[0] == job
        ]
        if found and found[0].reason == "BeginTime" and seconds_until(found[0].start) > SOON_S:
            # within a second of the requeue it is refused: next time
            with contextlib.suppress(SchedulerError):
                self.slurm("scontrol", "update", f"jobid={job}", "starttime=now+2seconds")

    # ending ---------------------------------------------------------------------------------------

    def forget(self, run: RunDir) -> None:
        """It has ended: there is nothing left to end."""
        self._specs.pop(run.path, None)

    def end(self, run: RunDir) -> None:
        """Nothing of the run goes on."""
        spec = self._specs.pop(run.path, None)
        if spec is None:
            return
        if self.place.slurm:
            slurm.cancel(self.place.cluster, slurm_options.job_name(spec, run.id))
        for launcher in self._launchers:  # those of other runs have ended
            launcher.kill()  # its guardians end the ranks
            launcher.wait()
        self._launchers.clear()
        deadline = time.monotonic() + ENDED_WITHIN_S
        while self._lives(run) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _lives(self, run: RunDir) -> bool:
        if self.place.slurm:
            return not state_of(run, fresh_s=0.3).ended
        return any(victims.ranks_of(run, number) for number in run.attempt_numbers())

    def end_all(self) -> None:
        problem: RampupError | None = None
        for path in list(self._specs):
            try:
                self.end(RunDir(path))
            except RampupError as error:  # the others are ended all the same
                problem = error
        if problem is not None:
            raise problem


def seconds_until(start: str) -> float:
    """Slurm tells times of day as they are here: 2026-01-31T23:59:59."""
    try:
        return time.mktime(time.strptime(start, "%Y-%m-%dT%H:%M:%S")) - time.time()
    except ValueError:  # N/A
        return 0.0
