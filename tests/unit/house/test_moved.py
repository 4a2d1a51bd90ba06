"""Recipes of the version before: their imports still work, where a recipe is imported, and only
there."""

import subprocess
import sys

import pytest

from rampup.core.moved import MOVED

FRAMEWORK_FREE = """
from rampup.data.fetch import folder
from rampup.data.idx import read_idx
from rampup.data.sets import WEIGHTS, weights_name
from rampup.errors import RampupError, Refused, nearest
from rampup.runtime.settings import Settings
from rampup.spec import Needs
"""
OF_TORCH = """
from rampup.data.augment import Augment, draws
from rampup.data.memory import TensorData
from rampup.data.order import permutation, piece, shard
from rampup.engines.torch_task import Classifier, Task
"""
OF_KERAS = "from rampup.engines.keras_task import ArrayData, Task\n"
INSTALL = "from rampup.core import moved; moved.install(); moved.install()\n"


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("imports", [FRAMEWORK_FREE, OF_TORCH, OF_KERAS])
def test_what_recipes_of_the_version_before_import(imports: str) -> None:
    done = run(INSTALL + imports)
    assert done.returncode == 0, done.stderr
    used = [name for name in MOVED if f"from {name} import" in imports]
    said = [f"{name} has moved: import from {MOVED[name].public}" for name in used]
    assert used and sorted(done.stderr.splitlines()) == sorted(said)


def test_every_old_name_is_tested_here() -> None:
    imports = FRAMEWORK_FREE + OF_TORCH + OF_KERAS
    assert [name for name in MOVED if f"from {name} import" not in imports] == []


def test_an_old_name_is_the_same_module_and_says_so_once() -> None:
    code = """
import rampup.spec
import rampup.spec as again
import sys
from rampup import spec
from rampup.core import spec as new
assert rampup.spec is again is spec is new is sys.modules["rampup.spec"]
assert new.__name__ == new.__spec__.name == "rampup.core.spec"
assert sum(type(finder).__name__ == "MovedModules" for finder in sys.meta_path) == 1
"""
    done = run(INSTALL + code)
    assert (done.returncode, done.stderr) == (
        0,
        "rampup.spec has moved: import from rampup.recipe\n",
    )


def test_nobody_else_finds_the_old_names() -> None:
    assert "No module named 'rampup.spec'" in run("import rampup.spec").stderr
    unknown = run(f"{INSTALL}import rampup.engines.torch_loop")
    assert "No module named 'rampup.engines.torch_loop'" in unknown.stderr
