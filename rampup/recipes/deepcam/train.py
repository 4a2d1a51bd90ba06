"""DeepCam: find tropical cyclones and atmospheric rivers on maps of the weather.

The segmentation of MLPerf HPC. A sample is one HDF5 file with 16 variables on a map; each pixel is
background, cyclone or river. `rampup fetch deepcam-demo` makes a small set. The loss weighs rare
classes more, and the score is the IoU of each sample, averaged.
"""

from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rampup.recipe import Benchmark, Settings, read_deepcam
from rampup.recipes.deepcam.benchmark import describe
from rampup.recipes.deepcam.model import DeepLab
from rampup.recipes.deepcam.settings import find_folder
from rampup.torch import Column, HDF5Files, Segmenter

FREQUENCIES = (0.986267818390377, 0.0004578708870701058, 0.01327431072255291)
"""The shares of the classes among the pixels of the full set."""
POWER = -0.125
"""A class counts as its frequency to this power: 1.00, 2.61 and 1.72."""


def take_labels(stored: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy the labels of a map. A class that there is not would end in an error of torch that names
    no file."""
    with np.errstate(invalid="ignore"):
        np.copyto(out, stored, casting="unsafe")
    is_cut = stored.dtype.kind == "f" and bool((out != stored).any())
    if is_cut or out.min() < 0 or out.max() >= len(FREQUENCIES):
        wrong = (out != stored) | (out < 0) | (out >= len(FREQUENCIES))
        raise ValueError(f"climate/labels_0 has {stored[wrong][0]}, and the classes are 0, 1 and 2")


class DeepCam(Segmenter):
    classes = ("background", "cyclone", "river")
    class_weights = tuple(frequency**POWER for frequency in FREQUENCIES)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.channels: list[int] = settings.channels
        self.takes_all = self.channels == list(range(16))

    def data(self) -> tuple[HDF5Files, HDF5Files]:
        found = read_deepcam(find_folder(self.settings))
        low, high = np.array(found.lowest), np.array(found.highest)
        shape = (found.height, found.width)
        columns = {
            "climate/data": Column(
                (*shape, len(low)),
                channels_last=True,
                subtract=low,
                divide=np.where(high > low, high - low, 1),
            ),
            "climate/labels_0": Column(shape, np.int64, apply=take_labels),
        }
        counts = self.settings.samples, self.settings.validation
        train, validation = (
            HDF5Files(islice(files, count or None), columns)
            for files, count in zip((found.train, found.validation), counts, strict=True)
        )
        return train, validation

    def model(self) -> nn.Module:
        settings = self.settings
        return DeepLab(
            len(self.channels), len(self.classes), settings.width, settings.output_stride
        )

    def benchmark(self, optimizer: torch.optim.Optimizer, steps: int) -> Benchmark:
        rule = type(optimizer).__name__
        return describe(self.settings, optimizer.param_groups[0], rule, steps)

    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        maps, labels = batch
        return model(maps if self.takes_all else maps[:, self.channels]), labels

    def pictures(self, batch: Any) -> Tensor:
        """Show the water in the air, or the first variable that was chosen."""
        maps: Tensor = batch[0][:, self.channels[0]]
        low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
        return ((maps - low) / (high - low).clamp(min=1e-9) * 255).to(torch.uint8)
