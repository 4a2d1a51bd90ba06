"""The state of a training with torch: complete, of one moment, in memory that is kept."""

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from rampup.engines.torch.parts import RunningLoss
from rampup.engines.torch.state import (
    FILE,
    KeptMemory,
    State,
    pack,
    preserve,
    random_state,
    set_random_state,
    unpack,
)
from rampup.engines.torch.world import World
from rampup.errors import RampupError
from rampup.runtime.checkpoints.saving import Snapshot
from rampup.runtime.context import RankContext
from rampup.runtime.job import Best

CPU = torch.device("cpu")
BEST = Best("val_accuracy", 0.5, 1, 3)


class Training:
    """The parts of one, without the engine around them."""

    def __init__(self, width: int = 4) -> None:
        self.model: nn.Module = nn.Sequential(
            nn.Linear(3, width), nn.BatchNorm1d(width), nn.Dropout(0.5)
        )
        self.model.register_buffer("unsaved", torch.zeros(2), persistent=False)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.loss = RunningLoss(CPU)
        scaler = GradScaler("cpu", enabled=False)
        self.state = State(
            self.model, self.optimizer, scaler, self.loss, World(RankContext(), CPU), seed=1
        )

    def step(self) -> None:
        loss = self.model(torch.randn(8, 3)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss.add(loss.detach(), 8)
        self.model.get_buffer("unsaved").add_(1)

    def everything(self) -> list[Any]:
        tensors = [*self.model.state_dict().values(), *self.model.buffers()]
        moments = [each["exp_avg"] for each in self.optimizer.state_dict()["state"].values()]
        return [tensor.tolist() for tensor in (*tensors, *moments)] + [self.loss.state()]


def written(snapshot: Snapshot, folder: Path) -> Path:
    file = io.BytesIO()
    snapshot.files[FILE](file)  # type: ignore[operator]
    (folder / FILE).write_bytes(file.getvalue())
    return folder


def test_another_process_goes_on_as_this_one(tmp_path: Path) -> None:
    training = Training()
    training.step()
    snapshot = training.state.take(3, BEST, {"world_size": 1})
    training.step()
    training.step()  # what was taken must not follow
    path = written(snapshot, tmp_path)
    assert snapshot.meta == {
        "world_size": 1,
        "best": {"metric": "val_accuracy", "value": 0.5, "epoch": 1, "step": 3},
    }
    other = Training()
    assert other.state.restore(path) == (3, BEST)
    other.step()
    other.step()
    assert other.everything() == training.everything()


def test_a_state_is_plain_data(tmp_path: Path) -> None:
    """Somebody may put a pickle of their own into a checkpoint, and seal it anew."""

    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    training = Training()
    torch.save({"step": 3, "model": Trap()}, tmp_path / FILE)
    with pytest.raises(RampupError, match="does not match"):
        training.state.restore(tmp_path)
    assert not (tmp_path / "sprung").exists()
    torch.load(tmp_path / FILE, weights_only=False)
    assert (tmp_path / "sprung").exists(), "the trap is one"


def test_the_memory_is_kept(tmp_path: Path) -> None:
    training = Training()
    training.step()
    memory = KeptMemory()
    first = memory.copy({"model": training.model.state_dict(), "list": [torch.ones(2)]})
    training.step()
    second = memory.copy({"model": training.model.state_dict(), "list": [torch.zeros(2)]})
    assert first["list"][0].data_ptr() == second["list"][0].data_ptr() and first["list"][
        0
    ].tolist() == [0, 0]
    assert second["model"]["0.weight"].data_ptr() == first["model"]["0.weight"].data_ptr()
    assert (
        second["model"]["0.weight"].data_ptr()
        != training.model.get_parameter("0.weight").data_ptr()
    )
    grown = memory.copy({"model": training.model.state_dict(), "list": [torch.zeros(5)]})
    assert len(grown["list"][0]) == 5


def test_the_best_has_memory_of_its_own(tmp_path: Path) -> None:
    training = Training()
    training.step()
    best = training.state.take(1, BEST, {}, is_best=True)
    training.step()
    training.state.take(2, BEST, {})
    other = Training()
    assert other.state.restore(written(best, tmp_path))[0] == 1


def test_a_memory_layout_is_kept() -> None:
    weight = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    copied = KeptMemory().copy({"model": [torch.ones(3), weight, torch.randn(2, 1).expand(2, 5)]})[
        "model"
    ]
    assert copied[1].stride() == weight.stride() and torch.equal(copied[1], weight)
    assert torch.equal(copied[0], torch.ones(3)) and copied[2].shape == (2, 5)


def test_many_tensors_are_written_in_few_pieces() -> None:
    class Counted:
        writes = 0

        def write(self, data: Any) -> int:
            self.writes += 1
            return memoryview(data).nbytes

        def flush(self) -> None:
            pass

    state = {
        "model": {str(number): torch.ones(3) for number in range(200)},
        "optimizer": [torch.ones(2)] * 100,
    }
    file = Counted()
    torch.save(KeptMemory().copy(state), file)
    assert file.writes < 60, "each makes the training loop wait for the interpreter"


def numbers() -> list[float]:
    return [
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        float(torch.rand(1)),
    ]


def test_every_source_of_random_numbers() -> None:
    random.gauss(0, 1), np.random.randn()  # each keeps a second number for the next call
    state = random_state(CPU)
    expected = [numbers() for _ in range(3)]
    numbers()
    assert set_random_state(state, CPU)
    assert [numbers() for _ in range(3)] == expected
    assert not set_random_state(state[:-1], CPU), "of another version"


def test_buffers_of_several_ranks() -> None:
    ranks = [
        [torch.tensor([1.0, 2.0]), torch.tensor(4)],
        [torch.tensor([3.0, 6.0]), torch.tensor(5)],
    ]
    into = [torch.zeros(2), torch.tensor(0)]
    unpack(pack(ranks[1]), into)
    assert (into[0].tolist(), into[1].item()) == ([3.0, 6.0], 5)


def test_another_model_is_a_clear_error(tmp_path: Path) -> None:
    training = Training()
    training.step()
    path = written(training.state.take(1, None, {}), tmp_path)
    with pytest.raises(RampupError, match="does not match the current model or optimizer"):
        Training(width=5).state.restore(path)


class Counting(nn.Module):
    """It has side effects, as an average that is kept in forward() is one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(2))
        self.register_buffer("calls", torch.zeros(1))
        self.times = 0
        self.seen: list[Tensor] = []
        self.part = torch.jit.script(nn.BatchNorm1d(2))

    mean: Tensor
    calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.5)
        self.calls = self.calls + 1
        self.times += 1
        self.last = x
        self.seen.append(x)
        self.part(torch.rand(3, 2))
        return x + self.mean * torch.rand(2)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("inference", [False, True])
def test_who_only_looks_changes_nothing(inference: bool) -> None:
    model, stood = Counting(), random_state(CPU)
    with torch.inference_mode(inference), preserve(model, CPU):
        model(torch.zeros(2))
        model.eval()
        assert model.times == 1 and not torch.equal(random_state(CPU), stood)
    assert model.mean.tolist() == [1, 1] and model.calls.item() == 0
    assert model.times == 0 and model.seen == [] and not hasattr(model, "last")
    assert model.part.num_batches_tracked.item() == 0 and model.part.training and model.training
    assert torch.equal(random_state(CPU), stood)
