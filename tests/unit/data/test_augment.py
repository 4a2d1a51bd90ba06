"""Augmented batches: each image as a slow and plain loop would have it, whatever batch, rank or
attempt it is in."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rampup.data.augment import AT_ONCE, DRAWS, Augment, draws

MEAN, DEVIATION = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
SIZE = 8
FIXED = [[5092444737948322, 3799383497202112], [924216894160269, 4231441493518632]]


def images(count: int) -> Tensor:
    return torch.randint(
        0,
        256,
        (count, 3, SIZE * SIZE),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(1),
    )


def augment(crop: int = 2, flip: bool = True, cutout: int = 3) -> Augment:
    return Augment(SIZE, MEAN, DEVIATION, crop=crop, flip=flip, cutout=cutout)


def by_hand(
    image: Tensor, number: int, seed: int, epoch: int, crop: int, flip: bool, cutout: int
) -> np.ndarray:
    """One image, with numpy."""
    down, right, mirror, *middle = draws(seed, epoch, torch.tensor([number]), DRAWS)[:, 0].tolist()
    pixels = image.view(3, SIZE, SIZE).numpy().astype(np.float64) / 255
    pixels = (pixels - np.array(MEAN)[:, None, None]) / np.array(DEVIATION)[:, None, None]
    if crop:
        wide = np.pad(pixels, ((0, 0), (crop, crop), (crop, crop)), mode="reflect")
        top, left = down % (2 * crop + 1), right % (2 * crop + 1)
        pixels = wide[:, top : top + SIZE, left : left + SIZE]
    if flip and mirror % 2:
        # The picture is mirrored after it was shifted.
        pixels = pixels[:, :, ::-1]
    pixels = pixels.copy()
    if cutout:
        (row, column), half = (place % SIZE for place in middle), cutout // 2
        pixels[
            :,
            max(0, row - half) : row - half + cutout,
            max(0, column - half) : column - half + cutout,
        ] = 0
    return pixels


@pytest.mark.parametrize(
    ("crop", "flip", "cutout"),
    [(2, True, 3), (0, True, 0), (2, False, 0), (0, False, 4), (0, False, 0)],
)
def test_each_image_is_what_a_plain_loop_makes_of_it(crop: int, flip: bool, cutout: int) -> None:
    data, ids = images(40), torch.arange(100, 140)
    before = data.clone()
    found = augment(crop, flip, cutout)(data, ids, seed=3, epoch=5)
    assert found.shape == (40, 3, SIZE, SIZE) and torch.equal(data, before)
    for index, number in enumerate(ids.tolist()):
        expected = by_hand(data[index], number, 3, 5, crop, flip, cutout)
        np.testing.assert_allclose(found[index].numpy(), expected, atol=1e-5)


def test_neither_the_batch_nor_its_order_matters() -> None:
    data, change = images(AT_ONCE + 30), augment()
    ids = torch.randperm(len(data), generator=torch.Generator().manual_seed(2))
    whole = change(data, ids, 1, 1)
    for part in (slice(0, 1), slice(5, 60), slice(AT_ONCE - 1, None)):
        assert torch.equal(change(data[part], ids[part], 1, 1), whole[part])
    assert torch.equal(change(data.flip(0), ids.flip(0), 1, 1), whole.flip(0))
    assert len(change(data[:0], ids[:0], 1, 1)) == 0


def test_seed_epoch_and_number_all_matter() -> None:
    ids = torch.arange(1000)
    tables = [draws(seed, epoch, ids, DRAWS) for seed in (1, 2) for epoch in (1, 2)]
    for index, table in enumerate(tables):
        assert all((table == other).float().mean() < 0.01 for other in tables[index + 1 :])
        assert len(table.unique()) == table.numel()
    assert torch.equal(tables[0], draws(1, 1, ids, DRAWS))


def test_random_numbers_are_spread_evenly_and_never_change() -> None:
    table = draws(7, 3, torch.arange(50_000), DRAWS)
    assert int(table.min()) >= 0 and int(table.max()) < 2**53
    for row in table:
        counts = torch.bincount(row % 9, minlength=9).double()
        assert float(((counts - counts.mean()) ** 2 / counts.mean()).sum()) < 30, (
            "chi squared with 8 degrees of freedom"
        )
    between = np.corrcoef(table.numpy() / 2**53)
    assert np.abs(between - np.eye(DRAWS)).max() < 0.02
    assert draws(7, 3, torch.tensor([0, 1]), 2).tolist() == FIXED, (
        "a run must look the same with every version"
    )
    assert draws(2**70, 2**40, torch.tensor([1]), 1).numel() == 1, "any seed is taken"


def test_validation_only_normalises() -> None:
    data = images(3)
    found = augment().plain(data)
    expected = (
        data.view(3, 3, SIZE, SIZE).double() / 255 - torch.tensor(MEAN).view(3, 1, 1)
    ) / torch.tensor(DEVIATION).view(3, 1, 1)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
