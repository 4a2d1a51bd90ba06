"""The verdict on a run that met a fault: did it complete, is it equal, what did it cost.

Drill calls `judge` once for each run with a fault. Trial and Result are also the JSON that
`rampup drill --json` prints, so the names of their fields stay. Never starts or changes a run.
"""

from msgspec import Struct
from msgspec.structs import replace

from rampup.drill.comparison import compare_runs
from rampup.drill.fault_run import FaultRun
from rampup.rundir.files import AttemptDir
from rampup.rundir.history import read_attempts


class Trial(Struct, frozen=True, kw_only=True):
    """One run with one fault."""

    fault: str
    survived: bool
    equal: bool | None = None
    """Bit for bit as the undisturbed run; None when there is nothing to compare."""
    promised: bool = True
    """Whether equality is promised: not when an attempt recorded that it can't continue bit for
    bit, for example on a GPU."""
    why: str = ""
    """What went wrong; empty when nothing did."""
    moment: float = 0.0
    in_save: bool = False
    """A checkpoint was being written when the fault came."""
    attempts: int = 0
    helped: int = 0
    """How often a person had to use `rampup resume`."""
    redone: int = 0
    lost_s: float = 0.0
    dir: str = ""

    @property
    def ok(self) -> bool:
        return self.survived and (self.equal is not False or not self.promised)


class Result(Struct, frozen=True, kw_only=True):
    """What came of a drill."""

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


def judge(fault: str, fault_run: FaultRun, problem: str) -> Trial:
    """Judge a run after its fault; `problem` says what kept it from completing, if anything did."""
    attempts = read_attempts(fault_run.run)
    trial = Trial(
        fault=fault,
        survived=False,
        why=problem or fault_run.violation,
        moment=round(fault_run.moment, 4),
        in_save=fault_run.in_save,
        attempts=len(attempts),
        helped=fault_run.resumes,
        redone=sum(attempt.redone for attempt in attempts),
        dir=str(fault_run.run.path),
    )
    if trial.why:
        return trial
    comparison = compare_runs(fault_run.baseline.run, fault_run.run)
    on_slurm = fault_run.runner.place.on_slurm
    began = attempts[0].began if on_slurm else fault_run.began
    wall_s = (attempts[-1].ended or 0.0) - began
    needed_help = fault_run.unaided and fault_run.resumes > 0
    return replace(
        trial,
        survived=not needed_help,
        equal=comparison.equal,
        promised=not any(_resumed_inexactly(attempt) for attempt in fault_run.run.attempts()),
        why="it did not recover by itself" if needed_help else comparison.difference,
        lost_s=round(wall_s - fault_run.baseline.wall_s, 2),
    )


def _resumed_inexactly(attempt: AttemptDir) -> bool:
    """Whether the attempt recorded that it can't continue bit for bit."""
    return (attempt.event("resumed") or {}).get("exact") is False


def format_trial(trial: Trial) -> str:
    """Format the line that is shown while the drill is under way."""
    equal = {True: "equal", False: "NOT EQUAL", None: "nothing to compare"}[trial.equal]
    verdict = f"survived, {equal}" if trial.survived else "LOST"
    why = f": {trial.why}" if trial.why and not trial.ok else ""
    return f"{trial.fault}: {verdict}{why}; {trial.redone} steps redone, {trial.lost_s:.1f} s lost"
