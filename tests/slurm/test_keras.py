"""Keras on a real Slurm: the engine and a script of a course's style over two nodes, stopped,
resumed, and failing."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rampup.drill.comparison import read_rows
from rampup.rundir.files import RunDir

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

FOREIGN = Path(__file__).parents[1] / "foreign"
FAILS = """
import os

import numpy as np
import tensorflow as tf
from tensorflow import keras

calls = []


def fail_in_the_third_step(x):
    calls.append(1)
    if len(calls) == 3:
        raise ValueError("as planned")


class Fails(keras.layers.Layer):
    def call(self, x, training=None):
        if training and os.environ["RANK"] == "1":
            tf.numpy_function(fail_in_the_third_step, [x], [])
        return x


def build_model():
    model = keras.Sequential([keras.Input((4,)), Fails(), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model


def load_data():
    x = np.ones((200, 4), "float32")
    return (x, x.sum(axis=1)), (x, x.sum(axis=1))
"""


def rows(cli: Any, run: str) -> list[dict[str, Any]]:
    return read_rows(RunDir(cli.json("show", run)["dir"]))


def test_one_node_against_two_and_the_same_as_two_local_ranks(cli: Any, sandbox: Any) -> None:
    words = ("questions", "rows=4000", "epochs=3", "--cpus-per-task", "1")
    runs = [
        cli("run", *words, "--on", sandbox.name, "--nodes", nodes).stdout.strip()
        for nodes in ("1", "2")
    ]
    ends = [cli.json("wait", run) for run in runs]
    assert [end["state"] for end in ends] == ["completed", "completed"]
    local = cli.json("run", *words, "--tasks-per-node", "2")
    assert rows(cli, runs[1]) == rows(cli, local["id"])
    first, second = (rows(cli, run)[-1] for run in runs)
    assert first["val_loss"] == pytest.approx(second["val_loss"], abs=0.02)
    listed = {row["id"]: row for row in cli.json("list", "--columns", "nodes,samples_s,epoch_s")}
    compared = {run: listed[run]["columns"] for run in runs}
    assert [compared[run]["nodes"] for run in runs] == [1, 2]
    for run, end in zip(runs, ends, strict=True):
        assert compared[run]["samples_s"] == end["metrics"]["samples_s"] > 0
        trained_s = 3600 / compared[run]["samples_s"]  # a tenth of the questions is held out
        assert trained_s < compared[run]["epoch_s"] < listed[run]["wall_s"], "with the validation"
    page = Path(cli.cwd) / "both.html"
    cli("report", *runs, "--out", str(page))
    shown = page.read_text()
    assert "<th>samples/s</th><th>epoch takes</th>" in shown and "seconds per epoch" in shown
    for run in runs:
        assert f"<td>{run}</td>" in shown and f"<td>{compared[run]['epoch_s']:.1f} s</td>" in shown
        assert f"<td>{compared[run]['samples_s']:,.0f}</td>" in shown


def test_scripts_in_the_style_of_courses(cli: Any, sandbox: Any) -> None:
    scripts = {"keras_fit.py": "epochs trained 1", "keras_mirrored.py": "replicas 2 learnt True"}
    words = ("run", "--on", sandbox.name, "--nodes", "1", "--", sys.executable)
    runs = {script: cli(*words, str(FOREIGN / script)).stdout.strip() for script in scripts}
    for script, expected in scripts.items():
        assert cli.json("wait", runs[script])["state"] == "completed"
        assert expected in cli("logs", runs[script]).stdout


def test_a_script_for_several_workers_finds_them_all(cli: Any, sandbox: Any) -> None:
    argv = (sys.executable, str(FOREIGN / "keras_multiworker.py"))
    run = cli("run", "--on", sandbox.name, "--nodes", "2", "--", *argv).stdout.strip()
    assert cli.json("wait", run)["state"] == "completed"
    said = [cli("logs", run, "--rank", rank).stdout for rank in ("0", "1")]
    told = [
        next(line for line in text.splitlines() if line.startswith("replicas 2")).split()
        for text in said
    ]
    assert [line[3] for line in told] == ["node1", "node2"] and told[0][-1] == told[1][-1]


@pytest.mark.parametrize("kind", ["script", "engine"])
def test_a_worker_that_dies_ends_the_job_with_its_traceback(
    cli: Any, sandbox: Any, kind: str
) -> None:
    cli.script(FAILS, "fails.py")
    script = ("--", sys.executable, str(FOREIGN / "keras_multiworker.py"), "--dies", "1")
    engine = ("fails:build_model", "data=fails:load_data", "epochs=50")
    words = script if kind == "script" else engine
    run = cli("run", "--on", sandbox.name, "--nodes", "2", *words).stdout.strip()
    cli("wait", run, check=100)
    attempt = RunDir(cli.json("show", run)["dir"]).attempt(1)
    assert attempt.facts["ended"] - attempt.rank_log(1).stat().st_mtime < 60, "since its last word"
    said = cli("logs", run, "--rank", "1").stdout
    assert "Traceback" in said and "ValueError: as planned" in said
    assert "rank 1" in cli("why", run).stdout


def test_stopped_in_good_order_and_resumed(cli: Any, sandbox: Any, eventually: Any) -> None:
    words = ("ionosphere", "epochs=80", "--nodes", "2", "--on", sandbox.name)
    run = cli("run", *words).stdout.strip()
    place = Path(cli.json("show", run)["dir"])
    eventually(lambda: (place / "attempts" / "1" / "listens").exists(), 90, "the first step")
    cli("cancel", "--save", run)
    assert cli.json("show", run)["state"] == "cancelled"
    cli("resume", run)
    end = cli.json("wait", run)
    assert (end["state"], end["attempts"], end["metrics"]["step"]) == ("completed", 2, 640)
    whole = cli.json("wait", cli("run", *words).stdout.strip())
    assert rows(cli, run) == rows(cli, whole["id"])
