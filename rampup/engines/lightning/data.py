"""Where the training loaders of a LightningModule are, and how they get there again in a later
attempt.

Lightning itself starts a loader anew when it resumes in the middle of an epoch. Here every loader
remembers how random numbers stood when its pass began. A later attempt puts them back, so that the
loader makes the same order, and leaves out what was trained: a map-style data set by skipping the
indices, anything else by reading forward.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.fabric.utilities.types import _Stateful
from torch import Tensor
from torch.utils.data import DataLoader

from rampup.engines.lightning.workers import WorkerSeeds, is_map_style, live_on
from rampup.engines.torch.state import random_state, set_random_state

Record = dict[str, Any]
OWN = "rampup_pass"


class Positions:
    """The loaders of one rank. `batches` tells how many of this epoch are trained."""

    def __init__(
        self, device: torch.device, batches: Callable[[], int], epoch: Callable[[], int]
    ) -> None:
        self.device, self.batches, self.epoch = device, batches, epoch
        self._passes: list[Pass] = []
        self._waiting: list[Record] = []
        self._made: dict[str, Tensor] = {}
        self._to_make: dict[str, Tensor] = {}

    def making(self, kind: str) -> None:
        """Data that is drawn or split at random when its loader is made must be the same again."""
        if kind in self._to_make:
            set_random_state(self._to_make.pop(kind), self.device)
        self._made[kind] = random_state(self.device)

    def attach(self, loaders: list[Any]) -> list[Any]:
        """Called once they are made and before they are asked for a batch; what to use in their
        place."""
        waiting, self._waiting = self._waiting, []
        self._passes = [Pass(self, loader) for loader in loaders]
        # one more or less: another data module
        for each, record in zip(self._passes, waiting, strict=False):
            each.resume(record)
        return [_kept(loader, each) for loader, each in zip(loaders, self._passes, strict=True)]

    def state(self) -> Record:
        return {"made": self._made, "passes": [each.began for each in self._passes]}

    def put_back(self, state: Record) -> None:
        """For the loaders that will be made."""
        self._to_make, self._waiting = dict(state["made"]), state["passes"]

    def inexact(self) -> list[str]:
        """Why an epoch that is taken up in its middle may not be what it would have been."""
        loaders = [each.loader for each in self._passes]
        reread = any(not is_map_style(loader) for loader in loaders)
        return (
            ["the data was read forward, which is exact if it comes in the same order again"]
            if reread
            else []
        )


class Pass:
    """A loader's way through its data in this epoch."""

    def __init__(self, positions: Positions, loader: Any) -> None:
        self._positions, self.loader = positions, loader
        self.began: Record = {}
        """How it was when the pass began."""
        self._skip: int | None = None

    def resume(self, began: Record) -> None:
        # such a loader finds its place by itself
        if began and not isinstance(self.loader, _Stateful):
            self.began, self._skip = began, self._positions.batches() - began["batches"]

    def iterate(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        device, generators = self._positions.device, _generators(self.loader)
        if self._skip is None:
            states = [generator.get_state() for generator in generators]
            now = random_state(device)
            self.began = {"random": now, "generators": states, "batches": self._positions.batches()}
            self.began["workers live"] = live_on(self.loader)
            self._seed_workers()
            return begin()
        skip, self._skip = self._skip, None
        # workers ask for indices before Lightning does it
        _set_sampler_epoch(self.loader, self._positions.epoch())
        rest = _Rest(self.loader, skip)
        if self.began.get("workers live"):
            rest.wake_workers(begin)
        set_random_state(self.began["random"], device)
        for generator, state in zip(generators, self.began["generators"], strict=False):
            generator.set_state(state)
        self._seed_workers()
        return rest.read(begin)

    def _seed_workers(self) -> None:
        """The same in a later attempt that takes up this pass."""
        seeds = getattr(self.loader, "worker_init_fn", None)
        if isinstance(seeds, WorkerSeeds):
            seeds.begin(self.began["random"], self._positions.epoch(), self.began["batches"])


def _kept(loader: Any, own: Pass) -> Any:
    """The same loader, whose every pass is known. A DataLoader stays one for who looks at it."""
    if not isinstance(loader, DataLoader):
        can = [(_Sized, hasattr(loader, "__len__")), (_Remembering, isinstance(loader, _Stateful))]
        kind = type("Kept", (*(part for part, has in can if has), _KeptIterable), {})
        return kind(loader, own)
    if OWN not in loader.__dict__:
        usual = type(loader)
        begin = {"__iter__": lambda self: self.__dict__[OWN].iterate(lambda: usual.__iter__(self))}
        loader.__class__ = type(usual.__name__, (usual,), begin)
    loader.__dict__[OWN] = own
    return loader


class _KeptIterable:
    """Around any other object that gives batches."""

    def __init__(self, loader: Any, own: Pass) -> None:
        self._loader, self._pass = loader, own

    def __iter__(self) -> Iterator[Any]:
        return self._pass.iterate(lambda: iter(self._loader))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)


class _Sized:
    _loader: Any

    def __len__(self) -> int:
        return len(self._loader)


class _Remembering:
    """Methods of its own: from Python 3.12 on, who asks for them does not see what __getattr__
    would give."""

    _loader: Any

    def state_dict(self) -> Record:
        found: Record = self._loader.state_dict()
        return found

    def load_state_dict(self, state: Record) -> None:
        self._loader.load_state_dict(state)


class _Rest:
    """What is left of a loader's pass after its first batches; its sampler, whose first pass begins
    later."""

    def __init__(self, loader: Any, skip: int) -> None:
        self._loader, self._skip, self._idle = loader, skip, False
        self._name = (
            "sampler" if getattr(loader, "batch_sampler", None) is None else "batch_sampler"
        )
        self._sampler: Any = getattr(loader, self._name, None)
        self._indices: Iterator[Any] = iter(())

    def wake_workers(self, begin: Callable[[], Iterator[Any]]) -> None:
        """They lived when the pass began, and a loader that starts none draws fewer random
        numbers."""
        if is_map_style(self._loader):
            self._idle = True
            self._in_its_place(begin)
            self._idle = False

    def read(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Random numbers stand as they did when the pass began."""
        if is_map_style(self._loader):
            return self._in_its_place(begin)
        batches = begin()
        for _ in range(self._skip):
            next(batches, None)
        return batches

    def _in_its_place(self, begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        # past the loader's own guard: it is the same sampler, taken up later
        self._loader.__dict__[self._name] = self
        batches = begin()
        if not self._idle:
            self._leave_out()  # now: many samplers draw when they are first asked
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
        self._leave_out()
        yield from self._indices

    def _leave_out(self) -> None:
        while self._skip:
            self._skip -= 1
            next(self._indices, None)

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_sampler"], name)


def _generators(loader: Any) -> list[torch.Generator]:
    """The user's own sources of random numbers in a loader."""
    places = [loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
    found = [getattr(place, "generator", None) for place in places]
    unique = {id(each): each for each in found if isinstance(each, torch.Generator)}
    return list(unique.values())


def first_tensor_size(batch: Any) -> int:
    """How many samples a batch has: the length of the first tensor in it."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.dim() else 1
    parts = (
        batch.values()
        if isinstance(batch, dict)
        else batch
        if isinstance(batch, list | tuple)
        else ()
    )
    for part in parts:
        size = first_tensor_size(part)
        if size:
            return size
    return 0
