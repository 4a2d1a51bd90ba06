"""What the tests of all formats share: read as an engine does, alone and with many threads."""

import threading
from typing import Any

import numpy as np

from rampup.data.reader import SampleReader


def read(reader: SampleReader, indices: Any) -> tuple[np.ndarray, ...]:
    """Read samples into buffers that are full of something else before."""
    wanted = np.asarray(indices, dtype=np.int64)
    out = tuple(np.full((len(wanted), *field.shape), 113, field.dtype) for field in reader.fields)
    reader.read(wanted, out)
    return out


def read_by_threads(reader: SampleReader, threads: int = 6, rounds: int = 12) -> None:
    """Every thread reads samples in an order of its own; all must be what one thread reads."""
    whole = read(reader, range(len(reader)))
    wrong: list[object] = []

    def work(number: int) -> None:
        draw = np.random.default_rng(number)
        try:
            for _ in range(rounds):
                indices = draw.permutation(len(reader))[: 1 + len(reader) // 2]
                for found, column in zip(read(reader, indices), whole, strict=True):
                    if not np.array_equal(found, column[indices]):
                        wrong.append((number, indices))
        except Exception as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert wrong == []
