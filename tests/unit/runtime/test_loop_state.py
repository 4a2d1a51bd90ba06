"""What a user's own loop may save comes back as it was, and nothing that is loaded can run code."""

import io
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rampup.errors import RampupError
from rampup.runtime.checkpoints.state_files import encode_state, load_state


def written(state: Any, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in encode_state(state).items():
        file = io.BytesIO()
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        (folder / name).write_bytes(file.getvalue())
    return folder


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**70),
        0.1,
        float("inf"),
        "text \u00e9 \0",
        b"\x00\xff",
        [1, [2, []]],
        (1, ("a",)),
        {},
        {"a": {"b": 1}},
        {1: "one", (2, 3): "pair"},
        {"$": "array", "at": 0},
        {"$": 1, 5: 2},
    ],
)
def test_plain_values(value: Any, tmp_path: Path) -> None:
    found = load_state(written({"value": value}, tmp_path))["value"]
    assert found == value and type(found) is type(value)
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_arrays(tmp_path: Path) -> None:
    state = {
        "x": np.arange(6, dtype=np.int16).reshape(2, 3),
        "nested": [np.float32(0.1), np.array(["a", "bc"])],
    }
    found = load_state(written(state, tmp_path))
    assert found["x"].dtype == np.int16 and np.array_equal(found["x"], state["x"])
    assert type(found["nested"][0]) is np.float32 and found["nested"][0] == np.float32(0.1)
    assert found["nested"][1].tolist() == ["a", "bc"]


def test_a_model_with_its_optimizer(tmp_path: Path) -> None:
    def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        model(torch.ones(4, 3) * torch.arange(4)[:, None]).square().sum().backward()
        optimizer.step()

    model, optimizer = trained()
    step(model, optimizer)
    numbers = torch.get_rng_state()
    written(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": numbers}, tmp_path
    )
    state, (other, its_optimizer) = load_state(tmp_path), trained()
    other.load_state_dict(state["model"])
    its_optimizer.load_state_dict(state["optimizer"])
    for each in ((model, optimizer), (other, its_optimizer)):
        each[1].zero_grad()
        step(*each)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    assert torch.equal(state["rng"], numbers)


def test_what_is_saved_is_the_state_of_that_moment() -> None:
    weight, array = torch.zeros(2), np.zeros(2)
    files = encode_state({"weight": weight, "array": array})
    weight += 1
    array += 1
    tensors, arrays = io.BytesIO(), io.BytesIO()
    files["tensors.pt"](tensors)  # type: ignore[operator]
    files["arrays.npz"](arrays)  # type: ignore[operator]
    tensors.seek(0), arrays.seek(0)
    assert torch.load(tensors, weights_only=True)[0].tolist() == [0, 0]
    assert np.load(arrays)["a0"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (nn.Linear(1, 1), "state_dict()"),
        ({1, 2}, "lists"),
        (np.array([object()]), "numpy arrays"),
        (OrderedDict(a=lambda: 1), "torch tensors"),
    ],
)
def test_anything_else_is_refused_when_it_is_saved(value: Any, words: str) -> None:
    with pytest.raises(RampupError, match=r"run\.save can't keep state\['value'\]") as caught:
        encode_state({"value": value})
    assert words in caught.value.hint


def test_no_file_can_run_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    for name in ("tensors.pt", "arrays.npz"):
        folder = written({"a": torch.ones(1), "b": np.ones(1)}, tmp_path / name)
        if name == "tensors.pt":
            torch.save([Trap()], folder / name)
        else:
            np.savez(folder / name, a0=np.array([Trap()], dtype=object))
        with pytest.raises((pickle.UnpicklingError, ValueError)):
            load_state(folder)
    assert not (tmp_path / "sprung").exists()
