"""Every setting of an engine has help, and a default that it would accept itself."""

import subprocess
import sys

import pytest

from rampup.core.engines import ENGINES
from rampup.core.engines.torch import TORCH
from rampup.core.metrics import lower_is_better
from rampup.core.spec import Setting

TYPES = {"int": int, "float": float, "str": str, "bool": bool, "list": list}


@pytest.mark.parametrize("name", TORCH)
def test_settings_agree_with_themselves(name: str) -> None:
    setting: Setting = TORCH[name]
    assert setting.help and "\n" not in setting.help
    if setting.default is None:
        assert setting.optional
        return
    assert type(setting.default) is TYPES[setting.type]
    assert not setting.choices or setting.default in setting.choices
    if isinstance(setting.default, int | float) and setting.low is not None:
        assert setting.default >= setting.low


def test_the_engines() -> None:
    assert sorted(ENGINES) == ["keras", "lightning", "torch"]
    assert [name for name, engine in ENGINES.items() if engine.has_recipes] == ["keras", "torch"]


def test_they_are_light() -> None:
    code = "import sys, rampup.core.engines.torch, rampup.core.hardware; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_which_value_of_a_metric_is_better() -> None:
    lower = [
        name
        for name in ("val_loss", "val_error", "val_mae", "RMSE", "epoch_s")
        if lower_is_better(name, "auto")
    ]
    assert lower == ["val_loss", "val_error", "val_mae", "RMSE", "epoch_s"]
    higher = ("val_accuracy", "val_f1", "val_auc", "samples_s", "val_amaela")
    assert not any(lower_is_better(name, "auto") for name in higher)
    assert lower_is_better("val_auc", "min") and not lower_is_better("val_loss", "max")
