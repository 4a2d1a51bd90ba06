"""Tensors of samples that are read: no copy, channels first in torch's channels_last format."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from rampup.data.read_ahead import ReadAhead
from rampup.data.reader import Field, SampleReader
from rampup.engines.torch.streams import StreamedData


class Images(SampleReader):
    fields = (Field((4, 5, 3), channels_last=True), Field((), np.int64))

    def __len__(self) -> int:
        return 12

    def read(self, indices: Any, out: Any) -> None:
        out[0][:] = indices[:, None, None, None] + np.arange(3) / 10
        out[1][:] = indices


@pytest.fixture
def data() -> Iterator[StreamedData]:
    ahead = ReadAhead(Images(), 2, 10_000)
    yield StreamedData(ahead, Images.fields)
    ahead.close()


def test_images_are_views_with_the_channels_first(data: StreamedData) -> None:
    images, ids = data.batch(torch.tensor([7, 2]))
    assert images.shape == (2, 3, 4, 5) and ids.tolist() == [7, 2]
    assert images.is_contiguous(memory_format=torch.channels_last)
    same = images.to(memory_format=torch.channels_last)
    assert same.data_ptr() == images.data_ptr(), "not copied"
    assert images[0, 1].unique().tolist() == pytest.approx([7.1])


def test_a_batch_that_is_kept_is_never_overwritten(data: StreamedData) -> None:
    order = data.order(seed=1, batch_size=2)
    pieces = [order(epoch)[low : low + 2] for epoch in (1, 2, 3) for low in range(0, 12, 2)]
    data.plan(pieces)
    kept = [data.batch(torch.from_numpy(piece))[0][1:] for piece in pieces]
    for tensor, piece in zip(kept, pieces, strict=True):
        assert tensor[:, 0].unique().tolist() == [piece[1]]


def test_validation_batches_are_no_larger_than_the_memory(
    data: StreamedData, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data.limit(3) == 3
    assert capsys.readouterr().out == ""
    small = StreamedData(ReadAhead(Images(), 1, 2000), Images.fields)
    assert small.limit(1000) == 3
    assert "note: validation reads 3 samples at a time" in capsys.readouterr().out
