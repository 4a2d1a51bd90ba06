"""A drill from its first run to its last: once undisturbed, then once for every fault, each judged.

Called by `rampup drill`, by the tests and by `make drill`. All runs live in one folder, which is
the caller's to make and to remove; a run that survived is removed at once, unless it is to be kept.
"""

import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from rampup.core.spec import RunSpec
from rampup.drill import faults_sandbox
from rampup.drill.faults import Fault, faults_of
from rampup.drill.place import place_of, why_not
from rampup.drill.scene import Impossible, Lost, Scene, TooLate, Undisturbed, is_saving
from rampup.drill.stage import Stage
from rampup.drill.verdict import Result, Trial, judge, line_of
from rampup.errors import RampupError, Refused, nearest
from rampup.rundir import checkpoints
from rampup.rundir.files import RunDir

TRIES = 4
EARLIER = 0.7
"""When a run was done before the fault came, it comes so much earlier to the next one."""
CHECKPOINTS = 10
"""So many in a run that does not say how often."""


def chosen(spec: RunSpec, names: Sequence[str]) -> tuple[list[Fault], dict[str, str]]:
    """The faults to cause, and those that can't be caused there."""
    place = place_of(spec)
    known = {fault.name: fault for fault in faults_of(place)}
    for name in names:
        if name not in known:
            raise Refused(f"unknown fault {name!r}", nearest(name, known))
    wanted = [fault for name, fault in known.items() if not names or name in names]
    reasons = {fault.name: why_not(fault.name, place, spec) for fault in wanted}
    return [fault for fault in wanted if not reasons[fault.name]], {
        name: why for name, why in reasons.items() if why
    }


class Drill:
    def __init__(
        self, spec: RunSpec, root: Path, seed: int, keep: bool, tell: Callable[[str], None]
    ) -> None:
        self.spec, self._keep, self._tell = spec, keep, tell
        self._stage = Stage(place_of(spec), root, tell)
        self._chance = random.Random(seed)

    def hold(
        self, faults: Sequence[Fault], impossible: dict[str, str], kills: int | None
    ) -> Result:
        """Every run in it has ended when this returns or raises."""
        try:
            whole = self._undisturbed()
            self.spec = with_checkpoints(self.spec, whole.steps)
            trials = []
            for fault, moment in self._deal(faults, kills):
                try:
                    found = self._try_until_it_comes(fault, moment, whole)
                except Impossible as error:
                    impossible = {**impossible, fault.name: error.message}
                    continue
                trials.append(found)
                self._tell(line_of(found))
        finally:
            self._stage.end_all()
        return Result(
            wall_s=round(whole.wall_s, 2),
            steps=whole.steps,
            in_save=round(whole.in_save, 3),
            every=str(self.spec.checkpoint.get("every")),
            trials=trials,
            impossible=impossible,
        )

    def _deal(self, faults: Sequence[Fault], kills: int | None) -> list[tuple[Fault, float]]:
        """The kills in turn, one in each slice of the time; the others once each."""
        deadly = [fault for fault in faults if fault.is_kill]
        count = len(deadly) if kills is None or not deadly else kills
        moments = [(index + self._chance.random()) / count for index in range(count)]
        self._chance.shuffle(moments)
        dealt = [(deadly[index % len(deadly)], moment) for index, moment in enumerate(moments)]
        return dealt + [(fault, self._chance.random()) for fault in faults if not fault.is_kill]

    # the run without a fault ----------------------------------------------------------------------

    def _undisturbed(self) -> Undisturbed:
        began = time.time()
        run = self._stage.start(self.spec)
        first, samples, saving, training = run.attempt(1), 0, 0, None
        while not (state := self._stage.state(run)).ended:
            samples += 1
            saving += is_saving(run)
            if training is None and first.progress_file.exists():
                training = time.time()
            self._stage.pause()
        self._stage.forget(run)
        if state.name != "completed":
            raise RampupError(
                f"without any fault the run is {state.name}: {state.cause}",
                f"rampup why {run.path}",
            )
        facts = first.facts
        if self._stage.place.slurm:
            began = facts["started"]
        steps = max(
            [0, *checkpoints.list_steps(run), *(row.get("step", 0) for row in run.history()[-1:])]
        )
        self._tell(f"undisturbed: {facts['ended'] - began:.1f} s, {steps} steps")
        return Undisturbed(
            run=run,
            wall_s=facts["ended"] - began,
            train_s=facts["ended"] - (training or began),
            steps=steps,
            in_save=saving / max(1, samples),
        )

    # the runs with a fault ------------------------------------------------------------------------

    def _try_until_it_comes(self, fault: Fault, moment: float, whole: Undisturbed) -> Trial:
        check(fault, whole)
        for late in range(TRIES):
            haste = EARLIER**late
            scene = Scene(
                self._stage, self.spec, self._chance, whole, moment, self._alone(fault), haste
            )
            try:
                with fault.around(scene):
                    return self._try(fault, scene)
            except TooLate:
                self._put_away(scene.run, keep=False)
            finally:
                if self._stage.place.kind == "sandbox":
                    faults_sandbox.heal(scene)
        raise Impossible(f"the run of {whole.wall_s:.0f} s is too short for it")

    def _alone(self, fault: Fault) -> bool:
        return fault.by_itself and self._stage.place.requeues()

    def _try(self, fault: Fault, scene: Scene) -> Trial:
        scene.start()
        why = ""
        try:
            fault.strike(scene)
            scene.come_home()
        except Lost as error:
            why = str(error)
        except RampupError as error:
            why = f"{error.message} ({error.hint})"
        found = judge(fault.name, scene, why)
        self._put_away(scene.run, keep=self._keep or not found.ok)
        if scene.root is not None and not found.ok:
            shutil.copytree(scene.run.path, self._stage.root / scene.run.path.name)
        return found

    def _put_away(self, run: RunDir, keep: bool) -> None:
        if self._stage.state(run).ended:
            self._stage.forget(run)
        else:
            self._stage.end(run)
        if not keep:
            shutil.rmtree(run.path)


def check(fault: Fault, whole: Undisturbed) -> None:
    """What only the undisturbed run can tell."""
    if not fault.is_kill and not whole.run.attempt(1).progress_file.exists():
        raise Impossible("the command does not use rampup.init(), so nobody can see when it trains")
    if fault.name == "stop-and-resume" and not whole.run.attempt(1).listens_file.exists():
        raise Impossible("its loop does not look at run.should_stop")
    if fault.name == "torn-checkpoint" and not checkpoints.list_steps(whole.run):
        raise Impossible("the run writes no checkpoints")


def with_checkpoints(spec: RunSpec, steps: int) -> RunSpec:
    """`auto` writes one every ten seconds at most, which is never in a short run: for the drill,
    some of them."""
    if spec.kind != "engine" or spec.checkpoint.get("every") != "auto":
        return spec
    return replace(
        spec, checkpoint={**spec.checkpoint, "every": f"{max(1, steps // CHECKPOINTS)}steps"}
    )
