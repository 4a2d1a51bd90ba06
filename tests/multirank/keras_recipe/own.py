"""Models as users write them, with a loss, a metric or a layer of their own: some are trained, the
others refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from rampup.keras import ArrayData, Task

optimizers, metrics = keras.optimizers, keras.metrics


class Ones(Task):
    """Four ones in, 0 expected, and weights of 1 that do not change: every prediction is 4, every
    square error 16."""

    def data(self) -> tuple[ArrayData, ArrayData | None]:
        x, y = np.ones((50, 4), np.float32), np.zeros(50, np.float32)
        return ArrayData(x, y), ArrayData(x, y)

    def model(self) -> keras.Model:
        return keras.Sequential([keras.Input((4,)), *self.layers()])

    def layers(self) -> list[Any]:
        return [keras.layers.Dense(1, kernel_initializer="ones")]

    def compile_settings(self) -> Mapping[str, Any]:
        return {"loss": "mse", "optimizer": optimizers.SGD(0.0), **self.own()}

    def own(self) -> Mapping[str, Any]:
        return {}


# trained ------------------------------------------------------------------------------------------


class Squares(keras.losses.Loss):
    """Nothing but what it needs: no get_config, no keywords of Keras's."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def call(self, y: Any, predicted: Any) -> Any:
        return self.factor * tf.reduce_mean(tf.square(y - predicted), axis=-1)


class Count(metrics.Metric):
    def __init__(self, by: float = 1.0, name: str = "count", **keywords: Any) -> None:
        super().__init__(name=name, **keywords)
        self.by = by
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(self.by * tf.cast(tf.shape(y)[0], tf.float32))

    def result(self) -> Any:
        return self.total


class Told(Count):
    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "by": self.by}


class Fixed(Count):
    """Made with nothing at all."""

    def __init__(self) -> None:
        super().__init__(name="fixed")


class OwnScores(Ones):
    def own(self) -> Mapping[str, Any]:
        return {"loss": Squares(10.0), "metrics": [Told(by=5.0), Fixed()]}


class F1(Ones):
    """Its labels are (batch,), and it takes (batch, 1): all 50 are said to be 1, and are."""

    def data(self) -> tuple[ArrayData, ArrayData | None]:
        x, y = np.ones((50, 4), np.float32), np.ones(50, np.float64)
        return ArrayData(x, y), ArrayData(x, y)

    def own(self) -> Mapping[str, Any]:
        return {"metrics": [metrics.F1Score(average="micro", threshold=0.5, name="f1")]}


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = (
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1, kernel_initializer="ones"),
        )

    def call(self, x: Any, training: bool = False) -> Any:
        return self.last(self.norm(x, training=training))


class OwnClass(Ones):
    def model(self) -> keras.Model:
        model = Subclassed()
        model.build((None, 4))
        return model


class Pictures(Ones):
    """Of any size: the shape of the output follows from the input."""

    def data(self) -> tuple[ArrayData, ArrayData | None]:
        x, y = np.ones((50, 8, 8, 1), np.float32), np.zeros((50, 8, 8), np.int64)
        return ArrayData(x, y), ArrayData(x, y)

    def model(self) -> keras.Model:
        layer = keras.layers.Conv2D(2, 1, activation="softmax", kernel_initializer="ones")
        return keras.Sequential([keras.Input((None, None, 1)), layer])

    def own(self) -> Mapping[str, Any]:
        return {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}


@tf.custom_gradient
def shapeless(x: Any) -> Any:
    """What a SavedModel does to the gradient."""
    return tf.identity(x), lambda gradient: tf.numpy_function(
        lambda array: array, [gradient], tf.float32
    )


class Saved(keras.layers.Dense):
    def call(self, x: Any) -> Any:
        return tf.matmul(x, shapeless(self.kernel))


class Shapeless(Ones):
    def layers(self) -> list[Any]:
        return [Saved(1, kernel_initializer="ones", use_bias=False)]


# refused ------------------------------------------------------------------------------------------


class Summed(Ones):
    def own(self) -> Mapping[str, Any]:
        return {"loss": keras.losses.MeanSquaredError(reduction="sum")}


def of_all(y: Any, predicted: Any) -> Any:
    return tf.reduce_mean(tf.square(y - predicted))


class Scalar(Ones):
    def own(self) -> Mapping[str, Any]:
        return {"loss": of_all}


class Forgetful(Ones):
    def own(self) -> Mapping[str, Any]:
        return {"metrics": [Count(by=5.0)]}


class Masked(Ones):
    def layers(self) -> list[Any]:
        return [keras.layers.Embedding(5, 3, mask_zero=True), keras.layers.Dense(1)]


class Legacy(Ones):
    def own(self) -> Mapping[str, Any]:
        return {"optimizer": optimizers.legacy.SGD(0.1)}


class OwnRate(Ones):
    def own(self) -> Mapping[str, Any]:
        return {"optimizer": optimizers.SGD(optimizers.schedules.ExponentialDecay(0.1, 10, 0.5))}


class Half(Ones):
    def layers(self) -> list[Any]:
        return [keras.layers.Dense(1, dtype="mixed_float16")]


class Weighed(Ones):
    def own(self) -> Mapping[str, Any]:
        return {"loss_weights": [2.0]}


class WeighedMetrics(Ones):
    def own(self) -> Mapping[str, Any]:
        return {"weighted_metrics": ["mae"]}


class LossOfItsOwn(keras.Sequential):
    def compute_loss(self, *arguments: Any) -> Any:
        return super().compute_loss(*arguments) + 1.0


class Computes(Ones):
    def model(self) -> keras.Model:
        return LossOfItsOwn([keras.Input((4,)), *self.layers()])


class TestOfItsOwn(keras.Sequential):
    def test_step(self, data: Any) -> Any:
        return super().test_step(data)


class Tests(Ones):
    def model(self) -> keras.Model:
        return TestOfItsOwn([keras.Input((4,)), *self.layers()])


class Pair(Subclassed):
    def call(self, x: Any, training: bool = False) -> Any:
        return super().call(x, training), x


class Two(OwnClass):
    def model(self) -> keras.Model:
        model = Pair()
        model.build((None, 4))
        return model
