"""`rampup sweep` on this machine: K at a time, in the foreground; repeated; interrupted;
compared."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

PROGRAM = """
import os, pathlib, sys, time
import rampup

run = rampup.init(p=0)
name = sys.argv[1]
if name == "bad" and not pathlib.Path("fixed").exists():
    raise ValueError("bad it is")
deadline = time.monotonic() + float(os.environ.get("LIVE", 0))
while time.monotonic() < deadline and not run.should_stop:
    time.sleep(0.05)
run.log(step=1, val_accuracy=len(name), loss=1.0)
print("argument", name, "setting", run.config.p, "threads", os.environ["OMP_NUM_THREADS"])
"""


@pytest.fixture
def sweep(cli):
    cli.script(PROGRAM, "prog.py")

    def call(*words: str, check: int = 0, program: str = "prog.py", **env: str):
        return cli("sweep", *words, "--", "python", program, "{p}", check=check, **env)

    return call


def runs_of(cli, study: str = "prog") -> dict[str, dict]:
    """By their argument."""
    return {
        row["columns"]["p"]: row for row in cli.json("list", "--study", study, "--columns", "p")
    }


def test_a_failing_run_stops_nobody_and_is_named_and_started_again(cli, sweep) -> None:
    done = sweep("p=a,bad,ccc", "--pack", "2", check=100)
    found = runs_of(cli)
    assert {p: row["state"] for p, row in found.items()} == {
        "a": "completed",
        "bad": "failed",
        "ccc": "completed",
    }
    assert "3 runs: 2 completed, 1 failed" in done.stderr
    assert f"{found['bad']['id']} failed: rank 0: ValueError: bad it is" in done.stderr
    assert "next: rampup list --study prog\n" in done.stderr
    said = (Path(found["ccc"]["dir"]) / "attempts/1/rank-0.log").read_text()
    assert "argument ccc setting ccc threads " in said
    identity = json.loads((Path(found["ccc"]["dir"]) / "run.json").read_text())
    assert (identity["study"], identity["point"]) == ("prog", {"p": "ccc"})

    (cli.cwd / "fixed").touch()
    again = sweep("p=a,bad,ccc", "--pack", "2")
    assert "3 runs (2 done, 1 started again)" in again.stderr
    now = runs_of(cli)
    assert {p: row["attempts"] for p, row in now.items()} == {"a": 1, "bad": 2, "ccc": 1}
    assert now["bad"]["dir"] == found["bad"]["dir"]
    assert (
        "nothing" not in again.stderr and "4 runs (3 done, 1 new)" in sweep("p=a,bad,ccc,d").stderr
    )


def test_runs_that_are_started_again_have_todays_code(cli, sweep) -> None:
    sweep("p=a,bad", check=100)
    cli.script(PROGRAM.replace("raise ValueError", "print"), "prog.py")
    sweep("p=a,bad")
    run = Path(runs_of(cli)["bad"]["dir"])
    assert "bad it is" in (run / "attempts/2/rank-0.log").read_text()
    assert (run / "code-before-2" / "prog.py").exists(), "what was tried before is kept"
    sweep("p=a,bad,c")
    assert len(list(run.glob("code*"))) == 2


def test_runs_are_resumed_and_waited_for_together(cli, sweep) -> None:
    cli.script(PROGRAM.replace('name == "bad"', 'name != "a"'), "prog.py")
    sweep("p=a,b,c", check=100)
    ids = [row["id"] for p, row in sorted(runs_of(cli).items()) if p != "a"]
    assert "there is no default" in cli("resume", check=2).stderr
    assert "follows one run" in cli("resume", *ids, "--follow", check=2).stderr
    assert "describes one run" in cli("resume", *ids, "--json", check=2).stderr
    assert cli("resume", "--study", "prog", "--dry-run").stdout.count("train.p") == 2
    (cli.cwd / "fixed").touch()
    again = cli("resume", "--study", "prog").stderr
    assert all(f"prog {each}: attempt 2" in again for each in ids)
    assert {p: row["attempts"] for p, row in runs_of(cli).items()} == {"a": 1, "b": 2, "c": 2}
    assert cli("wait", *ids).stderr.startswith("2 runs: 2 completed")
    assert cli.json("wait", *ids)["exit_code"] == 0
    assert "has no run to resume" in cli("resume", "--study", "prog", check=3).stderr
    refused = cli("resume", *ids, check=3).stderr
    assert all(f"prog {each} was not resumed: run {each} has completed" in refused for each in ids)


def test_ctrl_c_stops_what_runs_and_the_same_command_goes_on(cli, sweep, eventually) -> None:
    cli.env["LIVE"] = "60"
    process = cli.start("sweep", "p=a,b,c,d", "--pack", "2", "--", "python", "prog.py", "{p}")
    eventually(lambda: len(list(cli.runs.glob("*/attempts/1/listens"))) == 2, what="two run")
    found = runs_of(cli)
    assert sorted(row["state"] for row in found.values()) == [
        "pending",
        "pending",
        "running",
        "running",
    ]
    cli("cancel", found["d"]["id"])
    assert runs_of(cli)["d"]["state"] == "cancelled", "one that waits; the others go on"
    assert "is being started already" in sweep("p=a,b", check=3).stderr
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "the same command starts what is missing" in said
    assert {row["state"] for row in runs_of(cli).values()} == {"cancelled"}
    assert not list(cli.runs.glob(".code*"))
    assert cli("wait", "--study", "prog", check=103).stderr.startswith("4 runs: 4 cancelled")
    done = sweep("p=a,b,c,d", "--pack", "4", LIVE="0")
    assert "4 runs (4 started again)" in done.stderr
    assert sorted(row["attempts"] for row in runs_of(cli).values()) == [1, 1, 2, 2]


def test_cancelling_a_study_stops_who_starts_it(cli, sweep, eventually) -> None:
    cli.env["LIVE"] = "60"
    process = cli.start("sweep", "p=a,b,c", "--", "python", "prog.py", "{p}")
    eventually(lambda: list(cli.runs.glob("*/attempts/1/listens")), what="one runs")
    assert "not ended yet: " in cli("wait", "--study", "prog", "--timeout", "0", check=101).stderr
    assert set(cli.json("cancel", "--study", "prog", "--dry-run").values()) == {
        "would be cancelled"
    }
    assert sorted(cli.json("cancel", "--study", "prog").values()) == ["cancelled"] * 3
    process.communicate(timeout=45)
    assert process.returncode == 143
    causes = {cli.json("why", str(run))["cause"] for run in cli.runs.glob("2*")}
    assert causes == {"cancelled by rampup cancel"}


def test_a_study_is_cancelled_after_its_runs_have_saved(cli, sweep, eventually) -> None:
    slow = PROGRAM.replace("run.log(", "time.sleep(1.0 * run.should_stop)\nrun.log(")
    cli.script(slow, "prog.py")
    cli.env["LIVE"] = "60"
    sweep("p=bad", check=100)
    process = cli.start("sweep", "p=a,b,bad", "--", "python", "prog.py", "{p}")
    eventually(lambda: list(cli.runs.glob("*/attempts/1/listens")), what="one runs")
    assert {p: row["state"] for p, row in runs_of(cli).items()} == {
        "a": "running",
        "b": "pending",
        "bad": "pending",
    }
    cli("cancel", "--study", "prog", "--save")
    process.communicate(timeout=45)
    found = runs_of(cli)
    said = (Path(found["a"]["dir"]) / "attempts/1/rank-0.log").read_text()
    assert "argument a" in said, "it came to its end"
    assert {p: row["attempts"] for p, row in found.items()} == {"a": 1, "b": 0, "bad": 1}
    assert found["b"]["state"] == found["bad"]["state"] == "cancelled"


def test_what_does_not_listen_is_not_cut_short_by_save(cli, eventually) -> None:
    wait = "for i in {1..600}; do [ -e go ] && break; sleep 0.1; done"
    process = cli.start(
        "sweep", "p=3,4", "--name", "sleep", "--", "bash", "-c", f"cd {cli.cwd}; {wait}", "{p}"
    )
    eventually(lambda: list(cli.runs.glob("*/attempts/1/attempt.json")), what="one runs")
    assert "can't save on request" in cli("cancel", "--study", "sleep", "--save", check=3).stderr
    (cli.cwd / "go").touch()
    process.communicate(timeout=45)
    assert {p: row["state"] for p, row in runs_of(cli, "sleep").items()} == {
        3: "completed",
        4: "cancelled",
    }


def test_runs_side_by_side(cli, sweep) -> None:
    sweep("p=a,ccc,bb", "q=1")
    words = (
        "list",
        "--study",
        "prog",
        "--columns",
        "p,val_accuracy,nodes,samples_s",
        "--sort",
        "val_accuracy",
    )
    assert cli(*words, check=3).stderr.startswith(
        "error: none of these runs has a column 'samples_s'"
    )
    rows = cli.json(
        "list", "--study", "prog", "--columns", "p,val_accuracy,nodes", "--sort", "val_accuracy"
    )
    assert [row["columns"] for row in rows] == [
        {"p": "ccc", "val_accuracy": 3, "nodes": 1},
        {"p": "bb", "val_accuracy": 2, "nodes": 1},
        {"p": "a", "val_accuracy": 1, "nodes": 1},
    ]
    table = cli("list", "--study", "prog").stdout.splitlines()
    assert table[0].split() == ["id", "state", "p", "val_accuracy", "took"]
    cli.run_command("true")
    assert len(cli.json("list", "--study", "prog")) == 3
    assert [row["columns"]["q"] for row in cli.json("list", "--columns", "q")] == [None, 1, 1, 1]
    assert "did you mean prog?" in cli("list", "--study", "prg", check=3).stderr


def copies_of(cli, count: int) -> None:
    """More points of a study with one run: that run again, under other ids and with other
    numbers."""
    (run,) = (path for path in cli.runs.glob("2*") if "copy" not in path.name)
    for number in range(count):
        copy = cli.runs / f"{run.name[:-6]}copy{number:02d}"
        shutil.copytree(run, copy, symlinks=True, dirs_exist_ok=True)
        (copy / "run.json").write_text(
            (run / "run.json").read_text().replace('"p": "a"', f'"p": "{number}"')
        )
        (copy / "attempts/1/metrics.jsonl").write_text(
            f'{{"step": 1, "t": 1.0, "val_accuracy": {number}}}\n'
        )


def test_the_report_of_a_study_draws_the_best_and_lists_all(cli, sweep) -> None:
    sweep("p=a")
    copies_of(cli, 2)
    few = Path(cli.json("report", "--study", "prog")["report"]).read_text()
    assert "The best by val_accuracy first." in few and few.index("copy01") < few.index("copy00")
    copies_of(cli, 13)
    told = cli.json("report", "--study", "prog")
    page = Path(told["report"]).read_text()
    assert Path(told["report"]) == cli.runs / "studies" / "prog" / "report.html"
    drawn = {run["id"] for run in told["runs"]}
    assert len(drawn) == 12 and "copy12" in drawn and "copy00" not in drawn
    assert (
        "12 of 14 runs are drawn: the best by val_accuracy; they are listed first." in page
        and "copy00" in page
    )
    assert "<h1>study prog: 12 runs</h1>" in page


def test_nothing_is_written_before_all_is_right(cli, sweep) -> None:
    for words in (
        ("lr=1,x", "digits"),
        ("resources.nodes=1,2", "digits"),
        ("precision=fp32,fp16", "digits"),
    ):
        assert "in the point" in cli("sweep", *words[::-1], check=3).stderr
    assert "does not exist" in sweep("p=1,2", program="missing.py", check=3).stderr
    shown = sweep("p=1,'a, $(b)'", "--dry-run").stdout.splitlines()
    assert shown[0].split() == ["p", "run"] and shown[2].startswith("a, $(b)")
    assert not cli.runs.exists()


def test_side_by_side_each_has_its_part_of_the_cpus(cli, sweep) -> None:
    sweep("p=a,b", "--pack", str(os.cpu_count()))
    logs = [path.read_text() for path in cli.runs.glob("*/attempts/1/rank-0.log")]
    assert ["threads 1\n" in log for log in logs] == [True, True]


def test_each_point_has_a_score_and_the_best_is_the_last_line(cli) -> None:
    text = (
        "import rampup\nrun = rampup.init(p=0)\nrun.log(step=1, val_loss=(run.config.p - 2) ** 2)\n"
    )
    script = cli.script(text)
    done = cli("sweep", "p=1,2,4", "--", "python", script)
    lines = done.stderr.splitlines()
    ended = [line for line in lines if " completed in " in line]
    assert len(ended) == 3 and all(re.search(r" s, val_loss [014]$", line) for line in ended)
    assert re.fullmatch(r"best: p=2: val_loss 0, run \w{6}", lines[-1]), lines[-1]
