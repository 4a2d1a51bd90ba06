"""Crops, flips and cutout for whole batches of images, on the device where the batch is: one gather
instead of a loop over images.

Recipes call it from `Task.augment`. What happens to an image follows from (seed, epoch, its number
in the data) alone, so neither the number of ranks nor workers nor a resume in the middle of an
epoch changes it, and no random state has to be kept. It never changes the data it is given.
"""

import torch
from torch import Tensor

DRAWS = 5
"""Random numbers for each image: shift down, shift right, flip, and the middle of what is cut
out."""
AT_ONCE = 128
"""Images that are worked on together on a CPU: so few stay in its cache, which is four times faster
than a whole batch."""
STEP = -0x61C8864680B583EB
"""2**64 over the golden ratio, as 64 bits with a sign."""
MIXERS = ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1))
"""How far to shift and what to multiply by: the finishing of splitmix64."""


def draws(seed: int, epoch: int, ids: Tensor, count: int) -> Tensor:
    """Return `count` random whole numbers below 2**53 for each id, as (count, len(ids)); the same on
    any device."""
    places = torch.arange(1, count + 1, device=ids.device).unsqueeze(1)
    keyed = _mix(_mix(ids * STEP + _to_signed(seed)) + _to_signed(epoch * STEP))
    return _mix(keyed + places * STEP) >> 11 & 2**53 - 1


def _to_signed(value: int) -> int:
    """Return the value as 64 bits with a sign, which is what torch takes."""
    return (value + 2**63) % 2**64 - 2**63


def _mix(values: Tensor) -> Tensor:
    """Mix the bits, so that every bit of the result depends on every bit of the value. Sums and
    products wrap around, as they are meant to."""
    for shift, factor in MIXERS:
        values = (values ^ (values >> shift & (1 << 64 - shift) - 1)) * factor
    return values


class Augment:
    """For images of bytes, in planes: (samples, colours, height * width)."""

    def __init__(
        self,
        size: int,
        mean: tuple[float, ...],
        deviation: tuple[float, ...],
        *,
        crop: int,
        flip: bool,
        cutout: int,
    ) -> None:
        """`crop` is the largest shift in pixels, `cutout` the side of the square that is cut out. 0
        turns either off."""
        self.size, self.crop, self.flip, self.cutout = size, crop, flip, cutout
        self._places = torch.arange(size)
        shifted = torch.stack(
            [_reflect(self._places + shift, size) for shift in range(-crop, crop + 1)]
        )
        self._rows = shifted * size
        self._columns = torch.cat([shifted, shifted.flip(1)])
        self._mean = torch.tensor(mean).view(-1, 1) * 255
        self._scale = 1 / (torch.tensor(deviation).view(-1, 1) * 255)

    def plain(self, images: Tensor) -> Tensor:
        """Return images with mean 0 and deviation 1, as (samples, colours, height, width), not
        augmented: for validation."""
        found = torch.empty(images.shape, device=images.device)
        self._normalise(images, found)
        return self._as_squares(found)

    def __call__(self, images: Tensor, ids: Tensor, seed: int, epoch: int) -> Tensor:
        """Return the images with these numbers as they look in this epoch."""
        numbers = draws(seed, epoch, ids, DRAWS)
        found = torch.empty(images.shape, device=images.device)
        at_once = AT_ONCE if images.device.type == "cpu" else max(1, len(images))
        for begin in range(0, len(images), at_once):
            part = slice(begin, begin + at_once)
            self._fill(found[part], images[part], numbers[:, part])
        return self._as_squares(found)

    def _fill(self, found: Tensor, images: Tensor, numbers: Tensor) -> None:
        down, right, flip, *middle = numbers
        if self.crop or self.flip:
            shifts = 2 * self.crop + 1
            column = right % shifts + (flip % 2 * shifts if self.flip else 0)
            rows, columns = (
                self._rows.to(images.device)[down % shifts],
                self._columns.to(images.device)[column],
            )
            pixels = (rows.unsqueeze(2) + columns.unsqueeze(1)).flatten(1).unsqueeze(1)
            images = images.gather(2, pixels.expand(-1, images.shape[1], -1))
        self._normalise(images, found)
        if self.cutout:
            rows, columns = (self._near(place % self.size) for place in middle)
            found *= (1 - rows.unsqueeze(2) * columns.unsqueeze(1)).flatten(1).unsqueeze(1)

    def _as_squares(self, images: Tensor) -> Tensor:
        return images.view(*images.shape[:2], self.size, self.size)

    def _normalise(self, images: Tensor, found: Tensor) -> None:
        found.copy_(images).sub_(self._mean.to(images.device)).mul_(self._scale.to(images.device))

    def _near(self, middle: Tensor) -> Tensor:
        """Return 1 where a row or column belongs to the square, for each sample."""
        away = self._places.to(middle.device) - middle.unsqueeze(1)
        return ((away >= -(self.cutout // 2)) & (away < self.cutout - self.cutout // 2)).float()


def _reflect(places: Tensor, size: int) -> Tensor:
    """Mirror places outside of the image at its edge."""
    return (size - 1) - ((size - 1) - places.abs()).abs()
