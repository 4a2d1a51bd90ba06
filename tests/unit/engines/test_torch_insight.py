"""The model on paper, histograms of weights, and that pictures never stop a training."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rampup.core.settings import Settings
from rampup.engines.torch import insight as torch_insight
from rampup.engines.torch.insight import Insight, histogram, list_layers, trace_graph
from rampup.engines.torch.task import Task
from rampup.recipes.cifar10.model import ResNet18


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.inner(self.inner(x)), x)


class Winding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_layers() -> None:
    assert list_layers(Twice()) == [
        "inner.0: Linear(in_features=4, out_features=4, bias=True) 20 parameters",
        "inner.1: ReLU()",
        "in all: 20 parameters",
    ]
    assert list_layers(Winding()) == ["model: Winding()", "in all: no parameters"]
    assert list_layers(ResNet18())[-1] == "in all: 11,173,962 parameters"


def test_the_graph_has_boxes_and_every_call() -> None:
    nodes = {node.name: node for node in trace_graph(Twice())}
    assert list(nodes) == ["x", "inner/0", "inner/1", "inner/0_2", "inner/1_2", "add", "output"]
    assert nodes["inner/0_2"].inputs == ["inner/1"] and nodes["inner/0_2"].kind == "Linear"
    assert nodes["add"].inputs == ["inner/1_2", "x"] and nodes["add"].kind == "add"
    assert nodes["inner/0"].note == "Linear(in_features=4, out_features=4, bias=True)"
    known = {node.name for node in trace_graph(ResNet18())}
    assert "layer2/0/downsample/0" in known


def test_a_model_that_can_not_be_traced_has_no_graph() -> None:
    assert trace_graph(Winding()) == []


def test_histograms() -> None:
    values = torch.linspace(-1, 3, 401)
    found = histogram(values)
    assert found is not None
    counts, edges, squares = found
    assert sum(counts) == 401 and (edges[0], edges[-1]) == (-1, 3) and len(edges) == len(counts) + 1
    assert squares == pytest.approx(float((values**2).sum()))
    same = histogram(torch.zeros(5))
    assert same is not None and sum(same[0]) == 5 and same[1][0] < 0 < same[1][-1]
    assert (
        histogram(torch.tensor([])) is None and histogram(torch.tensor([1.0, float("nan")])) is None
    )


class Told:
    """The job and the evaluation, as far as they are asked: what comes is kept."""

    def __init__(self, file: Path | None) -> None:
        self.context, self.tensorboard, self.counts, self.first_batch = self, self, None, None
        self.rank = 0
        self.file, self.records = file, []

    def write_evaluation(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        if self.file is None:
            raise OSError("no room")
        self.file.write_text(json.dumps(record))

    def __getattr__(self, name: str) -> Any:
        return lambda *values: None


def insight(told: Any) -> Insight:
    return Insight(told, Task(Settings({})), Twice(), told)


def test_short_epochs_do_not_pay_for_it_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(tmp_path / "evaluation.json")
    made = insight(told)
    made.begin()
    for epoch in range(1, 6):
        made.update(10 * epoch, epoch)
    assert [record["step"] for record in told.records] == [10]
    made.show()
    made.show()
    assert [record["step"] for record in told.records] == [10, 50], (
        "the last one is shown once, at the end"
    )
    monkeypatch.setattr(torch_insight, "EVERY_S", 0.0)
    told.records.clear()
    made = insight(told)
    for epoch in range(1, 4):
        made.update(10 * epoch, epoch)
    assert len(told.records) == 3


def test_what_can_not_be_drawn_is_said_once_and_the_run_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = insight(Told(None))
    for epoch in (1, 2):
        made.update(epoch, epoch)
        made.show()
    assert capsys.readouterr().out == "warning: no more pictures of this run: OSError: no room\n"


def test_other_ranks_draw_nothing(tmp_path: Path) -> None:
    told = Told(tmp_path / "evaluation.json")
    told.rank = 1
    made = insight(told)
    made.begin()
    made.update(1, 1)
    made.show()
    assert told.records == []
