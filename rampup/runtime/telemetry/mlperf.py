"""MLPerf logging, for any recipe that describes a benchmark: what happened, and when.

The loop of an engine says where it is, on every rank; only rank 0 writes. Each event goes into
events.jsonl, from which `rampup export` can write the log again, and as a line into the attempt's
mlperf.log. That file begins with the log of the attempts before, so the newest one is the log of
the whole run.
"""

import math
from collections.abc import Mapping
from typing import Any

from rampup.core import hardware
from rampup.core.mlperf import Benchmark, format_line
from rampup.rundir import mlperf
from rampup.rundir.files import RunDir
from rampup.runtime.context import RankContext
from rampup.runtime.storage import GrowingFile
from rampup.runtime.telemetry.metrics import NoEvents


class NoMlperf:
    """The log of every rank but the first, and of a recipe without a benchmark: nothing."""

    def begin(self, benchmark: Benchmark, constants: Mapping[str, Any], step: int) -> None:
        """Write the head of the log, or continue the log of the attempts before.

        `constants` are those that the engine knows; the benchmark's own come after them.
        """

    def start(self, key: str, step: int, epoch: int | None = None) -> None:
        """Write the start of something."""

    def end(self, key: str, step: int, epoch: int | None = None, status: str = "") -> None:
        """Write the end of something."""

    def point(self, key: str, value: Any, step: int, epoch: int | None = None) -> None:
        """Write a value."""

    def results(self, values: Mapping[str, Any], step: int, epoch: int) -> None:
        """Write the benchmark's results from the metrics of an epoch."""

    def close(self) -> None:
        """Nothing can be written afterwards."""


class MlperfLog(NoMlperf):
    """Rank 0's log. Until `begin` is called it writes nothing."""

    def __init__(self, run: RunDir, events: NoEvents, context: RankContext) -> None:
        self._run, self._events, self._context = run, events, context
        self._benchmark: Benchmark | None = None
        self._file: GrowingFile | None = None
        self._begun: set[int] = set()
        """Epochs that began in an earlier attempt."""

    def begin(self, benchmark: Benchmark, constants: Mapping[str, Any], step: int) -> None:
        self._benchmark = benchmark
        self._file = GrowingFile(self._run.attempt(self._context.attempt).mlperf_file)
        earlier = mlperf.read_events(self._run, before=self._context.attempt)
        if earlier:
            kept = mlperf.continue_log(earlier, step, [])
            epochs = (mlperf.epoch_of(row) for row in kept if row["key"] == "epoch_start")
            self._begun = {epoch for epoch in epochs if isinstance(epoch, int)}
            self._append(mlperf.write_log(kept))
            self.point("resumed", self._context.attempt, step)
            return
        self._write_head(benchmark, constants)

    def _write_head(self, benchmark: Benchmark, constants: Mapping[str, Any]) -> None:
        nodes = constants.get("number_of_nodes", 1)
        about = {
            "submission_benchmark": benchmark.name,
            "submission_org": benchmark.organisation,
            "submission_division": benchmark.division,
            "submission_status": benchmark.status,
            "submission_platform": benchmark.platform or f"{nodes}x{hardware.cpu_model()}",
        }
        began = self._context.started
        for key, value in about.items():
            self._write("point", key, 0, value=value, t=began)
        self._write("start", "init_start", 0, t=began)
        # nobody but root can clear the caches of a machine, so nobody has
        self.point("cache_clear", False, 0)
        for key, value in {**constants, **benchmark.constants}.items():
            self.point(key, value, 0)
        self.end("init_stop", 0)
        self.start("run_start", 0)

    def start(self, key: str, step: int, epoch: int | None = None) -> None:
        if key == "epoch_start" and epoch in self._begun:
            return
        self._write("start", key, step, epoch)

    def end(self, key: str, step: int, epoch: int | None = None, status: str = "") -> None:
        self._write("end", key, step, epoch, status=status)

    def point(self, key: str, value: Any, step: int, epoch: int | None = None) -> None:
        self._write("point", key, step, epoch, value=value)

    def results(self, values: Mapping[str, Any], step: int, epoch: int) -> None:
        for key, name in self._benchmark.results.items() if self._benchmark else ():
            if name in values:
                self.point(key, values[name], step, epoch)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(
        self,
        kind: str,
        key: str,
        step: int,
        epoch: int | None = None,
        *,
        value: Any = None,
        status: str = "",
        t: float | None = None,
    ) -> None:
        if self._benchmark is None:
            return
        metadata: dict[str, Any] = {"step_num": step}
        if epoch is not None:
            metadata["epoch_num"] = epoch
        if status:
            metadata["status"] = status
        if isinstance(value, float) and not math.isfinite(value):
            value = None  # JSON has no NaN
        facts = {"kind": kind, "key": key, "step": step, "value": value, "metadata": metadata}
        row = self._events.write(mlperf.EVENT, **facts, **({} if t is None else {"t": t}))
        self._append(f"{format_line(row)}\n")

    def _append(self, text: str) -> None:
        if self._file is not None:
            self._file.append(text.encode())
