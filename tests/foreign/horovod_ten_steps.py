"""Keras and Horovod as courses teach it, in ten steps; knows nothing of rampup.

    python horovod_ten_steps.py [--epochs 3] [--dies]

Prints a line per rank: who it is, the learning rates of the epochs, and its weights as one number.
"""

import argparse
import socket
import zlib

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--base-lr", type=float, default=0.01)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--dies", action="store_true", help="rank 1 fails after the first epoch")
args = parser.parse_args()
WARMUP = 1


def factor(epoch):
    """What the full rate is multiplied by after the warm-up."""
    return 1.0 if epoch < 2 else 0.1


class Rates(tf.keras.callbacks.Callback):
    seen = ()

    def on_epoch_end(self, epoch, logs=None):
        self.seen += (round(float(self.model.optimizer.lr.numpy()), 6),)
        if args.dies and hvd.rank() == 1:
            raise ValueError("as planned")


hvd.init()  # 1
# 2: one for each process, also where the scheduler shows only that one
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
verbose = 2 if hvd.rank() == 0 else 0  # 3

tf.keras.utils.set_random_seed(hvd.rank())  # they start apart, and step 5 brings them together
x = np.random.default_rng(1).normal(size=(256, 4)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")
mine = slice(hvd.rank(), None, hvd.size())  # each sample belongs to one rank
train = (
    tf.data.Dataset.from_tensor_slices((x[:192][mine], y[:192][mine]))
    .shuffle(192)
    .repeat()
    .batch(args.batch_size)
)
valid = tf.data.Dataset.from_tensor_slices((x[192:][mine], y[192:][mine])).batch(args.batch_size)

model = tf.keras.Sequential(
    [tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(1, "sigmoid")]
)
model.build((None, 4))
rate = args.base_lr * hvd.size()  # 9
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(rate, momentum=0.9))  # 4
model.compile(optimizer=optimizer, loss="binary_crossentropy", metrics=["accuracy"])
rates = Rates()
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # 5
    hvd.callbacks.MetricAverageCallback(),  # 7
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=WARMUP),  # 10
    hvd.callbacks.LearningRateScheduleCallback(
        initial_lr=rate, multiplier=factor, start_epoch=WARMUP
    ),
    rates,
]
if hvd.rank() == 0:
    # 8
    callbacks.append(tf.keras.callbacks.ModelCheckpoint("ten_steps.h5", save_weights_only=True))
steps = 192 // args.batch_size // hvd.size()  # 6
model.fit(
    train,
    steps_per_epoch=steps,
    validation_data=valid,
    epochs=args.epochs,
    callbacks=callbacks,
    verbose=verbose,
)
weights = zlib.crc32(b"".join(each.tobytes() for each in model.get_weights()))
print(
    f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()}: rates {rates.seen}, weights {weights}",
    flush=True,
)
