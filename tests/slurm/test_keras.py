"""Keras on a real Slurm: the engine and a script of a course's style over two nodes, stopped, resumed, and failing."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tf_keras", reason="the keras engine needs tensorflow and tf_keras: pip install 'rampup[keras]'")

SCRIPT = """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
import numpy as np

x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).batch(16)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
loss = model.fit(data, epochs=1, verbose=0).history["loss"][0]
print("replicas", strategy.num_replicas_in_sync, "on", os.environ["SLURMD_NODENAME"], "loss", loss)
if os.environ["RANK"] == "1" and os.path.exists("dies"):
    raise ValueError("as planned")
model.fit(data, epochs=1, verbose=0)
"""


def rows(cli: Any, run: str) -> list[dict[str, Any]]:
    found = json.loads(cli("show", run, "--history", "--json").stdout)
    return [{name: value for name, value in row.items() if name not in ("t", "samples_s")} for row in found]


def test_one_node_against_two_and_the_same_as_two_local_ranks(cli: Any, sandbox: Any) -> None:
    words = ("questions", "rows=4000", "epochs=2", "--cpus-per-task", "1")
    runs = [cli("run", *words, "--on", sandbox.name, "--nodes", nodes).stdout.strip() for nodes in ("1", "2")]
    ends = [cli.json("wait", run) for run in runs]
    assert [end["state"] for end in ends] == ["completed", "completed"]
    assert all(end["metrics"]["samples_s"] > 0 for end in ends)
    local = cli.json("run", *words, "--tasks-per-node", "2")
    assert rows(cli, runs[1]) == rows(cli, local["id"])
    first, second = (rows(cli, run)[-1] for run in runs)
    assert first["val_loss"] == pytest.approx(second["val_loss"], abs=0.02)
    table = json.loads(cli("list", "--columns", "nodes,samples_s", "--json").stdout)
    assert len([row for row in table if row["id"] in runs]) == 2
    page = Path(cli.cwd) / "both.html"
    cli("report", *runs, "--out", str(page))
    assert all(run in page.read_text() for run in runs)


def test_a_script_for_several_workers_finds_them_all(cli: Any, sandbox: Any) -> None:
    argv = (sys.executable, cli.script(SCRIPT))
    run = cli("run", "--on", sandbox.name, "--nodes", "2", "--", *argv).stdout.strip()
    assert cli.json("wait", run)["state"] == "completed"
    said = [cli("logs", run, "--rank", rank).stdout for rank in ("0", "1")]
    told = [next(line for line in text.splitlines() if line.startswith("replicas 2")).split() for text in said]
    assert [line[3] for line in told] == ["node1", "node2"] and told[0][-1] == told[1][-1]


def test_a_worker_that_dies_ends_the_job_with_its_traceback(cli: Any, sandbox: Any) -> None:
    (cli.cwd / "dies").touch()
    argv = (sys.executable, cli.script(SCRIPT))
    began = time.monotonic()
    run = cli("run", "--on", sandbox.name, "--nodes", "2", "--", *argv).stdout.strip()
    cli("wait", run, check=100)
    assert time.monotonic() - began < 60
    assert "ValueError: as planned" in cli("logs", run, "--rank", "1").stdout


def test_stopped_in_good_order_and_resumed(cli: Any, sandbox: Any, eventually: Any) -> None:
    words = ("ionosphere", "epochs=200", "--nodes", "2", "--on", sandbox.name)
    run = cli("run", *words).stdout.strip()
    place = Path(cli.json("show", run)["dir"])
    eventually(lambda: (place / "attempts" / "1" / "listens").exists(), 90, "the first step")
    cli("cancel", "--save", run)
    assert cli.json("show", run)["state"] == "cancelled"
    cli("resume", run)
    end = cli.json("wait", run)
    assert (end["state"], end["attempts"], end["metrics"]["step"]) == ("completed", 2, 1600)
    whole = cli.json("wait", cli("run", *words).stdout.strip())
    assert rows(cli, run) == rows(cli, whole["id"])
