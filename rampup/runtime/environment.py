"""The environment of the ranks on this machine: what the lines of software.py leave behind in a
shell.

Called by the supervisor once per attempt, before the first rank. The shell ends before the ranks
begin, so that nothing stands between them and a signal.
"""

import os
import subprocess

import msgspec

from rampup.core import processes
from rampup.core.software import Software, setup
from rampup.errors import RampupError
from rampup.rundir.files import AttemptDir
from rampup.rundir.records import Record

WITHIN_S = 300.0
SHELL = """
exec 3>&1 >&2
set -uo pipefail
attempt_dir=$1
host=$2
not_ready() {{
  echo "$1" >&2
  exit 1
}}
{lines}
env -0 >&3
"""


def environment_of(config: Record, attempt: AttemptDir) -> dict[str, str]:
    """The variables that ranks get; a RampupError tells what is missing."""
    lines = setup(msgspec.convert(config.get("environment", {}), Software))
    if not lines:
        return dict(os.environ)
    argv = ["bash", "-c", SHELL.format(lines=lines), "rampup", str(attempt.path), processes.host()]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S)
    except subprocess.TimeoutExpired:
        raise RampupError(
            f"the environment of the run was not ready within {WITHIN_S:.0f} s"
        ) from None
    words = done.stderr.decode(errors="replace").strip()
    if words:
        print(words, flush=True)
    if done.returncode != 0:
        raise RampupError(
            words.splitlines()[-1]
            if words
            else f"its environment ended bash with {done.returncode}"
        )
    pairs = (os.fsdecode(pair).partition("=") for pair in done.stdout.split(b"\0") if pair)
    return {name: value for name, _, value in pairs}
