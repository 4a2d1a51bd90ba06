"""The state of a user's own loop as files of a checkpoint, and back: nothing in them can run code
when it is loaded.

Numbers, text, lists, dicts and bytes become JSON, numpy arrays an npz file, torch tensors a file
for `torch.load(weights_only=True)`. Neither library is imported here: a state that has arrays
brings its own. Whatever else is in a state is refused when it is saved, not when it is needed.
"""

import base64
import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rampup.errors import RampupError
from rampup.runtime.checkpoints.store import Content

TREE, ARRAYS, TENSORS = "state.json", "arrays.npz", "tensors.pt"
KIND = "$"
"""Marks an object of JSON that stands for something else."""


def encode_state(state: Mapping[str, Any]) -> dict[str, Content]:
    """Return the state as files. Everything that may change is copied, so that the loop can continue
    while the files are written."""
    encoder = _Encoder()
    files: dict[str, Content] = {TREE: json.dumps(encoder.tree(state, "state"), indent=1).encode()}
    if encoder.arrays:
        named = {f"a{index}": array for index, array in enumerate(encoder.arrays)}
        files[ARRAYS] = lambda file: sys.modules["numpy"].savez(file, **named)
    if encoder.tensors:
        files[TENSORS] = lambda file: sys.modules["torch"].save(encoder.tensors, file)
    return files


def load_state(folder: Path) -> dict[str, Any]:
    """Return the state, with its tensors on the CPU."""
    decoder = _Decoder(folder)
    state: dict[str, Any] = decoder.value(json.loads((folder / TREE).read_bytes()))
    return state


class _Encoder:
    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.tensors: list[Any] = []

    def tree(self, value: Any, place: str) -> Any:
        """Return the value as JSON; arrays and tensors by their number."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, bytes):
            return {KIND: "bytes", "base64": base64.b64encode(value).decode()}
        if isinstance(value, list):
            return [self.tree(each, f"{place}[{index}]") for index, each in enumerate(value)]
        if isinstance(value, tuple):
            return {
                KIND: "tuple",
                "items": [self.tree(each, f"{place}[{index}]") for index, each in enumerate(value)],
            }
        if isinstance(value, Mapping):
            return self._mapping(value, place)
        return self._encode_array(value, place)

    def _mapping(self, value: Mapping[Any, Any], place: str) -> Any:
        if all(type(key) is str for key in value) and KIND not in value:
            return {key: self.tree(each, f"{place}[{key!r}]") for key, each in value.items()}
        pairs = [
            [self.tree(key, f"a key of {place}"), self.tree(each, f"{place}[{key!r}]")]
            for key, each in value.items()
        ]
        return {KIND: "dict", "items": pairs}

    def _encode_array(self, value: Any, place: str) -> Any:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            self.tensors.append(value.detach().to("cpu", copy=True))
            return {KIND: "tensor", "at": len(self.tensors) - 1}
        if (
            numpy is not None
            and isinstance(value, numpy.ndarray | numpy.generic)
            and not value.dtype.hasobject
        ):
            self.arrays.append(numpy.array(value))
            return {
                KIND: "array" if isinstance(value, numpy.ndarray) else "scalar",
                "at": len(self.arrays) - 1,
            }
        hint = "numbers, text, bytes, lists, dicts, numpy arrays, torch tensors"
        if hasattr(value, "state_dict"):
            hint = f"save its state_dict(); allowed: {hint}"
        raise RampupError(f"run.save can't keep {place}, a {type(value).__name__}", hint)


class _Decoder:
    def __init__(self, folder: Path) -> None:
        self._arrays: Any = None
        self._tensors: Any = None
        if (folder / ARRAYS).exists():
            self._arrays = importlib.import_module("numpy").load(
                folder / ARRAYS, allow_pickle=False
            )
        if (folder / TENSORS).exists():
            torch = importlib.import_module("torch")
            self._tensors = torch.load(folder / TENSORS, map_location="cpu", weights_only=True)

    def value(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.value(each) for each in tree]
        if not isinstance(tree, dict):
            return tree
        kind = tree.get(KIND)
        if kind is None:
            return {key: self.value(each) for key, each in tree.items()}
        if kind == "dict":
            return {self.value(key): self.value(each) for key, each in tree["items"]}
        if kind == "tuple":
            return tuple(self.value(each) for each in tree["items"])
        if kind == "bytes":
            return base64.b64decode(tree["base64"])
        if kind == "tensor":
            return self._tensors[tree["at"]]
        array = self._arrays[f"a{tree['at']}"]
        return array[()] if kind == "scalar" else array
