"""DeepCam in float64: what differs between numbers of ranks is then no rounding of float32. Each rank
leaves a number for every map that it trained on."""

import json
import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rampup.recipes.deepcam.train import DeepCam


class Doubled(DeepCam):
    def model(self) -> nn.Module:
        return super().model().double()

    def scores(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        maps, labels = batch
        return super().scores(model, (maps.double(), labels))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        path = Path(os.environ["RAMPUP_RUN_DIR"]) / f"maps-{os.environ['RANK']}.jsonl"
        with open(path, "a") as file:
            file.write(json.dumps(batch[0].double().sum((1, 2, 3)).tolist()) + "\n")
        return super().loss(model, batch)
