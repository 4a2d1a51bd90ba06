"""Every setting of an engine has help, and a default that it would accept itself."""

import subprocess
import sys

import pytest

from rampup.engines.settings import ENGINES, TORCH
from rampup.spec import Setting

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
    assert sorted(ENGINES) == ["keras", "torch"]


def test_they_are_light() -> None:
    code = "import sys, rampup.engines.settings, rampup.engines.cpu; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
