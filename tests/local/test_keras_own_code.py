"""A user's own loss and own data may ask a tensor with plain Python, as under model.fit: both are
rewritten."""

from importlib.util import find_spec

import pytest
from conftest import Cli

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

ASKS = """
import tensorflow as tf
from tensorflow import keras


def loss(y, predicted):
    if tf.reduce_mean(y) > 1000.0:
        return tf.reduce_mean(tf.abs(y - predicted), axis=-1)
    return tf.reduce_mean(tf.square(y - predicted), axis=-1)


def build_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss=loss)
    return model


class Rows:
    def __len__(self):
        return 20

    def batch(self, indices):
        x = tf.cast(indices, tf.float32)[:, None] * tf.ones((1, 4)) / 20
        if tf.shape(indices)[0] > 1000:
            x = tf.zeros_like(x)
        return x, x[:, :1]


def load_data():
    return Rows(), Rows()
"""


def test_own_loss_and_own_data_with_conditions(cli: Cli) -> None:
    cli.script(ASKS, "asks.py")
    said = cli(
        "run", "asks:build_model", "data=asks:load_data", "epochs=1", "monitor=val_loss"
    ).stdout
    assert "val_loss=" in said
