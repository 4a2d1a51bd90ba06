"""What `run` shows on a terminal: from the first second on, and never wider than the terminal."""

import re

import pytest
from conftest import Cli

from rampup.cli import width

SLOW = """
import time, rampup
run = rampup.init({})
for step in range(1, 31):
    time.sleep(0.1)
    run.log(step=step, {}train_loss=1 / step)
"""


@pytest.mark.parametrize(
    ("length", "epoch", "shown"),
    [
        ("steps=30", "", r"step \d+/30 [━─]+ +\d+%  loss .*left "),
        ("epochs=30", "epoch=step, ", r"epoch \d+/30 [━─]+ +\d+%  loss .*left "),
        ("", "", r"step \d+  loss .*steps/s$"),
    ],
)
def test_your_own_loop_is_seen_from_its_first_row_on(
    cli: Cli, length: str, epoch: str, shown: str
) -> None:
    script = cli.script(SLOW.format(length, epoch))
    seen = cli.on_terminal("run", "--", "python", script)
    lines = [line for line in seen.drawn if re.match(shown, line)]
    assert len(lines) >= 2, seen.drawn
    assert len(set(lines)) == len(lines), "it moves"
    heads = [index for index, line in enumerate(seen.drawn) if "train_loss" in line]
    assert heads and heads[0] < seen.drawn.index(lines[-1]), "the first row came early"


def test_a_log_gets_the_first_row_and_no_flood(cli: Cli) -> None:
    script = cli.script(SLOW.format("steps=30", ""))
    done = cli("run", "--", "python", script)
    rows = [line for line in done.stdout.splitlines() if line.startswith("step=")]
    assert [row.split()[0] for row in rows] == ["step=1", "step=30"]
    assert "\r" not in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr


def test_fast_epochs_are_thinned_above_a_bar_with_a_label(cli: Cli) -> None:
    seen = cli.on_terminal("run", "digits", "epochs=150")
    bars = [line for line in seen.drawn if "%" in line and "left" in line]
    assert all(re.match(r"epoch \d+/150 [━─]+ ", line) for line in bars), bars
    rows = [line for line in seen.lines if re.match(r" *\d+/150 ", line)]
    assert 2 <= len(rows) < 30, rows
    assert rows[0].split()[0] == "1/150" and rows[-1].split()[0] == "150/150"
    assert any(line.startswith(("importing ", "reading ", "starting")) for line in seen.drawn)
    # paths and commands are there to be copied: nothing folds or cuts them
    folded = [line for line in seen.drawn if "/runs/" not in line and not line.startswith("next:")]
    assert max(map(width.measure, folded)) <= 80
