"""Exact validation: every sample counts once, on any number of ranks.

Each rank takes a contiguous shard (sizes differ by at most one, nothing is padded), sums in float64, and the sums are
added up once. The bare model runs, so ranks with different numbers of batches can't wait for each other.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rampup.data.order import shard
from rampup.engines.torch_device import move
from rampup.engines.torch_task import Data, Task
from rampup.engines.torch_world import World
from rampup.errors import RampupError


class Evaluation:
    """`names` are known before the first step: a rank with an empty shard needs them, and so does the monitor."""

    def __init__(self, task: Task, model: nn.Module, data: Data | None, world: World, autocast: torch.autocast) -> None:
        self._task, self._model, self._world, self._autocast = task, model, world, autocast
        self._batch_size: int = task.settings.eval_batch_size
        self._channels_last: bool = task.settings.channels_last
        self._data = data if data is not None and len(data) else None
        self._names = sorted(self._sums_of(0, min(self._batch_size, len(self._data)))) if self._data else []

    @property
    def metrics(self) -> list[str]:
        return [f"val_{name}" for name in self._names]

    def run(self) -> dict[str, float]:
        """The metrics of the model as it is now, the same on every rank."""
        if self._data is None:
            return {}
        self._world.average(buffer for buffer in self._model.buffers() if buffer.is_floating_point())
        low, high = shard(len(self._data), self._world.rank, self._world.size)
        sums = torch.zeros(len(self._names) + 1, dtype=torch.float64)
        sums[-1] = high - low
        for begin in range(low, high, self._batch_size):
            found = self._sums_of(begin, min(begin + self._batch_size, high))
            sums[:-1] += torch.stack([found[name] for name in self._names])
        *totals, count = self._world.sum(sums.to(self._world.device)).tolist()
        return {f"val_{name}": total / count for name, total in zip(self._names, totals, strict=True)}

    def _sums_of(self, begin: int, end: int) -> dict[str, Tensor]:
        """The task's sums over these samples, as float64 on the CPU."""
        assert self._data is not None
        batch = move(self._data.batch(torch.arange(begin, end)), self._world.device, self._channels_last)
        self._model.eval()
        with torch.no_grad(), self._autocast:
            found: Any = self._task.evaluate(self._model, batch)
        self._model.train()
        if not isinstance(found, Mapping) or not found:
            raise RampupError(
                f"evaluate() of {type(self._task).__name__} returned {type(found).__name__}, not a dict of sums",
                'return {"loss": ..., "accuracy": ...} with sums over the samples',
            )
        return {name: torch.as_tensor(value).detach().to("cpu", torch.float64) for name, value in found.items()}
