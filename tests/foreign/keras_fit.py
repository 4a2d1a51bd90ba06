"""A small network with plain `model.fit`, as a first course has it; `python keras_fit.py --epochs
2`."""

import argparse

import numpy as np
from tensorflow import keras

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()

x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")

model = keras.Sequential()
model.add(keras.Input((4,)))
model.add(keras.layers.Dense(8, activation="relu", kernel_initializer="he_normal"))
model.add(keras.layers.Dense(1, activation="sigmoid"))
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, epochs=args.epochs, batch_size=32, verbose=0)
loss, accuracy = model.evaluate(x, y, verbose=0)
print(f"Test Accuracy: {accuracy:.3f}")
print("epochs trained", len(history.history["loss"]))
