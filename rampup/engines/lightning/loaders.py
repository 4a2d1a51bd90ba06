"""How the DataLoaders of a LightningModule read: the number of workers, and their random numbers.

engine.py calls Loaders when loaders are made and when an epoch ends. `num_workers=own` leaves a
loader as its module made it: more processes could break a data set that holds an open file, and
would draw other random numbers. `auto` chooses by the CPUs of the rank. Workers seed themselves for
every batch, so that a batch does not depend on the number of workers or on a resume. The samples of
a batch never change.
"""

import multiprocessing
import os
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from rampup.engines.torch.normalisation import describe, find_normalising
from rampup.engines.torch.world import World
from rampup.rundir.records import Record
from rampup.runtime.job import Job
from rampup.runtime.storage import say

MOST = 4
"""The most workers that `auto` gives to a rank: more rarely help, and every rank of a node has its
own."""
SHARED_MEMORY = Path("/dev/shm")
ROOM_MB = 128
"""Shared memory for each worker, which hands over its batches there, two of them ahead."""
HEAVY = 0.3
LONG_ENOUGH_S = 30.0
"""The training time before the share of waiting can be judged."""
LARGER_SHM = "more room in /dev/shm: docker run --shm-size=2g"


class Loaders:
    """The data loading of one rank, configured and reported."""

    def __init__(self, job: Job, world: World, wish: int | str) -> None:
        """`wish` is a number of workers, `auto`, or `own` to leave the loaders as they are."""
        self._job, self._wish, self._first = job, wish, world.rank == 0
        self._ranks = world.size
        self._on_gpu = world.device.type == "cuda"
        self._cpus = job.context.threads or 1
        self._room = room_for_workers(job.context.local_world_size)
        self.fit = max(0, min(MOST, self._cpus - 1, self._room))
        """The number of workers that suits a rank."""
        self._record: Record = {}
        self._told = False
        self._training: list[DataLoader[Any]] = []

    def configure(self, loaders: list[Any], training: bool) -> None:
        """Set up loaders that are made, and not yet asked for a batch."""
        for loader in loaders:
            if is_map_style(loader):
                self._set(loader)
                if training:
                    seed_workers(loader)
            persistent = getattr(loader, "persistent_workers", False)
            if not training and persistent and loader.generator is None:
                # Only its first pass draws a seed for workers: not from the numbers that a resumed
                # run continues with.
                loader.generator = torch.Generator().manual_seed(self._job.settings.seed)
        found = [loader for loader in loaders if isinstance(loader, DataLoader)]
        if training:
            self._training = found
        if training and found and not self._record:
            self._record = self._facts(found[0])
            self._job.events.write("loaders", **self._record)
            self._say(self._line(found[0]))

    def note_lone_sample(self, module: nn.Module, batches: float) -> None:
        """Report a last batch of one sample beside a layer that may fail there.

        The loaders are the user's, so nothing is changed or refused. `batches` is the number of
        batches of an epoch.
        """
        layers = find_normalising(module, self._ranks).items()
        flat = [(name, layer) for name, layer in layers if isinstance(layer, nn.BatchNorm1d)]
        if flat and any(ends_with_one(each, batches) for each in self._training):
            self._say(
                f"note: the last batch of an epoch has one sample, and {describe(*flat[0])} can't "
                "normalise over one value; drop_last=True in the DataLoader leaves it out"
            )

    def epoch_ended(self) -> None:
        """Report once that training waits for data, as soon as that can be judged."""
        spent = self._job.phases.seconds
        busy_s = spent["data"] + spent["compute"] + spent["communication"]
        if self._told or not self._record or busy_s < LONG_ENOUGH_S:
            return
        if spent["data"] >= HEAVY * busy_s:
            self._told = True
            share = spent["data"] / busy_s
            remedy = self._record["remedy"]
            self._say(
                f"note: {share:.0%} of the training time goes into waiting for data; try {remedy}"
            )

    def _set(self, loader: Any) -> None:
        wanted = self._wanted(loader)
        if wanted is None:
            return
        loader.num_workers = wanted
        loader.prefetch_factor = (loader.prefetch_factor or 2) if wanted else None
        # past the loader's own guard: no worker has begun
        loader.__dict__["persistent_workers"] = wanted > 0
        if not wanted:
            loader.timeout = 0
        if self._on_gpu:
            loader.pin_memory = True

    def _wanted(self, loader: Any) -> int | None:
        """Return the number of workers, or None to leave the loader as it is."""
        if self._wish == "own":
            return None
        if self._wish != "auto":
            return int(self._wish)
        if is_in_memory(loader):
            return 0
        asked: int = loader.num_workers
        return min(asked, self.fit) if asked else self.fit

    # what is reported -----------------------------------------------------------------------------

    def _facts(self, loader: Any) -> Record:
        return {
            "workers": loader.num_workers,
            "persistent_workers": loader.persistent_workers,
            "pin_memory": loader.pin_memory,
            "cpus": self._cpus,
            "remedy": self._remedy(loader),
        }

    def _line(self, loader: Any) -> str:
        """Return the line about what reads the data, and what is wrong with it."""
        workers, cpus = loader.num_workers, f"{self._cpus} {'CPU' if self._cpus == 1 else 'CPUs'}"
        words = [f"{workers or 'no'} {'worker' if workers == 1 else 'workers'}"]
        words += ["all in memory"] if is_in_memory(loader) else []
        words += ["persistent"] if loader.persistent_workers else []
        words += ["pinned memory"] if loader.pin_memory else []
        words += [
            f"{cpus} for each rank",
            "as the module sets it" if self._wish == "own" else f"num_workers={self._wish}",
        ]
        line = f"data loading: {', '.join(words)}"
        if workers > self._room:
            return (
                f"{line}; {workers} may find too little room in /dev/shm: num_workers={self._room}"
            )
        if workers > self._cpus:
            suits = 0 if is_in_memory(loader) else max(1, self.fit)
            return f"{line}; {workers} have too few CPUs: num_workers={suits}"
        if self._wish == "auto" and not workers and not self._room:
            return f"{line}; there is too little room in /dev/shm"
        could = self._wish == "own" and self.fit > workers == 0 and is_map_style(loader)
        if could and not is_in_memory(loader):
            return f"{line}; num_workers={self.fit} would fit"
        return line

    def _remedy(self, loader: Any) -> str:
        """Return what to do when training waits for its batches."""
        if is_in_memory(loader):
            return "a larger batch, or batches that are cut from the tensors at once"
        if not is_map_style(loader):
            return (
                "num_workers in the DataLoader, with a stream that gives each worker its own part"
            )
        if loader.num_workers < self.fit:
            return f"num_workers={self.fit}"
        if not self._room:
            return LARGER_SHM
        return f"--cpus-per-task {2 * self._cpus} num_workers={min(2 * MOST, 2 * self._cpus - 1)}"

    def _say(self, words: str) -> None:
        if self._first:
            say(words)


def ends_with_one(loader: Any, batches: float) -> bool:
    """Return whether an epoch of so many batches ends with a batch of one sample.

    Only where the loader says it: not for a stream, or with the user's own batch sampler.
    """
    if not is_map_style(loader) or not loader.batch_size or loader.drop_last:
        return False
    is_short: bool = len(loader.sampler) % loader.batch_size == 1
    return is_short and loader.batch_size > 1 and batches >= len(loader)


def is_in_memory(loader: Any) -> bool:
    """Return whether the data is tensors, which workers would only copy back and forth."""
    data = loader.dataset
    while isinstance(data, Subset):
        data = data.dataset
    return isinstance(data, TensorDataset)


def room_for_workers(ranks: int) -> int:
    """Return how many workers of each rank of this node fit into the shared memory."""
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:  # not Linux: there is no such limit
        return 1000
    return int(found.f_bavail * found.f_frsize // (ROOM_MB * 1_000_000 * max(1, ranks)))


# random numbers in workers ------------------------------------------------------------------------


class WorkerSeeds:
    """A `worker_init_fn` that makes a worker seed itself for every batch.

    torch seeds a worker once, by its number: with other workers, or when a run is resumed in the
    middle of an epoch, random augmentation would differ. Here the seed follows from the pass and
    the batch alone. It is called once in each worker, after the function that was there before.
    """

    def __init__(self, before: Any, method: Any) -> None:
        self._before = before
        self._number = (method or multiprocessing).Value("Q", 0)

    def begin(self, began: Tensor, *place: int) -> None:
        """Begin a pass, with the state of random numbers and the place in the training."""
        words = repr(place).encode()
        self._number.value = zlib.crc32(words, zlib.crc32(began.numpy().tobytes()))

    def __call__(self, worker: int) -> None:
        if self._before is not None:
            self._before(worker)
        usual: Any = _MapDatasetFetcher.fetch
        number = self._number

        def fetch(fetcher: Any, indices: Any) -> Any:
            seed_all(number.value, zlib.crc32(repr(indices).encode()))
            return usual(fetcher, indices)

        _MapDatasetFetcher.fetch = fetch  # type: ignore[method-assign]


def seed_all(*numbers: int) -> None:
    """Seed each source differently: Python's and numpy's would give the same numbers, and torch's
    uses only 32 bits of its seed."""
    words = np.random.SeedSequence(numbers).generate_state(4).tolist()
    torch.manual_seed(words[0])
    random.seed(words[1])
    np.random.seed(words[2:])


def has_live_workers(loader: Any) -> bool:
    """Return whether workers live on from an earlier pass: then the loader draws fewer random
    numbers."""
    if not isinstance(loader, DataLoader):
        return False
    return loader.persistent_workers and loader._iterator is not None


def is_map_style(loader: Any) -> bool:
    """Return whether samples have numbers, so that any worker can read any of them.

    In a stream each worker would read all samples.
    """
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)


def seed_workers(loader: Any) -> None:
    """Let the workers of a loader seed themselves; a loader without workers does not change."""
    if not is_map_style(loader) or not loader.num_workers:
        return
    if not isinstance(loader.worker_init_fn, WorkerSeeds):
        loader.worker_init_fn = WorkerSeeds(loader.worker_init_fn, loader.multiprocessing_context)
