"""A full disk and a vanished run directory end the run with a clear message; what was written stays
readable."""

import json
import os
import shutil
import subprocess
from pathlib import Path

FILL = """
import os, sys
disk = os.statvfs(sys.argv[1])
with open(f"{sys.argv[1]}/filler", "wb") as file:  # somebody else's file, while the run goes on
    file.write(bytes(disk.f_bavail * disk.f_bsize - 1_000_000))
"""


def test_disk_full_in_metrics(cli, small_disk: Path) -> None:
    script = cli.script(
        FILL
        + """
import rampup
with rampup.init() as run:
    for step in range(200_000):
        run.log(step=step, loss=1 / (step + 1), **{"a_long_name_of_a_metric_" * 4: step})
"""
    )
    done = cli(
        "run",
        "--",
        "python",
        script,
        str(small_disk),
        check=100,
        RAMPUP_RUNS=str(small_disk / "runs"),
    )
    assert "No space left" in done.stderr or "quota is full" in done.stderr
    shown = cli("show", "--history", "--json", RAMPUP_RUNS=str(small_disk / "runs"))
    rows = json.loads(shown.stdout)
    assert len(rows) > 1000
    assert [row["step"] for row in rows] == list(range(len(rows)))


def test_disk_full_in_the_log(cli, small_disk: Path) -> None:
    script = cli.script(FILL + "for line in range(10**6): print(line, 'x' * 100)")
    done = cli(
        "run",
        "--",
        "python",
        script,
        str(small_disk),
        check=100,
        RAMPUP_RUNS=str(small_disk / "runs"),
    )
    assert "quota is full" in done.stderr
    shown = json.loads(cli("show", "--json", RAMPUP_RUNS=str(small_disk / "runs")).stdout)
    assert (shown["state"], "disk is full" in shown["cause"]) == ("failed", True), (
        "the cause is recorded all the same"
    )
    assert cli("logs", RAMPUP_RUNS=str(small_disk / "runs")).stdout.startswith("0 xxx")


def test_disk_full_in_a_checkpoint(cli, small_disk: Path) -> None:
    done = cli(
        "run",
        "digits",
        "epochs=1",
        "hidden=100000",
        check=100,
        RAMPUP_RUNS=str(small_disk / "runs"),
    )
    assert "No space left" in done.stderr
    assert "df -h" in done.stderr
    rows = json.loads(
        cli("show", "--history", "--json", RAMPUP_RUNS=str(small_disk / "runs")).stdout
    )
    assert any("val_accuracy" in row for row in rows)


def test_disk_full_in_the_third_checkpoint_leaves_two_sound_ones(cli, small_disk: Path) -> None:
    words = ("digits", "epochs=1", "hidden=25000", "checkpoint.every=10steps")  # 22 MB each, of 56
    done = cli("run", *words, check=100, RAMPUP_RUNS=str(small_disk / "runs"))
    assert (
        "the checkpoint of step 30 was not saved: can't write" in done.stdout
        and "No space left" in done.stdout
    )
    assert "No space left" in done.stderr and "df -h" in done.stderr
    shown = cli("show", "--checkpoints", "--verify", "--json", RAMPUP_RUNS=str(small_disk / "runs"))
    assert [(row["step"], row["sound"]) for row in json.loads(shown.stdout)] == [
        (20, True),
        (10, True),
    ]


def test_disk_full_before_the_run_is_refused(cli, small_disk: Path) -> None:
    with open(small_disk / "filler", "wb") as filler:
        filler.write(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize))
    done = cli("run", "--", "true", check=3, RAMPUP_RUNS=str(small_disk / "runs"))
    assert "df -h" in done.stderr or "free" in done.stderr


def test_a_vanished_run_directory(cli) -> None:
    script = cli.script("import time; print('begun', flush=True); time.sleep(60)")
    running = cli.start("run", "--", "python", script)
    assert running.stdout is not None and running.stdout.readline() == "begun\n"
    (run,) = cli.runs.glob("2*")
    shutil.rmtree(run)
    _, err = running.communicate(timeout=45)
    assert running.returncode == 100
    assert "vanished" in err and "never started" not in err


def test_a_run_is_cancelled_on_a_full_disk(cli, small_disk: Path) -> None:
    cli.env["RAMPUP_RUNS"] = str(small_disk / "runs")
    run = json.loads(cli("run", "--detach", "--json", "--", "sleep", "300").stdout)
    control = Path(run["dir"], "control.jsonl")
    with open(control, "a") as file:  # the next line needs a new block
        file.write(" " * (os.sysconf("SC_PAGE_SIZE") - file.tell() - 1) + "\n")
    subprocess.run(["sh", "-c", f"cat /dev/zero > {small_disk}/filler"], capture_output=True)
    before = control.read_bytes()
    cli("cancel", run["id"])
    assert control.read_bytes() == before, "nothing fits"
    assert cli.json("show", run["id"])["state"] in ("cancelled", "failed")
