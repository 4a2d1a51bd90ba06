"""`make bench`: every line as a table on stdout and in bench.json; exits with 1 when a bound does
not hold.

python -m benchmarks.run                      all, in about half an hour
python -m benchmarks.run control training     these parts alone; in bench.json they replace what was there of them
python -m benchmarks.run PART --docs          and put these lines into the table of docs/performance.md
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec import convert, to_builtins

from benchmarks import (
    checkpoints,
    control,
    cosmoflow,
    deepcam,
    first_step,
    formats,
    images,
    keras,
    launch,
    lightning,
    slurm,
    spark,
    streaming,
    training,
    watching,
)
from benchmarks.measure import Line
from rampup.core import hardware

DOCS = Path("docs/performance.md")
JSON = Path("bench.json")
Profiles = dict[str, dict[str, float]]
PARTS: dict[str, Callable[[Profiles], Iterator[Line]]] = {
    "control": lambda profiles: control.lines(),
    "start": lambda profiles: first_step.lines(),
    "training": lambda profiles: training.lines(),
    "keras": lambda profiles: keras.lines(),
    "cosmoflow": lambda profiles: cosmoflow.lines(),
    "deepcam": lambda profiles: deepcam.lines(),
    "images": lambda profiles: images.lines(),
    "streaming": lambda profiles: formats.lines(),
    "waiting": lambda profiles: streaming.lines(),
    "lightning": lambda profiles: lightning.lines(),
    "checkpoints": lambda profiles: checkpoints.lines(),
    "watching": watching.lines,
    "launch": lambda profiles: launch.lines(),
    "spark": lambda profiles: spark.lines(),
    "slurm": lambda profiles: slurm.lines(),
}


def machine() -> dict[str, Any]:
    return {
        "cpu": hardware.cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "date": time.strftime("%Y-%m-%d"),
    }


def cells(line: Line) -> tuple[str, ...]:
    ours, theirs = (
        "" if value is None else shown(value, line.unit) for value in (line.ours_s, line.theirs_s)
    )
    ratio = (
        ""
        if line.ratio is None
        else f"{line.ratio:.2f}"
        if line.ratio >= 0.1
        else f"{line.ratio:.4f}"
    )
    return (
        line.name,
        ours,
        theirs,
        ratio,
        line.spread,
        line.bound,
        "yes" if line.holds else "**no**",
    )


def shown(value: float, unit: str) -> str:
    return f"{value:.3f}{unit}" if unit else f"{value:g}"


HEAD = ("line", "ours", "theirs", "ratio", "spread", "bound", "holds")


def markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))


def keep_in_docs(about: dict[str, Any], lines: Sequence[Line], profiles: Profiles) -> None:
    """Put these lines into the table of the page. It keeps its other lines, each with its date."""
    before, begin, rest = DOCS.read_text(encoding="utf-8").partition("<!-- measured -->\n")
    old, end, after = rest.partition("<!-- /measured -->")
    parts = old.strip("\n").split("\n\n")
    rows = read_rows(parts[1]) if len(parts) > 1 else {}
    for line in lines:
        rows[line.name] = (*cells(line), about["date"])
    words = f"{about['cores']} cores, {about['cpu']}, no GPU, Python {about['python']}"
    machine = f"Measured on {words}, torch {about['torch']}; the last column says when."
    tables = [machine, markdown((*HEAD, "measured"), list(rows.values()))]
    tables += write_profiles(profiles) or parts[2:]
    text = "\n\n".join(tables)
    DOCS.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")


def read_rows(table: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of a table by their first cell."""
    rows = {}
    for line in table.splitlines()[2:]:
        found = tuple(cell.strip() for cell in line.strip().strip("|").split(" | "))
        rows[found[0]] = found
    return rows


def write_profiles(profiles: Profiles) -> list[str]:
    tables = []
    for name, parts in profiles.items():
        rows = [
            (part, f"{value:.1f}", f"{100 * value / parts['whole']:.1f} %")
            for part, value in parts.items()
        ]
        tables.append(markdown((name, "µs", "share"), rows))
    return tables


def main(arguments: list[str]) -> int:
    parts = [name for name in arguments if name in PARTS] or list(PARTS)
    found: list[Line] = []
    profiles: Profiles = {}
    print("{:36} {:>9} {:>9} {:>7}  {:16} {:14} {}".format(*HEAD), flush=True)
    for part in parts:
        for line in PARTS[part](profiles):
            found.append(line)
            print("{:36} {:>9} {:>9} {:>7}  {:16} {:14} {}".format(*cells(line)), flush=True)
    for name, times in profiles.items():
        print(f"\n{name}")
        for step, value in times.items():
            print(f"{step:36} {value:9.1f}")
    about = machine()
    measured = profiles
    kept, profiles = (found, profiles) if parts == list(PARTS) else among_known(found, profiles)
    told = {"machine": about, "lines": to_builtins(kept), "profiles": profiles}
    JSON.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if "--docs" in arguments:
        keep_in_docs(about, found, measured)
    return 0 if all(line.holds for line in found) else 1


def among_known(found: list[Line], profiles: Profiles) -> tuple[list[Line], Profiles]:
    """All lines: those measured now in the places of the old ones, new ones at the end."""
    before = (
        json.loads(JSON.read_text(encoding="utf-8"))
        if JSON.exists()
        else {"lines": [], "profiles": {}}
    )
    now = {line.name: line for line in found}
    old = [convert(line, Line) for line in before["lines"]]
    kept = [now.pop(line.name, line) for line in old]
    return [*kept, *now.values()], {**before["profiles"], **profiles}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
