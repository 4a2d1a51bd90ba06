"""Data in memory is served by whole batches."""

import numpy as np
import pytest

from rampup.data.memory import TensorData
from rampup.errors import RampupError


def test_a_batch_is_the_rows_at_the_indices() -> None:
    data = TensorData(np.arange(10) * 10, np.arange(20).reshape(10, 2))
    tens, pairs = data.batch(np.array([3, 0]))
    assert len(data) == 10
    assert tens.tolist() == [30, 0]
    assert pairs.tolist() == [[6, 7], [0, 1]]


def test_arrays_of_different_length_are_refused() -> None:
    with pytest.raises(RampupError, match=r"\[3, 4\]"):
        TensorData(np.zeros(3), np.zeros(4))
