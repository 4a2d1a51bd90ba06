"""`rampup export`: a table, TensorBoard's files again, and the real packages of MLflow (a server) and W&B (offline).

Everything is exported twice: nothing may be there twice. The trackers are read back without rampup's own code.
"""

import csv
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rampup.cli.export import next_of
from rampup.rundir import RunDir
from rampup.tracking import to_wandb
from rampup.tracking.points import named_numbers, step_of
from rampup.tracking.source import Source, Target, read
from rampup.tracking.to_mlflow import points_of, safe_names

T0 = 1_794_804_968.0
ROWS = [
    {"step": 50, "epoch": 1, "train_loss": 0.5, "lr": 0.1, "t": T0 + 1.25},
    {"step": 100, "epoch": 1, "train_loss": 0.25, "val loss@2": 0.75, "samples_s": 5000.0, "lr": 0.1, "t": T0 + 2},
    {"step": 150, "epoch": 2, "train_loss": None, "lr": 0.05, "note": "a, b", "t": T0 + 3},
]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def make(root: Path, run_id: str = "aaaaaa", rows: list[dict[str, Any]] | None = None, outcome: str = "") -> RunDir:
    run = RunDir(root / f"20261116-045608-mnist-{run_id}")
    attempt = run.attempt(1)
    attempt.path.mkdir(parents=True)
    run.run_file.write_text(json.dumps({"id": run_id, "name": "mnist", "created": T0}))
    train = {"lr": 0.1, "epochs": 2, "clip": None, "optimizer": "adam", "betas": [0.9, 0.99]}
    run.config_file.write_text(json.dumps({"train": train}))
    facts = {"launcher": "spawn", "started": T0, "ended": T0 + 9, "outcome": outcome or "completed", "exit_code": 0}
    attempt.facts_file.write_text(json.dumps(facts))
    attempt.metrics_file.write_text(lines(ROWS if rows is None else rows))
    attempt.events_file.write_text(lines([{"what": "end", "t": T0 + 9}]))
    return run


def add_attempt(run: RunDir, resumed: int, rows: list[dict[str, Any]]) -> None:
    attempt = run.claim_attempt()
    attempt.facts_file.write_text(run.attempt(1).facts_file.read_text())
    attempt.events_file.write_text(lines([{"what": "resumed", "step": resumed, "t": T0 + 20}]))
    attempt.metrics_file.write_text(lines(rows))


# the table --------------------------------------------------------------------------------------------------------


def test_a_table_on_stdout_and_in_a_file(cli: Any) -> None:
    make(cli.runs)
    make(cli.runs, "bbbbbb", [{"step": 1, "loss": 1.5, "t": T0}])
    done = cli("export", "aaaaaa", "bbbbbb", "--to", "csv")
    table = list(csv.reader(io.StringIO(done.stdout)))
    names = ["step", "epoch", "train_loss", "lr", "val loss@2", "samples_s", "note", "loss"]
    assert table[0] == ["run", *names, "t"] and len(table) == 5 and done.stderr == ""
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
    assert cli("export", "--to", "csv", "--out", "-").stdout == cli("export", "--to", "csv").stdout != ""
    assert "both want stdout" in cli("export", "--to", "csv", "--out", "-", "--json", check=2).stderr
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
    with subprocess.Popen(["cat", "pipe"], cwd=cli.cwd, stdout=subprocess.PIPE, text=True) as reader:
        cli("export", "--to", "csv", "--out", "pipe")
        assert reader.communicate(timeout=20)[0] == cli("export", "--to", "csv").stdout
    assert (cli.cwd / "pipe").is_fifo()


def test_attempts_are_one_story(cli: Any) -> None:
    add_attempt(make(cli.runs), 100, [{"step": 150, "epoch": 2, "train_loss": 0.1, "t": T0 + 30}])
    table = list(csv.DictReader(io.StringIO(cli("export", "--to", "csv").stdout)))
    assert [(row["step"], row["train_loss"]) for row in table] == [("50", "0.5"), ("100", "0.25"), ("150", "0.1")]


def test_a_reader_that_has_seen_enough_is_no_failure(cli: Any) -> None:
    make(cli.runs, rows=[{"step": step, "loss": 0.5, "t": T0} for step in range(20_000)])
    command = f"{sys.executable} -m rampup export --to csv | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=cli.cwd, env=cli.env, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["run,step,loss,t", "0"] and done.stderr == ""


# what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--to", "excel"), 2, "excel"),
        (("--to", "csv", "--project", "x"), 2, "--project means nothing to csv"),
        (("--to", "mlflow", "--out", "x"), 2, "it is for --to csv or wandb or tensorboard"),
        (("--to", "csv", "--json"), 2, "both want stdout"),
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
    assert f"needs the package {tracker}" in done.stderr and f"pip install 'rampup[{tracker}]'" in done.stderr


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
        assert f"would export aaaaaa, completed, 3 rows, to {words[0]}: " in done.stderr and done.stdout == ""
    assert cli.json("export", "--dry-run", "--to", "csv")["runs"] == [{"id": "aaaaaa", "state": "completed", "rows": 3}]
    assert sorted(run.path.rglob("*")) == before and os.listdir(cli.cwd) == []


# TensorBoard ------------------------------------------------------------------------------------------------------


def scalars(folder: Path, tag: str) -> list[tuple[int, float, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [(point.step, round(point.value, 6), point.wall_time) for point in found.Scalars(tag)]


def test_event_files_are_made_again(cli: Any) -> None:
    run = make(cli.runs)
    add_attempt(run, 100, [{"step": 150, "epoch": 2, "train_loss": 0.125, "t": T0 + 30}])
    done = cli("export", "--to", "tensorboard")
    assert done.stdout.strip() == str(run.tensorboard) and f"tensorboard --logdir {run.tensorboard}" in done.stderr
    first = {path.name: path.read_bytes() for path in run.tensorboard.iterdir()}
    assert sorted(first) == [run.tensorboard_file(1).name, run.tensorboard_file(2).name]
    assert scalars(run.tensorboard, "train_loss") == [(50, 0.5, T0 + 1.25), (150, 0.125, T0 + 30)]
    assert scalars(run.tensorboard, "train_loss_epoch") == [(100, 0.25, T0 + 2)]
    cli("export", "--to", "tensorboard")
    assert {path.name: path.read_bytes() for path in run.tensorboard.iterdir()} == first
    cli("export", "--to", "tensorboard", "--out", "logs")
    assert scalars(cli.cwd / "logs" / "mnist-aaaaaa", "lr")[-1][1] == 0.1


def test_it_is_what_the_live_mirror_wrote_and_pictures_are_kept(cli: Any) -> None:
    from test_tensorboard import Attempt, loaded, png

    run = make(cli.runs, rows=[])
    for file in (run.attempt(1).metrics_file, run.attempt(1).events_file):
        file.unlink()
    live = Attempt(run, 1, lr=0.1)
    for row in ROWS:
        live.metrics.write(**{name: value for name, value in row.items() if name != "t"})
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
    assert after.Images("images") == before.Images("images") and after.Tensors("curve") == before.Tensors("curve")


def test_a_run_that_goes_on_writes_its_own(cli: Any) -> None:
    run = json.loads(cli("run", "--detach", "--json", "--", "sleep", "60").stdout)["id"]
    assert "writes its own" in cli("export", "--to", "tensorboard", check=3).stderr
    cli("export", "--to", "tensorboard", "--out", "copy")
    cli("cancel", run)


# MLflow -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback. Its store of plain files makes no difference between a point that is sent twice and two."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    argv += ["--backend-store-uri", str(folder / "store"), "--default-artifact-root", str(folder / "artifacts")]
    env = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, *argv], cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 15)
        server.wait(timeout=20)


class Server:
    """MLflow's own REST interface."""

    def __init__(self, uri: str) -> None:
        self.uri = f"{uri}/api/2.0/mlflow"

    def post(self, path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"{self.uri}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.uri}/{path}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
            return json.load(answer)

    def runs(self, experiment: str) -> list[Any]:
        found = self.get("experiments/get-by-name", experiment_name=experiment)["experiment"]["experiment_id"]
        runs: list[Any] = self.post("runs/search", experiment_ids=[found]).get("runs", [])
        return runs

    def history(self, run_id: str, metric: str) -> list[tuple[int, Any, int]]:
        found = self.get("metrics/get-history", run_id=run_id, metric_key=metric).get("metrics", [])
        return [(int(it.get("step", 0)), it["value"], int(it["timestamp"])) for it in found]


def pairs(found: list[dict[str, str]]) -> dict[str, str]:
    return {it["key"]: it["value"] for it in found}


def test_mlflow_has_each_run_once_and_each_point_once(cli: Any, mlflow: str) -> None:
    run, server = make(cli.runs), Server(mlflow)
    make(cli.runs, "bbbbbb", outcome="failed")
    for expected in (11, 0):
        told = cli.json("export", "aaa", "bbb", "--to", "mlflow", "--tracking-uri", mlflow, "--project", "one")
        assert [(it["id"], it["written"], it["created"]) for it in told["runs"]] == [
            (run_id, expected, expected > 0) for run_id in ("aaaaaa", "bbbbbb")
        ]
        runs = {pairs(it["data"]["tags"])["rampup.run_id"]: it for it in server.runs("one")}
        assert sorted(runs) == ["aaaaaa", "bbbbbb"] and len(server.runs("one")) == 2
        data, info = runs["aaaaaa"]["data"], runs["aaaaaa"]["info"]
        train = {"lr": "0.1", "epochs": "2", "clip": "None", "optimizer": "adam", "betas": "[0.9, 0.99]"}
        assert pairs(data["params"]) == train and info["run_name"] == "mnist-aaaaaa"
        assert info["status"] == "FINISHED" and runs["bbbbbb"]["info"]["status"] == "FAILED"
        assert (info["start_time"], info["end_time"]) == (int(T0 * 1000), int((T0 + 9) * 1000))
        at = info["run_id"]
        assert server.history(at, "lr") == [
            (50, 0.1, 1794804969250),
            (100, 0.1, 1794804970000),
            (150, 0.05, 1794804971000),
        ]
        assert server.history(at, "train_loss")[-1][:2] == (150, "NaN") and len(server.history(at, "train_loss")) == 2
        assert [it[:2] for it in server.history(at, "train_loss_epoch")] == [(100, 0.25)]
        assert [it[:2] for it in server.history(at, "val loss_2")] == [(100, 0.75)]
    assert pairs(data["tags"])["rampup.dir"] == str(run.path)
    # the run goes on: only what is new is sent
    words = ("export", "aaaaaa", "--to", "mlflow", "--project", "one")
    with open(run.attempt(1).metrics_file, "a") as file:
        file.write(lines([{"step": 200, "lr": 0.01, "t": T0 + 4}]))
    done = cli(*words, MLFLOW_TRACKING_URI=mlflow)
    assert done.stdout.strip() == at and "known, added to, 1 point written" in done.stderr
    assert done.stderr.splitlines()[-1] == f"next: look at {mlflow}"
    # and is resumed: MLflow keeps what it has, so that is said
    add_attempt(run, 100, [{"step": 150, "lr": 0.05, "t": T0 + 30}])
    done = cli(*words, MLFLOW_TRACKING_URI=mlflow)
    assert "note: aaaaaa: MLflow has 4 points of steps that were done again" in done.stderr
    assert [it[0] for it in server.history(at, "lr")] == [50, 100, 150, 200, 150] and len(server.runs("one")) == 2


def test_an_export_that_broke_off_is_completed(cli: Any, mlflow: str) -> None:
    """Only the run was made: the settings are sent by the next one, and so are those that are missing."""
    make(cli.runs)
    server, words = Server(mlflow), ("export", "--to", "mlflow", "--tracking-uri", mlflow, "--project", "broken")
    experiment = server.post("experiments/create", name="broken")["experiment_id"]
    tags = [{"key": "rampup.run_id", "value": "aaaaaa"}]
    at = server.post("runs/create", experiment_id=experiment, start_time=1, tags=tags)["run"]["info"]["run_id"]
    server.post("runs/log-parameter", run_id=at, key="lr", value="0.1")
    assert cli(*words).stdout.strip() == at
    (found,) = server.runs("broken")
    assert sorted(pairs(found["data"]["params"])) == ["betas", "clip", "epochs", "lr", "optimizer"]


def damaged(root: Path) -> Source:
    rows = [
        {"step": 1e300, "loss": 1.0, "t": T0},
        {"step": 1, "loss": 2.0, "t": -1},
        {"step": 2, "loss": 3.0, "t": 1e12},
    ]
    return read(make(root, rows=[*rows, {"step": 3, "loss": 4.0, "t": T0 + 1}]))


def test_damaged_rows_cost_mlflow_no_more_than_themselves(tmp_path: Path) -> None:
    at = int(T0 * 1000)
    assert points_of(damaged(tmp_path)) == [
        ("loss", 1, at, 2.0),
        ("loss", 2, at, 3.0),
        ("loss", 3, at + 1000, 4.0),
    ]


def test_a_folder_of_plain_files_is_refused_and_a_database_is_named(cli: Any) -> None:
    make(cli.runs)
    done = cli("export", "--to", "mlflow", "--tracking-uri", "store", check=1)
    assert "it no longer takes folders of plain files" in done.stderr and "sqlite:///mlflow.db" in done.stderr
    assert next_of("mlflow", "sqlite:////a b/x.db", []) == "mlflow ui --backend-store-uri 'sqlite:////a b/x.db'"


def test_a_server_that_does_not_answer_is_an_error_in_words(cli: Any) -> None:
    make(cli.runs)
    done = cli("export", "--to", "mlflow", "--tracking-uri", "http://127.0.0.1:9", check=1)
    assert "error: MLflow at http://127.0.0.1:9: " in done.stderr and "Connection refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_that_mlflow_does_not_take() -> None:
    names = ["loss", "a@b", "a#b", "../x", "a//b", "a/b", "/", "", ".", "ä"]
    safe = safe_names(names)
    assert safe == {
        "loss": "loss",
        "a@b": "a_b",
        "a#b": "a_b_2",
        "../x": "___x",
        "a//b": "a__b",
        "a/b": "a/b",
        "/": "_",
        "": "__2",
        ".": "__3",
        "ä": "ä",
    }


# W&B --------------------------------------------------------------------------------------------------------------


def wandb_records(folder: Path) -> list[Any]:
    """The records of an offline run: a log in blocks of 32 KiB, as LevelDB writes it."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("run-*.wandb")
    data, at, whole, found = file.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        room = 32_768 - at % 32_768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole = (whole if kind in (3, 4) else b"") + data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            found.append(wandb_internal_pb2.Record.FromString(whole))
    return found


def wandb_history(folder: Path) -> list[dict[str, Any]]:
    rows = [it.history for it in wandb_records(folder) if it.WhichOneof("record_type") == "history"]
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item}
        | {"step": row.step.num}
        for row in rows
    ]


def test_wandb_has_one_folder_for_each_run(cli: Any) -> None:
    run = make(cli.runs)
    done = cli("export", "--to", "wandb", "--project", "digits")
    (folder,) = (cli.cwd / "wandb").iterdir()
    assert folder.name.startswith("offline-run-") and folder.name.endswith("-aaaaaa")
    assert done.stdout == f"{folder}\n" and done.stderr.splitlines()[-1] == f"next: wandb sync {folder}"
    history = wandb_history(folder)
    assert [(row["step"], row.get("train_loss", row.get("train_loss_epoch"))) for row in history[:2]] == [
        (50, 0.5),
        (100, 0.25),
    ]
    assert history[0]["_timestamp"] == T0 + 1.25 and history[2]["train_loss"] != history[2]["train_loss"]
    (told,) = [it.run for it in wandb_records(folder) if it.WhichOneof("record_type") == "run"]
    config = {item.key: json.loads(item.value_json) for item in told.config.update}
    assert (told.run_id, told.project, told.display_name) == ("aaaaaa", "digits", "mnist-aaaaaa")
    assert config["lr"] == 0.1 and config["betas"] == [0.9, 0.99]
    # again: not even touched, so what `wandb sync` notes there stays
    (folder / "run-aaaaaa.wandb.synced").touch()
    told = cli.json("export", "--to", "wandb", "--project", "digits")["runs"][0]
    assert told == {"id": "aaaaaa", "where": str(folder), "rows": 3, "written": 0, "created": False, "note": ""}
    assert (folder / "run-aaaaaa.wandb.synced").exists()
    # more rows: one folder still, with all of them
    with open(run.attempt(1).metrics_file, "a") as file:
        file.write(lines([{"step": 200, "lr": 0.01, "t": T0 + 4}]))
    done = cli("export", "--to", "wandb", "--project", "digits")
    assert "aaaaaa: known, replaced, 12 points written" in done.stderr
    (folder,) = (cli.cwd / "wandb").iterdir()
    assert [row["step"] for row in wandb_history(folder)] == [50, 100, 150, 200]
    assert not (folder / "run-aaaaaa.wandb.synced").exists()


def test_wandb_keeps_its_hands_off_the_network_and_what_is_not_ours(cli: Any, tmp_path: Path) -> None:
    """In a world without any network it is the same; a folder of W&B itself stays."""
    make(cli.runs)
    theirs = cli.cwd / "out" / "offline-run-20260101_000000-aaaaaa"
    theirs.mkdir(parents=True)
    (theirs / "run-aaaaaa.wandb").touch()
    command = [sys.executable, "-m", "rampup", "export", "--to", "wandb", "--out", "out"]
    isolated = ["unshare", "--user", "--map-root-user", "--net", *command]
    done = subprocess.run(isolated, cwd=cli.cwd, env=cli.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(list((cli.cwd / "out").iterdir())) == 2 and (theirs / "run-aaaaaa.wandb").exists()


def test_wandb_has_a_folder_for_each_project_and_damaged_rows_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within one second, in which W&B gives both the same name; and an id may end like another."""
    for name, value in to_wandb.QUIET.items():
        monkeypatch.setenv(name, value)
    source, other = damaged(tmp_path), read(renamed(make(tmp_path, "x-aaaaaa"), "other"))
    assert (source.id, other.id) == ("aaaaaa", "x-aaaaaa")
    kept = [
        to_wandb.export([run], Target(tmp_path / "out", None, project))[0]
        for run, project in ((other, "one"), (source, "one"), (source, "two"))
    ]
    assert [sent.created for sent in kept] == [True, True, True] and len({sent.where for sent in kept}) == 3
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert [(row["step"], row["loss"]) for row in wandb_history(Path(kept[1].where))] == [(1, 2.0), (2, 3.0), (3, 4.0)]
    for run, project, before in ((source, "one", kept[1]), (source, "two", kept[2])):
        again = to_wandb.export([run], Target(tmp_path / "out", None, project))[0]
        assert (again.where, again.written, again.created) == (before.where, 0, False)


# names ------------------------------------------------------------------------------------------------------------


def test_points() -> None:
    row = {"step": 1, "epoch": 1, "train_loss": 1, "lr": 0.5, "word": "x", "t": 3}
    assert named_numbers(row) == [("epoch", 1.0), ("train_loss", 1.0), ("lr", 0.5)]
    assert named_numbers({**row, "samples_s": 9}) == [
        ("epoch", 1.0),
        ("train_loss_epoch", 1.0),
        ("lr", 0.5),
        ("samples_s", 9.0),
    ]


@pytest.mark.parametrize(
    ("step", "known"),
    [(3, 3), (3.0, 3), (3.5, None), (1e300, None), (10**30, None), ("x", None), (None, None), (float("inf"), None)],
)
def test_steps(step: Any, known: int | None) -> None:
    assert step_of({"step": step}) == known


# who is who -------------------------------------------------------------------------------------------------------


def renamed(run: RunDir, name: str) -> RunDir:
    return RunDir(run.path.rename(run.path.with_name(name)))


def test_the_id_is_the_one_in_run_json(tmp_path: Path) -> None:
    """Of directories that were renamed, the last words may be alike."""
    digits = renamed(make(tmp_path), "digits-final")
    poly = renamed(make(tmp_path, "bbbbbb"), "polyfit-final")
    assert [read(digits).id, read(poly).id] == ["aaaaaa", "bbbbbb"]
    poly.run_file.write_text("{")
    assert read(poly).id == "polyfit-final", "the whole name: `final` would be the id of many"
    lost = make(tmp_path, "cccccc")
    lost.run_file.unlink()
    assert read(lost).id == "cccccc"
    digits.run_file.write_text(json.dumps({"id": "../x y"}))
    assert read(digits).id == "___x_y"


def test_two_runs_of_one_id_are_not_mixed(cli: Any) -> None:
    run = make(cli.runs)
    copy = cli.cwd / "copy"
    shutil.copytree(run.path, copy)
    done = cli("export", str(run.path), "copy", "--to", "csv", check=3)
    assert f"two runs have the id aaaaaa: {run.path} and {copy}" in done.stderr and done.stdout == ""
    assert cli("export", "copy", "--to", "csv").stdout == cli("export", "aaaaaa", "--to", "csv").stdout


def test_nothing_is_written_outside_the_folder(cli: Any) -> None:
    run = make(cli.runs)
    run.run_file.write_text(json.dumps({"id": "aaaaaa", "name": "../../x", "created": T0}))
    cli("export", "--to", "tensorboard", "--out", "a/b")
    assert os.listdir(cli.cwd) == ["a"] and os.listdir(cli.cwd / "a" / "b") == ["______x-aaaaaa"]
    assert scalars(cli.cwd / "a" / "b" / "______x-aaaaaa", "lr")
