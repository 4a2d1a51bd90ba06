"""`classes=10`: how well a user's LightningModule distinguishes classes, counted over all ranks.

insight.py calls ClassPass after each validation of the module, for another pass over the same data:
Lightning repeats samples so that all ranks have the same number, and here each counts once. The
module is called as `module(inputs)`. Where that gives no score for each class, the run reports it
once and continues without. Random numbers and buffers are restored: training does not change.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from rampup.core.settings import Settings
from rampup.data.order import shard
from rampup.engines.classes import THRESHOLDS, ClassCounts
from rampup.engines.lightning import loops as lightning_loops
from rampup.engines.lightning.loaders import is_map_style
from rampup.engines.torch.evaluation import CONFUSION, REACHED, FirstBatch, class_tables
from rampup.engines.torch.parts import seed_everything
from rampup.engines.torch.state import preserve
from rampup.engines.torch.task import Classifier
from rampup.engines.torch.world import World
from rampup.errors import RampupError
from rampup.runtime.storage import say

PAIR = "the batches of val_dataloader must be (inputs, labels), with a whole number for each sample"
SUM_ERROR, SUM_ERROR_16_BIT = 1e-3, 2e-2
"""How far the sum of a row of probabilities may be off 1; numbers of 16 bits are that coarse."""


class ModuleClasses(Classifier):
    """The classes of a user's module, in the shape of a recipe's."""

    def __init__(self, settings: Settings, names: tuple[str, ...]) -> None:
        super().__init__(settings)
        self.classes = names

    def pictures(self, batch: Any) -> Tensor | None:
        """Return inputs that can only be images, stretched to all shades.

        They have one or three channels, then height and width.
        """
        inputs = batch[0]
        if not isinstance(inputs, Tensor) or inputs.dim() != 4 or inputs.shape[1] not in (1, 3):
            return None
        values = inputs.detach().float()
        low, high = values.min(), values.max()
        shown = ((values - low) * (255 / (high - low).clamp_min(1e-9))).round().byte().cpu()
        return shown[:, 0] if shown.shape[1] == 1 else shown.permute(0, 2, 3, 1)


class ClassPass:
    """The pass that counts; Insight reads `counts` and `first_batch` of the last one."""

    def __init__(self, trainer: Trainer, world: World, names: tuple[str, ...], seed: int) -> None:
        self._trainer, self._world, self._seed = trainer, world, seed
        self._classes = len(names)
        self.counts: ClassCounts | None = None
        self.first_batch: FirstBatch | None = None
        self._impossible = False
        self._made: tuple[Any, Any] = (None, None)

    def run(self) -> dict[str, float]:
        """Count one pass. All ranks call it after a validation, with the module in eval mode."""
        if self._impossible:
            return {}
        sizes = [self._classes**2, 2 * self._classes * THRESHOLDS, 1]
        sums, trouble = torch.zeros(sum(sizes), dtype=torch.float64), ""
        self.first_batch = None
        with preserve(self._trainer.lightning_module, self._world.device):
            # the same on every rank: a sampler may draw the order that they share
            seed_everything(self._seed)
            try:
                for batch in self._batches():
                    sums[:-1] += self._count(batch)
            except Exception as error:
                # the module is the user's code, and no rank may leave the others waiting
                trouble, sums[-1] = _describe(error), 1.0
        total = self._world.all_reduce(sums.to(self._world.device)).cpu()
        confusion, reached, failed = torch.split(total, sizes)
        if failed:
            self._give_up(trouble)
            return {}
        table = confusion.view(self._classes, self._classes)
        self.counts = ClassCounts(table.numpy(), reached.view(2, self._classes, THRESHOLDS).numpy())
        accuracy = (table.trace() / table.sum().clamp_min(1)).item()
        means = {f"val_{name}": value for name, value in self.counts.means().items()}
        return {"val_accuracy": accuracy, **means}

    def _give_up(self, trouble: str) -> None:
        self._impossible, self.counts, self.first_batch = True, None, None
        if trouble or self._world.rank == 0:
            say(f"note: classes can't be counted: {trouble or 'another rank shows why'}")

    # one batch ------------------------------------------------------------------------------------

    def _count(self, batch: Any) -> Tensor:
        trainer = self._trainer
        module = trainer.lightning_module
        if type(module).forward is LightningModule.forward:
            name = type(module).__name__
            raise RampupError(
                f"{name} has no forward()", f"define {name}.forward(inputs): a score for each class"
            )
        batch = module._on_before_batch_transfer(
            trainer.precision_plugin.convert_input(batch), dataloader_idx=0
        )
        inputs, labels = split_batch(trainer.strategy.batch_to_device(batch, dataloader_idx=0))
        with trainer.precision_plugin.forward_context():
            scores = to_scores(module(inputs), len(labels))
        if self.first_batch is None and self._world.rank == 0:
            self.first_batch = FirstBatch((inputs, labels), scores, labels)
        found = class_tables(scores, labels, self._classes)
        return torch.cat([found[CONFUSION], found[REACHED]]).to("cpu", torch.float64)

    # this rank's part of the data -----------------------------------------------------------------

    def _batches(self) -> Iterator[Any]:
        loader, limit = lightning_loops.validation_loader(self._trainer)
        if self._made[0] is not loader:
            self._made = (loader, self._reader(loader, limit))
        return iter(self._made[1])

    def _reader(self, loader: Any, limit: float) -> Any:
        """Return what gives each sample to one rank.

        `limit` is the number of batches that the module's own validation takes on each rank.
        """
        own_batches = False
        if isinstance(loader, DataLoader):
            own_batches = loader.batch_size is None and loader.batch_sampler is not None
        by_hand = self._divided_by_hand(loader)
        if not is_map_style(loader) or own_batches or by_hand:
            if self._world.size > 1 and not by_hand:
                raise RampupError(
                    "the validation data can't be divided among ranks so that each sample counts "
                    "once",
                    "give val_dataloader a DataLoader with numbered samples and a batch_size",
                )
            return loader if limit == float("inf") else _FirstBatches(loader, int(limit))
        order, at_once = sample_order(loader), loader.batch_size or 1
        if limit != float("inf"):
            order = order[: int(limit) * at_once * self._world.size]
        low, high = shard(len(order), self._world.rank, self._world.size)
        return DataLoader(
            loader.dataset,
            loader.batch_size,
            sampler=order[low:high],
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
            multiprocessing_context=loader.multiprocessing_context,
            worker_init_fn=loader.worker_init_fn,
            persistent_workers=loader.num_workers > 0,
        )

    def _divided_by_hand(self, loader: Any) -> bool:
        """Return whether the user divides the data, by `use_distributed_sampler=false`."""
        if self._world.size == 1 or self._trainer._accelerator_connector.use_distributed_sampler:
            return False
        return not isinstance(getattr(loader, "sampler", None), DistributedSampler)


class _FirstBatches:
    """The first batches of a loader, in every pass."""

    def __init__(self, loader: Any, batches: int) -> None:
        self._loader, self._batches = loader, batches

    def __iter__(self) -> Iterator[Any]:
        return islice(self._loader, self._batches)


def sample_order(loader: Any) -> Any:
    """Return the samples of a loader, each as often as its own sampler names it.

    Lightning's sampler for several ranks adds some.
    """
    sampler = loader.sampler
    if isinstance(sampler, DistributedSamplerWrapper):
        return list(sampler.dataset._sampler)  # type: ignore[attr-defined]
    if isinstance(sampler, SequentialSampler | RandomSampler | DistributedSampler):
        return range(len(loader.dataset))
    return list(sampler)


def split_batch(batch: Any) -> tuple[Any, Tensor]:
    """Return inputs and labels of a batch."""
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        what = type(batch).__name__
        if isinstance(batch, list | tuple):
            what = f"{what} of {len(batch)}"
        raise RampupError(f"a batch of the validation data is a {what}", PAIR)
    labels = batch[1]
    if not isinstance(labels, Tensor) or labels.dim() != 1 or labels.is_floating_point():
        kind = type(labels).__name__
        if isinstance(labels, Tensor):
            kind = f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise RampupError(f"the labels of a batch are {kind}", PAIR)
    return batch[0], labels


def to_scores(found: Any, samples: int) -> Tensor:
    """Return scores of which softmax makes probabilities.

    Rows of probabilities are recognised by their sums, and become logarithms.
    """
    if not isinstance(found, Tensor) or found.dim() != 2 or len(found) != samples:
        kind = f"type {type(found).__name__}"
        if isinstance(found, Tensor):
            kind = f"shape {tuple(found.shape)}"
        raise RampupError(
            f"forward() gives {kind} for {samples} samples",
            "one row for each sample, one score for each class",
        )
    scores, off = (
        found.detach().float(),
        SUM_ERROR if found.element_size() > 2 else SUM_ERROR_16_BIT,
    )
    if samples and bool((scores >= 0).all()) and bool(((scores.sum(1) - 1).abs() < off).all()):
        return scores.log()
    return scores


def _describe(error: Exception) -> str:
    if isinstance(error, RampupError):
        return f"{error.message}; {error.hint}"
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
