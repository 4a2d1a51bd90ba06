"""The complete state of a training with Lightning: its own checkpoint, and what that leaves out.

Lightning keeps the module, optimizers, schedulers, callbacks and counters. Added here are the
random numbers of every rank, its buffers (the statistics of batch normalisation), the positions of
its loaders, and the running mean of its loss. Lightning itself restarts a loader when it resumes in
the middle of an epoch; here every loader remembers the random numbers with which its pass began. A
later attempt restores them, so that the loader makes the same order, and leaves out what was
trained. engine.py calls it; it never writes a file.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.fabric.utilities.types import _Stateful
from lightning.pytorch import Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from rampup.engines.lightning.loaders import WorkerSeeds, has_live_workers, is_map_style
from rampup.engines.lightning.plugins import StateReceiver
from rampup.engines.lightning.rows import Rows
from rampup.engines.torch.state import pack, random_state, restore_buffers, set_random_state
from rampup.engines.torch.world import World
from rampup.runtime.checkpoints.saving import Snapshot

Record = dict[str, Any]
PASS = "rampup_pass"
"""The attribute of a loader that holds its LoaderPass."""
FILE = "state.ckpt"
OWN = "rampup"
"""The key of our part in Lightning's checkpoint."""


# where loaders are --------------------------------------------------------------------------------


class LoaderPositions:
    """The training loaders of one rank.

    `batches` returns how many batches of this epoch are trained, `epoch` the epochs before it.
    """

    def __init__(
        self, device: torch.device, batches: Callable[[], int], epoch: Callable[[], int]
    ) -> None:
        self.device, self.batches, self.epoch = device, batches, epoch
        self._passes: list[LoaderPass] = []
        self._waiting: list[Record] = []
        self._made: dict[str, Tensor] = {}
        self._to_make: dict[str, Tensor] = {}

    def begin_making(self, kind: str) -> None:
        """Restore random numbers before loaders are made, so that a random split is the same."""
        if kind in self._to_make:
            set_random_state(self._to_make.pop(kind), self.device)
        self._made[kind] = random_state(self.device)

    def attach(self, loaders: list[Any]) -> list[Any]:
        """Return what to use in place of loaders that are made and not yet asked for a batch."""
        waiting, self._waiting = self._waiting, []
        self._passes = [LoaderPass(self, loader) for loader in loaders]
        # one more or less: another data module
        for each, record in zip(self._passes, waiting, strict=False):
            each.resume(record)
        return [_wrap(loader, each) for loader, each in zip(loaders, self._passes, strict=True)]

    def state(self) -> Record:
        return {"made": self._made, "passes": [each.began for each in self._passes]}

    def restore(self, state: Record) -> None:
        """Keep a state for the loaders that will be made."""
        self._to_make, self._waiting = dict(state["made"]), state["passes"]

    def inexact_reasons(self) -> list[str]:
        """Return why an epoch that is resumed in its middle may not be repeated exactly."""
        if all(is_map_style(each.loader) for each in self._passes):
            return []
        return ["the data was read forward, which is exact if it comes in the same order again"]


class LoaderPass:
    """The pass of a loader over its data in this epoch."""

    def __init__(self, positions: LoaderPositions, loader: Any) -> None:
        self._positions, self.loader = positions, loader
        self.began: Record = {}
        """Random numbers and batches when the pass began."""
        self._skip: int | None = None

    def resume(self, began: Record) -> None:
        # a stateful loader finds its place itself
        if began and not isinstance(self.loader, _Stateful):
            self.began, self._skip = began, self._positions.batches() - began["batches"]

    def iterate(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        device, generators = self._positions.device, _generators(self.loader)
        if self._skip is None:
            states = [generator.get_state() for generator in generators]
            now = random_state(device)
            self.began = {"random": now, "generators": states, "batches": self._positions.batches()}
            self.began["workers live"] = has_live_workers(self.loader)
            self._seed_workers()
            return begin()
        skip, self._skip = self._skip, None
        # workers ask for indices before Lightning sets the epoch
        _set_sampler_epoch(self.loader, self._positions.epoch())
        rest = SkippedSampler(self.loader, skip)
        if self.began.get("workers live"):
            rest.wake_workers(begin)
        set_random_state(self.began["random"], device)
        for generator, state in zip(generators, self.began["generators"], strict=False):
            generator.set_state(state)
        self._seed_workers()
        return rest.read(begin)

    def _seed_workers(self) -> None:
        """Seed workers, in the same way in a later attempt that resumes this pass."""
        seeds = getattr(self.loader, "worker_init_fn", None)
        if isinstance(seeds, WorkerSeeds):
            seeds.begin(self.began["random"], self._positions.epoch(), self.began["batches"])


def _wrap(loader: Any, own: LoaderPass) -> Any:
    """Return the same loader with its passes observed; a DataLoader stays a DataLoader."""
    if not isinstance(loader, DataLoader):
        bases: list[type] = [_ObservedIterable]
        if isinstance(loader, _Stateful):
            bases.insert(0, _WithState)
        if hasattr(loader, "__len__"):
            bases.insert(0, _WithLength)
        return type("Observed", tuple(bases), {})(loader, own)
    if PASS not in loader.__dict__:
        usual = type(loader)
        begin = {"__iter__": lambda self: self.__dict__[PASS].iterate(lambda: usual.__iter__(self))}
        loader.__class__ = type(usual.__name__, (usual,), begin)
    loader.__dict__[PASS] = own
    return loader


class _ObservedIterable:
    """A wrapper of any other object that gives batches."""

    def __init__(self, loader: Any, own: LoaderPass) -> None:
        self._loader, self._pass = loader, own

    def __iter__(self) -> Iterator[Any]:
        return self._pass.iterate(lambda: iter(self._loader))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)


class _WithLength:
    _loader: Any

    def __len__(self) -> int:
        return len(self._loader)


class _WithState:
    """Real methods: from Python 3.12 on, a check for them does not see what __getattr__ gives."""

    _loader: Any

    def state_dict(self) -> Record:
        found: Record = self._loader.state_dict()
        return found

    def load_state_dict(self, state: Record) -> None:
        self._loader.load_state_dict(state)


class SkippedSampler:
    """The sampler of a loader whose next pass leaves out its first batches."""

    def __init__(self, loader: Any, skip: int) -> None:
        self._loader, self._skip, self._idle = loader, skip, False
        batched = getattr(loader, "batch_sampler", None) is not None
        self._name = "batch_sampler" if batched else "sampler"
        self._sampler: Any = getattr(loader, self._name, None)
        self._indices: Iterator[Any] = iter(())

    def wake_workers(self, begin: Callable[[], Iterator[Any]]) -> None:
        """Start the workers that lived when the pass began.

        A loader that starts no workers draws fewer random numbers.
        """
        if is_map_style(self._loader):
            self._idle = True
            self._begin_replaced(begin)
            self._idle = False

    def read(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Begin the rest of the pass; random numbers are those with which the pass began."""
        if is_map_style(self._loader):
            return self._begin_replaced(begin)
        batches = begin()
        skip = getattr(batches, "skip", None)
        if skip:  # without reading what is left out
            skip(self._skip)
            return batches
        for _ in range(self._skip):
            next(batches, None)
        return batches

    def _begin_replaced(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        # past the loader's own guard: it is the same sampler, which begins later
        self._loader.__dict__[self._name] = self
        batches = begin()
        if not self._idle:
            self._skip_batches()  # now: many samplers draw when they are first asked
        self._loader.__dict__[self._name] = self._sampler
        return batches

    def __iter__(self) -> Iterator[Any]:
        if self._idle:
            return iter(())
        if not self._skip:
            return iter(self._sampler)
        self._indices = iter(self._sampler)
        return self._after_skipping()

    def _after_skipping(self) -> Iterator[Any]:
        self._skip_batches()
        yield from self._indices

    def _skip_batches(self) -> None:
        while self._skip:
            self._skip -= 1
            next(self._indices, None)

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_sampler"], name)


def _generators(loader: Any) -> list[torch.Generator]:
    """Return the user's own generators in a loader."""
    places = [loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
    found = [getattr(place, "generator", None) for place in places]
    unique = {id(each): each for each in found if isinstance(each, torch.Generator)}
    return list(unique.values())


# the whole state ----------------------------------------------------------------------------------


class State:
    """The state of one rank."""

    def __init__(
        self, trainer: Trainer, world: World, positions: LoaderPositions, rows: Rows
    ) -> None:
        self._trainer, self._world, self._positions, self._rows = trainer, world, positions, rows
        self._random: Any = None
        self._buffers: list[Tensor] = []
        """The buffers of every rank that the checkpoint has."""

    def take(self, step: int, meta: Mapping[str, Any]) -> Snapshot:
        """Copy the state. All ranks call it between two steps; only rank 0 gets files to write."""
        ranks, kept = self._gather(), io.BytesIO()

        def keep(checkpoint: dict[str, Any]) -> None:
            torch.save({**checkpoint, OWN: {"ranks": ranks}}, kept)

        self._trainer.save_checkpoint(FILE, weights_only=False, storage_options=StateReceiver(keep))
        data = kept.getbuffer()
        return Snapshot(step, {FILE: lambda file: file.write(data)}, meta)

    def load(self, checkpoint: Mapping[str, Any]) -> None:
        """Take what Lightning does not restore itself.

        With another number of ranks there is no state for each of them.
        """
        ranks = checkpoint.get(OWN, {}).get("ranks", [])
        self._buffers = [part["buffers"] for part in ranks if "buffers" in part]
        if len(ranks) != self._world.size:
            return
        own = ranks[self._world.rank]
        self._positions.restore(own["loaders"])
        self._rows.restore(own["rows"])
        self._random = own["random"]

    def restore_rank(self) -> None:
        """Restore buffers and random numbers, immediately before the first step.

        DDP has sent the buffers of the first rank to all before that, and setting up draws random
        numbers.
        """
        if self._buffers:
            restore_buffers(self._buffers, self._trainer.lightning_module, self._world)
            self._buffers = []
        if self._random is not None:
            set_random_state(self._random, self._world.device)
            self._random = None

    def _gather(self) -> list[Any]:
        own = {
            "random": random_state(self._world.device),
            "loaders": self._positions.state(),
            "rows": self._rows.state(),
        }
        if self._world.size == 1:
            return [own]
        own["buffers"] = pack(self._trainer.lightning_module.buffers())
        ranks: list[Any] = [None] * self._world.size
        dist.gather_object(own, ranks if self._world.rank == 0 else None, dst=0)
        return ranks
