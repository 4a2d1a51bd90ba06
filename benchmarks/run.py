"""`make bench`: every line as a table on stdout and as bench.json; fails when a bound does not hold."""

import json
import sys
from itertools import chain
from pathlib import Path

from msgspec import to_builtins

from benchmarks import control, slurm, training


def main() -> int:
    found = []
    print(f"{'':36} {'ours':>9} {'theirs':>9} {'ratio':>7}  {'spread':14} bound")
    for line in chain(control.lines(), training.lines(), slurm.lines()):
        found.append(line)
        mark = "ok" if line.holds else "TOO SLOW"
        times = f"{line.ours_s:8.3f}s {line.theirs_s:8.3f}s"
        print(f"{line.name:36} {times} {line.ratio:7.2f}  {line.spread:14} {line.bound} {mark}", flush=True)
    Path("bench.json").write_text(json.dumps(to_builtins(found), indent=1))
    return 0 if all(line.holds for line in found) else 1


if __name__ == "__main__":
    sys.exit(main())
