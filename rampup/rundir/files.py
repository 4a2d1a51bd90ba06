"""The run directory: the contract between the side that controls and the side that trains.

With attemptdir.py the only file that knows file names. Every file has one writer; whole files are
replaced atomically, logs of records only grow. The state of a run is computed here from what is on
disk and from whether its launcher lives; it is never stored. Readers skip a torn last line and name
what is missing.
"""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rampup.errors import Refused
from rampup.rundir import schema as shapes
from rampup.rundir.attempt import AttemptDir as AttemptDir
from rampup.rundir.records import Record, append_json, read_json, read_jsonl, sync, write_new
from rampup.rundir.schema import fitting

ATTEMPT_NAME = re.compile("[1-9][0-9]{0,5}")
"""What else lies in attempts/, as a date or a file, is somebody's own."""


class RunDir:
    """One run on disk. Making the object touches nothing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # names ----------------------------------------------------------------------------------------

    @property
    def run_file(self) -> Path:
        return self.path / "run.json"

    @property
    def config_file(self) -> Path:
        return self.path / "config.json"

    @property
    def env_file(self) -> Path:
        return self.path / "env.json"

    @property
    def control_file(self) -> Path:
        return self.path / "control.jsonl"

    @property
    def user_file(self) -> Path:
        return self.path / "rampup.toml"

    @property
    def job_script(self) -> Path:
        return self.path / "job.sh"

    def slurm_log(self, job: str) -> Path:
        """What Slurm and the job script say."""
        return self.path / f"slurm-{job}.log"

    def slurm_logs(self) -> list[Path]:
        """The oldest first."""
        return sorted(self.path.glob("slurm-*.log"), key=lambda path: path.stat().st_mtime)

    @property
    def rank_program(self) -> Path:
        return self.path / "rank.py"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def report_file(self) -> Path:
        return self.path / "report.html"

    @property
    def tensorboard(self) -> Path:
        """What `tensorboard --logdir` wants."""
        return self.path / "tb"

    def tensorboard_file(self, attempt: int) -> Path:
        """TensorBoard reads the files of a folder in the order of their names."""
        return self.tensorboard / f"events.out.tfevents.{attempt:010d}"

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(self.path.joinpath("attempts", str(number)))

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step}"

    # identity -------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.path.name.rpartition("-")[2]

    @property
    def run(self) -> Record:
        return fitting(read_json(self.run_file), shapes.RUN)

    @property
    def config(self) -> Record:
        return fitting(read_json(self.config_file), shapes.CONFIG)

    # attempts -------------------------------------------------------------------------------------

    def attempt_numbers(self) -> list[int]:
        try:
            with os.scandir(f"{self.path}/attempts") as entries:
                return sorted(
                    int(it.name)
                    for it in entries
                    if ATTEMPT_NAME.fullmatch(it.name) and it.is_dir()
                )
        except OSError:
            return []

    def attempts(self) -> list[AttemptDir]:
        return [self.attempt(number) for number in self.attempt_numbers()]

    def last_attempt(self) -> AttemptDir | None:
        numbers = self.attempt_numbers()
        return self.attempt(numbers[-1]) if numbers else None

    def claim_attempt(self) -> AttemptDir:
        """The next attempt, taken by mkdir: two launchers can't get the same one."""
        (self.path / "attempts").mkdir(exist_ok=True)
        number = max(self.attempt_numbers(), default=0) + 1
        while True:
            attempt = self.attempt(number)
            try:
                attempt.path.mkdir()
                return attempt
            except FileExistsError:
                number += 1

    # the control side's own record ----------------------------------------------------------------

    def record(self, what: str, **facts: Any) -> None:
        append_json(self.control_file, {"t": time.time(), "what": what, **facts})

    def records(self, what: str) -> list[Record]:
        return [row for row in read_jsonl(self.control_file) if row.get("what") == what]

    def recorded(self, what: str) -> Record | None:
        """The last record of that kind."""
        found = [row for row in read_jsonl(self.control_file) if row.get("what") == what]
        return fitting(found[-1], shapes.CONTROL) if found else None

    def cancelled_after(self, since: float) -> bool:
        return bool((self.recorded("cancelled") or {}).get("t", 0.0) > since)

    # what happened --------------------------------------------------------------------------------

    def history(self) -> list[Record]:
        """The metric rows of all attempts as one story: each is cut where the next one resumed."""
        rows: list[Record] = []
        for attempt in self.attempts():
            resumed, own = attempt.resumed_at(), attempt.metrics()
            if own or resumed:  # one that ended before it took up has changed nothing
                rows = [
                    row
                    for row in rows
                    if not shapes.number(step := row.get("step", 0)) or step <= resumed
                ]
            rows.extend(own)
        return rows


# making one ---------------------------------------------------------------------------------------


def directory_of(root: Path, name: str, run_id: str, created: float) -> Path:
    return root / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(created))}-{name}-{run_id}"


def create(final: Path, run: Record, fill: Callable[[RunDir], None], alone: bool = True) -> RunDir:
    """Make a run directory in one step: `fill` writes into a hidden one, a rename shows it.

    A crash or an error in between leaves no half-made run that `list` would show. One of many is
    not waited for until it is on the disk: who makes a study again finds what is missing.
    """
    import shutil  # slow to import, and only `run` makes runs

    hidden = final.with_name(f".{final.name}.making")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        hidden.mkdir()
    except OSError as error:
        hint = "set RAMPUP_RUNS to a directory that you can write"
        raise Refused(
            f"can't make a run directory in {final.parent}: {error.strerror}", hint
        ) from None
    try:
        made = RunDir(hidden)
        write_new(made.run_file, run)
        fill(made)
        if alone:
            sync(hidden)
        hidden.rename(final)
    except OSError as error:
        shutil.rmtree(hidden, ignore_errors=True)
        hint = f"check the free space: df -h {final.parent}"
        raise Refused(f"can't write the run directory {final}: {error.strerror}", hint) from None
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return RunDir(final)
