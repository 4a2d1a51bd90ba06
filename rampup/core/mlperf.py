"""MLPerf's benchmarks as recipes describe them, and the lines of a log that MLPerf's tools read.

A recipe returns a Benchmark; the job side records what happens (runtime/telemetry/mlperf.py), and
rundir/mlperf.py puts the attempts of a run together. Nothing here reads or writes a file.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

TOKEN = ":::MLLOG "
KINDS = {"start": "INTERVAL_START", "end": "INTERVAL_END", "point": "POINT_IN_TIME"}
DIVISIONS = ("open", "closed")
STATUSES = ("onprem", "cloud", "preview", "research")


class Benchmark(Struct, frozen=True, kw_only=True):
    """What a recipe says about its benchmark of MLPerf."""

    name: str
    """As MLPerf calls it: deepcam, cosmoflow, ..."""
    quality: float
    """The value of the monitored metric that the rules ask for. `target` takes its place."""
    results: Mapping[str, str]
    """Keys of the log that are written after each validation, and the metric that each one is."""
    constants: Mapping[str, Any] = {}
    """Further keys of the log that are written once, before the training starts."""
    division: Literal["open", "closed"] = "open"
    organisation: str = "rampup"
    platform: str = ""
    """The machine; empty for the number of nodes and their processor."""
    status: str = "onprem"


def format_line(event: Mapping[str, Any]) -> str:
    """Return an event as MLPerf's tools read it. Its time is in seconds, theirs in milliseconds."""
    line = {
        "namespace": "",
        "time_ms": int(event["t"] * 1000),
        "event_type": KINDS[event["kind"]],
        "key": event["key"],
        "value": event.get("value"),
        "metadata": {"file": "rampup", "lineno": 1, **(event.get("metadata") or {})},
    }
    return TOKEN + json.dumps(line)
