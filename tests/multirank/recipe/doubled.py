"""DeepCam in float64: what differs between numbers of ranks is then no rounding of float32."""

from typing import Any

from torch import Tensor, nn

from rampup.recipes.deepcam.train import DeepCam


class Doubled(DeepCam):
    def model(self) -> nn.Module:
        return super().model().double()

    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        maps, labels = batch
        return super().scores(model, (maps.double(), labels))
