"""Keras through the command line: a recipe on a terminal, scripts in the style of courses, ranks
that die."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Cli

from rampup.rundir.files import RunDir

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

ROW = (
    "1,0,0.99539,-0.05889,0.85243,0.02306,0.83398,-0.37708,1,0.0376,0.85243,-0.17755,0.59755,-0.44945,0.60536,-0.38223,"
    "0.84356,-0.38542,0.58212,-0.32192,0.56971,-0.29674,0.36946,-0.47357,0.56811,-0.51171,0.41078,-0.46168,0.21266,"
    "-0.3409,0.42267,-0.54487,0.18641,-0.453"
)
OURS = (
    *(
        r"run \w{6}: 1 rank, in /",
        r"(starting|importing|reading) .*\d:\d\d$",
        r"epoch +train_loss ",
        r"\d/3 +[\d.]+ ",
        r"epoch \d/3 .* left [-:\d]+$",
        r"predicted: (good|bad) ",
    ),
    *("completed in ", "last: ", "best: ", "time: ", "checkpoints: ", "report: ", "next: "),
)
"""What each line of a run is; the one with left is the bar."""
FOREIGN = Path(__file__).parents[1] / "foreign"


def test_a_terminal_shows_only_our_lines(cli: Cli) -> None:
    seen = cli.on_terminal("run", "ionosphere", "epochs=3", f"predict={ROW}", columns=250)
    lines = [line.strip() for line in seen.drawn]
    assert [line for line in lines if line and not re.match("|".join(OURS), line)] == []
    assert len([line for line in lines if line.startswith("predicted: ")]) == 1


def test_scripts_in_the_style_of_courses(cli: Cli) -> None:
    plain = cli("run", "--", "python", str(FOREIGN / "keras_fit.py"), "--epochs", "2")
    assert "Test Accuracy: 0." in plain.stdout and "epochs trained 2" in plain.stdout
    mirrored = cli("run", "--", "python", str(FOREIGN / "keras_mirrored.py"))
    assert "replicas 2 learnt True" in mirrored.stdout


def test_a_script_for_several_workers(cli: Cli) -> None:
    run = cli.run_command(
        "python", str(FOREIGN / "keras_multiworker.py"), options=("--tasks-per-node", "2")
    )
    logs = [Path(run["dir"], "attempts", "1", f"rank-{rank}.log").read_text() for rank in (0, 1)]
    told = [[line for line in log.splitlines() if line.startswith("replicas 2 ")] for log in logs]
    assert told[0] and told[0] == told[1], "both have trained the same model"


def test_a_worker_that_dies_ends_the_run_with_its_traceback(cli: Cli) -> None:
    script = str(FOREIGN / "keras_multiworker.py")
    done = cli("run", "--tasks-per-node", "2", "--", "python", script, "--dies", "1", check=100)
    attempt = RunDir(next(cli.runs.glob("2*"))).attempt(1)
    assert attempt.facts["ended"] - attempt.rank_log(1).stat().st_mtime < 60, "since its last word"
    assert "rank 1" in done.stderr
    assert "ValueError: as planned" in done.stderr and "Traceback" in done.stderr


FUNCTIONS = """
import numpy as np
from tensorflow import keras


def build_model(width: int = 8):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    return model


def load_data(rows: int = 300):
    x = np.random.default_rng(1).normal(size=(rows, 4)).astype("float32")
    return (x[100:], x[100:].sum(axis=1)), (x[:100].tolist(), x[:100].sum(axis=1).tolist())
"""


def test_functions_of_the_users_own_unchanged(cli: Cli) -> None:
    (cli.cwd / "mine").mkdir()
    cli.script(FUNCTIONS, "mine/models.py")
    words = (
        "run",
        "mine.models:build_model",
        "data=mine.models:load_data",
        "width=5",
        "rows=200",
        "batch_size=10",
    )
    done = cli.json(*words, "epochs=3", "monitor=val_mae", "--detach")
    cli("wait", done["id"], timeout=120)
    (cli.cwd / "mine" / "models.py").unlink()  # what was submitted is what runs
    found = cli.json("show", done["id"])
    assert found["metrics"]["lr"] == pytest.approx(0.05) and found["metrics"]["step"] == 30
    assert (
        found["best"]["metric"] == "val_mae"
        and found["best"]["value"] == found["metrics"]["val_mae"] < 0.5
    )
    assert found["config"]["train"]["width"] == 5


def test_what_the_users_own_compile_decides_may_have_any_value(cli: Cli) -> None:
    own = FUNCTIONS.replace("width: int = 8", 'width: int = 8, optimizer="adam", lr: float = 0.1')
    own = own.replace(
        "keras.optimizers.SGD(0.05)", "{'rmsprop': keras.optimizers.RMSprop}[optimizer](lr)"
    )
    cli.script(own, "models.py")
    words = (
        "run",
        "models:build_model",
        "data=models:load_data",
        "optimizer=rmsprop",
        "lr=-0.02",
        "max_steps=1",
    )
    assert cli.json(*words)["metrics"]["lr"] == pytest.approx(-0.02)
    assert "train.epochs = 0" in cli("run", *words[1:], "epochs=0", check=3).stderr, (
        "the engine's own are checked"
    )


def test_a_trial_validates_one_batch(cli: Cli) -> None:
    counts = FUNCTIONS.replace("keras.layers.Dense(1)]", "keras.layers.Dense(1, 'sigmoid')]")
    counts = counts.replace('"mae"', 'keras.metrics.TruePositives(thresholds=0, name="seen")')
    cli.script(counts.replace("x[:100].sum(axis=1).tolist()", "[1.0] * 100"), "models.py")
    words = (
        "run",
        "models:build_model",
        "data=models:load_data",
        "monitor=val_seen",
        "eval_batch_size=7",
    )
    assert cli.json(*words, "--dev")["metrics"]["val_seen"] == 7
    assert cli.json(*words, "max_steps=1")["metrics"]["val_seen"] == 100
    on_two = cli.json(*words, "max_steps=1", "eval_batches=3", "--tasks-per-node", "2")
    assert on_two["metrics"]["val_seen"] == 2 * 3 * 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mine.models:build_mode", "data=mine.models:load_data"), "did you mean build_model?"),
        (("mine.models:build_model",), "there is no data to train it on"),
        (("mine.models:build_model", "data=mine.models:lod_data"), "did you mean load_data?"),
        (("mine.models:build_model", "data=none.npz"), "there is no such file"),
        (
            ("mine.models:build_model", "data=mine.models:load_data", "widht=5"),
            "did you mean width?",
        ),
        (
            ("mine.models:build_model", "data=mine.models:load_data", "lr=1"),
            "unknown setting train.lr",
        ),
    ],
)
def test_functions_and_their_arguments_are_checked_before(
    cli: Cli, words: tuple[str, ...], message: str
) -> None:
    (cli.cwd / "mine").mkdir()
    cli.script(FUNCTIONS, "mine/models.py")
    assert message in cli("run", *words, check=3).stderr
