"""The control side: how long a person waits for the command line to answer."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.many_runs import id_of, many_runs, steps, write_run
from benchmarks.measure import Line, absolute, command, compare

RAMPUP = str(Path(sys.executable).with_name("rampup"))
RUNS = 10_000
ROWS = 1_000_000


def lines() -> Iterator[Line]:
    python = command([sys.executable, "-c", "pass"])
    yield compare(
        "`rampup --help` / `python -c pass`", command([RAMPUP, "--help"]), python, 10, repeats=15
    )
    with many_runs(20) as env:
        yield compare(
            "`rampup list` / `python -c pass`",
            command([RAMPUP, "list"], env=env),
            python,
            10,
            repeats=15,
        )
    yield from among_thousands()
    yield from with_a_million_rows()


def among_thousands() -> Iterator[Line]:
    one = id_of(RUNS // 2 + 5)
    with many_runs(RUNS) as env, tempfile.TemporaryDirectory() as folder:
        report = [RAMPUP, "report", one, "--out", f"{folder}/report.html"]
        yield absolute(f"`rampup list`, {RUNS:,} runs", command([RAMPUP, "list"], env=env), 0.5)
        yield absolute(
            f"`rampup list --all`, {RUNS:,} runs", command([RAMPUP, "list", "--all"], env=env), 1.5
        )
        yield absolute(
            f"`rampup show` of one in {RUNS:,}", command([RAMPUP, "show", one], env=env), 1
        )
        yield absolute(f"`rampup report` of one in {RUNS:,}", command(report, env=env), 5)


def with_a_million_rows() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RAMPUP_RUNS": f"{folder}/runs", "XDG_STATE_HOME": folder}
        write_run(Path(env["RAMPUP_RUNS"]), 5, steps(ROWS))
        argv = [RAMPUP, "report", "--out", f"{folder}/report.html"]
        yield absolute(f"`rampup report`, {ROWS:,} rows", command(argv, env=env), 10)
