"""Export to MLflow, with its real package and a server on loopback; read back without rampup's own
code."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rampup.export.mlflow import metric_points, next_command, safe_names
from unit.export.exported_runs import T0, add_attempt, damaged, lines, make


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on loopback. Its store of plain files makes no difference between a point that is
    sent twice and two."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    argv += [
        "--backend-store-uri",
        str(folder / "store"),
        "--default-artifact-root",
        str(folder / "artifacts"),
    ]
    env = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [sys.executable, *argv],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, (
                    folder / "log"
                ).read_text()[-2000:]
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 15)
        server.wait(timeout=45)


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
        with urllib.request.urlopen(
            f"{self.uri}/{path}?{urllib.parse.urlencode(query)}", timeout=30
        ) as answer:
            return json.load(answer)

    def runs(self, experiment: str) -> list[Any]:
        found = self.get("experiments/get-by-name", experiment_name=experiment)["experiment"][
            "experiment_id"
        ]
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
        told = cli.json(
            "export", "aaa", "bbb", "--to", "mlflow", "--tracking-uri", mlflow, "--project", "one"
        )
        assert [(it["id"], it["written"], it["created"]) for it in told["runs"]] == [
            (run_id, expected, expected > 0) for run_id in ("aaaaaa", "bbbbbb")
        ]
        runs = {pairs(it["data"]["tags"])["rampup.run_id"]: it for it in server.runs("one")}
        assert sorted(runs) == ["aaaaaa", "bbbbbb"] and len(server.runs("one")) == 2
        data, info = runs["aaaaaa"]["data"], runs["aaaaaa"]["info"]
        train = {
            "lr": "0.1",
            "epochs": "2",
            "clip": "None",
            "optimizer": "adam",
            "betas": "[0.9, 0.99]",
        }
        assert pairs(data["params"]) == train and info["run_name"] == "mnist-aaaaaa"
        assert info["status"] == "FINISHED" and runs["bbbbbb"]["info"]["status"] == "FAILED"
        assert (info["start_time"], info["end_time"]) == (int(T0 * 1000), int((T0 + 9) * 1000))
        at = info["run_id"]
        assert server.history(at, "lr") == [
            (50, 0.1, 1794804969250),
            (100, 0.1, 1794804970000),
            (150, 0.05, 1794804971000),
        ]
        assert (
            server.history(at, "train_loss")[-1][:2] == (150, "NaN")
            and len(server.history(at, "train_loss")) == 2
        )
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
    assert [it[0] for it in server.history(at, "lr")] == [50, 100, 150, 200, 150] and len(
        server.runs("one")
    ) == 2


def test_an_export_that_broke_off_is_completed(cli: Any, mlflow: str) -> None:
    """Only the run was made: the settings are sent by the next one, and so are those that are
    missing."""
    make(cli.runs)
    server, words = (
        Server(mlflow),
        ("export", "--to", "mlflow", "--tracking-uri", mlflow, "--project", "broken"),
    )
    experiment = server.post("experiments/create", name="broken")["experiment_id"]
    tags = [{"key": "rampup.run_id", "value": "aaaaaa"}]
    at = server.post("runs/create", experiment_id=experiment, start_time=1, tags=tags)["run"][
        "info"
    ]["run_id"]
    server.post("runs/log-parameter", run_id=at, key="lr", value="0.1")
    assert cli(*words).stdout.strip() == at
    (found,) = server.runs("broken")
    assert sorted(pairs(found["data"]["params"])) == ["betas", "clip", "epochs", "lr", "optimizer"]


def test_damaged_rows_cost_mlflow_no_more_than_themselves(tmp_path: Path) -> None:
    at = int(T0 * 1000)
    assert metric_points(damaged(tmp_path)) == [
        ("loss", 1, at, 2.0),
        ("loss", 2, at, 3.0),
        ("loss", 3, at + 1000, 4.0),
    ]


def test_a_folder_of_plain_files_is_refused_and_a_database_is_named(cli: Any) -> None:
    make(cli.runs)
    done = cli("export", "--to", "mlflow", "--tracking-uri", "store", check=1)
    assert (
        "it no longer takes folders of plain files" in done.stderr
        and "sqlite:///mlflow.db" in done.stderr
    )
    assert (
        next_command("sqlite:////a b/x.db", [])
        == "mlflow ui --backend-store-uri 'sqlite:////a b/x.db'"
    )


def test_a_server_that_does_not_answer_is_an_error_in_words(cli: Any) -> None:
    make(cli.runs)
    done = cli("export", "--to", "mlflow", "--tracking-uri", "http://127.0.0.1:9", check=1)
    assert (
        "error: MLflow at http://127.0.0.1:9: " in done.stderr
        and "Connection refused" in done.stderr
    )
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
