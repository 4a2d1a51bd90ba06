"""Data that fits in memory, served by whole batches: one indexing operation per array and step.

Recipes return it from `data()`; an engine asks for `batch(indices)`. It takes torch tensors and
numpy arrays alike and imports no framework. It never copies the data as a whole.
"""

from collections.abc import Callable
from typing import Any

from rampup.errors import RampupError


class TensorData:
    """Arrays of equal length; a batch is the tuple of their rows."""

    def __init__(self, *tensors: Any) -> None:
        sizes = {len(tensor) for tensor in tensors}
        if len(sizes) != 1:
            raise RampupError(
                f"arrays of different length can't form one data set: {[len(tensor) for tensor in tensors]}",
                "give TensorData arrays with one row per sample",
            )
        self.tensors = tensors
        self._size = sizes.pop()
        self._pick = tuple(_row_picker(tensor) for tensor in tensors)

    def __len__(self) -> int:
        return self._size

    def batch(self, indices: Any) -> tuple[Any, ...]:
        """Return the rows at `indices`, an integer tensor or array."""
        return tuple([pick(indices) for pick in self._pick])


def _row_picker(tensor: Any) -> Callable[[Any], Any]:
    """Return how rows are taken: torch's index_select needs half the time of its general
    indexing."""
    select = getattr(tensor, "index_select", None)
    return (lambda indices: select(0, indices)) if select else tensor.__getitem__
