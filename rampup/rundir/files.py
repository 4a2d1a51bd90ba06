"""The run directory: the contract between the side that controls and the side that trains.

With attempt.py the only module that knows file names of a run. Every file has one writer; whole files are
replaced atomically, logs of records only grow. The state of a run is never stored: runs/state.py
computes it. Readers skip a torn last line and name what is missing.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rampup import after
from rampup.core.metrics import is_number
from rampup.core.spec import Share
from rampup.errors import Refused
from rampup.rundir import opening, schema, sharing
from rampup.rundir.attempt import AttemptDir as AttemptDir
from rampup.rundir.clocks import age_of_file
from rampup.rundir.records import (
    Record,
    append_json,
    format_json,
    read_json,
    read_jsonl,
    sync,
    sync_tree,
    write_new,
)
from rampup.rundir.schema import drop_foreign

MAKING = ".making"
ABANDONED_AFTER_S = 86_400.0
ATTEMPT_NAME = re.compile("[1-9][0-9]{0,5}")
"""Anything else in attempts/ belongs to the user."""


class RunDir:
    """One run on disk. Making the object touches nothing."""

    def __init__(self, path: str | Path) -> None:
        self.path = path if isinstance(path, Path) else Path(path)

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
        """The output of Slurm and of the job script."""
        return self.path / slurm_log_name(job)

    def slurm_logs(self) -> list[Path]:
        """Return the logs of all jobs, the oldest first."""
        found = [path for path in self.path.glob("slurm-*.log") if opening.is_file(path)]
        return sorted(found, key=lambda path: path.lstat().st_mtime)

    @property
    def rank_program(self) -> Path:
        return self.path / "rank.py"

    @property
    def key_file(self) -> Path:
        """What the ranks prove with that they are of this run. Only its owner may read it."""
        return self.path / "ranks.key"

    @property
    def contact_program(self) -> Path:
        return self.path / "contact.py"

    @property
    def after_program(self) -> Path:
        """What says whether the runs before this one have completed, where there are some."""
        return self.path / "after.py"

    @property
    def guardian_program(self) -> Path:
        """What keeps watch over each rank, where another program than ours starts them."""
        return self.path / "guardian.py"

    @property
    def call_file(self) -> Path:
        """The call that every rank makes, with its arguments, where `rampup.launch` started the
        run. Only its owner may read it."""
        return self.path / "call.pkl"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def lock_file(self) -> Path:
        """Held by a process that resumes or cleans the run."""
        return self.path / ".resuming"

    @property
    def submissions(self) -> Path:
        """Who had the right to start the run, by number."""
        return self.path / "submissions"

    @property
    def report_file(self) -> Path:
        return self.path / "report.html"

    @property
    def mlperf_file(self) -> Path:
        """The MLPerf log of all attempts, where `rampup export` has written it."""
        return self.path / "mlperf.log"

    @property
    def tensorboard(self) -> Path:
        """The folder for `tensorboard --logdir`."""
        return self.path / "tb"

    def tensorboard_file(self, attempt: int) -> Path:
        """TensorBoard reads the files of a folder in the order of their names."""
        return self.tensorboard / f"events.out.tfevents.{attempt:010d}"

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(self.path.joinpath("attempts", str(number)))

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / checkpoint_name(step)

    # identity -------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.path.name.rpartition("-")[2]

    @property
    def run(self) -> Record:
        return drop_foreign(read_json(self.run_file), schema.RUN)

    @property
    def config(self) -> Record:
        return drop_foreign(read_json(self.config_file), schema.CONFIG)

    @property
    def used_config(self) -> Record:
        """The configuration as it is shown, without secrets: with the settings that the user's own
        loop recorded, those of the newest attempt that has some."""
        from rampup.core.redact import redact, redact_config  # not for those who list many runs

        config = redact_config(self.config)
        if config.get("kind") == "engine":  # an engine has no settings but these
            return config
        for attempt in reversed(self.attempts()):
            found = attempt.settings()
            if found:
                return _add_settings(config, redact(found))
        return config

    @property
    def env(self) -> Record:
        """Where it was made: versions, variables, and the commit of the user's code. An older
        rampup may have written secrets, so what is shown has none."""
        from rampup.core.redact import redact, redact_variables

        env: Record = redact(drop_foreign(read_json(self.env_file), schema.ENV))
        variables = env.get("variables")
        shown = redact_variables(variables) if isinstance(variables, dict) else {}
        return {**env, "variables": shown} if variables is not None else env

    def jobs(self) -> list[str]:
        """Return the ids of the jobs that the run was given to, the oldest first."""
        told = [drop_foreign(row, schema.CONTROL) for row in self.records("submitted")]
        rows = [(row.get("t", 0.0), row) for row in told]
        for attempt in self.attempts():
            facts = attempt.facts
            rows.append((facts.get("started", 0.0), facts))
        rows.sort(key=lambda row: row[0])
        found = [row[key] for _, row in rows for key in ("job", "next_job") if row.get(key)]
        return list(dict.fromkeys(str(job) for job in found))

    # attempts -------------------------------------------------------------------------------------

    def attempt_numbers(self) -> list[int]:
        folder = f"{self.path}/attempts"
        if os.path.islink(folder):
            return []
        try:
            with os.scandir(folder) as entries:
                return sorted(
                    int(it.name)
                    for it in entries
                    if ATTEMPT_NAME.fullmatch(it.name) and it.is_dir(follow_symlinks=False)
                )
        except OSError:
            return []

    def attempts(self) -> list[AttemptDir]:
        return [self.attempt(number) for number in self.attempt_numbers()]

    def last_attempt(self) -> AttemptDir | None:
        numbers = self.attempt_numbers()
        return self.attempt(numbers[-1]) if numbers else None

    def claim_attempt(self) -> AttemptDir:
        """Create the next attempt by mkdir: two launchers can't get the same one."""
        opening.refuse_link(self.path / "attempts")
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

    def record(self, what: str, durable: bool = False, **facts: Any) -> None:
        """Write down what the control side did; `durable`: it survives a power cut."""
        row = {"t": time.time(), "what": what, **facts}
        append_json(self.control_file, row, durable, sharing.OWNER_ONLY)

    def control(self) -> list[Record]:
        """Return all that the control side wrote down, the oldest first, and where a job that waited
        for other runs has gone since."""
        rows = read_jsonl(self.control_file)
        return after.add_moves(rows, str(self.path), read_json)

    def records(self, what: str) -> list[Record]:
        return [row for row in self.control() if row.get("what") == what]

    def recorded(self, what: str) -> Record | None:
        """Return the last record of that kind."""
        return find_last(self.control(), what)

    def is_cancelled(self, since: float = 0.0) -> bool:
        """Return whether the run was cancelled after it was last submitted, by the order of the
        records: a clock may have been wrong. `since` is when its attempt started."""
        found: Record = {}
        for row in self.control():
            if row.get("what") == "cancelled":
                found = drop_foreign(row, schema.CONTROL)
            elif row.get("what") == "submitted":
                found = {}
        return bool(found.get("t", 0.0) > since)

    # what happened --------------------------------------------------------------------------------

    def history(self) -> list[Record]:
        """Return the metric rows of all attempts in one list: each attempt is cut where the next one
        resumed."""
        rows: list[Record] = []
        for attempt in self.attempts():
            resumed, own = attempt.resume_step(), attempt.metrics()
            if own or resumed:  # one that ended before it resumed has changed nothing
                rows = [row for row in rows if not _is_after(row, resumed)]
            rows.extend(own)
        return rows


def find_last(rows: Sequence[Record], what: str) -> Record | None:
    """Return the last of the control side's records of that kind."""
    for row in reversed(rows):
        if row.get("what") == what:
            return drop_foreign(row, schema.CONTROL)
    return None


def _add_settings(config: Record, found: Record) -> Record:
    origins = {f"train.{name}": origin for name, origin in found.get("origins", {}).items()}
    return {
        **config,
        "train": {**config.get("train", {}), **found.get("train", {})},
        "origins": {**config.get("origins", {}), **origins},
    }


def _is_after(row: Record, last_step: int) -> bool:
    step = row.get("step", 0)
    return is_number(step) and step > last_step


def checkpoint_name(step: int) -> str:
    return f"step-{step}"


def slurm_log_name(job: str) -> str:
    """Return the name of a job's log; `job` may be a pattern of sbatch, such as %j."""
    return f"slurm-{job}.log"


# making a run ---------------------------------------------------------------------------------------


def run_directory(root: Path, name: str, run_id: str, created: float) -> Path:
    return root / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(created))}-{name}-{run_id}"


@contextmanager
def create_run(
    final: Path, run: Record, alone: bool = True, share: Share = "results"
) -> Iterator[RunDir]:
    """Make a run directory in one step: the block fills a hidden one, and a rename shows it.

    A crash or an error in between leaves no half-made run that `list` would show. One of many
    (`alone=False`) is not brought to the disk at once: starting the study again makes what is
    missing. `share` says who else may read it.
    """
    import shutil  # slow to import, and only `run` makes runs

    hidden = hidden_directory(final)
    try:
        make_root(final.parent)
        if alone:  # a study has thousands
            remove_abandoned(final.parent)
        sharing.make_folder(hidden, share)
    except OSError as error:
        hint = "set RAMPUP_RUNS to a directory that you can write"
        raise Refused(
            f"can't make a run directory in {final.parent}: {error.strerror}", hint
        ) from None
    try:
        made = RunDir(hidden)
        write_new(made.run_file, run)
        sharing.write_private(made.control_file, b"", share)
        sharing.write_key(made.key_file)
        yield made
        if alone:
            sync_tree(hidden)
        hidden.rename(final)
        if alone:
            sync(final.parent)
    except OSError as error:
        shutil.rmtree(hidden, ignore_errors=True)
        hint = f"check the free space: df -h {final.parent}"
        raise Refused(f"can't write the run directory {final}: {error.strerror}", hint) from None
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise


def make_root(root: Path) -> None:
    """Make the directory of runs. A new one is kept out of the user's git repository."""
    if root.is_dir():
        return
    root.mkdir(parents=True, exist_ok=True)
    (root / ".gitignore").write_text("*\n", encoding="utf-8")


def hidden_directory(final: Path) -> Path:
    """Return where a run directory is made before anybody sees it."""
    return final.with_name(f".{final.name}{MAKING}")


def remove_abandoned(root: Path) -> None:
    """Remove what processes that were killed while they made a run have left, a day later."""
    import shutil

    for path in root.glob(f".*{MAKING}"):
        with suppress(FileNotFoundError):  # another process has just finished it
            if age_of_file(path) > ABANDONED_AFTER_S:
                shutil.rmtree(path, ignore_errors=True)


def fill_run(
    made: RunDir,
    config: Record,
    env: Record,
    rank_program: str,
    contact_program: str,
    script: str | None,
    user_file: str | None,
    share: Share = "results",
) -> None:
    """Write what a new run is to do. The programs of a rank and `user_file` are copied; without
    a `script` or a file of the user there is none."""
    import shutil

    sharing.write_private(made.config_file, format_json(config).encode(), share)
    sharing.write_private(made.env_file, format_json(env).encode(), share)
    shutil.copyfile(rank_program, made.rank_program)
    shutil.copyfile(contact_program, made.contact_program)
    if script is not None:  # it has the variables of the profile
        sharing.write_private(made.job_script, script.encode(), share)
    if user_file is not None:
        sharing.write_private(made.user_file, Path(user_file).read_bytes(), share)
