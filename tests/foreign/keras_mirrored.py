"""Several devices of one machine by MirroredStrategy; the CPU is cut in two where there is no
GPU."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
if gpus:
    devices = [f"/gpu:{index}" for index in range(len(gpus))]
else:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    devices = ["/cpu:0", "/cpu:1"]
strategy = tf.distribute.MirroredStrategy(devices)

x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).batch(
    8 * strategy.num_replicas_in_sync
)


def build_model():
    model = tf.keras.Sequential(
        [tf.keras.Input((4,)), tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)]
    )
    model.compile(optimizer=tf.keras.optimizers.SGD(0.05), loss="mse")
    return model


with strategy.scope():
    model = build_model()
losses = model.fit(data, epochs=3, verbose=0).history["loss"]
print("replicas", strategy.num_replicas_in_sync, "learnt", losses[-1] < losses[0])
