"""The graph of a LightningModule for TensorBoard: as its forward() is traced, else as one call of
it went.

Tracing with symbols needs no data, but fails where the way depends on them; then a call with
`example_input_array` shows the way that this example takes. A module without forward() shows the
parts that it is made of. Asked once, by lightning_insight.py; a module that allows none of these
has no graph.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rampup.core.tfevents import Node
from rampup.engines.torch import graph as torch_graph
from rampup.engines.torch.graph import LONGEST

SEEN_ONLY = ("__get__", "size", "dim", "__len__")
"""Questions about a tensor: no part of the graph."""


def graph_of(module: nn.Module) -> list[Node]:
    if type(module).forward is LightningModule.forward:
        return [node for name, part in module.named_children() for node in _part(name, part)]
    return torch_graph.graph_of(module) or _called(module)


def _part(name: str, part: nn.Module) -> list[Node]:
    if not any(True for _ in part.parameters()):  # a loss or a metric
        return []
    inner = torch_graph.graph_of(part) if any(part.children()) else []
    if not inner:
        return [Node(name, type(part).__name__, [], str(part)[:LONGEST])]
    return [
        node._replace(name=f"{name}/{node.name}", inputs=[f"{name}/{each}" for each in node.inputs])
        for node in inner
    ]


def _called(module: nn.Module) -> list[Node]:
    example = getattr(module, "example_input_array", None)
    if example is None:
        return []
    recorder = Recorder(module)
    was_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad(), recorder:
            recorder.call(example)
    except Exception:  # the example is the user's own and may not fit
        return []
    finally:
        recorder.close()
        for part in was_training:
            part.training = True
    return recorder.nodes


class Recorder(TorchFunctionMode):
    """Writes down every layer and every other operation of a call, and which result goes into
    which."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self._module = module
        self._calls: Counter[str] = Counter()
        self._made_by: dict[int, str] = {}
        self._kept: list[Tensor] = []
        """So that no later tensor gets the identity of an earlier one."""
        self._inside = 0
        leaves = [
            (name, part)
            for name, part in module.named_modules()
            if name and not any(part.children())
        ]
        self._hooks = [hook for name, part in leaves for hook in self._watch(name, part)]

    def call(self, example: Any) -> None:
        """As Lightning does it: a tuple is several arguments, a dictionary has their names."""
        device = next(
            (parameter.device for parameter in self._module.parameters()), torch.device("cpu")
        )
        moved = move_data_to_device(example, device)
        for each in tensors_in(moved):
            self._add("input", "placeholder", [], each)
        if isinstance(moved, Mapping):
            self._module(**moved)
        else:
            self._module(*(moved if isinstance(moved, tuple) else (moved,)))

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if not self._inside and name not in SEEN_ONLY and any(True for _ in tensors_in(found)):
            self._add(name, name, [*args, *(kwargs or {}).values()], found)
        return found

    def _watch(self, name: str, part: nn.Module) -> Iterable[Any]:
        def begins(*_: Any) -> None:
            self._inside += 1

        def ended(_: nn.Module, inputs: Any, output: Any) -> None:
            self._inside -= 1
            self._add(
                name.replace(".", "/"), type(part).__name__, inputs, output, str(part)[:LONGEST]
            )

        yield part.register_forward_pre_hook(begins)
        yield part.register_forward_hook(ended)

    def _add(self, name: str, kind: str, inputs: Any, output: Any, note: str = "") -> None:
        self._calls[name] += 1
        unique = name if self._calls[name] == 1 else f"{name}_{self._calls[name]}"
        known = [
            self._made_by[id(each)] for each in tensors_in(inputs) if id(each) in self._made_by
        ]
        self.nodes.append(Node(unique, kind, list(dict.fromkeys(known)), note))
        for each in tensors_in(output):
            self._made_by[id(each)] = unique
            self._kept.append(each)


def tensors_in(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))
