"""Exact validation: every sample counts once, on any number of ranks.

Each rank takes a contiguous shard (sizes differ by at most one, nothing is padded), sums in
float64, and the sums are added up once. The bare model runs, so ranks with different numbers of
batches can't wait for each other. For a classifier two tables are added up with the rest, from
which engines/classes.py computes everything about the classes. The engines of torch and Lightning
call it after each epoch.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rampup.data.order import shard
from rampup.engines.classes import THRESHOLDS, ClassCounts
from rampup.engines.torch.batch_statistics import combine_over_ranks
from rampup.engines.torch.device import move
from rampup.engines.torch.segmentation import Segmenter
from rampup.engines.torch.task import Classifier, Data, Task
from rampup.engines.torch.world import World
from rampup.errors import RampupError

CONFUSION, REACHED = "classes/confusion", "classes/reached"
"""Names of the two tables among the sums; no metric can have such a name."""
CLASS_METRICS = ("precision", "recall", "f1")


class FirstBatch(NamedTuple):
    """The first batch of the validation data, and the scores that the model gave to it: those of a
    classifier, or of a segmenter, which are maps."""

    batch: Any
    scores: Tensor
    labels: Tensor


class Evaluation:
    """The validation of one task.

    The names of its metrics are known before the first step: a rank with an empty shard needs them,
    and so does the monitor.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        data: Data | None,
        world: World,
        autocast: torch.autocast,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._task, self._model, self._world, self._autocast = task, model, world, autocast
        self._batch_size: int = task.settings.eval_batch_size
        self._batches: int | None = task.settings.get("eval_batches")
        self._channels_last: bool = task.settings.channels_last
        self._data = data if data is not None and len(data) else None
        self._plan: Callable[..., None] | None = getattr(self._data, "plan", None)
        """Begins to read batches ahead, where the data is read sample by sample."""
        self._is_stopping = is_stopping
        tried = self._batch_size
        if self._plan:
            self._batch_size, tried = self._data.limit(self._batch_size), 1  # type: ignore[union-attr]
        self.counts: ClassCounts | None = None
        """The counts of the last validation over all ranks, for a classifier."""
        self.first_batch: FirstBatch | None = None
        """Set on rank 0, for a classifier and a segmenter."""
        first = self._sum(0, min(tried, len(self._data))) if self._data else {}
        self._sizes = {name: first[name].numel() for name in sorted(first)}
        self._names = list(self._means(first, 1)) if first else []

    @property
    def samples(self) -> int:
        """The number of validation samples that there are."""
        return len(self._data) if self._data is not None else 0

    @property
    def metrics(self) -> list[str]:
        class_metrics = CLASS_METRICS if CONFUSION in self._sizes else ()
        return [*self._names, *(f"val_{name}" for name in class_metrics)]

    def _means(self, sums: Mapping[str, Tensor], samples: int) -> dict[str, float]:
        """Return the task's own metrics, from its sums over so many samples."""
        own = {name: total for name, total in sums.items() if name not in (CONFUSION, REACHED)}
        found = self._task.metrics(own, samples)
        return {f"val_{name}": float(value) for name, value in found.items()}

    def shorten(self, row: dict[str, float]) -> dict[str, float]:
        """Return the part of a row that fits on a line; the rest is in the metrics."""
        long = {f"val_{name}" for name in CLASS_METRICS}
        if isinstance(self._task, Segmenter):
            long |= {name for name in row if name.startswith("val_iou_")}
        return {name: value for name, value in row.items() if name not in long}

    def run(self) -> dict[str, float]:
        """Return the metrics of the current model, the same on every rank."""
        combine_over_ranks(self._model, self._world)
        if self._data is None:
            return {}
        low, high = shard(len(self._data), self._world.rank, self._world.size)
        if self._batches is not None:
            high = min(high, low + self._batches * self._batch_size)
        sums = torch.zeros(sum(self._sizes.values()) + 1, dtype=torch.float64)
        sums[-1] = high - low
        begins = range(low, high, self._batch_size)
        batches = [(begin, min(begin + self._batch_size, high)) for begin in begins]
        if self._plan:
            self._plan((np.arange(*batch) for batch in batches), self._is_stopping)
        for begin, end in batches:
            found = self._sum(begin, end)
            sums[:-1] += torch.cat([found[name] for name in self._sizes])
        added = self._world.all_reduce(sums.to(self._world.device)).cpu()
        *totals, count = torch.split(added, [*self._sizes.values(), 1])
        total = dict(zip(self._sizes, totals, strict=True))
        return self._means(total, round(count.item())) | self._count_classes(total)

    def _count_classes(self, total: Mapping[str, Tensor]) -> dict[str, float]:
        if CONFUSION not in total:
            return {}
        classes = round(total[CONFUSION].numel() ** 0.5)
        reached = total[REACHED].view(2, classes, THRESHOLDS).numpy()
        self.counts = ClassCounts(total[CONFUSION].view(classes, classes).numpy(), reached)
        return {f"val_{name}": value for name, value in self.counts.means().items()}

    def _sum(self, begin: int, end: int) -> dict[str, Tensor]:
        """Return the task's sums over these samples, each as a row of float64 on the CPU."""
        assert self._data is not None
        batch = move(
            self._data.batch(torch.arange(begin, end)), self._world.device, self._channels_last
        )
        self._model.eval()
        with torch.no_grad(), self._autocast:
            found: Any = self._evaluate(batch, begin)
        self._model.train()
        if not isinstance(found, Mapping) or not found:
            name, kind = type(self._task).__name__, type(found).__name__
            raise RampupError(
                f"evaluate() of {name} returned {kind}, not a dict of sums",
                'return {"loss": ..., "accuracy": ...} with sums over the samples',
            )
        return {
            name: torch.as_tensor(value).detach().to("cpu", torch.float64).flatten()
            for name, value in found.items()
        }

    def _evaluate(self, batch: Any, begin: int) -> Any:
        if not isinstance(self._task, Classifier | Segmenter):
            return self._task.evaluate(self._model, batch)
        scores, labels = self._task.scores(self._model, batch)
        if begin == 0 and self._world.rank == 0:
            self.first_batch = FirstBatch(batch, scores, labels)
        if isinstance(self._task, Segmenter):
            return self._task.sums(scores, labels)
        return {
            **self._task.sums(scores, labels),
            **class_tables(scores, labels, len(self._task.classes)),
        }


def class_tables(scores: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """Return the two tables of a ClassCounts for some samples."""
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
