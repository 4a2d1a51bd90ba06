"""The runs of a study on this machine, or inside an allocation that we are in: K at a time, in the
foreground.

Called by `sweep`. A run that fails does not stop the others. Ctrl-C stops those that run cleanly and
begins no further ones; the same command continues later.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from rampup.core import processes
from rampup.diagnose.preflight import accept_alike
from rampup.errors import RampupError, SchedulerError
from rampup.rundir import claims
from rampup.rundir.files import RunDir
from rampup.runs import resume
from rampup.runs.plan import make_plan
from rampup.runs.state import State, state_of
from rampup.runs.stop import record_cancelled
from rampup.runs.summary import total_wall_s
from rampup.schedulers import find_scheduler
from rampup.study.code import SharedCode
from rampup.study.columns import read_score
from rampup.study.members import Ids, Known, Member, Study, make, rebuild_spec

POLL_S = 0.1
Tell = Callable[[str], None]
Watch = Callable[[Sequence[RunDir], int, int], None]
"""Takes the active runs, how many have ended, and how many there are."""


class Here:
    """The runs that wait, and those that go."""

    def __init__(
        self, study: Study, code: SharedCode, at_once: int, tell: Tell, watch: Watch
    ) -> None:
        self.study, self.code, self.at_once = study, code, at_once
        self.tell, self.watch = tell, watch
        self.waiting: deque[tuple[Member, RunDir]] = deque()
        self.going: dict[int, tuple[Member, RunDir, subprocess.Popen[bytes]]] = {}
        self.refused: dict[str, State] = {}
        """By the id of the run: those that could not be started, and as long as we live look as if
        they waited."""
        self.count = 0

    def make_all(self, members: Sequence[Member], ids: Ids, interrupted: Sequence[int]) -> None:
        """The directories of all runs, with the code as it is now, before the first one begins."""
        for member in itertools.takewhile(lambda _: not interrupted, members):
            run = member.run or make(self.study, member.point, ids.new(), self.code)
            try:
                self.take(run, is_new=member.run is None)
                self.waiting.append((member, run))
            except RampupError as error:  # somebody has it meanwhile
                self.tell_refused(member, run, error)
        self.count = len(self.waiting)

    def take(self, run: RunDir, is_new: bool) -> None:
        """From here on it is pending, as long as this process lives."""
        with contextlib.nullcontext() if is_new else resume.resume_alone(run):
            if not is_new:
                resume.claim_next(run, fresh_s=2.0)
                resume.end_leftovers(run)
            start, who = claims.describe_start(run), processes.identify(os.getpid())
            run.record("submitted", scheduler="local", waits=True, **start, **who)

    def go(self, interrupted: Sequence[int]) -> None:
        """Until all have ended, or somebody has had enough."""
        while (self.waiting or self.going) and not interrupted:
            while self.waiting and len(self.going) < self.at_once:
                self.begin(*self.waiting.popleft())
            self.collect()
            active = [run for _, run, _ in self.going.values()]
            self.watch(active, self.count - len(self.waiting) - len(active), self.count)
            time.sleep(POLL_S)
        if interrupted:
            self.stop(processes.name_interrupt(interrupted[0]))

    def begin(self, member: Member, run: RunDir) -> None:
        waits = (run.recorded("submitted") or {}).get("waits")
        # while it waited; and perhaps somebody resumed it since
        if not waits or state_of(run).name == "cancelled":
            return
        slot = next(slot for slot in range(self.at_once) if slot not in self.going)
        number = self.count - len(self.waiting)
        try:
            process = self.started(member, run)
        except RampupError as error:
            self.refused[run.id] = State("failed", None, error.message)
            self.tell_refused(member, run, error)
            return
        self.going[slot] = member, run, process
        self.tell(f"{member.point.label}: run {run.id} begins ({number} of {self.count})")

    def tell_refused(self, member: Member, run: RunDir, error: RampupError) -> None:
        self.tell(f"{member.point.label}: run {run.id} can't be started: {error.message}")

    def started(self, member: Member, run: RunDir) -> subprocess.Popen[bytes]:
        spec, share = member.point.spec, self.share(member)
        with contextlib.ExitStack() as undo:
            if member.run is not None:
                undo.enter_context(resume.resume_alone(run))
                undo.enter_context(resume.rollback_on_error(run))
                spec = rebuild_spec(run, spec)
                checked = accept_alike(make_plan(spec, run.path))
                if note := resume.rewrite(run, checked, self.code.take):
                    self.tell(f"note: {note}")
            scheduler = find_scheduler(spec.cluster.scheduler)
            process = scheduler.submit(run, spec, detach=False, share=share)
        if process is None:
            raise SchedulerError(f"run {run.id} was given to a queue", "rampup list")
        return process

    def as_known(self, known: Known | None) -> Known | None:
        return known and known._replace(state=self.refused.get(known.run.id, known.state))

    def share(self, member: Member) -> Mapping[str, str]:
        """Inside an allocation: what keeps a run from taking all of it."""
        memory = os.environ.get("SLURM_MEM_PER_NODE", "")
        if self.at_once == 1:
            return {}
        each = {"SLURM_MEM_PER_NODE": str(int(memory) // self.at_once)} if memory.isdigit() else {}
        spec = member.point.spec
        return {**find_scheduler(spec.cluster.scheduler).share(spec), **each}

    def collect(self) -> None:
        for slot, (member, run, process) in list(self.going.items()):
            if process.poll() is not None:
                del self.going[slot]
                state = state_of(run)
                words = words_of(state) + describe_result(run, state)
                self.tell(f"{member.point.label}: run {run.id} {words}")

    def stop(self, by: str) -> None:
        """Those that run save and end; the others are not begun. `by` is who stopped them."""
        for _, run, process in self.going.values():
            self.tell(f"stopping {run.id} ...")
            record_cancelled(run, by)
            process.send_signal(signal.SIGTERM)
        for _, _, process in self.going.values():
            process.wait()
        self.collect()
        for _, run in self.waiting:
            record_cancelled(run, by)


def describe_result(run: RunDir, state: State) -> str:
    """Return the score and the time of a run that completed."""
    if state.name != "completed":
        return ""
    score, spent = read_score(run), total_wall_s(run)
    took = f" in {spent:.1f} s" if spent is not None else ""
    return took + (f", {score.metric} {score.value:.4g}" if score else "")


def words_of(state: State) -> str:
    name = "timed out" if state.name == "timeout" else state.name
    return f"{name}: {one_line(state.cause)}" if state.cause else name


def one_line(text: str) -> str:
    return " ".join(text.split())
