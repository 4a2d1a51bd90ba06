"""The MLPerf log of a run, written again from its directory; and what the official checker says.

A `Tracker` of `rampup export`. All attempts become one log, with the time between them. A run that
ended without reaching its last step gets an end with the status aborted. `rampup show` asks `check`
whether MLPerf's own checker accepts the log; that is the package mlperf-logging, run as a program.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from rampup.core.metrics import get_step
from rampup.errors import Refused
from rampup.export.tracker import Sent, Source, Target
from rampup.rundir import mlperf
from rampup.rundir.files import RunDir
from rampup.rundir.records import Record, write_own_file, write_user_file
from rampup.rundir.trust import refuse_foreign

PACKAGES: tuple[str, ...] = ()
OPTIONS: tuple[str, ...] = ("out",)
CHANGED = ""
CHECKER = "mlperf_logging"
USAGE, RULES = "hpc", "3.0.0"
CHECK_WITHIN_S = 60.0
COMPLAINTS = re.compile(
    r"CHECK for '(?P<key>\w+)' failed|(?P<required>Required [^\n]*)"
    r"|Failed checks for (?P<never>\w+) : (?P<test>[^\n]*)|(?P<lines>Log lines had parsing errors)"
)


class Verdict(Struct):
    """What the official checker says."""

    accepted: bool | None
    """None where it can't be asked."""
    why: list[str]
    division: str
    """As the log says."""


def destination(target: Target) -> str:
    return "mlperf.log in each run" if target.out is None else str(target.out.absolute())


def next_command(where: str, sent: Sequence[Sent]) -> str:
    log = shlex.quote(sent[0].where)
    checker = f"python -m {CHECKER}.compliance_checker --usage {USAGE} --ruleset {RULES}"
    return f"{checker} --log_output /dev/null {log}"


def export(sources: Sequence[Source], target: Target) -> list[Sent]:
    logs = [make_log(source.run, source.finished) for source in sources]
    for source, events in zip(sources, logs, strict=True):
        if not events:
            raise Refused(
                f"run {source.id} has no events of MLPerf: its recipe describes no benchmark",
                "rampup run deepcam has some",
            )
    sent = []
    for number, (source, events) in enumerate(zip(sources, logs, strict=True)):
        path = _choose_file(source.run, target.out, number, len(sources))
        new = not path.exists()
        write = write_own_file if target.out is None else write_user_file
        write(path, mlperf.write_log(events).encode())
        sent.append(Sent(source.id, str(path), len(source.rows), len(events), new))
    return sent


def _choose_file(run: RunDir, out: Path | None, number: int, runs: int) -> Path:
    """Return where a log goes. The tool that compares several runs reads result_*.txt."""
    if out is None:
        refuse_foreign(run, "write into it: --out FILE for a copy")
        return run.mlperf_file
    if runs == 1:
        return out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    return out.absolute() / f"result_{number}.txt"


def make_log(run: RunDir, has_ended: bool) -> list[Record]:
    """Return the events of a run as one log, complete where the run has ended."""
    events = mlperf.read_events(run)
    if not events or mlperf.is_complete(events) or not has_ended:
        return events
    attempt = run.last_attempt()
    ended = attempt.facts.get("ended", 0.0) if attempt else 0.0
    reached = max((get_step(row) or 0 for row in run.history()), default=0)
    last = {**events[-1], "step": max(reached, events[-1]["step"])}
    return [*events, mlperf.make_abort([*events[:-1], last], ended)]


def check(run: RunDir, has_ended: bool) -> Verdict | None:
    """Return what the official checker says of a run's log; None for a run that has none."""
    events = make_log(run, has_ended)
    if not events:
        return None
    found = [row.get("value") for row in events if row["key"] == "submission_division"]
    division = str(found[0]) if found else "?"
    if not mlperf.is_complete(events):
        return Verdict(None, ["the run has not ended"], division)
    if importlib.util.find_spec(CHECKER) is None:
        return Verdict(None, ["pip install 'rampup[mlperf]'"], division)
    accepted, why = check_log(mlperf.write_log(events))
    return Verdict(accepted, why, division)


def check_log(log: str) -> tuple[bool | None, list[str]]:
    """Return whether the official checker accepts a log, and why not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result_0.txt")
        path.write_text(log, encoding="utf-8")
        words = [sys.executable, "-m", f"{CHECKER}.compliance_checker", "--usage", USAGE]
        words += ["--ruleset", RULES, "--log_output", str(Path(folder, "checker.log")), str(path)]
        try:
            done = subprocess.run(
                words, cwd=folder, capture_output=True, text=True, timeout=CHECK_WITHIN_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, [f"the checker did not answer: {error}"]
    if done.returncode == 0:
        return True, []
    return False, read_complaints(done.stdout + done.stderr)


def read_complaints(output: str) -> list[str]:
    """Return the complaints of the checker, each in a few words."""
    found = []
    for match in COMPLAINTS.finditer(output):
        if match["key"]:
            test = output[match.end() :].partition("failed test: ")[2].partition("\n")[0]
            found.append(f"{match['key']}: {_plain(test)}")
        elif match["never"]:
            found.append(f"{match['never']} is never as it must be: {_plain(match['test'])}")
        else:
            found.append(match["required"] or match["lines"])
    return list(dict.fromkeys(found)) or [output.strip().rpartition("\n")[2]]


def _plain(test: str) -> str:
    return test.strip().strip('"').strip().replace("v['value']", "value")
