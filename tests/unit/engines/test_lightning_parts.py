"""Parts of the lightning engine that need no training: the graph of a module, what counts as scores
and as labels."""

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, SubsetRandomSampler, TensorDataset

from rampup.core.engines.lightning import class_names
from rampup.core.settings import Settings
from rampup.engines.lightning.classes import ModuleClasses, sample_order, split_batch, to_scores
from rampup.engines.lightning.insight import trace_graph
from rampup.engines.lightning.state import LoaderPositions
from rampup.errors import RampupError, Refused


class Straight(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.loss = nn.MSELoss()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + x


class Winding(Straight):
    """Its way depends on the data: it can't be traced with symbols."""

    def forward(self, x: Tensor) -> Tensor:
        doubled = self.inner(x) if x.sum() > 0 else -x
        return torch.relu(doubled + x)


class Parts(pl.LightningModule):
    """Without forward()."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        self.head = nn.Linear(3, 1)
        self.loss = nn.MSELoss()


# the graph ----------------------------------------------------------------------------------------


def test_forward_is_traced() -> None:
    nodes = {node.name: node for node in trace_graph(Straight())}
    assert nodes["inner/1"].inputs == ["inner/0"] and nodes["add"].inputs == ["inner/1", "x"]


def test_a_way_that_depends_on_the_data_is_that_of_the_example() -> None:
    module = Winding()
    assert trace_graph(module) == []
    module.example_input_array = torch.ones(1, 4)
    nodes = {node.name: node for node in trace_graph(module)}
    assert nodes["inner/0"].inputs == ["input"] and nodes["inner/0"].note.startswith("Linear(")
    assert nodes["add"].inputs == ["inner/1", "input"]
    assert nodes["relu"].inputs == ["add"]
    module.example_input_array = -torch.ones(1, 4)
    assert "neg" in {node.name for node in trace_graph(module)}
    assert module.training and module.inner.training, "as it was"


@pytest.mark.parametrize("example", [(torch.ones(1, 4),), {"x": torch.ones(1, 4)}])
def test_an_example_is_a_tensor_or_arguments_or_their_names(example: Any) -> None:
    module = Winding()
    module.example_input_array = example
    assert "inner/0" in [node.name for node in trace_graph(module)]


def test_an_example_that_does_not_fit_gives_no_graph() -> None:
    module = Winding()
    module.example_input_array = torch.ones(1, 5)
    assert trace_graph(module) == [] and module.inner.training
    assert not module.inner[0]._forward_hooks


def test_without_forward_the_parts_are_shown() -> None:
    nodes = {node.name: node for node in trace_graph(Parts())}
    assert nodes["critic/1"].inputs == ["critic/0"]
    assert nodes["head"].kind == "Linear" and "loss" not in nodes


# what a module of the user's gives ----------------------------------------------------------------


def test_scores_logarithms_and_probabilities_mean_the_same() -> None:
    scores = torch.tensor([[3.0, -1.0, 0.5], [0.1, 0.2, 0.3]])
    probabilities = scores.softmax(1)
    for given in (scores, scores.log_softmax(1), probabilities):
        assert torch.allclose(to_scores(given, 2).softmax(1), probabilities)
    many = torch.randn(500, 10).softmax(1)
    coarse = to_scores(many.bfloat16(), 500)  # their sums are off by up to a hundredth
    assert torch.allclose(coarse.softmax(1), many, atol=0.01)
    certain = to_scores(torch.tensor([[0.0, 1.0, 0.0]]), 1)
    assert certain.softmax(1).tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (torch.zeros(4), "shape (4,)"),
        (torch.zeros(3, 2), "shape (3, 2) for 4 samples"),
        ((1, 2), "type tuple"),
    ],
)
def test_what_is_no_score_for_each_class(found: Any, words: str) -> None:
    with pytest.raises(RampupError) as caught:
        to_scores(found, 4)
    assert words in caught.value.message and "one score for each class" in caught.value.hint


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"x": 1}, "is a dict"),
        ((1, 2, 3), "is a tuple of 3"),
        ((torch.zeros(2, 4), torch.zeros(2)), "torch.float32 of shape (2,)"),
        ((torch.zeros(2, 4), torch.zeros(2, 3, dtype=torch.int64)), "torch.int64 of shape (2, 3)"),
        ((torch.zeros(2, 4), ["a", "b"]), "are list"),
    ],
)
def test_what_is_no_pair_of_inputs_and_labels(batch: Any, words: str) -> None:
    with pytest.raises(RampupError) as caught:
        split_batch(batch)
    assert words in caught.value.message and "(inputs, labels)" in caught.value.hint


def test_only_images_become_pictures() -> None:
    task = ModuleClasses(Settings({}), ("a", "b"))
    grey, colour = torch.linspace(-2, 2, 32).view(2, 1, 4, 4), torch.rand(2, 3, 4, 4)
    found = task.pictures((grey, None))
    assert found is not None and found.shape == (2, 4, 4) and (found.min(), found.max()) == (0, 255)
    assert task.pictures((colour, None)).shape == (2, 4, 4, 3)
    assert task.pictures((torch.zeros(2, 1, 4, 4), None)).max() == 0
    for other in (torch.zeros(2, 16), torch.zeros(2, 7, 4, 4), [1, 2]):
        assert task.pictures((other, None)) is None


def test_each_sample_once_in_whatever_order() -> None:
    data = TensorDataset(torch.arange(7))
    on_ranks = DistributedSampler(data, num_replicas=3, rank=1)
    assert list(sample_order(DataLoader(data, 2, shuffle=True))) == list(range(7))
    assert list(sample_order(DataLoader(data, 2, sampler=on_ranks))) == list(range(7))
    chosen = SubsetRandomSampler([1, 3, 5, 6])
    wrapped = DistributedSamplerWrapper(chosen, num_replicas=3, rank=2)
    for sampler in (chosen, wrapped):
        assert sorted(sample_order(DataLoader(data, 2, sampler=sampler))) == [1, 3, 5, 6]


# the setting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (3, ("0", "1", "2")),
        ("3", ("0", "1", "2")),
        ("cat,dog", ("cat", "dog")),
        ('["a cat", "$(dog)"]', ("a cat", "$(dog)")),
        (["a", "b"], ("a", "b")),
        (None, ()),
        ("none", ()),
    ],
)
def test_names_of_classes(given: Any, names: tuple[str, ...]) -> None:
    assert class_names(given) == names


@pytest.mark.parametrize(
    "given", [1, 0, "1", "cat", "cat,cat", "cat,,dog", ["a"], 100_000, -3, True, "", 2.5]
)
def test_what_names_no_classes_is_refused(given: Any) -> None:
    with pytest.raises(Refused) as caught:
        class_names(given)
    assert "classes=10" in caught.value.hint


# loaders of other kinds ---------------------------------------------------------------------------


class Remembering:
    def __iter__(self) -> Any:
        return iter([1, 2])

    def state_dict(self) -> dict[str, Any]:
        return {"place": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


def test_a_loader_that_finds_its_place_by_itself_is_known_as_one() -> None:
    """By its class, as Python from 3.12 on looks at it."""
    positions = LoaderPositions(torch.device("cpu"), lambda: 0, lambda: 0)
    own, plain = positions.attach([Remembering(), [1, 2]])
    assert hasattr(type(own), "state_dict") and not hasattr(type(plain), "state_dict")
    assert own.state_dict() == {"place": 1} and list(own) == [1, 2]
    assert len(plain) == 2 and not hasattr(type(own), "__len__")
