"""What came of a run that met a fault: did it come home, is it equal, what did it cost."""

from msgspec import Struct
from msgspec.structs import replace

from rampup.drill.compare import compare
from rampup.drill.scene import Scene
from rampup.rundir.history import read_attempts


class Trial(Struct, frozen=True, kw_only=True):
    """One run with one fault."""

    fault: str
    survived: bool
    equal: bool | None = None
    """Bit for bit as the undisturbed run; None when there is nothing to compare."""
    promised: bool = True
    """Whether that is promised: unless an attempt said itself that it can't go on bit for bit (a
    GPU)."""
    why: str = ""
    """What is wrong."""
    moment: float = 0.0
    in_save: bool = False
    """A checkpoint was being written when the fault came."""
    attempts: int = 0
    helped: int = 0
    """How often a person had to say `rampup resume`."""
    redone: int = 0
    lost_s: float = 0.0
    dir: str = ""

    @property
    def ok(self) -> bool:
        return self.survived and (self.equal is not False or not self.promised)


class Result(Struct, frozen=True, kw_only=True):
    wall_s: float
    steps: int
    in_save: float
    every: str
    trials: list[Trial]
    impossible: dict[str, str]
    """Faults that can't be caused there, and why."""

    @property
    def bad(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.ok]

    @property
    def ok(self) -> bool:
        return not self.bad


def judge(fault: str, scene: Scene, why: str) -> Trial:
    """`why` says what went wrong on the way home, if something did."""
    attempts = read_attempts(scene.run)
    found = Trial(
        fault=fault,
        survived=False,
        why=why or scene.wrong,
        moment=round(scene.moment, 4),
        in_save=scene.in_save,
        attempts=len(attempts),
        helped=scene.helped,
        redone=sum(attempt.redone for attempt in attempts),
        dir=str(scene.run.path),
    )
    if found.why:
        return found
    comparison = compare(scene.whole.run, scene.run)
    ended, began = (
        attempts[-1].ended or 0.0,
        attempts[0].began if scene.stage.place.slurm else scene.began,
    )
    helped = "it did not come back by itself" if scene.by_itself and scene.helped else ""
    return replace(
        found,
        survived=not helped,
        equal=comparison.equal,
        promised=not any(
            (attempt.event("resumed") or {}).get("exact") is False
            for attempt in scene.run.attempts()
        ),
        why=helped or comparison.difference,
        lost_s=round(ended - began - scene.whole.wall_s, 2),
    )


def line_of(trial: Trial) -> str:
    """One line while the drill goes on."""
    equal = {True: "equal", False: "NOT EQUAL", None: "nothing to compare"}[trial.equal]
    verdict = f"survived, {equal}" if trial.survived else "LOST"
    why = f": {trial.why}" if trial.why and not trial.ok else ""
    return f"{trial.fault}: {verdict}{why}; {trial.redone} steps redone, {trial.lost_s:.1f} s lost"
