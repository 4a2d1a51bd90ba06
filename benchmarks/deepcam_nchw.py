"""DeepCam in torch's usual layout, NCHW, to compare: benchmarks/deepcam.py makes a recipe of it.

The files have the channels last, and so have the maps that a reader fills. torch computes in the
layout of the maps, whatever the layout of the weights is, so the maps are copied here.
"""

from typing import Any

from torch import Tensor, nn

from rampup.recipes.deepcam.train import DeepCam


class Contiguous(DeepCam):
    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        maps, labels = batch
        return super().scores(model, (maps.contiguous(), labels))
