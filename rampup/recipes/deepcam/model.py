"""The network of the deepcam recipe: DeepLabv3+ on a modified Xception, for maps of any size.

`DeepLab` is built by train.py on every rank. Four parts: the encoder, the bottleneck that looks at
several scales, the reducer of the low-level feature, and the decoder. With 16 channels, 3 classes
and width 1 it has 56,454,720 parameters. No convolution has a bias but one: the last 1x1 of the
decoder.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

MIDDLE_BLOCKS = 16
LEAST_CHANNELS = 8
Widen = Callable[[int], int]
"""Makes the channels of a layer from those at width 1."""


class DeepLab(nn.Module):
    """Scores for each class and pixel, of the size of the input.

    `width` multiplies the channels of all layers. `output_stride`, 8 or 16, is how much coarser
    than the input the deepest features are.
    """

    def __init__(
        self, channels: int, classes: int, width: float = 1.0, output_stride: int = 16
    ) -> None:
        super().__init__()

        def widen(count: int) -> int:
            return max(LEAST_CHANNELS, 8 * round(count * width / 8))

        dense = output_stride == 8
        self.encoder = Encoder(channels, widen, dense)
        self.bottleneck = Bottleneck(widen, (12, 24, 36) if dense else (6, 12, 18))
        self.reducer = convolve(widen(128), widen(48), 1)
        self.decoder = Decoder(widen, classes, dense)
        for part in (self.encoder, self.bottleneck):
            initialise(part)

    def forward(self, maps: Tensor) -> Tensor:
        low, deep = self.encoder(maps)
        scores: Tensor = self.decoder(self.bottleneck(deep), self.reducer(low))
        return cut_to(scores, maps)


def cut_to(features: Tensor, like: Tensor) -> Tensor:
    """Return as many pixels as `like` has: where a size is odd, doubling it gives one too many."""
    height, width = like.shape[2:]
    return features[:, :, :height, :width]


def initialise(part: nn.Module) -> None:
    for module in part.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)


# layers -------------------------------------------------------------------------------------------


def convolve(
    wide_in: int, wide_out: int, size: int, stride: int = 1, dilation: int = 1
) -> nn.Sequential:
    padding = dilation * (size // 2)
    convolution = nn.Conv2d(wide_in, wide_out, size, stride, padding, dilation, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(wide_out), nn.ReLU(inplace=True))


def enlarge(wide_in: int, wide_out: int, stride: int = 2) -> nn.ConvTranspose2d:
    """Return a layer that doubles the size, or keeps it with stride 1."""
    return nn.ConvTranspose2d(wide_in, wide_out, 3, stride, 1, stride - 1, bias=False)


def enlarge_normalised(wide: int, stride: int = 2) -> nn.Sequential:
    return nn.Sequential(enlarge(wide, wide, stride), nn.BatchNorm2d(wide), nn.ReLU(inplace=True))


def separate(wide_in: int, wide_out: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """Return a separable convolution: each channel alone, then all channels of a pixel."""
    return nn.Sequential(
        nn.Conv2d(wide_in, wide_in, 3, stride, dilation, dilation, groups=wide_in, bias=False),
        nn.Conv2d(wide_in, wide_out, 1, bias=False),
    )


class Block(nn.Module):
    """Separable convolutions with a shortcut around them."""

    def __init__(
        self,
        wide_in: int,
        wide_out: int,
        repeats: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        grows_first: bool = True,
        is_last: bool = False,
        ends_with_relu: bool = True,
    ) -> None:
        super().__init__()
        growing = 0 if grows_first else repeats - 1
        layers: list[nn.Module] = []
        wide = wide_in
        for index in range(repeats):
            after = wide_out if index >= growing else wide_in
            layers += [separate(wide, after, 1, dilation), nn.BatchNorm2d(after)]
            if index < repeats - 1:
                layers.append(nn.ReLU(inplace=True))
            wide = after
        if stride > 1:
            layers.append(separate(wide_out, wide_out, stride))
        elif is_last:
            layers.append(separate(wide_out, wide_out))
        self.layers = nn.Sequential(*layers)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or wide_in != wide_out:
            # A 1x1 convolution with a stride takes every second pixel. Some versions of torch write
            # beyond their memory in its backward pass on a CPU, in channels_last.
            skip = nn.Conv2d(wide_in, wide_out, 1, bias=False)
            self.shortcut = nn.Sequential(skip, nn.BatchNorm2d(wide_out))
        self.stride, self.ends_with_relu = stride, ends_with_relu

    def forward(self, features: Tensor) -> Tensor:
        taken = features[:, :, :: self.stride, :: self.stride]
        found = self.layers(features) + self.shortcut(taken)
        return torch.relu_(found) if self.ends_with_relu else found


# the four parts -----------------------------------------------------------------------------------


class Encoder(nn.Module):
    """The modified Xception: the low-level feature at a quarter of the size, and the deep ones."""

    def __init__(self, channels: int, widen: Widen, dense: bool) -> None:
        super().__init__()
        middle, outer = (2, 4) if dense else (1, 2)
        wide = [widen(count) for count in (32, 64, 128, 256, 728, 1024, 1536, 2048)]
        self.stem = nn.Sequential(
            convolve(channels, wide[0], 3, stride=2), convolve(wide[0], wide[1], 3)
        )
        self.first = Block(wide[1], wide[2], 2, stride=2, ends_with_relu=False)
        self.entry = nn.Sequential(
            Block(wide[2], wide[3], 2, stride=2),
            Block(wide[3], wide[4], 2, stride=1 if dense else 2),
        )
        self.middle = nn.Sequential(
            *(Block(wide[4], wide[4], 3, dilation=middle) for _ in range(MIDDLE_BLOCKS))
        )
        self.last = Block(
            wide[4],
            wide[5],
            2,
            dilation=middle,
            grows_first=False,
            is_last=True,
            ends_with_relu=False,
        )
        layers: list[nn.Module] = []
        for before, after in ((wide[5], wide[6]), (wide[6], wide[6]), (wide[6], wide[7])):
            layers += [separate(before, after, 1, outer), nn.BatchNorm2d(after), nn.ReLU(True)]
        self.exit = nn.Sequential(*layers)

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        # The decoder gets the feature after the ReLU, as in the reference, where it is in place.
        low = torch.relu_(self.first(self.stem(maps)))
        return low, self.exit(self.last(self.middle(self.entry(low))))


class Bottleneck(nn.Module):
    """Looks at the deep features at several scales and at their mean over the map, and fuses
    them."""

    def __init__(self, widen: Widen, rates: tuple[int, int, int]) -> None:
        super().__init__()
        deep, wide = widen(2048), widen(256)
        self.scales = nn.ModuleList(
            [convolve(deep, wide, 1), *(convolve(deep, wide, 3, dilation=rate) for rate in rates)]
        )
        self.pooled = nn.Conv2d(deep, wide, 1, bias=False)
        self.scale = nn.Parameter(torch.ones(1, wide, 1, 1))
        self.shift = nn.Parameter(torch.zeros(1, wide, 1, 1))
        self.fuse = convolve(5 * wide, wide, 1)

    def forward(self, deep: Tensor) -> Tensor:
        mean = torch.relu(self.pooled(deep.mean((2, 3), keepdim=True)) * self.scale + self.shift)
        found = [scale(deep) for scale in self.scales]
        fused: Tensor = self.fuse(torch.cat([*found, mean.expand_as(found[0])], 1))
        return fused


class Decoder(nn.Module):
    """From the fused deep features and the reduced low-level one to scores for each pixel."""

    def __init__(self, widen: Widen, classes: int, dense: bool) -> None:
        super().__init__()
        wide = widen(256)
        self.enlarge = nn.Sequential(
            enlarge_normalised(wide, 1 if dense else 2), enlarge_normalised(wide)
        )
        self.mix = nn.Sequential(
            convolve(wide + widen(48), wide, 3),
            convolve(wide, wide, 3),
            nn.Conv2d(wide, wide, 1),
        )
        self.finish = nn.Sequential(enlarge_normalised(wide), enlarge(wide, classes))

    def forward(self, deep: Tensor, low: Tensor) -> Tensor:
        deep = cut_to(self.enlarge(deep), low)
        scores: Tensor = self.finish(self.mix(torch.cat([deep, low], 1)))
        return scores
