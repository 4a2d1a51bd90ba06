"""What people look at besides the numbers of each epoch: classes, sample predictions, weights, the
model itself.

The engines of torch and Lightning call Insight after each validation. Rank 0 draws from what the
validation has left, at most every half minute and once at the end, into TensorBoard and into the
attempt's evaluation.json for the report. It never runs a model and never stops a training: what
can't be drawn is reported and left out.
"""

import base64
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
import torch.fx
from torch import Tensor, nn

from rampup.core.tfevents import Node
from rampup.engines.classes import MOST_CURVES, ClassCounts
from rampup.engines.pictures import Sample, confusion_picture, map_grid, sample_grid
from rampup.engines.torch.batch_statistics import GroupBatchNorm
from rampup.engines.torch.evaluation import FirstBatch
from rampup.engines.torch.segmentation import Segmenter
from rampup.engines.torch.task import Classifier, Task
from rampup.runtime.job import Job
from rampup.runtime.storage import say

EVERY_S = 30.0
SAMPLES = 20
MAPS = 6
BINS = 40
MOST_WEIGHTS = 100
"""The most tensors of a model that get a histogram."""
MOST_LAYERS = 400
LONGEST = 100
"""Characters of a layer's description."""
MOST_NODES = 300
"""The largest graph of the report; TensorBoard, where parts can be closed, gets any."""


# the model on paper -------------------------------------------------------------------------------


def list_layers(model: nn.Module) -> list[str]:
    """Return a line for each module without children: its name, type and number of parameters."""
    parts = [(name, part) for name, part in model.named_modules() if not any(part.children())]
    lines = [
        f"{name or 'model'}: {str(part)[:LONGEST]}{_parameters(part)}"
        for name, part in parts[:MOST_LAYERS]
    ]
    if len(parts) > MOST_LAYERS:
        lines.append(f"and {len(parts) - MOST_LAYERS} more")
    return [*lines, f"in all:{_parameters(model) or ' no parameters'}"]


def _parameters(part: nn.Module) -> str:
    count = sum(parameter.numel() for parameter in part.parameters())
    return f" {count:,} parameters" if count else ""


class Tracer(torch.fx.Tracer):
    """Looks at our own layers from outside, as at torch's: what counts in them is not counted."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = isinstance(m, GroupBatchNorm)
        return own or super().is_leaf_module(m, module_qualified_name)


def trace_graph(model: nn.Module) -> list[Node]:
    """Return the graph of a model, traced with symbols, so nothing is computed.

    It is empty for a model that can't be traced, because its path depends on the data.
    """
    try:
        graph = Tracer().trace(model)
    except Exception:  # its forward is the user's own and may do anything with a symbol
        return []
    modules = dict(model.named_modules())
    names = _names(graph)
    nodes = []
    for node in graph.nodes:
        kind, note = _kind(node), ""
        if node.op == "call_module":
            module = modules[str(node.target)]
            kind, note = type(module).__name__, str(module)[:LONGEST]
        inputs = [names[each] for each in node.all_input_nodes]
        nodes.append(Node(names[node], kind, inputs, note))
    return nodes


def _names(graph: torch.fx.Graph) -> dict[torch.fx.Node, str]:
    """Name `layer1.0.conv1` layer1/0/conv1, which TensorBoard shows as boxes to open.

    A module that is called again gets a number.
    """
    calls: Counter[str] = Counter()
    found = {}
    for node in graph.nodes:
        name = str(node.target).replace(".", "/") if node.op == "call_module" else node.name
        calls[name] += 1
        found[node] = name if calls[name] == 1 else f"{name}_{calls[name]}"
    return found


def _kind(node: torch.fx.Node) -> str:
    if not node.op.startswith("call"):
        return node.op
    return str(getattr(node.target, "__name__", node.target))


# what is shown ------------------------------------------------------------------------------------


class Validation(Protocol):
    """What is left of the last validation of a classifier."""

    counts: ClassCounts | None
    first_batch: FirstBatch | None


class Insight:
    def __init__(self, job: Job, task: Task, model: nn.Module, evaluation: Validation) -> None:
        self._job, self._task, self._model, self._evaluation = job, task, model, evaluation
        self._first = job.context.rank == 0
        self._due = 0.0
        self._waiting: tuple[int, int] | None = None
        self._failed = False
        self._layers: list[str] = []
        self._graph: list[dict[str, Any]] = []

    def begin(self, graph: Callable[[nn.Module], list[Node]] = trace_graph) -> None:
        """Show the model itself, once."""
        if not self._first:
            return
        try:
            self._layers = list_layers(self._model)
            text = "\n".join(f"    {line}" for line in self._layers)
            self._job.tensorboard.text(0, "model", text)
            nodes = graph(self._model)
            if nodes:
                self._job.tensorboard.graph(nodes)
            self._graph = [
                {"name": node.name, "kind": node.kind, "inputs": list(node.inputs)}
                for node in nodes
            ]
        except Exception as error:
            # the user's own forward(), called with what it was not made for
            say(f"warning: no picture of the model: {type(error).__name__}: {error}")

    def update(self, step: int, epoch: int) -> None:
        """Show a new validation now or later: short epochs must not pay for it each time."""
        self._waiting = (step, epoch)
        if time.monotonic() >= self._due:
            self.show()

    def show(self) -> None:
        """Show the last validation, unless that is done already."""
        if not self._first or self._waiting is None or self._failed:
            return
        step, epoch = self._waiting
        self._waiting = None
        try:
            record = {
                "step": step,
                "epoch": epoch,
                "model": self._layers,
                **self._show_classes(step),
                **self._show_maps(step),
            }
            record["weights"] = list(self._show_weights(step))
            record["graph"] = self._graph if len(self._graph) <= MOST_NODES else []
            self._job.write_evaluation(record)
        except Exception as error:  # whatever it is, the run is worth more than its pictures
            self._failed = True
            say(f"warning: no more pictures of this run: {type(error).__name__}: {error}")
        self._due = time.monotonic() + EVERY_S

    def _show_classes(self, step: int) -> dict[str, Any]:
        counts, first = self._evaluation.counts, self._evaluation.first_batch
        if counts is None or first is None or not isinstance(self._task, Classifier):
            return {}
        names, board = self._task.classes, self._job.tensorboard
        board.text(step, "classes", counts.table(names))
        for index, name in enumerate(names[:MOST_CURVES]):
            board.pr_curve(step, f"pr/{name}", counts.counts(index).tolist())
        picture = confusion_picture(counts.confusion, names)
        if picture is not None:
            board.image(step, "confusion", picture)
        return {**counts.record(names), **self._show_samples(step, first)}

    def _show_maps(self, step: int) -> dict[str, str]:
        """Show maps with the true and the predicted class of each pixel."""
        first = self._evaluation.first_batch
        if first is None or not isinstance(self._task, Segmenter):
            return {}
        batch, scores, labels = first
        pictures = self._task.pictures(batch)
        if pictures is None:
            return {}
        maps, truths, said = (
            list(each[:MAPS].cpu().to(torch.uint8).numpy())
            for each in (pictures, labels, scores.argmax(1))
        )
        grid = map_grid(maps, truths, said, self._task.classes)
        self._job.tensorboard.image(step, "samples", grid)
        return {"samples": base64.b64encode(grid).decode()}

    def _show_samples(self, step: int, first: FirstBatch) -> dict[str, str]:
        assert isinstance(self._task, Classifier)
        batch, scores, labels = first
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
        samples = [Sample(picture, names[label], names[it], p) for picture, label, it, p in rows]
        grid = sample_grid(samples)
        self._job.tensorboard.image(step, "samples", grid)
        return {"samples": base64.b64encode(grid).decode()}

    def _show_weights(self, step: int) -> Iterator[dict[str, Any]]:
        for name, parameter in list(self._model.named_parameters())[:MOST_WEIGHTS]:
            found = histogram(parameter.detach())
            if found is not None:
                counts, edges, squares = found
                self._job.tensorboard.histogram(step, f"weights/{name}", counts, edges, squares)
                yield {"name": name, "counts": counts, "low": edges[0], "high": edges[-1]}


def histogram(values: Tensor) -> tuple[list[int], list[float], float] | None:
    """Return counts, edges and the sum of squares of a tensor.

    A tensor that is empty, or has a number that is not finite, has no histogram.
    """
    values = values.float().flatten()
    if not values.numel() or not bool(values.isfinite().all()):
        return None
    low, high = values.min().item(), values.max().item()
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = torch.histc(values, BINS, low, high)
    edges = [low + (high - low) * place / BINS for place in range(BINS + 1)]
    return [int(count) for count in counts.tolist()], edges, float(values.square().sum())
