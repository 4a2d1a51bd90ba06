"""A drill: one run without a fault, then one run for every fault, each judged against the first.

Called by `rampup drill`, by the tests and by `make drill`. All runs live in one folder, which the
caller makes and removes. A run that survived its fault is removed at once, unless the caller asks
to keep the runs. Never prints: the caller passes a function that shows a line.
"""

import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from rampup.core.spec import RunSpec
from rampup.drill.fault_run import Baseline, FaultRun, Impossible, Lost, TooLate, is_saving
from rampup.drill.faults import sandbox as sandbox_faults
from rampup.drill.faults.catalogue import Fault, list_faults
from rampup.drill.place import find_obstacle, find_place
from rampup.drill.runner import Runner
from rampup.drill.verdict import Result, Trial, format_trial, judge
from rampup.errors import RampupError, Refused, nearest
from rampup.rundir import checkpoints
from rampup.rundir.files import RunDir

MAX_LATE_RUNS = 4
EARLIER_FACTOR = 0.7
"""When a run has ended before its fault, the fault comes earlier by this factor in the next run."""
CHECKPOINTS_PER_RUN = 10
"""How many checkpoints a run writes that does not say how often."""


def choose_faults(spec: RunSpec, names: Sequence[str]) -> tuple[list[Fault], dict[str, str]]:
    """Return the faults to cause, and for each fault that can't be caused there the reason."""
    place = find_place(spec)
    known = {fault.name: fault for fault in list_faults(place)}
    for name in names:
        if name not in known:
            raise Refused(f"unknown fault {name!r}", nearest(name, known))
    possible, impossible = [], {}
    for name in known:
        if names and name not in names:
            continue
        obstacle = find_obstacle(name, place, spec)
        if obstacle:
            impossible[name] = obstacle
        else:
            possible.append(known[name])
    return possible, impossible


class Drill:
    """The runs of one drill, in the folder `root`; the same seed gives the same moments."""

    def __init__(
        self, spec: RunSpec, root: Path, seed: int, keep: bool, say: Callable[[str], None]
    ) -> None:
        self.spec, self._keep, self._say = spec, keep, say
        self._runner = Runner(find_place(spec), root, say)
        self._rng = random.Random(seed)

    def run(self, faults: Sequence[Fault], impossible: dict[str, str], kills: int | None) -> Result:
        """Hold the drill. Every run of it has ended when this returns or raises."""
        try:
            baseline = self._run_baseline()
            self.spec = add_checkpoints(self.spec, baseline.steps)
            trials = []
            for fault, moment in self._schedule(faults, kills):
                try:
                    trial = self._run_fault(fault, moment, baseline)
                except Impossible as error:
                    impossible = {**impossible, fault.name: error.message}
                    continue
                trials.append(trial)
                self._say(format_trial(trial))
        finally:
            self._runner.end_all()
        return Result(
            wall_s=round(baseline.wall_s, 2),
            steps=baseline.steps,
            in_save=round(baseline.in_save, 3),
            every=str(self.spec.checkpoint.get("every")),
            trials=trials,
            impossible=impossible,
        )

    def _schedule(self, faults: Sequence[Fault], kills: int | None) -> list[tuple[Fault, float]]:
        """Give every fault its moment: kills alternate, one in each slice of the run's time."""
        deadly = [fault for fault in faults if fault.is_kill]
        others = [fault for fault in faults if not fault.is_kill]
        count = len(deadly) if kills is None or not deadly else kills
        moments = [(index + self._rng.random()) / count for index in range(count)]
        self._rng.shuffle(moments)
        schedule = [(deadly[index % len(deadly)], moment) for index, moment in enumerate(moments)]
        return schedule + [(fault, self._rng.random()) for fault in others]

    # the run without a fault ----------------------------------------------------------------------

    def _run_baseline(self) -> Baseline:
        began = time.time()
        run = self._runner.start(self.spec)
        first, samples, saving, training = run.attempt(1), 0, 0, None
        while not (state := self._runner.state(run)).ended:
            samples += 1
            saving += is_saving(run)
            if training is None and first.progress_file.exists():
                training = time.time()
            self._runner.pause()
        self._runner.forget(run)
        if state.name != "completed":
            raise RampupError(
                f"without any fault the run is {state.name}: {state.cause}",
                f"rampup why {run.path}",
            )
        facts = first.facts
        if self._runner.place.on_slurm:
            began = facts["started"]  # without the time in the queue
        last_row_step = [row.get("step", 0) for row in run.history()[-1:]]
        steps = max([0, *checkpoints.list_steps(run), *last_row_step])
        self._say(f"undisturbed: {facts['ended'] - began:.1f} s, {steps} steps")
        return Baseline(
            run=run,
            wall_s=facts["ended"] - began,
            train_s=facts["ended"] - (training or began),
            steps=steps,
            in_save=saving / max(1, samples),
        )

    # the runs with a fault ------------------------------------------------------------------------

    def _run_fault(self, fault: Fault, moment: float, baseline: Baseline) -> Trial:
        """Start runs until the fault has met one of them, each time earlier."""
        refuse_impossible(fault, baseline)
        place = self._runner.place
        for late_runs in range(MAX_LATE_RUNS):
            fault_run = FaultRun(
                runner=self._runner,
                spec=self.spec,
                rng=self._rng,
                baseline=baseline,
                moment=moment,
                unaided=fault.recovers_unaided and place.requeues(),
                time_scale=EARLIER_FACTOR**late_runs,
            )
            try:
                with fault.around(fault_run):
                    return self._try_fault(fault, fault_run)
            except TooLate:
                self._put_away(fault_run.run, keep=False)
            finally:
                if place.kind == "sandbox":
                    sandbox_faults.restore_nodes(fault_run)
        raise Impossible(f"the run of {baseline.wall_s:.0f} s is too short for it")

    def _try_fault(self, fault: Fault, fault_run: FaultRun) -> Trial:
        fault_run.start()
        problem = ""
        try:
            fault.strike(fault_run)
            fault_run.finish_or_resume()
        except Lost as error:
            problem = str(error)
        except RampupError as error:
            problem = f"{error.message} ({error.hint})"
        trial = judge(fault.name, fault_run, problem)
        run = fault_run.run
        self._put_away(run, keep=self._keep or not trial.ok)
        if fault_run.root is not None and not trial.ok:
            # its own folder is a disk that is about to be unmounted
            shutil.copytree(run.path, self._runner.root / run.path.name)
        return trial

    def _put_away(self, run: RunDir, keep: bool) -> None:
        if self._runner.state(run).ended:
            self._runner.forget(run)
        else:
            self._runner.end(run)
        if not keep:
            shutil.rmtree(run.path)


def refuse_impossible(fault: Fault, baseline: Baseline) -> None:
    """Raise Impossible for a fault that, as the undisturbed run shows, can't meet this program."""
    first = baseline.run.attempt(1)
    if not fault.is_kill and not first.progress_file.exists():
        raise Impossible(
            "the command does not use rampup.init(), so rampup can't see when it trains"
        )
    if fault.name == "stop-and-resume" and not first.listens_file.exists():
        raise Impossible("its loop does not check run.should_stop")
    if fault.name == "torn-checkpoint" and not checkpoints.list_steps(baseline.run):
        raise Impossible("the run writes no checkpoints")


def add_checkpoints(spec: RunSpec, steps: int) -> RunSpec:
    """Replace `every = auto`, which never writes in a short run, by some checkpoints per run."""
    if spec.kind != "engine" or spec.checkpoint.get("every") != "auto":
        return spec
    every = f"{max(1, steps // CHECKPOINTS_PER_RUN)}steps"
    return replace(spec, checkpoint={**spec.checkpoint, "every": every})
