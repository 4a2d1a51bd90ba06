"""`rampup wait`: until a run ends. The exit code tells how: 0, 100 failed, 101 goes on, 103 cancelled, 104 timed out."""

import time

import click

from rampup import runs
from rampup.cli.arguments import json_option, run_argument
from rampup.cli.ending import tell_end
from rampup.errors import NotFinished

POLL_S = 0.2


@click.command()
@run_argument
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after so long, with exit code 101.")
@json_option
def command(run: str | None, timeout: float | None, as_json: bool) -> int:
    """Wait until a run ends; the exit code tells how. RUN is an id or a prefix of one (default: the latest)."""
    found = runs.find(run)
    deadline = None if timeout is None else time.monotonic() + timeout
    while not found.state().ended:
        if deadline is not None and time.monotonic() >= deadline:
            raise NotFinished(f"run {found.id} is still {found.state().name}", f"rampup logs -f {found.id}")
        time.sleep(POLL_S)
    return tell_end(found, None, as_json)
