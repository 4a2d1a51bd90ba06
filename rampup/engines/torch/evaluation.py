"""Exact validation: every sample counts once, on any number of ranks.

Each rank takes a contiguous shard (sizes differ by at most one, nothing is padded), sums in
float64, and the sums are added up once. The bare model runs, so ranks with different numbers of
batches can't wait for each other. Of a classifier two tables are added up with the rest, from which
engines/classes.py tells all about the classes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rampup.data.order import shard
from rampup.engines.classes import THRESHOLDS, ClassCounts
from rampup.engines.torch.device import move
from rampup.engines.torch.task import Classifier, Data, Task
from rampup.engines.torch.world import World
from rampup.errors import RampupError

CONFUSION, REACHED = "classes/confusion", "classes/reached"
"""Names of the two tables among the sums: no metric can be called so."""
CLASS_METRICS = ("precision", "recall", "f1")


class Shown(NamedTuple):
    """The first batch of the validation data, and what the model said of it."""

    batch: Any
    scores: Tensor
    labels: Tensor


class Evaluation:
    """`names` are known before the first step: a rank with an empty shard needs them, and so does
    the monitor."""

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        data: Data | None,
        world: World,
        autocast: torch.autocast,
    ) -> None:
        self._task, self._model, self._world, self._autocast = task, model, world, autocast
        self._batch_size: int = task.settings.eval_batch_size
        self._batches: int | None = task.settings.get("eval_batches")
        self._channels_last: bool = task.settings.channels_last
        self._data = data if data is not None and len(data) else None
        self.counts: ClassCounts | None = None
        """Of the last validation of a classifier, over all ranks."""
        self.shown: Shown | None = None
        """Of a classifier, on rank 0."""
        first = self._sums_of(0, min(self._batch_size, len(self._data))) if self._data else {}
        self._sizes = {name: first[name].numel() for name in sorted(first)}

    @property
    def metrics(self) -> list[str]:
        of_classes = CLASS_METRICS if CONFUSION in self._sizes else ()
        return [f"val_{name}" for name in (*self._scalars(), *of_classes)]

    def _scalars(self) -> list[str]:
        return [name for name in self._sizes if name not in (CONFUSION, REACHED)]

    def brief(self, row: dict[str, float]) -> dict[str, float]:
        """What of a row fits on a line: the rest is in the metrics."""
        return {
            name: value
            for name, value in row.items()
            if name not in {f"val_{it}" for it in CLASS_METRICS}
        }

    def run(self) -> dict[str, float]:
        """The metrics of the model as it is now, the same on every rank."""
        if self._data is None:
            return {}
        self._world.average(
            buffer for buffer in self._model.buffers() if buffer.is_floating_point()
        )
        low, high = shard(len(self._data), self._world.rank, self._world.size)
        if self._batches is not None:
            high = min(high, low + self._batches * self._batch_size)
        sums = torch.zeros(sum(self._sizes.values()) + 1, dtype=torch.float64)
        sums[-1] = high - low
        for begin in range(low, high, self._batch_size):
            found = self._sums_of(begin, min(begin + self._batch_size, high))
            sums[:-1] += torch.cat([found[name] for name in self._sizes])
        added = self._world.sum(sums.to(self._world.device)).cpu()
        *totals, count = torch.split(added, [*self._sizes.values(), 1])
        total = dict(zip(self._sizes, totals, strict=True))
        means = {f"val_{name}": (total[name] / count).item() for name in self._scalars()}
        return means | self._of_classes(total)

    def _of_classes(self, total: Mapping[str, Tensor]) -> dict[str, float]:
        if CONFUSION not in total:
            return {}
        classes = round(total[CONFUSION].numel() ** 0.5)
        reached = total[REACHED].view(2, classes, THRESHOLDS).numpy()
        self.counts = ClassCounts(total[CONFUSION].view(classes, classes).numpy(), reached)
        return {f"val_{name}": value for name, value in self.counts.means().items()}

    def _sums_of(self, begin: int, end: int) -> dict[str, Tensor]:
        """The task's sums over these samples, each as a row of float64 on the CPU."""
        assert self._data is not None
        batch = move(
            self._data.batch(torch.arange(begin, end)), self._world.device, self._channels_last
        )
        self._model.eval()
        with torch.no_grad(), self._autocast:
            found: Any = self._evaluated(batch, begin)
        self._model.train()
        if not isinstance(found, Mapping) or not found:
            raise RampupError(
                f"evaluate() of {type(self._task).__name__} returned {type(found).__name__}, not a dict of sums",
                'return {"loss": ..., "accuracy": ...} with sums over the samples',
            )
        return {
            name: torch.as_tensor(value).detach().to("cpu", torch.float64).flatten()
            for name, value in found.items()
        }

    def _evaluated(self, batch: Any, begin: int) -> Any:
        if not isinstance(self._task, Classifier):
            return self._task.evaluate(self._model, batch)
        scores, labels = self._task.scores(self._model, batch)
        if begin == 0 and self._world.rank == 0:
            self.shown = Shown(batch, scores, labels)
        return {
            **self._task.sums(scores, labels),
            **class_tables(scores, labels, len(self._task.classes)),
        }


def class_tables(scores: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """What a ClassCounts is made of, for some samples."""
    if scores.dim() != 2 or scores.shape[1] != classes:
        raise RampupError(
            f"the model gives scores of shape {tuple(scores.shape)}, but `classes` names {classes}",
            "one row for each sample, one score for each class",
        )
    scores, labels = scores.detach().float(), labels.to(torch.int64)
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        wrong = int(labels.max()) if int(labels.min()) >= 0 else int(labels.min())
        raise RampupError(
            f"there is a label {wrong}, but `classes` names {classes}",
            f"labels go from 0 to {classes - 1}",
        )
    taken = torch.bincount(labels * classes + scores.argmax(1), minlength=classes * classes)
    probability = scores.softmax(1).nan_to_num()
    # In float64, as everybody computes 0.29 * 100: a sample just at a threshold belongs above it.
    place = (probability.double() * (THRESHOLDS - 1)).long().clamp_(0, THRESHOLDS - 1)
    other = 1 - torch.nn.functional.one_hot(labels, classes)
    row = other * classes + torch.arange(classes, device=scores.device)
    reached = torch.bincount(
        (row * THRESHOLDS + place).flatten(), minlength=2 * classes * THRESHOLDS
    )
    return {CONFUSION: taken, REACHED: reached}
