"""Ionosphere: 351 radar returns of 34 numbers each, good (g) or bad (b), told apart by a small
perceptron in Keras."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelEncoder, StandardScaler

from rampup.keras import ArrayData, Task
from rampup.recipe import Settings
from rampup.recipes.ionosphere.settings import COLUMNS

CSV = Path(__file__).with_name("ionosphere.csv")


class Ionosphere(Task):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.scaler = StandardScaler()

    def data(self) -> tuple[ArrayData, ArrayData]:
        rows, labels = read()
        train_x, test_x, train_y, test_y = train_test_split(
            rows,
            labels,
            test_size=self.settings.test_size,
            random_state=self.settings.seed,
            stratify=labels,
        )
        self.scaler.fit(train_x)
        return ArrayData(self.scaled(train_x), train_y), ArrayData(self.scaled(test_x), test_y)

    def model(self) -> keras.Model:
        model = keras.Sequential([keras.Input((COLUMNS,))])
        for width in self.settings.hidden:
            model.add(keras.layers.Dense(width, activation="relu", kernel_initializer="he_normal"))
        model.add(keras.layers.Dense(1, activation="sigmoid"))
        return model

    def compile_settings(self) -> Mapping[str, Any]:
        return {"loss": "binary_crossentropy", "metrics": ["accuracy"]}

    def end(self, model: keras.Model) -> Mapping[str, Any]:
        if not self.settings.predict:
            return {}
        good = float(
            model(self.scaled(np.array([self.settings.predict], np.float32))).numpy()[0, 0]
        )
        return {"predicted": f"{'good' if good >= 0.5 else 'bad'} (probability of good {good:.3f})"}

    def scaled(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.scaler.transform(rows).astype(np.float32)
        return found


def read() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The rows, and 1 for each good one."""
    with open(CSV, newline="", encoding="ascii") as file:
        lines = list(csv.reader(file))
    labels = LabelEncoder().fit_transform([line[-1] for line in lines])  # b is 0, g is 1
    return np.array([line[:-1] for line in lines], np.float32), labels.astype(np.float32)
