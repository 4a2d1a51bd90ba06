"""What `run` shows on a terminal: from the first second on, and never wider than the terminal."""

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, Terminal
from pages import ROOT

from rampup.cli import width
from rampup.cli.screen import Progress

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
    rows = [line.split()[0] for line in seen.lines if re.match(r" *\d+(/30)? ", line)]
    if epoch:
        assert 3 <= len(rows) < 30 and len(set(rows)) == len(rows), "an epoch is shown once"
        assert (rows[0], rows[-1]) == ("1/30", "30/30")


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


LONG = "a-name-of-sixty-characters-" + "x" * 33
WIDE = """
import time, rampup
run = rampup.init(epochs=9, {setting}=0.1, 設定の名前="値" * 40, words="w" * 90)
for epoch in range(1, 10):
    time.sleep(0.15)
    run.log({{"epoch": epoch, "recall_" + "x" * 53: 1 / epoch, "検証データの正解率" * 6: 0.5,
             "val_accuracy_" + "y" * 47: 0.5, "loss": 1 / epoch}})
{end}
"""
FAILS = 'raise ValueError("z" * 70 + " 学習が失敗しました" * 12)'
WHOLE = ("next:", "  or:", "report:", "directory:", "command:")
"""Lines with paths and commands, which people copy: they are never folded or cut."""


def find_wrapped(seen: Terminal, columns: int) -> list[str]:
    """Return the lines that a terminal would wrap."""
    longer = [line for line in seen.drawn if width.measure(line) > columns]
    return [line for line in longer if not (line.startswith(WHOLE) and "/" in line)]


@pytest.mark.parametrize("columns", [80, 140])
def test_no_row_wraps(cli: Cli, columns: int) -> None:
    """Names and metrics of sixty characters and wide letters, in every verb that prints rows."""

    def see(*words: str, check: int = 0) -> Any:
        seen = cli.on_terminal(*words, columns=columns, check=check)
        assert find_wrapped(seen, columns) == []
        return seen

    setting = "s" * 60
    good = cli.script(WIDE.format(setting=setting, end=""), "good.py")
    bad = cli.script(WIDE.format(setting=setting, end=f"run.finish(); {FAILS}"), "bad.py")
    seen = see("run", "--name", LONG, "--", "python", good)
    assert any(re.match(r"epoch \d/9 [━─]+ ", line) for line in seen.drawn), "the bar"
    assert any(re.match(" *9/9 ", line) for line in seen.lines), "the table"
    cli.on_terminal("run", "--name", LONG, "--", "python", bad, columns=columns, check=100)
    see("list")
    see("list", "--columns", f"name,{setting},設定の名前,words,epochs,loss,took,age,ranks")
    see("show")
    see("show", "--all")
    see("show", "--history")
    assert any("zzz" in line for line in see("why").lines)
    seen = see("sweep", f"{setting}=1,2", "--name", LONG, "--", "python", good, f"{{{setting}}}")
    assert any(re.match(r"[01] of 2 ended  epoch \d/9 ", line) for line in seen.drawn), "it moves"
    see("list", "--study", LONG[:40])


def test_a_watched_list_is_drawn_again_until_ctrl_c(cli: Cli) -> None:
    cli("run", "--name", "first", "--", "true")
    twice = "\x1b[J\x1b[H"  # the end of one page and the beginning of the next
    seen = cli.on_terminal("list", "--watch", ctrl_c_after=twice, check=130)
    assert seen.text.count("first") == 2 and seen.text.startswith("\x1b[2J")
    assert "Traceback" not in seen.text


def shape(bar: str) -> list[str]:
    return re.sub(r"-:--|[\d.,:%]+|[━─]+", "#", bar).split()


def test_the_readme_shows_what_a_run_prints(cli: Cli, mnist: Path) -> None:
    """The first sample of the README is what a terminal shows, but for its numbers."""
    blocks = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    at = next(index for index, text in enumerate(blocks) if text.startswith("$ rampup run mnist"))
    shown = [*blocks[at].splitlines(), *blocks[at + 1].splitlines()]
    del cli.env["RAMPUP_RUNS"]
    seen = cli.on_terminal(*shown[0].split()[2:])
    header = next(line for line in seen.lines if "train_loss" in line)
    assert header.split() == shown[2].split()
    ends = ("completed", "last:", "best:", "time:", "checkpoints:", "report:", "next:", "  or:")
    assert [line.split()[0] for line in seen.lines if line.startswith(ends)] == [
        line.split()[0] for line in shown if line.startswith(ends)
    ]
    (bar,) = (line for line in shown if "━" in line)
    beat = {"epoch": 3, "epochs": 3, "step": 1419, "steps": 1650, "t": 1.0}
    drawn = Progress().format({**beat, "train_loss": 0.08042, "samples_s": 48350.0}, 79)
    assert shape(bar) == shape(drawn)
