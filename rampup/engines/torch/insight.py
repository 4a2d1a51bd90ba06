"""What people look at besides the numbers of each epoch: classes, sample predictions, weights, the
model itself.

Made from what a validation has left, at most every half minute and once at the end, by rank 0
alone: into TensorBoard, and into the attempt's evaluation.json for the report. No model is run for
it. What can't be drawn is said and left out: it never stops a training.
"""

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rampup.core.tfevents import Node
from rampup.engines.classes import MOST_CURVES, ClassCounts
from rampup.engines.pictures import Sample, confusion_picture, sample_grid
from rampup.engines.torch.evaluation import Shown
from rampup.engines.torch.graph import graph_of, layers_of
from rampup.engines.torch.task import Classifier, Task
from rampup.runtime.job import Job
from rampup.runtime.storage import say

EVERY_S = 30.0
SAMPLES = 20
BINS = 40
MOST_WEIGHTS = 100
"""Tensors of a model with a histogram."""
MOST_NODES = 300
"""A graph with more of them is for TensorBoard, where parts can be closed."""


class Validated(Protocol):
    """What is left of the last validation of a classifier."""

    counts: ClassCounts | None
    shown: Shown | None


class Insight:
    def __init__(self, job: Job, task: Task, model: nn.Module, evaluation: Validated) -> None:
        self._job, self._task, self._model, self._evaluation = job, task, model, evaluation
        self._first = job.context.rank == 0
        self._due = 0.0
        self._waiting: tuple[int, int] | None = None
        self._failed = False
        self._layers: list[str] = []
        self._graph: list[dict[str, Any]] = []

    def begin(self, graph: Callable[[nn.Module], list[Node]] = graph_of) -> None:
        """The model, once."""
        if not self._first:
            return
        try:
            self._layers = layers_of(self._model)
            self._job.tensorboard.text(
                0, "model", "\n".join(f"    {line}" for line in self._layers)
            )
            nodes = graph(self._model)
            if nodes:
                self._job.tensorboard.graph(nodes)
            self._graph = [
                {"name": node.name, "kind": node.kind, "inputs": list(node.inputs)}
                for node in nodes
            ]
        except Exception as error:
            # a forward() of the user's own, which was called with what it was not made for
            say(f"warning: no picture of the model: {type(error).__name__}: {error}")

    def validated(self, step: int, epoch: int) -> None:
        """A validation is done: shown now or later, so that short epochs do not pay for it each
        time."""
        self._waiting = (step, epoch)
        if time.monotonic() >= self._due:
            self.show()

    def show(self) -> None:
        """What was validated last, unless it was shown."""
        if not self._first or self._waiting is None or self._failed:
            return
        step, epoch = self._waiting
        self._waiting = None
        try:
            record = {"step": step, "epoch": epoch, "model": self._layers, **self._of_classes(step)}
            record["weights"] = list(self._weights(step))
            record["graph"] = self._graph if len(self._graph) <= MOST_NODES else []
            self._job.write_evaluation(record)
        except Exception as error:  # whatever it is, the run is worth more than its pictures
            self._failed = True
            say(f"warning: no more pictures of this run: {type(error).__name__}: {error}")
        self._due = time.monotonic() + EVERY_S

    def _of_classes(self, step: int) -> dict[str, Any]:
        counts, shown = self._evaluation.counts, self._evaluation.shown
        if counts is None or shown is None or not isinstance(self._task, Classifier):
            return {}
        names, board = self._task.classes, self._job.tensorboard
        board.text(step, "classes", counts.table(names))
        for index, name in enumerate(names[:MOST_CURVES]):
            board.pr_curve(step, f"pr/{name}", counts.counts(index).tolist())
        picture = confusion_picture(counts.confusion, names)
        if picture is not None:
            board.image(step, "confusion", picture)
        return {**counts.record(names), **self._samples(step)}

    def _samples(self, step: int) -> dict[str, str]:
        assert isinstance(self._task, Classifier) and self._evaluation.shown is not None
        batch, scores, labels = self._evaluation.shown
        pictures = self._task.pictures(batch)
        if pictures is None:
            return {}
        probability, said = scores[:SAMPLES].float().softmax(1).nan_to_num().max(1)
        names = self._task.classes
        rows = zip(
            pictures[:SAMPLES].cpu().numpy(),
            labels[:SAMPLES].tolist(),
            said.tolist(),
            probability.tolist(),
            strict=True,
        )
        grid = sample_grid(
            [Sample(picture, names[label], names[it], p) for picture, label, it, p in rows]
        )
        self._job.tensorboard.image(step, "samples", grid)
        return {"samples": base64.b64encode(grid).decode()}

    def _weights(self, step: int) -> Iterator[dict[str, Any]]:
        for name, parameter in list(self._model.named_parameters())[:MOST_WEIGHTS]:
            found = histogram_of(parameter.detach())
            if found is not None:
                counts, edges, squares = found
                self._job.tensorboard.histogram(step, f"weights/{name}", counts, edges, squares)
                yield {"name": name, "counts": counts, "low": edges[0], "high": edges[-1]}


def histogram_of(values: Tensor) -> tuple[list[int], list[float], float] | None:
    """Counts, edges and the sum of squares; none of a tensor that is empty, or holds what is no
    finite number."""
    values = values.float().flatten()
    if not values.numel() or not bool(values.isfinite().all()):
        return None
    low, high = values.min().item(), values.max().item()
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = torch.histc(values, BINS, low, high)
    edges = [low + (high - low) * place / BINS for place in range(BINS + 1)]
    return [int(count) for count in counts.tolist()], edges, float(values.square().sum())
