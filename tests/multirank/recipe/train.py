"""A recipe whose every batch leaves a trace: which samples each rank saw in each step."""

import json
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rampup.torch import Classifier, Field, SampleReader, Task, TensorData, draws

WIDTH, CLASSES = 6, 3


class Traced(Task):
    """`samples` to train on, `validation` to validate, and what the settings say beside."""

    def data(self) -> tuple[TensorData, TensorData | None]:
        random = torch.Generator().manual_seed(7)
        count = self.settings.samples + self.settings.validation
        x = torch.randn(count, WIDTH, generator=random)
        y = (x @ torch.randn(WIDTH, CLASSES, generator=random)).argmax(1)
        ids = torch.arange(count)
        train, rest = slice(None, self.settings.samples), slice(self.settings.samples, None)
        validation = TensorData(ids[rest], x[rest], y[rest]) if self.settings.validation else None
        return TensorData(ids[train], x[train], y[train]), validation

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, CLASSES))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        ids, x, y = batch
        self.trace("ids", ids.tolist())
        return cross_entropy(model(x), y)

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        _, x, y = batch
        scores = model(x)
        return {
            "loss": cross_entropy(scores, y, reduction="sum"),
            "accuracy": (scores.argmax(1) == y).sum(),
        }

    def trace(self, what: str, value: object) -> None:
        if not self.settings.trace:
            return
        path = Path(os.environ["RAMPUP_RUN_DIR"]) / f"{what}-{os.environ['RANK']}.jsonl"
        with open(path, "a") as file:
            file.write(json.dumps(value) + "\n")


class Noisy(Traced):
    """Dropout and batch normalisation: what differs between ranks and must still be the same in
    every run."""

    def model(self) -> nn.Module:
        layers = [
            nn.Linear(WIDTH, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(16, CLASSES),
        ]
        return nn.Sequential(*layers)

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        normalisation: Any = model.get_submodule("1")
        self.trace("mean", normalisation.running_mean.tolist())
        return super().evaluate(model, batch)


class Normed(Traced):
    """Batch normalisation alone: nothing is drawn at random."""

    def model(self) -> nn.Module:
        layers = [nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)]
        return nn.Sequential(*layers)


class Frozen(Traced):
    """Batch normalisation that is kept in eval mode, as for a model that is fine-tuned."""

    def model(self) -> nn.Module:
        return _Frozen(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES))


class _Frozen(nn.Sequential):
    def train(self, mode: bool = True) -> "_Frozen":
        super().train(mode)
        self[1].eval()
        return self


class Named(Classifier, Traced):
    """Names its classes, and leaves what it said of every validation sample."""

    classes = ("one", "two", "three")

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return Traced.loss(self, model, batch)

    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        ids, x, y = batch
        found = model(x)
        self.trace("said", [ids.tolist(), y.tolist(), found.softmax(1).tolist()])
        return found, y

    def pictures(self, batch: Any) -> Tensor:
        return (batch[1].reshape(-1, 2, 3) * 50 + 128).clamp(0, 255).byte()


class Augmented(Traced):
    """Makes each sample larger or smaller, by what is drawn for it in this epoch."""

    def augment(self, batch: Any, epoch: int) -> Any:
        ids, x, y = batch
        (drawn,) = draws(self.settings.seed, epoch, ids, 1)
        return ids, x * (0.5 + drawn / 2**53).unsqueeze(1), y


class Idle(Traced):
    """A parameter that the loss never reaches: an optimizer must leave it alone, whatever the
    weight decay."""

    def model(self) -> nn.Module:
        model = super().model()
        model.register_parameter("idle", nn.Parameter(torch.ones(3)))
        return model


class Images(Traced):
    """Convolutions, whose weights have another memory layout with channels_last."""

    def data(self) -> tuple[TensorData, TensorData | None]:
        train, validation = super().data()
        assert validation is not None
        return _as_images(train), _as_images(validation)

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(2, 4, (1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(8, CLASSES)
        )

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.trace("last", batch[1].is_contiguous(memory_format=torch.channels_last))
        return super().loss(model, batch)


class Spatial(Images):
    """Batch normalisation over two positions of every image."""

    def model(self) -> nn.Module:
        convolution, normalisation = nn.Conv2d(2, 4, (1, 2)), nn.BatchNorm2d(4)
        return nn.Sequential(convolution, normalisation, nn.Flatten(), nn.Linear(8, CLASSES))


def _as_images(data: TensorData) -> TensorData:
    ids, x, y = data.tensors
    return TensorData(ids, x.reshape(-1, 2, 1, 3), y)


class Raises(Traced):
    """Rank 1 fails in the third step."""

    steps = 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.steps += 1
        if self.steps == 3 and os.environ["RANK"] == "1":
            raise ValueError("as planned")
        return super().loss(model, batch)


class Vanishes(Traced):
    """Somebody removes the run's metrics while it is running."""

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        metrics = Path(os.environ["RAMPUP_RUN_DIR"]) / "attempts" / "1" / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        return super().evaluate(model, batch)


class Stopped(Traced):
    """The launcher ends it in the middle of an epoch."""

    steps = 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.steps += 1
        if self.steps == 4:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        return super().loss(model, batch)


class Interrupted(Noisy):
    """In each attempt but the last, after so many of its losses: asked to stop, or killed, by the
    settings."""

    steps = 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        found = super().loss(model, batch)
        self.steps += 1
        attempt = int(os.environ["RAMPUP_ATTEMPT"])
        ends = self.settings.ends[attempt - 1] if attempt <= len(self.settings.ends) else 0
        if self.steps == ends:
            self.end()
        # Every source of random numbers has a part in it, so that each must be put back.
        return found * (
            1
            + 0.1 * random.random()
            + 0.1 * float(np.random.rand())
            + 0.1 * float(np.random.randn())
        )

    def end(self) -> None:
        if self.settings.how == "killed after a pause":
            time.sleep(0.3)  # what is being written now gets done
        if self.settings.how.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif os.environ["RANK"] == "0":
            os.kill(os.getpid(), signal.SIGTERM)


class Torn(Interrupted):
    """Before the second attempt looks for a checkpoint, a bit of the newest one has changed."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        if (os.environ["RAMPUP_ATTEMPT"], os.environ["RANK"]) == ("2", "0"):
            steps = Path(os.environ["RAMPUP_RUN_DIR"], "checkpoints").iterdir()
            newest = max(steps, key=lambda path: int(path.name.removeprefix("step-")))
            data = bytearray((newest / "state.pt").read_bytes())
            data[len(data) // 2] ^= 4
            (newest / "state.pt").write_bytes(data)


class Ghost(Traced):
    """A newer attempt begins while this one goes on."""

    steps = 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        self.steps += 1
        if self.steps == 8 and os.environ["RANK"] == "0":
            time.sleep(0.2)  # what is being written now gets done
            (Path(os.environ["RAMPUP_RUN_DIR"]) / "attempts" / "2").mkdir()
        time.sleep(0.02)
        return super().loss(model, batch)


class Endless(Traced):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch) * float("inf")


class Wordless(Traced):
    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        return 0.5


class Reads(SampleReader):
    """Arrays in memory as if they lay in files: read sample by sample, with a pause if wanted."""

    def __init__(self, data: TensorData, pause_s: float = 0.0, fails: bool = False) -> None:
        self._arrays = [tensor.numpy() for tensor in data.tensors]
        self._pause_s, self._fails = pause_s, fails
        self.fields = tuple(Field(array.shape[1:], array.dtype) for array in self._arrays)

    def __len__(self) -> int:
        return len(self._arrays[0])

    def read(self, indices: Any, out: Any) -> None:
        if self._fails and (indices // 20 == 4).any():
            raise FileNotFoundError(2, "No such file or directory", "/data/one.h5")
        time.sleep(self._pause_s)
        for array, found in zip(self._arrays, out, strict=True):
            found[:] = array[indices]


class InFiles(Reads):
    """One file for each sample, which is read from where staging has put it."""

    def __init__(self, data: TensorData, folder: Path) -> None:
        super().__init__(data)
        self._folder = folder
        folder.mkdir(exist_ok=True)
        for index, x in enumerate(self._arrays[1]):
            if not self._path(index).exists():
                made = self._path(index).with_suffix(f".{os.environ['RANK']}.npy")
                np.save(made, x)
                made.rename(self._path(index))

    def _path(self, index: int) -> Path:
        return self._folder / f"{index:03}.npy"

    def files(self) -> list[Path]:
        return [self._path(index) for index in range(len(self))]

    def read(self, indices: Any, out: Any) -> None:
        super().read(indices, out)
        for row, index in enumerate(indices):
            out[1][row] = np.load(self.local_path(self._path(index)))


class Streamed(Interrupted):
    """The same samples, read while the steps compute."""

    def data(self) -> Any:
        train, validation = super().data()
        assert validation is not None
        pause_s = self.settings.get("pause_s", 0.0)
        fails = os.environ["RANK"] == str(self.settings.get("failing_rank"))
        return Reads(train, pause_s, fails), Reads(validation, pause_s)


class Staged(Interrupted):
    """The same samples in files."""

    def data(self) -> Any:
        train, validation = super().data()
        assert validation is not None
        folder = Path(os.environ["RAMPUP_RUN_DIR"])
        return InFiles(train, folder / "train"), InFiles(validation, folder / "validation")


class StreamedPlain(Streamed):
    """Without anything that is drawn at random."""

    def model(self) -> nn.Module:
        return Traced.model(self)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return Traced.loss(self, model, batch)

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        return Traced.evaluate(self, model, batch)


class StreamedNamed(Named):
    """A classifier, whose first validation batch is kept for the pictures."""

    def data(self) -> Any:
        train, validation = super().data()
        assert validation is not None
        return Reads(train), Reads(validation)


class StreamedAugmented(Augmented):
    def data(self) -> Any:
        train, validation = super().data()
        assert validation is not None
        return Reads(train), Reads(validation)
