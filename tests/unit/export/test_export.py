"""`rampup export`: a table, TensorBoard's files again, what is refused, and which run is which.

Everything is exported twice: nothing may be there twice.
"""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rampup.core.metrics import get_step, name_numbers
from rampup.export.tracker import read_source
from unit.export.exported_runs import ROWS, T0, add_attempt, make, renamed

# the table ----------------------------------------------------------------------------------------


def test_a_table_on_stdout_and_in_a_file(cli: Any) -> None:
    make(cli.runs)
    make(cli.runs, "bbbbbb", [{"step": 1, "loss": 1.5, "t": T0}])
    done = cli("export", "aaaaaa", "bbbbbb", "--to", "csv")
    table = list(csv.reader(io.StringIO(done.stdout)))
    names = ["step", "epoch", "train_loss", "lr", "val loss@2", "samples_s", "note", "loss"]
    assert table[0] == ["run", *names, "t"] and len(table) == 5
    assert done.stderr == "mnist aaaaaa, mnist bbbbbb\n"
    assert table[1] == ["aaaaaa", "50", "1", "0.5", "0.1", "", "", "", "", "1794804969.25"]
    assert table[3] == ["aaaaaa", "150", "2", "", "0.05", "", "", "a, b", "", "1794804971.0"]
    assert table[4] == ["bbbbbb", "1", "", "", "", "", "", "", "1.5", "1794804968.0"]
    for _ in range(2):
        told = cli.json("export", "aaa", "bbb", "--to", "csv", "--out", "table.csv")
        assert [run["rows"] for run in told["runs"]] == [3, 1]
        assert (cli.cwd / "table.csv").read_text() == done.stdout
    assert os.listdir(cli.cwd) == ["table.csv"]


def test_a_dash_is_stdout(cli: Any) -> None:
    make(cli.runs)
    assert (
        cli("export", "--to", "csv", "--out", "-").stdout
        == cli("export", "--to", "csv").stdout
        != ""
    )
    assert (
        "both go to stdout" in cli("export", "--to", "csv", "--out", "-", "--json", check=2).stderr
    )
    assert os.listdir(cli.cwd) == []


def test_no_two_columns_are_alike(cli: Any) -> None:
    make(cli.runs, rows=[{"step": 1, "run": 7, "metric_run": 8, "t": T0}])
    assert cli("export", "--to", "csv").stdout.splitlines() == [
        "run,step,metric_run_,metric_run,t",
        f"aaaaaa,1,7,8,{T0}",
    ]


def test_a_pipe_gets_the_table(cli: Any) -> None:
    """And it is still a pipe afterwards, as the link /dev/stdout has to be a link."""
    make(cli.runs)
    os.mkfifo(cli.cwd / "pipe")
    with subprocess.Popen(
        ["cat", "pipe"], cwd=cli.cwd, stdout=subprocess.PIPE, text=True
    ) as reader:
        cli("export", "--to", "csv", "--out", "pipe")
        assert reader.communicate(timeout=45)[0] == cli("export", "--to", "csv").stdout
    assert (cli.cwd / "pipe").is_fifo()


def test_attempts_are_one_story(cli: Any) -> None:
    add_attempt(make(cli.runs), 100, [{"step": 150, "epoch": 2, "train_loss": 0.1, "t": T0 + 30}])
    table = list(csv.DictReader(io.StringIO(cli("export", "--to", "csv").stdout)))
    assert [(row["step"], row["train_loss"]) for row in table] == [
        ("50", "0.5"),
        ("100", "0.25"),
        ("150", "0.1"),
    ]


def test_a_reader_that_has_seen_enough_is_no_failure(cli: Any) -> None:
    make(cli.runs, rows=[{"step": step, "loss": 0.5, "t": T0} for step in range(20_000)])
    command = f"{sys.executable} -m rampup export --to csv | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=cli.cwd, env=cli.env, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["run,step,loss,t", "0"]
    assert done.stderr == "mnist aaaaaa\n"


# what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--to", "excel"), 2, "excel"),
        (("--to", "csv", "--project", "x"), 2, "--project does not apply to --to csv"),
        (("--to", "mlflow", "--out", "x"), 2, "use it with --to csv or wandb or tensorboard"),
        (("--to", "csv", "--json"), 2, "both go to stdout"),
        (("--to", "csv", "--out", "no/where.csv"), 3, "can't write no/where.csv"),
        (("--to", "csv", "--out", "."), 3, "can't write .: it is a directory"),
        (("--to", "mlflow"), 2, "MLFLOW_TRACKING_URI"),
        (("zzzzzz", "--to", "csv"), 102, "no run 'zzzzzz'"),
    ],
)
def test_what_can_not_be_is_said(cli: Any, words: tuple[str, ...], code: int, said: str) -> None:
    make(cli.runs)
    cli.env.pop("MLFLOW_TRACKING_URI", None)
    assert said in cli("export", *words, check=code).stderr


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_a_missing_package_is_named(cli: Any, tmp_path: Path, tracker: str) -> None:
    make(cli.runs)
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules['{tracker}'] = None\n")
    env = {"PYTHONPATH": str(tmp_path), "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    done = cli("export", "--to", tracker, check=3, **env)
    assert (
        f"needs the package {tracker}" in done.stderr
        and f"pip install 'rampup[{tracker}]'" in done.stderr
    )


def test_a_dry_run_changes_nothing(cli: Any) -> None:
    run = make(cli.runs)
    before = sorted(run.path.rglob("*"))
    for words in (
        ("csv",),
        ("csv", "--out", "x.csv"),
        ("wandb",),
        ("tensorboard",),
        ("mlflow", "--tracking-uri", "http://127.0.0.1:9"),
    ):
        done = cli("export", "--dry-run", "--to", *words)
        assert (
            f"would export aaaaaa, completed, 3 rows, to {words[0]}: " in done.stderr
            and done.stdout == ""
        )
    assert cli.json("export", "--dry-run", "--to", "csv")["runs"] == [
        {"id": "aaaaaa", "state": "completed", "rows": 3}
    ]
    assert sorted(run.path.rglob("*")) == before and os.listdir(cli.cwd) == []


# TensorBoard --------------------------------------------------------------------------------------


def scalars(folder: Path, tag: str) -> list[tuple[int, float, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [(point.step, round(point.value, 6), point.wall_time) for point in found.Scalars(tag)]


def test_event_files_are_made_again(cli: Any) -> None:
    run = make(cli.runs)
    add_attempt(run, 100, [{"step": 150, "epoch": 2, "train_loss": 0.125, "t": T0 + 30}])
    done = cli("export", "--to", "tensorboard")
    assert (
        done.stdout.strip() == str(run.tensorboard)
        and f"tensorboard --logdir {run.tensorboard}" in done.stderr
    )
    first = {path.name: path.read_bytes() for path in run.tensorboard.iterdir()}
    assert sorted(first) == [run.tensorboard_file(1).name, run.tensorboard_file(2).name]
    assert scalars(run.tensorboard, "train_loss") == [(50, 0.5, T0 + 1.25), (150, 0.125, T0 + 30)]
    assert scalars(run.tensorboard, "train_loss_epoch") == [(100, 0.25, T0 + 2)]
    cli("export", "--to", "tensorboard")
    assert {path.name: path.read_bytes() for path in run.tensorboard.iterdir()} == first
    cli("export", "--to", "tensorboard", "--out", "logs")
    assert scalars(cli.cwd / "logs" / "mnist-aaaaaa", "lr")[-1][1] == 0.1


def test_it_is_what_the_live_mirror_wrote_and_pictures_are_kept(cli: Any) -> None:
    from unit.runtime.test_tensorboard import Attempt, loaded, png

    run = make(cli.runs, rows=[])
    for file in (run.attempt(1).metrics_file, run.attempt(1).events_file):
        file.unlink()
    live = Attempt(run, 1, lr=0.1)
    for row in ROWS:
        values = {name: value for name, value in row.items() if name not in ("step", "t")}
        live.metrics.write(row["step"], **values)
    live.tensorboard.image(7, "images", png())
    live.tensorboard.pr_curve(8, "curve", [[1, 0], [1, 0], [0, 1], [0, 1]])
    live.events.write("end", metrics={}, best=None)
    live.close()
    before = loaded(run)
    with open(run.tensorboard_file(1), "ab") as file:
        file.write(b"torn")
    cli("export", "--to", "tensorboard")
    after = loaded(run)
    assert after.Tags() == before.Tags()
    for tag in before.Tags()["scalars"]:
        assert str(after.Scalars(tag)) == str(before.Scalars(tag)), tag
    assert after.Images("images") == before.Images("images") and after.Tensors(
        "curve"
    ) == before.Tensors("curve")


def test_a_run_that_goes_on_writes_its_own(cli: Any) -> None:
    run = json.loads(cli("run", "--detach", "--json", "--", "sleep", "60").stdout)["id"]
    assert "writes its own" in cli("export", "--to", "tensorboard", check=3).stderr
    cli("export", "--to", "tensorboard", "--out", "copy")
    cli("cancel", run)


# names --------------------------------------------------------------------------------------------


def test_points() -> None:
    row = {"step": 1, "epoch": 1, "train_loss": 1, "lr": 0.5, "word": "x", "t": 3}
    assert name_numbers(row) == [("epoch", 1.0), ("train_loss", 1.0), ("lr", 0.5)]
    assert name_numbers({**row, "samples_s": 9}) == [
        ("epoch", 1.0),
        ("train_loss_epoch", 1.0),
        ("lr", 0.5),
        ("samples_s", 9.0),
    ]


@pytest.mark.parametrize(
    ("step", "known"),
    [
        (3, 3),
        (3.0, 3),
        (3.5, None),
        (1e300, None),
        (10**30, None),
        ("x", None),
        (None, None),
        (float("inf"), None),
    ],
)
def test_steps(step: Any, known: int | None) -> None:
    assert get_step({"step": step}) == known


# who is who ---------------------------------------------------------------------------------------


def test_the_id_is_the_one_in_run_json(tmp_path: Path) -> None:
    """Of directories that were renamed, the last words may be alike."""
    digits = renamed(make(tmp_path), "digits-final")
    poly = renamed(make(tmp_path, "bbbbbb"), "polyfit-final")
    assert [read_source(digits).id, read_source(poly).id] == ["aaaaaa", "bbbbbb"]
    poly.run_file.write_text("{")
    assert read_source(poly).id == "polyfit-final", (
        "the whole name: `final` would be the id of many"
    )
    lost = make(tmp_path, "cccccc")
    lost.run_file.unlink()
    assert read_source(lost).id == "cccccc"
    digits.run_file.write_text(json.dumps({"id": "../x y"}))
    assert read_source(digits).id == "___x_y"


def test_two_runs_of_one_id_are_not_mixed(cli: Any) -> None:
    run = make(cli.runs)
    copy = cli.cwd / "copy"
    shutil.copytree(run.path, copy)
    done = cli("export", str(run.path), "copy", "--to", "csv", check=3)
    assert (
        f"two runs have the id aaaaaa: {run.path} and {copy}" in done.stderr and done.stdout == ""
    )
    assert (
        cli("export", "copy", "--to", "csv").stdout == cli("export", "aaaaaa", "--to", "csv").stdout
    )


def test_nothing_is_written_outside_the_folder(cli: Any) -> None:
    run = make(cli.runs)
    run.run_file.write_text(json.dumps({"id": "aaaaaa", "name": "../../x", "created": T0}))
    cli("export", "--to", "tensorboard", "--out", "a/b")
    assert os.listdir(cli.cwd) == ["a"] and os.listdir(cli.cwd / "a" / "b") == ["______x-aaaaaa"]
    assert scalars(cli.cwd / "a" / "b" / "______x-aaaaaa", "lr")
