"""A small network that reads handwritten digits, as a compiled Keras model. It knows nothing about
ranks or clusters.

`rampup run` trains it by the settings in rampup.toml. Make it yours: the layers and what `compile`
says. Every argument of `build_model` is a setting: `rampup run channels=32`.
"""

from tensorflow import keras

CLASSES = 10


def build_model(channels: int = 16, dropout: float = 0.1, lr: float = 0.003) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(channels, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(2 * channels, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(lr),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model
