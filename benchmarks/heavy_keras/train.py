"""The task of the drills in Keras: little to compute, much to save, and random numbers that must
come back exactly."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tf_keras as keras

from rampup.keras import ArrayData, Task

INPUTS, CLASSES = 256, 10


class Heavy(Task):
    def data(self) -> tuple[ArrayData, None]:
        chance = np.random.default_rng(1)
        rows = self.settings.steps * self.settings.batch_size
        images = chance.standard_normal((rows, INPUTS), np.float32)
        return ArrayData(images, chance.integers(CLASSES, size=rows)), None

    def model(self) -> keras.Model:
        layers = keras.layers
        hidden = [layers.Dense(self.settings.width, activation="relu"), layers.BatchNormalization()]
        scores = [layers.Dropout(0.2), layers.Dense(CLASSES, activation="softmax")]
        return keras.Sequential([keras.Input((INPUTS,)), *hidden, *scores])

    def compile_settings(self) -> Mapping[str, Any]:
        return {"loss": "sparse_categorical_crossentropy"}
