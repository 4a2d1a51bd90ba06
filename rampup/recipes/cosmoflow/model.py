"""The network of CosmoFlow: 3D convolutions that halve the cube, then two dense layers.

train.py builds it. With its defaults and cubes of 128^3 x 4 it has 8,907,556 parameters. Cubes of
any size fit, as long as every pooling leaves a voxel.
"""

from typing import Any

import tensorflow as tf
import tf_keras as keras

from rampup.recipe import RampupError, Settings

SLOPE = 0.3
"""Of the leaky ReLU below 0."""
RANGE = 1.2
"""The output of the network lies within so much; the targets lie between -1 and 1."""


def build_network(size: int, channels: int, targets: int, settings: Settings) -> keras.Model:
    layers = keras.layers
    left = size >> settings.n_conv_layers
    if left < 1:
        raise RampupError(
            f"n_conv_layers={settings.n_conv_layers} halves a cube of {size} voxels to nothing",
            f"n_conv_layers={size.bit_length() - 1}",
        )
    stack: list[Any] = [keras.Input((size, size, size, channels))]
    if settings.augment:
        stack.append(Symmetries())
    for index in range(settings.n_conv_layers):
        width = settings.conv_size * 2**index
        stack += [
            layers.Conv3D(width, settings.kernel_size, padding="same"),
            build_activation(settings.hidden_activation),
            layers.MaxPool3D(2),
        ]
    stack.append(layers.Flatten())
    penalty = keras.regularizers.L2(settings.l2) if settings.l2 else None
    for width in (settings.fc1_size, settings.fc2_size):
        stack += [
            layers.Dense(width, kernel_regularizer=penalty),
            build_activation(settings.hidden_activation),
            layers.Dropout(settings.dropout),
        ]
    stack += [layers.Dense(targets, activation="tanh"), layers.Rescaling(RANGE)]
    return keras.Sequential(stack)


def build_activation(name: str) -> Any:
    if name == "leaky_relu":
        return keras.layers.LeakyReLU(SLOPE)
    return keras.layers.Activation(name)


class Symmetries(keras.layers.Layer):  # type: ignore[misc]
    """Shows the same universe from another side, and around another centre.

    A box is periodic and has no preferred direction. One turn is drawn for a batch. The generator
    is part of the layer, so a checkpoint has its state.
    """

    def build(self, shape: Any) -> None:
        self._generator = tf.random.Generator.from_seed(
            int(tf.random.uniform([], maxval=2**31 - 1, dtype=tf.int32))
        )
        super().build(shape)

    def call(self, cubes: Any, training: bool = False) -> Any:
        if not training:
            return cubes
        draws = self._generator.uniform([9])
        order = tf.argsort(draws[:3]) + 1
        turned = tf.transpose(cubes, tf.concat([[0], order, [4]], axis=0))
        shifts = tf.cast(draws[3:6] * tf.cast(tf.shape(turned)[1:4], tf.float32), tf.int32)
        moved = tf.roll(turned, shifts, [1, 2, 3])
        for axis in range(3):
            mirrored = tf.reverse(moved, [axis + 1])
            moved = tf.where(draws[6 + axis] < 0.5, moved, mirrored)
        return tf.ensure_shape(moved, cubes.shape)
