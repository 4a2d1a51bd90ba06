"""DeepCam at full size: one sample of 768 x 1152 x 16 through the whole network and its update, in
channels_last, the layout of the recipe, against torch's usual one.

Every side is a whole `rampup run` on the same sample, on all cores. It takes 7 GB of memory.
"""

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.control import RAMPUP
from benchmarks.measure import Line, faster, spread_of
from rampup.recipes import deepcam
from rampup.rundir.files import RunDir

HEIGHT, WIDTH = 768, 1152
EPOCHS = 3
"""Each is one step; the first one is not counted."""
RECIPE = Path(deepcam.__file__).parent
NCHW = Path(__file__).parent / "deepcam_nchw.py"
CHANGED = {
    'entry = "train:DeepCam"': 'entry = "train:Contiguous"',
    'check = "settings:check"\n': "",
    "channels_last = true": "channels_last = false",
}
AT_LEAST = 1.25
AT_MOST_MB = 8000.0
SETTINGS = (
    *("batch_size=1", f"epochs={EPOCHS}", "target=none", "checkpoint.every=never"),
    # what is validated takes time, and no part of what is measured
    *("eval_batch_size=1", "schedule=constant", "warmup_steps=0"),
)


def make_sample(folder: Path) -> None:
    """Make a set of one sample to train on, and one to validate."""
    from rampup.datasets.deepcam.generate import make_set

    make_set(folder, 1, 1, HEIGHT, WIDTH, processes=1)


def make_recipe(folder: Path) -> None:
    """Make the recipe that differs from deepcam in the layout alone."""
    text = RECIPE.joinpath("recipe.toml").read_text()
    for ours, theirs in CHANGED.items():
        assert text.count(ours) == 1, ours
        text = text.replace(ours, theirs)
    folder.joinpath("recipe.toml").write_text(text)
    folder.joinpath("train.py").write_text(NCHW.read_text())


def train(recipe: str, data: Path) -> tuple[float, float]:
    """Return the seconds of a step, and the peak memory of the rank in MB."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RAMPUP_RUNS": folder, "XDG_STATE_HOME": folder}
        cpus = len(os.sched_getaffinity(0))
        words = (recipe, f"data={data}", *SETTINGS, "--cpus-per-task", str(cpus))
        argv = [RAMPUP, "run", *words, "--json"]
        done = subprocess.run(argv, env=env, check=True, capture_output=True)
        run = RunDir(json.loads(done.stdout)["dir"])
        rates = [float(row["samples_s"]) for row in run.history() if "samples_s" in row]
        return 1 / statistics.median(rates[1:]), float(run.attempt(1).facts["max_rss_mb"])


def lines(repeats: int = 3) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as name:
        data, recipe = Path(name, "data"), Path(name, "nchw")
        recipe.mkdir()
        make_recipe(recipe)
        make_sample(data)
        found = [(train("deepcam", data), train(str(recipe), data)) for _ in range(repeats)]
    steps = [(last[0], first[0]) for last, first in found]
    yield faster("DeepCam full-size step, channels_last / NCHW, speed", steps, AT_LEAST)
    memory = [last[1] for last, _ in found]
    peak = max(memory)
    bound = f"<= {AT_MOST_MB / 1000:g} GB"
    name, spread = "DeepCam full-size step, peak memory", spread_of([one / 1000 for one in memory])
    yield Line(name, peak / 1000, None, None, spread, bound, peak <= AT_MOST_MB, unit=" GB")
