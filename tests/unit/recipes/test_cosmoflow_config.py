"""`rampup run cosmoflow config=cosmo.yaml`: the reference's keys as settings, each with its origin."""

from pathlib import Path

import pytest

from rampup.config.resolve import Request, resolve
from rampup.core.spec import RunSpec
from rampup.datasets.cosmoflow.generate import make_set
from rampup.errors import Refused
from rampup.recipes.cosmoflow.reference import translate

pytest.importorskip("yaml")

CONFIG = """
output_dir: results
mlperf: {org: LBNL, division: closed, status: onprem, platform: here}
data:
  name: cosmo
  data_dir: set
  compression: GZIP
  n_train: 4
  n_valid: 2
  sample_shape: [128, 128, 128, 4]
  batch_size: 4
  n_epochs: 128
  apply_log: True
  prefetch: 4
model:
  name: cosmoflow
  hidden_activation: LeakyReLU
  pooling_type: MaxPool3D
  target_size: 4
  dropout: 0.5
optimizer: {name: SGD, momentum: 0.9}
lr_schedule:
  base_lr: 1e-3
  scaling: linear
  base_batch_size: 64
  n_warmup_epochs: 4
  decay_schedule:
    64: 0.125
    32: 0.25
train:
  loss: mean_squared_error
  metrics: ['mean_absolute_error']
  early_stopping_patience: null
  target_mae: 0.124
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("cosmo")
    make_set(found / "set", 4, 2, 8, 8, 64.0, processes=1)
    return found


def run(folder: Path, *settings: str, config: str = CONFIG, ranks: int = 1) -> RunSpec:
    (folder / "cosmo.yaml").write_text(config)
    given = ("config=cosmo.yaml", *settings)
    options = {"tasks_per_node": str(ranks)}
    target = Request(target="cosmoflow", settings=given, options=options)
    # the paths of a run are those of where the user types
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return resolve(target, folder)


def test_values_come_from_the_file_and_say_so(folder: Path) -> None:
    spec = run(folder, "n_epochs=64", "n_train=2")
    assert spec.train["n_valid"] == 2
    assert spec.origins["train.n_valid"] == "cosmo.yaml: data.n_valid"
    assert spec.train["lr"] == 0.001
    assert spec.train["schedule"] == "epochs"
    assert spec.train["drops"] == [[32, 0.25], [64, 0.125]]
    assert spec.train["lr_scaling"] == "linear"
    assert spec.train["warmup_epochs"] == 4
    assert spec.train["optimizer"] == "sgd"
    assert spec.train["loss"] == "mse"
    assert spec.train["hidden_activation"] == "leaky_relu"
    assert spec.train["target"] == 0.124
    assert spec.train["patience"] is None
    assert spec.train["augment"] is False
    assert spec.train["standardize"] is False
    for key, value in (("epochs", 64), ("n_train", 2)):
        assert spec.train[key] == value
        assert spec.origins[f"train.{key}"] == "command line"


def test_the_batch_of_a_rank_becomes_that_of_all(folder: Path) -> None:
    spec = run(folder, ranks=3)
    assert spec.train["batch_size"] == 12
    assert spec.origins["train.batch_size"] == "cosmo.yaml: data.batch_size 4 x 3 ranks"


def test_what_has_no_effect_is_named(folder: Path) -> None:
    spec = run(folder)
    assert spec.recipe is not None
    ((note, _),) = spec.recipe.notes
    for name in ("output_dir", "data.prefetch", "data.compression", "model.name"):
        assert name in note


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("n_train", "n_trian", "data.n_trian", "data.n_train"),
        ("optimizer:", "optimiser:", "optimiser.name", "optimizer.name"),
        ("MaxPool3D", "AveragePooling3D", "AveragePooling3D", "MaxPool3D"),
        ("64: 0.125", "later: 0.125", "'later' is not an epoch", "32: 0.25"),
        ("name: SGD", "name: Lion", "is not one of its choices", "sgd"),
        ("n_epochs: 128", "n_epochs: many", "wrong type", "whole number"),
        ("apply_log: True", "apply_log: 2", "wrong type", "true or false"),
        ("target_size: 4", "target_size: 3", "there are 4 parameters", "4"),
    ],
)
def test_what_is_refused(folder: Path, old: str, new: str, message: str, hint: str) -> None:
    assert old in CONFIG
    with pytest.raises(Refused, match=message) as raised:
        run(folder, config=CONFIG.replace(old, new))
    assert hint in (raised.value.hint or "")


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(Refused, match="no such file"):
        resolve(Request(target="cosmoflow", settings=("config=absent.yaml",)), folder)


def test_without_a_file_nothing_changes(folder: Path) -> None:
    spec = resolve(Request(target="cosmoflow", settings=(f"data={folder}/set",)), folder)
    assert spec.origins["train.lr"] == "recipe.toml"
    assert spec.recipe is not None and not spec.recipe.notes


@pytest.mark.parametrize(("written", "meant"), [("1", True), ("0", False), ("False", False)])
def test_the_logarithm_is_a_switch_in_both_of_the_references_ways(
    folder: Path, written: str, meant: bool
) -> None:
    spec = run(folder, config=CONFIG.replace("apply_log: True", f"apply_log: {written}"))
    assert spec.train["apply_log"] is meant
    assert spec.origins["train.apply_log"] == "cosmo.yaml: data.apply_log"


def test_a_file_that_says_little_sets_little() -> None:
    found = translate({"data.n_train": 5}, 1)
    assert found.settings["n_train"] == (5, "data.n_train")
    assert "schedule" not in found.settings
    assert "drops" not in found.settings
    assert found.ignored == ()
