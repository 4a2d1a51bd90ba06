"""A checkpoint of Lightning runs no code of somebody else: plain data is loaded as such, and Python
objects only from a file that nobody else can have written."""

import argparse
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.fabric.utilities.data import AttributeDict

from rampup.engines.lightning.plugins import SafeCheckpointIO
from rampup.errors import RampupError


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def load(path: Path) -> Any:
    return SafeCheckpointIO(SimpleNamespace()).load_checkpoint(path, weights_only=False)  # type: ignore[arg-type]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "step-4").mkdir(mode=0o755)
    return tmp_path / "step-4" / "state.ckpt"


def test_usual_checkpoints_are_plain_data_whoever_wrote_them(mine: Path) -> None:
    options = argparse.Namespace(lr=np.float64(0.5), sizes=[1, 2])
    given = {
        "state_dict": {"w": torch.ones(2)},
        "hyper_parameters": AttributeDict(hidden=4, options=options),
        "means": np.arange(3.0),
    }
    torch.save(given, mine)
    mine.chmod(0o666)
    found = load(mine)
    assert dict(found["hyper_parameters"]) == {"hidden": 4, "options": options}
    assert found["means"].tolist() == [0, 1, 2] and found["state_dict"]["w"].tolist() == [1, 1]


@pytest.mark.parametrize("where", ["file", "folder"])
def test_objects_of_others_are_refused(mine: Path, where: str) -> None:
    mark = mine.with_name("PICKLE-RAN")
    torch.save({"state_dict": {}, "extra": Touch(mark)}, mine)
    (mine if where == "file" else mine.parent).chmod(0o777)
    with pytest.raises(RampupError) as raised:
        load(mine)
    assert not mark.exists()
    assert "is not loaded: it holds Python objects" in raised.value.message
    assert "others may write" in raised.value.message and "chmod" in raised.value.hint


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_objects_of_another_owner_are_refused(mine: Path) -> None:
    mark = mine.with_name("PICKLE-RAN")
    torch.save({"extra": Touch(mark)}, mine)
    os.chown(mine, 4242, 4242)
    with pytest.raises(RampupError, match="belongs to user 4242"):
        load(mine)
    assert not mark.exists()


def test_ones_own_objects_are_loaded(mine: Path) -> None:
    mark = mine.with_name("made")
    torch.save({"extra": Touch(mark)}, mine)
    mine.chmod(0o644)
    load(mine)
    assert mark.exists()
