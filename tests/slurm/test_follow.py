"""`--follow` on a terminal: the wait in the queue, the start and the training are seen there as on
one machine."""

import re

from conftest import Cli

from rampup.cli import width


def test_the_queue_the_start_and_the_bar(cli: Cli, sandbox) -> None:
    """The job waits until another one ends, and then trains epochs of a few milliseconds."""
    holder = sandbox.sbatch("sleep 6", "--nodes=4", "--exclusive")
    sandbox.wait_for(lambda: sandbox.state(holder) == "RUNNING", "the nodes are taken")
    words = ("digits", "epochs=150", "--tasks-per-node", "2", "--on", sandbox.name, "--follow")
    seen = cli.on_terminal("run", *words)
    assert any(line.startswith("pending (") for line in seen.drawn), seen.drawn
    starts = ("starting 2 ranks", "importing ", "reading ", "starting")
    assert any(line.startswith(starts) for line in seen.drawn), seen.drawn
    bars = [line for line in seen.drawn if "%" in line and "left" in line]
    assert bars and all(re.match(r"epoch \d+/150 [━─]+ ", line) for line in bars), bars
    rows = [line for line in seen.lines if re.match(r" *\d+/150 ", line)]
    assert 2 <= len(rows) < 30, "epochs of milliseconds are thinned"
    whole = [
        line
        for line in seen.drawn
        if "/" in line and line.startswith(("run ", "report:", "next:", "  or:"))
    ]
    assert max(width.measure(line) for line in seen.drawn if line not in whole) <= 80
