"""One attempt at a run: the names of its files, and what readers get from them. Part of rundir.py's
job, which see."""

import os
import time
from pathlib import Path

from rampup.rundir import schema as shapes
from rampup.rundir.records import Record, read_json, read_jsonl
from rampup.rundir.schema import drop_foreign

TAIL_BYTES = 2_048


class AttemptDir:
    """One attempt at a run: `attempts/<n>`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def facts_file(self) -> Path:
        """Who runs this attempt, and how it ended; written by the launcher."""
        return self.path / "attempt.json"

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
        """What the last validation of a classifier saw, class by class; replaced as a whole by rank
        0."""
        return self.path / "evaluation.json"

    @property
    def modules_file(self) -> Path:
        """What was loaded in truth, one name on a line; left before the ranks start, where modules
        were asked for."""
        return self.path / "modules.txt"

    @property
    def progress_file(self) -> Path:
        """Where rank 0 is just now, for the bar: one line, overwritten in place."""
        return self.path / "progress.json"

    @property
    def port_taken(self) -> Path:
        """Left by rank 0 when the ports of this try are in use."""
        return self.path / "port-taken"

    @property
    def again_file(self) -> Path:
        """Left by rank 0 when the ranks stopped in good order: one word, why."""
        return self.path / "again"

    @property
    def stop_file(self) -> Path:
        """Left by `rampup cancel --save`: stop after this step."""
        return self.path / "stop"

    @property
    def listens_file(self) -> Path:
        """Left by rank 0 when its loop begins to look whether it is to stop."""
        return self.path / "listens"

    @property
    def next(self) -> "AttemptDir":
        """The attempt after this one, if there will be one."""
        return AttemptDir(self.path.with_name(str(self.number + 1)))

    def again(self) -> str:
        """Why the ranks stopped in good order before they were done: timeout, preempt, stop or
        asked; or empty."""
        try:
            return self.again_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def modules(self) -> list[str]:
        try:
            return self.modules_file.read_text(encoding="utf-8", errors="replace").split()
        except OSError:
            return []

    def rank_log(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.log"

    def error_file(self, rank: int) -> Path:
        return self.path / f"error-{rank}.json"

    def profile_file(self) -> Path | None:
        """Where the time of a LightningModule went, if `profiler` was set."""
        return next(iter(sorted(self.path.glob("*profile*.txt"))), None)

    def system_file(self, node: str) -> Path:
        return self.path / f"system-{node}.jsonl"

    @property
    def facts(self) -> Record:
        return drop_foreign(read_json(self.facts_file), shapes.ATTEMPT)

    def metrics(self) -> list[Record]:
        return list(read_jsonl(self.metrics_file))

    def last_metrics(self) -> Record:
        """The last values, from the end of the file: quick for any number of rows."""
        last: Record = {}
        for row in read_jsonl(self.metrics_file, tail_bytes=TAIL_BYTES):
            last.update(row)
        return last

    def evaluation(self) -> Record:
        return drop_foreign(read_json(self.evaluation_file), shapes.EVALUATION)

    def events(self) -> list[Record]:
        return [drop_foreign(row, shapes.EVENT) for row in read_jsonl(self.events_file)]

    def event(self, what: str) -> Record | None:
        found = [row for row in self.events() if row.get("what") == what]
        return found[-1] if found else None

    def resumed_at(self) -> int:
        """The step where this attempt took up; 0 when it began anew."""
        resumed = self.event("resumed") if self.number > 1 else None
        return int(resumed.get("step", 0)) if resumed else 0

    def samples(self) -> dict[str, list[Record]]:
        """What was seen of CPU and memory, for each node."""
        before, after = self.system_file("*").name.split("*")
        return {
            path.name[len(before) : -len(after)]: [
                drop_foreign(row, shapes.SAMPLE) for row in read_jsonl(path)
            ]
            for path in sorted(self.path.glob(f"{before}*{after}"))
        }

    def errors(self) -> list[Record]:
        """What the ranks left when they failed, the earliest first."""
        found = [
            drop_foreign(read_json(path), shapes.ERROR) for path in self.path.glob("error-*.json")
        ]
        return sorted((error for error in found if error), key=lambda error: error.get("t", 0.0))

    def wordless(self) -> bool:
        """Whether it had begun, for it left files, but what its launcher wrote down is torn or
        lost."""
        return bool(os.listdir(self.path)) and not self.facts

    def silent_s(self) -> float:
        """Seconds since anything was written here."""
        newest = max((entry.stat().st_mtime for entry in os.scandir(self.path)), default=0.0)
        return time.time() - newest
