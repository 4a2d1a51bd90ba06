"""How the DataLoaders of a LightningModule read: `num_workers=own|auto|N`, told in one line, and
when it is too slow.

By itself a loader stays as its module made it: more processes could break a data set that holds an
open file, and would draw other random numbers. `auto` chooses by the CPUs that the rank has. Which
samples are in which batch never changes. Called by engines/lightning/engine.py when loaders are
made and when an epoch ends.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from rampup.engines.lightning import workers as torch_workers
from rampup.engines.torch.world import World
from rampup.rundir.records import Record
from rampup.runtime.job import Job
from rampup.runtime.storage import say

MOST = 4
"""Workers of one rank that `auto` chooses: more rarely help, and every rank of a node has its
own."""
SHARED_MEMORY = Path("/dev/shm")
ROOM_MB = 128
"""For each worker: it hands over its batches there, two of them ahead."""
HEAVY = 0.3
LONG_ENOUGH_S = 30.0
"""Of training, before it is judged how much of it was waiting."""
LARGER_SHM = "more room in /dev/shm: docker run --shm-size=2g"


class Loaders:
    def __init__(self, job: Job, world: World, wish: int | str) -> None:
        """`wish`: a number of workers, `auto`, or `own` to leave them as they are."""
        self._job, self._wish, self._first = job, wish, world.rank == 0
        self._on_gpu = world.device.type == "cuda"
        self._cpus = job.context.threads or 1
        self._room = room_for_workers(job.context.local_world_size)
        self.fit = max(0, min(MOST, self._cpus - 1, self._room))
        """As many as suit a rank."""
        self._record: Record = {}
        self._told = False

    def suit(self, loaders: list[Any], training: bool) -> None:
        """They are made, and not yet asked for a batch."""
        for loader in loaders:
            if torch_workers.is_map_style(loader):
                self._set(loader)
                if training:
                    torch_workers.follow(loader)
            if (
                not training
                and getattr(loader, "persistent_workers", False)
                and loader.generator is None
            ):
                # Only its first pass draws a seed for workers: not from the numbers that a resumed
                # run goes on with.
                loader.generator = torch.Generator().manual_seed(self._job.settings.seed)
        found = [loader for loader in loaders if isinstance(loader, DataLoader)]
        if training and found and not self._record:
            self._record = self._facts(found[0])
            self._job.events.write("loaders", **self._record)
            self._say(self._line(found[0]))

    def epoch_ended(self) -> None:
        """Said once, as soon as there is enough to judge by."""
        spent = self._job.phases.seconds
        busy_s = spent["data"] + spent["compute"] + spent["communication"]
        if self._told or not self._record or busy_s < LONG_ENOUGH_S:
            return
        if spent["data"] >= HEAVY * busy_s:
            self._told = True
            share = spent["data"] / busy_s
            self._say(
                f"note: {share:.0%} of the training time goes into waiting for data; try {self._record['remedy']}"
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
        """None: as it is."""
        if self._wish == "own":
            return None
        if self._wish != "auto":
            return int(self._wish)
        if is_in_memory(loader):
            return 0
        asked: int = loader.num_workers
        return min(asked, self.fit) if asked else self.fit

    # what is told ---------------------------------------------------------------------------------

    def _facts(self, loader: Any) -> Record:
        return {
            "workers": loader.num_workers,
            "persistent_workers": loader.persistent_workers,
            "pin_memory": loader.pin_memory,
            "cpus": self._cpus,
            "remedy": self._remedy(loader),
        }

    def _line(self, loader: Any) -> str:
        """What reads the data, and what is wrong with that."""
        workers, cpus = loader.num_workers, f"{self._cpus} {'CPU' if self._cpus == 1 else 'CPUs'}"
        words = [
            f"{workers} {'worker' if workers == 1 else 'workers'}" if workers else "no workers"
        ]
        words += ["all in memory"] if is_in_memory(loader) else []
        words += ["persistent"] if loader.persistent_workers else []
        words += ["pinned memory"] if loader.pin_memory else []
        words += [
            f"{cpus} for each rank",
            "as the module has it" if self._wish == "own" else f"num_workers={self._wish}",
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
        could = (
            self._wish == "own" and self.fit > workers == 0 and torch_workers.is_map_style(loader)
        )
        return (
            f"{line}; num_workers={self.fit} would fit"
            if could and not is_in_memory(loader)
            else line
        )

    def _remedy(self, loader: Any) -> str:
        """What to do when training waits for its batches."""
        if is_in_memory(loader):
            return "a larger batch, or batches that are cut from the tensors at once"
        if not torch_workers.is_map_style(loader):
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


def is_in_memory(loader: Any) -> bool:
    """Workers would only copy such data back and forth."""
    data = loader.dataset
    while isinstance(data, Subset):
        data = data.dataset
    return isinstance(data, TensorDataset)


def room_for_workers(ranks: int) -> int:
    """Of each rank of this node, as far as the shared memory goes."""
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:  # not Linux: there is no such limit
        return 1000
    return int(found.f_bavail * found.f_frsize // (ROOM_MB * 1_000_000 * max(1, ranks)))
