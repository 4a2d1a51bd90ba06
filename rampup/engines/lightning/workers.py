"""Random numbers inside the workers of a DataLoader that follow from the pass and the batch, and
from nothing else.

torch seeds a worker once, by its number: with other workers, or when a run goes on in the middle of
an epoch, samples that are changed at random change otherwise. Here a worker seeds itself anew for
every batch. lightning_data.py says which pass it is. Only workers are touched: a loader without
them draws from the random numbers of the rank.
"""

import multiprocessing
import random
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils.fetch import _MapDatasetFetcher


class WorkerSeeds:
    """The `worker_init_fn` of a loader: called once in each worker, after the one that was there
    before."""

    def __init__(self, before: Any, method: Any) -> None:
        self._before = before
        self._number = (method or multiprocessing).Value("Q", 0)

    def begin(self, began: Tensor, *place: int) -> None:
        """A pass begins: how random numbers stood then, and where in the training that was."""
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
    """Each source otherwise: Python's and numpy's would give the same, and torch's looks at 32 bits
    of its seed."""
    words = np.random.SeedSequence(numbers).generate_state(4).tolist()
    torch.manual_seed(words[0])
    random.seed(words[1])
    np.random.seed(words[2:])


def live_on(loader: Any) -> bool:
    """Whether its workers were there before the pass that begins: then the loader draws fewer
    random numbers."""
    return (
        isinstance(loader, DataLoader)
        and loader.persistent_workers
        and loader._iterator is not None
    )


def is_map_style(loader: Any) -> bool:
    """Samples have numbers: any worker may read any of them. In a stream each worker would read
    all."""
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)


def follow(loader: Any) -> None:
    """From its next pass on. Without workers nothing changes."""
    if (
        is_map_style(loader)
        and loader.num_workers
        and not isinstance(loader.worker_init_fn, WorkerSeeds)
    ):
        loader.worker_init_fn = WorkerSeeds(loader.worker_init_fn, loader.multiprocessing_context)
