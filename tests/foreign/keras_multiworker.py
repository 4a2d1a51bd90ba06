"""Several workers by MultiWorkerMirroredStrategy, which finds them in TF_CONFIG.

With `--dies N` worker N fails after the first epoch.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import argparse
import json

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow

parser = argparse.ArgumentParser()
parser.add_argument("--dies", type=int, default=-1)
args = parser.parse_args()
task = json.loads(os.environ["TF_CONFIG"])["task"]

x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).batch(16)
with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((4,)), tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)]
    )
    model.compile(optimizer="sgd", loss="mse")
loss = model.fit(data, epochs=1, verbose=0).history["loss"][0]
print(
    "replicas",
    strategy.num_replicas_in_sync,
    "node",
    os.environ.get("SLURMD_NODENAME", "-"),
    "loss",
    loss,
)
if task["index"] == args.dies:
    raise ValueError("as planned")
model.fit(data, epochs=1, verbose=0)
