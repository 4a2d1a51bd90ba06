"""One attempt at a run: the names of its files, and how they are read.

With files.py the only module that knows file names of a run. Launchers, the job side and all
readers get paths and records from here; a value that has the wrong type or is torn is left out.
Nothing here writes.
"""

import os
import re
from pathlib import Path

from rampup.rundir import clocks, opening, schema
from rampup.rundir.records import Record, read_json, read_jsonl
from rampup.rundir.schema import drop_foreign

TAIL_BYTES = 2_048
SHORT_BYTES, LIST_BYTES = 256, 65_536
"""How much is read of a file that holds a word, and of one that holds a list of names."""
COUNT = re.compile("[0-9]{1,9}")


class AttemptDir:
    """One attempt at a run: `attempts/<n>`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def facts_file(self) -> Path:
        """Which process runs this attempt, and how it ended; written by the launcher."""
        return self.path / "attempt.json"

    @property
    def outcome_file(self) -> Path:
        """How this attempt ended, in plain words for scripts that can't read JSON: the outcome, and
        the cause if there is one; written by the job script."""
        return self.path / "outcome"

    @property
    def job_log(self) -> Path:
        return self.path / "job.log"

    @property
    def events_file(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def evaluation_file(self) -> Path:
        """The result of a classifier's last validation, class by class; replaced as a whole by rank
        0."""
        return self.path / "evaluation.json"

    @property
    def mlperf_file(self) -> Path:
        """The MLPerf log of the run up to this attempt; written by rank 0, where the recipe has a
        benchmark."""
        return self.path / "mlperf.log"

    @property
    def modules_file(self) -> Path:
        """The modules that were loaded in fact, one name on a line; written before the ranks start,
        where modules were asked for."""
        return self.path / "modules.txt"

    @property
    def settings_file(self) -> Path:
        """The settings of the user's own loop with their origins; written by rank 0 at
        `rampup.init()`."""
        return self.path / "settings.json"

    @property
    def progress_file(self) -> Path:
        """How far rank 0 is, for the progress bar: one line, overwritten in place."""
        return self.path / "progress.json"

    @property
    def joined_file(self) -> Path:
        """How many ranks have joined rank 0, while it waits for the others; written by rank 0."""
        return self.path / "joined"

    @property
    def port_taken_file(self) -> Path:
        """Written by rank 0 when the ports of this try are in use."""
        return self.path / "port-taken"

    @property
    def result_file(self) -> Path:
        """What the function of `rampup.launch` returned on rank 0: the value itself as JSON, or
        where it is. Only its owner may read it."""
        return self.path / "result.json"

    @property
    def result_arrays_file(self) -> Path:
        """The arrays of that value."""
        return self.path / "result.npz"

    @property
    def result_pickle_file(self) -> Path:
        """A value that JSON and arrays can't hold, signed in result.json."""
        return self.path / "result.pkl"

    @property
    def again_file(self) -> Path:
        """Written by rank 0 when the ranks have stopped cleanly: one word, why."""
        return self.path / "again"

    @property
    def stop_file(self) -> Path:
        """Written by `rampup cancel --save`: stop after this step."""
        return self.path / "stop"

    @property
    def end_file(self) -> Path:
        """Written by the driver of Spark's ranks, or by who cancels it: end all ranks. Each rank's
        task looks for it."""
        return self.path / "end"

    @property
    def listens_file(self) -> Path:
        """Written by rank 0 when its loop begins to check whether it should stop."""
        return self.path / "listens"

    @property
    def next(self) -> "AttemptDir":
        """The attempt after this one, whether or not it exists."""
        return AttemptDir(self.path.with_name(str(self.number + 1)))

    def read_again(self) -> str:
        """Return why the ranks stopped cleanly before they were done: timeout, preempt, stop or
        asked; empty if they did not."""
        return opening.read_text(self.again_file, SHORT_BYTES).strip()

    def count_joined(self) -> int:
        """Return how many ranks have joined; 0 where that is not known."""
        text = opening.read_text(self.joined_file, SHORT_BYTES).strip()
        return int(text) if COUNT.fullmatch(text) else 0

    def modules(self) -> list[str]:
        return opening.read_text(self.modules_file, LIST_BYTES).split()

    def rank_log(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.log"

    def rank_logs(self) -> list[Path]:
        return sorted(self.path.glob("rank-*.log"))

    def error_files(self) -> list[Path]:
        return sorted(self.path.glob("error-*.json"))

    def system_files(self) -> list[Path]:
        return sorted(self.path.glob("system-*.jsonl"))

    def error_file(self, rank: int) -> Path:
        return self.path / f"error-{rank}.json"

    def profile_file(self) -> Path | None:
        """The profile of a LightningModule, if `profiler` was set."""
        found = [path for path in self.path.glob("*profile*.txt") if opening.is_file(path)]
        return min(found, default=None)

    def contact_file(self, rank: int) -> Path:
        """Whether this rank has met another, as contact.py saw it; written beside the rank."""
        return self.path / f"contact-{rank}.json"

    def system_file(self, node: str) -> Path:
        return self.path / f"system-{node}.jsonl"

    @property
    def facts(self) -> Record:
        return drop_foreign(read_json(self.facts_file), schema.ATTEMPT)

    def metrics(self) -> list[Record]:
        return list(read_jsonl(self.metrics_file))

    def last_metrics(self) -> Record:
        """Return the last values, read from the end of the file: quick for any number of rows."""
        last: Record = {}
        for row in read_jsonl(self.metrics_file, tail_bytes=TAIL_BYTES):
            last.update(row)
        return last

    def evaluation(self) -> Record:
        return drop_foreign(read_json(self.evaluation_file), schema.EVALUATION)

    def settings(self) -> Record:
        """Return the tables `train` and `origins` of the user's own loop; empty without one."""
        return drop_foreign(read_json(self.settings_file), schema.SETTINGS)

    def events(self) -> list[Record]:
        return [drop_foreign(row, schema.EVENT) for row in read_jsonl(self.events_file)]

    def event(self, what: str) -> Record | None:
        found = [row for row in self.events() if row.get("what") == what]
        return found[-1] if found else None

    def resume_step(self) -> int:
        """Return the step from which this attempt resumed; 0 when it began anew, or -1 where its steps
        count from 0."""
        resumed = self.event("resumed") if self.number > 1 else None
        return int(resumed.get("step", 0)) if resumed else 0

    def samples(self) -> dict[str, list[Record]]:
        """Return the samples of CPU and memory, for each node."""
        found = {}
        for path in self.system_files():
            node = path.name.removeprefix("system-").removesuffix(".jsonl")
            found[node] = [drop_foreign(row, schema.SAMPLE) for row in read_jsonl(path)]
        return found

    def errors(self) -> list[Record]:
        """Return what the ranks recorded when they failed, the earliest first."""
        found = [drop_foreign(read_json(path), schema.ERROR) for path in self.error_files()]
        return sorted((error for error in found if error), key=lambda error: error.get("t", 0.0))

    def has_no_record(self) -> bool:
        """Return whether it has begun, for it left files, but its launcher's record is torn or
        lost."""
        return bool(os.listdir(self.path)) and not self.facts

    def silent_s(self) -> float:
        """Return the seconds since anything was written here, by the clock of the file system:
        another machine wrote it."""
        with os.scandir(self.path) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
        newest = max(times, default=0.0)
        return max(0.0, clocks.now_in(self.path) - newest)
