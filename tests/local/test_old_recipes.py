"""A recipe written for the version before, with the imports of then: it is checked and it trains."""

from conftest import Cli

RECIPE = """
engine = "torch"
entry = "train:Line"
check = "settings:check"

[train]
epochs = 1
batch_size = 10
monitor = "train_loss"
size = 4
"""
CHECK = """
from rampup.errors import Refused
from rampup.runtime.settings import Settings
from rampup.spec import Needs

def check(settings: Settings) -> Needs:
    if settings.size > 8:
        raise Refused(f"size={settings.size} is too large", "size=8")
    return Needs()
"""
TRAIN = """
import torch
from rampup.data.memory import TensorData
from rampup.engines.torch_task import Task
from rampup.runtime.settings import Settings

class Line(Task):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)

    def data(self):
        return TensorData(torch.arange(40.0)[:, None] / 40), None

    def model(self):
        return torch.nn.Linear(1, 1)

    def loss(self, model, batch):
        return (model(batch[0]) - 1).square().mean()
"""


def test_a_recipe_of_the_version_before_runs(cli: Cli) -> None:
    folder = cli.cwd / "line"
    folder.mkdir()
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "settings.py").write_text(CHECK)
    (folder / "train.py").write_text(TRAIN)

    refused = cli("run", "./line", "size=9", check=3)
    assert "size=9 is too large" in refused.stderr
    assert "rampup.spec has moved: import from rampup.recipe" in refused.stderr

    cli("run", "./line", "size=8")
    log = cli("logs", "--rank", "0").stdout
    assert log.count("rampup.engines.torch_task has moved: import from rampup.torch") == 1
