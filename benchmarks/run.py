"""`make bench`: every line as a table on stdout and in bench.json; exits with 1 when a bound does not hold.

python -m benchmarks.run                      all, in about twelve minutes
python -m benchmarks.run control training     these parts alone
python -m benchmarks.run --docs               and keep the table and the profile in docs/performance.md
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

from msgspec import to_builtins

from benchmarks import checkpoints, control, slurm, training, watching
from benchmarks.measure import Line
from rampup.engines import cpu

DOCS = Path("docs/performance.md")
JSON = Path("bench.json")
Profiles = dict[str, dict[str, float]]
PARTS: dict[str, Callable[[Profiles], Iterator[Line]]] = {
    "control": lambda profiles: control.lines(),
    "training": lambda profiles: training.lines(),
    "checkpoints": lambda profiles: checkpoints.lines(),
    "watching": watching.lines,
    "slurm": lambda profiles: slurm.lines(),
}


def machine() -> dict[str, Any]:
    return {
        "cpu": cpu.model_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "date": time.strftime("%Y-%m-%d"),
    }


def cells(line: Line) -> tuple[str, ...]:
    theirs = "" if line.theirs_s is None else f"{line.theirs_s:.3f} s"
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}" if line.ratio >= 0.1 else f"{line.ratio:.4f}"
    return line.name, f"{line.ours_s:.3f} s", theirs, ratio, line.spread, line.bound, "yes" if line.holds else "**no**"


HEAD = ("line", "ours", "theirs", "ratio", "spread", "bound", "holds")


def markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))


def tables(about: dict[str, Any], lines: list[Line], profiles: Profiles) -> str:
    words = f"{about['cores']} cores, {about['cpu']}, no GPU, Python {about['python']}, torch {about['torch']}"
    text = f"Measured on {about['date']}: {words}.\n\n" + markdown(HEAD, [cells(line) for line in lines])
    for name, parts in profiles.items():
        rows = [(part, f"{value:.1f}", f"{100 * value / parts['whole']:.1f} %") for part, value in parts.items()]
        text += "\n\n" + markdown((name, "µs", "share"), rows)
    return text


def keep_in_docs(text: str) -> None:
    before, begin, rest = DOCS.read_text(encoding="utf-8").partition("<!-- measured -->\n")
    end = rest.partition("<!-- /measured -->")
    DOCS.write_text(f"{before}{begin}{text}\n{end[1]}{end[2]}", encoding="utf-8")


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
    told = {"machine": about, "lines": to_builtins(found), "profiles": profiles}
    JSON.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if "--docs" in arguments:
        keep_in_docs(tables(about, found, profiles))
    return 0 if all(line.holds for line in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
