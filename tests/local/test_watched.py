"""What programs write anyway becomes the metrics of their runs: row by row what they printed, also
after a restart, and only what their own processes wrote."""

import ast
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampup.rundir.files import RunDir

FOREIGN = Path(__file__).parents[1] / "foreign"
Row = tuple[int, dict[str, float]]
PATTERNS = (r"step=step +(\d+)", r"loss=loss (\S+)", r"acc: (?P<acc>[\d.]+)%")


def read_trainer(text: str) -> list[Row]:
    """The dictionaries that were printed, each with the step of the bar below it."""
    found = []
    for line, done in re.findall(r"(\{'.*\})\n\r[^\n]*?(\d+)/12 ", text):
        printed = ast.literal_eval(line)
        found.append((int(done), {key: float(value) for key, value in printed.items()}))
    return found


def read_mllog(text: str) -> list[Row]:
    found = []
    for line in re.findall(r":::MLLOG (\{.*\})\n", text):
        event = json.loads(line)
        if "step_num" in event["metadata"]:
            place = event["metadata"]
            row = {event["key"]: event["value"], "epoch": place["epoch_num"]}
            found.append((place["step_num"], row))
    return found


def read_scalars(text: str) -> list[Row]:
    return [
        (int(step), {name: float(value)})
        for name, step, value in re.findall(r"(Loss/train) (\d+) (\S+)", text)
    ]


def read_printed(text: str) -> list[Row]:
    return [
        (int(step), {"loss": float(loss), "acc": float(acc)})
        for step, loss, acc in re.findall(r"\[step +(\d+)\] loss (\S+), acc: ([\d.]+)%", text)
    ]


def rows_of(run: RunDir) -> list[Row]:
    rows = run.history()
    return [
        (row["step"], {key: it for key, it in row.items() if key not in ("step", "t")})
        for row in rows
    ]


@pytest.mark.parametrize(
    ("program", "options", "read"),
    [
        ("transformers_log.py", (), read_trainer),
        ("mllog.py", (), read_mllog),
        ("tensorboard_writer.py", (), read_scalars),
        ("printing.py", tuple(f"--metric={one}" for one in PATTERNS), read_printed),
    ],
)
def test_rows_are_what_was_printed_also_after_a_restart(
    cli: Any, program: str, options: tuple[str, ...], read: Callable[[str], list[Row]]
) -> None:
    """Attempt 1 ends at step 6 or 7, after its newest checkpoint: what is done twice counts once."""
    made = cli.run_command(sys.executable, str(FOREIGN / program), "12", "7", options=options)
    run = RunDir(made["dir"])
    attempts = run.attempts()
    assert (made["state"], len(attempts)) == ("completed", 2)
    first, second = (read(attempt.rank_log(0).read_bytes().decode()) for attempt in attempts)
    assert len(first) > 2 and len(second) > 2
    resumed = second[0][0]
    assert 1 < resumed <= first[-1][0], "something is done twice"
    assert rows_of(run) == [row for row in first if row[0] < resumed] + second
    assert made["metrics"].items() >= second[-1][1].items()


# the real Trainer ---------------------------------------------------------------------------------

TRANSFORMERS = Path(sys.prefix) / "transformers"


@pytest.mark.parametrize("options", [(), ("--tasks-per-node", "2")], ids=["plain", "two ranks"])
def test_rows_of_a_trainer_are_its_own_history_also_after_a_restart(
    cli: Any, options: tuple[str, ...]
) -> None:
    """It dies after step 7, with its newest checkpoint at step 4. With transformers, each of its
    processes takes some seconds to begin."""
    if not TRANSFORMERS.is_dir():
        pytest.skip("there is no transformers in .venv: `make .venv/.ready` installs it")
    env = {"PYTHONPATH": str(TRANSFORMERS), "HF_HUB_OFFLINE": "1"}
    words = (sys.executable, str(FOREIGN / "trainer.py"), "12", "7")
    made = cli.run_command(*words, options=options, **env)
    run = RunDir(made["dir"])
    first, second = ([row["step"] for row in each.metrics()] for each in run.attempts())
    assert (first, second[:2]) == ([1, 2, 3, 4, 4, 5, 6, 7], [5, 6])
    state = json.loads((cli.cwd / "out/trainer_state.json").read_text())
    assert state["global_step"] == 12
    assert rows_of(run) == [read_history(row) for row in state["log_history"]]
    assert made["state"] == "completed" and cli.json("show")["apart"] == 0


def read_history(row: dict[str, float]) -> Row:
    """What the Trainer prints of a row: four digits of each fraction, and no count of operations."""
    shown = {key: it for key, it in row.items() if key not in ("step", "total_flos")}
    return int(row["step"]), {key: float(f"{it:.4g}") for key, it in shown.items()}


# only its own files -------------------------------------------------------------------------------

WRITES_CSV = """
import pathlib, time
folder = pathlib.Path("lightning_logs/version_0")
folder.mkdir(parents=True, exist_ok=True)
for step in (1, 2, 3):
    with open(folder / "metrics.csv", "w") as file:
        file.write("epoch,step,val_acc\\n" + "".join(f"0,{n},{n / 10}\\n" for n in range(1, step + 1)))
    time.sleep(0.05)
"""
ANOTHER = """
import sys
from torch.utils.tensorboard import SummaryWriter
open("metrics.csv", "w").write("step,foreign\\n1,1\\n")
writer = SummaryWriter("runs/foreign")
writer.add_scalar("foreign", 1.0, 1)
writer.flush()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_csv_that_nobody_else_can_have_written_is_read(cli: Any) -> None:
    made = cli.run_command("python", cli.script(WRITES_CSV))
    assert rows_of(RunDir(made["dir"])) == [
        (n, {"epoch": 0.0, "val_acc": n / 10}) for n in (1, 2, 3)
    ]


def test_files_of_another_program_in_the_same_directory_are_not_read(cli: Any) -> None:
    program = cli.script("print('loss 0.5')\nimport time\ntime.sleep(0.5)")
    argv = [sys.executable, cli.script(ANOTHER, "another.py")]
    pipe = subprocess.PIPE
    other = subprocess.Popen(argv, cwd=cli.cwd, stdin=pipe, stdout=pipe, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    time.sleep(1.0)  # what it writes below is newer than the run
    late = threading.Timer(0.5, (cli.cwd / "metrics.csv").touch)
    late.start()
    made = cli.run_command("python", program, options=(r"--metric=loss=loss (\S+)",))
    late.join()
    other.communicate("")
    assert rows_of(RunDir(made["dir"])) == [(1, {"loss": 0.5})]


def test_a_program_that_logs_through_rampup_writes_its_metrics_itself(cli: Any) -> None:
    text = """
    import rampup, time
    run = rampup.init()
    for step in (1, 2):
        print(f"loss {step}", flush=True)
        time.sleep(0.3)
        run.log(step=step, own=step)
    """
    made = cli.run_command("python", cli.script(text), options=(r"--metric=loss=loss (\S+)",))
    assert rows_of(RunDir(made["dir"])) == [(1, {"own": 1}), (2, {"own": 2})]


# the flag -----------------------------------------------------------------------------------------


def test_a_slow_pattern_is_dropped_with_a_warning_and_others_are_not(cli: Any) -> None:
    program = cli.script("print('a' * 60 + '!')\nfor n in (1, 2): print(f'loss {n}')")
    options = (r"--metric=slow=(a+)+$", r"--metric=loss=loss (\S+)")
    made = cli.run_command("python", program, options=options)
    assert rows_of(RunDir(made["dir"])) == [(1, {"loss": 1.0}), (2, {"loss": 2.0})]
    log = cli("logs", made["id"]).stdout
    assert "warning: --metric 'slow=(a+)+$' is too slow and was dropped: it took 0.1 s" in log


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--metric", "loss=loss (", "--", "true"), "is not a regular expression"),
        (("--metric", "loss", "--", "true"), "does not say which part is the number"),
        (("--metric", "loss=loss", "--", "true"), "does not say which part is the number"),
        (("mnist", "--metric", r"loss=(\S+)"), "program.metric (--metric) is for a command"),
    ],
)
def test_what_is_not_a_metric_is_refused(cli: Any, words: tuple[str, ...], says: str) -> None:
    assert says in cli("run", *words, check=3).stderr


def test_a_sweep_over_a_command_is_sorted_by_what_it_prints(cli: Any) -> None:
    """Also from a file, and through `list`, `show` and the report."""
    program = cli.script("import sys\nfor n in (3, 2, 1): print('loss', n * float(sys.argv[1]))")
    file = cli.cwd / "rampup.toml"
    file.write_text(f"""
        name = "three"
        command = ["python", "{program}", "{{lr}}"]
        train.lr = 0.5
        [program]
        metric = ['loss=loss (\\S+)']
        """)
    cli("sweep", "rampup.toml", "lr=0.3,0.1,0.2")
    rows = cli.json("list", "--study", "three", "--sort", "loss", "--columns", "lr,loss")
    shown = [row["columns"] for row in rows]
    assert [(row["lr"], row["loss"]) for row in shown] == [(0.1, 0.1), (0.2, 0.2), (0.3, 0.3)]
    run = rows[0]["id"]
    assert "last: loss 0.1" in cli("show", run).stdout
    page = cli.cwd / "page.html"
    cli("report", run, "--out", str(page))
    assert "Missing or unreadable" not in page.read_text()
    assert "loss" in page.read_text()


def test_a_report_of_a_command_that_prints_nothing_names_nothing_as_missing(cli: Any) -> None:
    made = cli.run_command("true")
    page = cli.cwd / "page.html"
    cli("report", made["id"], "--out", str(page))
    assert "Missing or unreadable" not in page.read_text()


# a second life ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3])
def test_a_program_that_stops_after_its_signal_has_not_completed(cli: Any, code: int) -> None:
    """It is interrupted at its time limit, and continues with the words for later attempts."""
    text = f"""
    import signal, sys, time
    signal.signal(signal.SIGUSR1, lambda *got: sys.exit({code}))
    print(*sys.argv[1:], flush=True)
    while len(sys.argv) < 3:
        time.sleep(0.05)
    """
    options = ("--stop-signal", "USR1", "--on-resume", "--init_from=resume '{lr} x'", "lr=3")
    options = (*options, "--time", "0:06")
    made = cli.run_command("python", cli.script(text), "a", options=options, check=104)
    assert (made["state"], made["cause"]) == ("timeout", "the time limit was reached")
    cli("resume", made["id"])
    run = RunDir(made["dir"])
    logs = [attempt.rank_log(0).read_text() for attempt in run.attempts()]
    assert logs == ["a\n", "a --init_from=resume 3 x\n"]
    assert "--stop-signal USR1" in cli("show", run.id).stdout


def test_words_for_later_attempts_wait_for_something_to_resume_from(cli: Any) -> None:
    text = """
    import os, sys, pathlib
    print(*sys.argv[1:], flush=True)
    attempt = int(os.environ["RAMPUP_ATTEMPT"])
    if attempt == 2:
        pathlib.Path("out").mkdir()
        pathlib.Path("out/x.pt").touch()
    sys.exit(85 if attempt < 3 else 0)
    """
    options = ("--again", "--progress", "out/*.pt", "--on-resume", "--resume")
    made = cli.run_command("python", cli.script(text), "a", options=options)
    logs = [attempt.rank_log(0).read_text() for attempt in RunDir(made["dir"]).attempts()]
    assert logs == ["a\n", "a\n", "a --resume\n"]
    assert "--again --progress 'out/*.pt' --on-resume --resume" in cli("show", made["id"]).stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--stop-signal", "KILL"), "program.stop_signal = 'KILL' (--stop-signal) is not one of"),
        (("--stop-signal", "TERM", "--stop-lead", "soon"), "--stop-lead 'soon' is not understood"),
        (("--stop-lead", "5s"), "program.stop_lead (--stop-lead) has no effect without"),
        (("--progress", "x"), "program.progress (--progress) has no effect without --stop-signal"),
        (("--again", "--on-resume", "'x"), '--on-resume "\'x": No closing quotation'),
    ],
)
def test_what_makes_no_sense_for_a_second_life_is_refused(
    cli: Any, words: tuple[str, ...], says: str
) -> None:
    assert says in cli("run", *words, "--", "true", check=3).stderr
