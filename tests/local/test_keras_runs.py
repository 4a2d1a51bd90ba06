"""Keras through the command line: a recipe on a terminal, scripts in the style of courses, ranks that die."""

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import RAMPUP, Cli

pytest.importorskip("tf_keras", reason="the keras engine needs tensorflow and tf_keras: pip install 'rampup[keras]'")

ROW = (
    "1,0,0.99539,-0.05889,0.85243,0.02306,0.83398,-0.37708,1,0.0376,0.85243,-0.17755,0.59755,-0.44945,0.60536,-0.38223,"
    "0.84356,-0.38542,0.58212,-0.32192,0.56971,-0.29674,0.36946,-0.47357,0.56811,-0.51171,0.41078,-0.46168,0.21266,"
    "-0.3409,0.42267,-0.54487,0.18641,-0.453"
)
OURS = ("run ", "epoch", "completed", "last:", "best:", "time:", "checkpoints:", "report:", "next:", "predicted:")
OURS += (" ETA ",)  # the bar

MODEL = """
import numpy as np
import tensorflow as tf
from tensorflow import keras

x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
y = (x.sum(1) > 0).astype("float32")

def build():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return model
"""
PLAIN = MODEL + "print('loss', build().fit(x, y, epochs=1, verbose=0).history['loss'][0])\n"
MIRRORED = (
    MODEL
    + """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = build()
print("replicas", strategy.num_replicas_in_sync, model.fit(x, y, epochs=1, verbose=0).history["loss"][0])
"""
)
WORKERS = (
    """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
"""
    + MODEL.replace("import tensorflow as tf\n", "")
    + """
with strategy.scope():
    model = build()
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
loss = model.fit(data, epochs=1, verbose=0).history["loss"][0]
print("replicas", strategy.num_replicas_in_sync, "loss", loss)
if os.environ["RANK"] == "1" and os.environ.get("DIES"):
    raise ValueError("as planned")
model.fit(data, epochs=1, verbose=0)
"""
)


def test_a_terminal_shows_only_our_lines(cli: Cli) -> None:
    outer, inner = pty.openpty()
    argv = [*RAMPUP, "run", "ionosphere", "epochs=3", f"predict={ROW}"]
    started = subprocess.Popen(argv, cwd=cli.cwd, env=cli.env, stdout=inner, stderr=inner)
    os.close(inner)
    said = b""
    while True:
        try:
            part = os.read(outer, 65536)
        except OSError:  # how a terminal ends
            break
        said += part
    assert started.wait(timeout=60) == 0, said
    lines = [line.strip() for line in said.decode().replace("\r", "\n").splitlines()]
    strange = [line for line in lines if line.strip("\x1b[?0123456789;hlAKJm \r") and not is_ours(line)]
    assert strange == []
    assert "predicted: good (probab" in said.decode() or "predicted: bad (probab" in said.decode()


def is_ours(line: str) -> bool:
    return any(word in line for word in OURS)


def test_a_row_that_is_none_is_refused_before_training(cli: Cli) -> None:
    done = cli("run", "ionosphere", "predict=1,2,3", check=100)
    assert "predict has 3 numbers, a row has 34" in done.stderr and "Traceback" not in done.stderr


def test_scripts_in_the_style_of_courses(cli: Cli) -> None:
    for text, expected in ((PLAIN, "loss "), (MIRRORED, "replicas 2")):
        cli.script(text)
        assert expected in cli("run", "--", "python", "script.py").stdout


def test_a_script_for_several_workers(cli: Cli) -> None:
    cli.script(WORKERS)
    run = json.loads(cli("run", "--tasks-per-node", "2", "--json", "--", "python", "script.py").stdout.splitlines()[-1])
    logs = [Path(run["dir"], "attempts", "1", f"rank-{rank}.log").read_text() for rank in (0, 1)]
    told = [[line for line in log.splitlines() if line.startswith("replicas 2 loss")] for log in logs]
    assert told[0] and told[0] == told[1], "both have trained the same model"


def test_a_worker_that_dies_ends_the_run_with_its_traceback(cli: Cli) -> None:
    cli.script(WORKERS)
    began = time.monotonic()
    done = cli("run", "--tasks-per-node", "2", "--", "python", "script.py", check=100, DIES="1")
    assert time.monotonic() - began < 60
    assert "rank 1" in done.stderr
    assert "ValueError: as planned" in done.stderr and "Traceback" in done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_and_resumed_it_ends_as_if_nothing_had_happened(
    cli: Cli, eventually: Callable[..., None], ranks: int
) -> None:
    words = ("ionosphere", "epochs=40", "log_every=1", "checkpoint.every=5steps", "--tasks-per-node", str(ranks))
    whole = cli.json("run", *words)
    run = Path(json.loads(cli("run", "--detach", "--json", *words).stdout)["dir"])
    eventually(lambda: len(list((run / "checkpoints").glob("step-*"))) > 1, 120, "a checkpoint")
    os.kill(rank_of(run), signal.SIGKILL)
    cli("wait", str(run), check=100, timeout=60)
    found = cli.json("resume", str(run))
    assert (found["state"], found["attempts"]) == ("completed", 2)
    assert rows(cli, whole["id"]) == rows(cli, found["id"])
    states = [Path(each["dir"]) / "checkpoints" / "step-320" / "arrays.npz" for each in (whole, found)]
    assert states[0].read_bytes() == states[1].read_bytes()


def rank_of(run: Path) -> int:
    """The process of rank 0."""
    supervisor = json.loads((run / "attempts" / "1" / "attempt.json").read_text())["pid"]
    guardian = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0]
    return int(Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()[0])


def rows(cli: Cli, run: str) -> list[dict[str, Any]]:
    timed = ("t", "samples_s")
    found = json.loads(cli("show", run, "--history", "--json").stdout)
    return [{name: value for name, value in row.items() if name not in timed} for row in found]


FUNCTIONS = """
import numpy as np
from tensorflow import keras


def build_model(width: int = 8):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    return model


def load_data(rows: int = 300):
    x = np.random.default_rng(1).normal(size=(rows, 4)).astype("float32")
    return (x[100:], x[100:].sum(axis=1)), (x[:100], x[:100].sum(axis=1))
"""


def test_functions_of_the_users_own_unchanged(cli: Cli) -> None:
    (cli.cwd / "mine").mkdir()
    cli.script(FUNCTIONS, "mine/models.py")
    words = ("run", "mine.models:build_model", "data=mine.models:load_data", "width=5", "rows=200", "batch_size=10")
    done = cli.json(*words, "epochs=3", "--detach")
    cli("wait", done["id"], timeout=120)
    (cli.cwd / "mine" / "models.py").unlink()  # what was submitted is what runs
    found = cli.json("show", done["id"])
    assert found["metrics"]["lr"] == pytest.approx(0.05) and found["metrics"]["step"] == 30
    assert found["best"]["metric"] == "val_loss" and found["metrics"]["val_mae"] < 0.5
    assert found["config"]["train"]["width"] == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mine.models:build_model",), "nothing says what to train it on"),
        (("mine.models:build_model", "data=mine.models:lod_data"), "did you mean load_data?"),
        (("mine.models:build_model", "data=none.npz"), "there is no such file"),
        (("mine.models:build_model", "data=mine.models:load_data", "widht=5"), "did you mean width?"),
        (("mine.models:build_model", "data=mine.models:load_data", "lr=1"), "unknown setting train.lr"),
    ],
)
def test_functions_and_their_arguments_are_checked_before(cli: Cli, words: tuple[str, ...], message: str) -> None:
    (cli.cwd / "mine").mkdir()
    cli.script(FUNCTIONS, "mine/models.py")
    assert message in cli("run", *words, check=3).stderr
