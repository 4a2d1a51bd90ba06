"""A recipe for the keras engine whose every step leaves a trace: the samples that each rank saw,
and its weights."""

import json
import os
import signal
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from rampup.keras import ArrayData, Field, SampleReader, Task

WIDTH, CLASSES = 6, 3


class Traced(Task):
    """`samples` to train on, `validation` to validate, and what the settings say beside."""

    steps = 0
    """How many this process has begun."""

    def data(self) -> tuple[ArrayData, ArrayData | None]:
        numbers = np.random.default_rng(7)
        count = self.settings.samples + self.settings.validation
        x = numbers.normal(size=(count, WIDTH)).astype(np.float32)
        y = (x @ numbers.normal(size=(WIDTH, CLASSES))).argmax(1)
        x = np.concatenate([np.arange(count, dtype=np.float32)[:, None], x], axis=1)
        train, rest = slice(None, self.settings.samples), slice(self.settings.samples, None)
        validation = ArrayData(x[rest], y[rest]) if self.settings.validation else None
        return ArrayData(x[train], y[train]), validation

    def model(self) -> keras.Model:
        self.built = keras.Sequential(
            [keras.Input((WIDTH + 1,)), Seen(self), *self.layers(), keras.layers.Dense(CLASSES)]
        )
        return self.built

    def layers(self) -> list[Any]:
        return [
            keras.layers.Dense(
                16, activation="relu", kernel_regularizer=keras.regularizers.L2(1e-3)
            )
        ]

    def compile_settings(self) -> Mapping[str, Any]:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"loss": loss, "metrics": ["accuracy"]}

    def begin_step(self, ids: Any, weights: Any) -> None:
        self.trace("ids", [int(each) for each in ids])
        self.trace("weights", zlib.crc32(weights.tobytes()))
        self.steps += 1

    def validate(self, weights: Any) -> None:
        self.trace("validated", zlib.crc32(weights.tobytes()))

    def trace(self, what: str, value: object) -> None:
        path = Path(os.environ["RAMPUP_RUN_DIR"]) / f"{what}-{os.environ['RANK']}.jsonl"
        with open(path, "a") as file:
            file.write(json.dumps(value) + "\n")


class Seen(keras.layers.Layer):
    """The first layer: leaves a trace of each step, and of the weights that are validated; takes
    the number away."""

    def __init__(self, task: Traced) -> None:
        super().__init__()
        self.task = task

    def call(self, x: Any, training: bool | None = None) -> Any:
        if training is not None and self.task.settings.trace:
            weights = tf.concat(
                [tf.reshape(each, [-1]) for each in self.task.built.trainable_variables], axis=0
            )
            if training:
                tf.numpy_function(self.task.begin_step, [x[:, 0], weights], [])
            else:
                tf.numpy_function(self.task.validate, [weights], [])
        return x[:, 1:]


class Noisy(Traced):
    """Dropout and batch normalisation: what differs between ranks and must still be the same in
    every run."""

    def layers(self) -> list[Any]:
        dense, norm = keras.layers.Dense(16, activation="relu"), keras.layers.BatchNormalization()
        return [dense, norm, keras.layers.Dropout(0.2), keras.layers.GaussianNoise(0.1)]


class Normed(Traced):
    """Batch normalisation alone: nothing is drawn at random."""

    def layers(self) -> list[Any]:
        return [keras.layers.Dense(16, activation="relu"), keras.layers.BatchNormalization()]


class Fixed(Traced):
    """Batch normalisation that never uses the batch: frozen, called so, or over positions."""

    def layers(self) -> list[Any]:
        norm = keras.layers.BatchNormalization
        inner = keras.Sequential([keras.Input((16,)), norm()])
        return [
            keras.layers.Dense(16),
            norm(trainable=False),
            keras.layers.Lambda(lambda x: inner(x, training=False)),
            keras.layers.Reshape((4, 4)),
            norm(),
            keras.layers.Flatten(),
        ]


class Doubling(keras.layers.Layer):
    """As users write layers: Python's `if` and `for` on tensors."""

    def call(self, x: Any) -> Any:
        if tf.reduce_sum(x) > 0:
            x = 2.0 * x
        for _ in tf.range(2):
            x = x + 1.0
        return x


class Branching(Traced):
    def layers(self) -> list[Any]:
        return [Doubling(), *super().layers()]


class Interrupted(Noisy):
    """In each attempt but the last, in one of its steps: asked to stop, or killed, by the
    settings."""

    def begin_step(self, ids: Any, weights: Any) -> None:
        super().begin_step(ids, weights)
        attempt = int(os.environ["RAMPUP_ATTEMPT"])
        ends = self.settings.ends[attempt - 1] if attempt <= len(self.settings.ends) else 0
        if self.steps == ends:
            self.interrupt()

    def interrupt(self) -> None:
        if self.settings.how == "killed after a pause":
            time.sleep(0.3)  # what is being written now gets done
        if self.settings.how.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif os.environ["RANK"] == "0":
            os.kill(os.getpid(), signal.SIGTERM)


class Shuffled(Interrupted):
    """Who trains and who validates is drawn at random, as users do it: nobody has set a seed."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        np.random.seed()  # as in a process of its own: the ranks of these tests are forks of one

    def data(self) -> tuple[ArrayData, ArrayData | None]:
        order = np.random.permutation(self.settings.samples)
        x = np.random.default_rng(7).normal(size=(len(order), WIDTH + 1)).astype(np.float32)
        x[:, 0] = np.arange(len(order))
        y, half = np.arange(len(order)) % CLASSES, len(order) // 2
        return ArrayData(x[order[:half]], y[order[:half]]), ArrayData(
            x[order[half:]], y[order[half:]]
        )


class Differing(Traced):
    """As many samples on each rank, and others: this source of random numbers can't be seeded from
    outside."""

    def data(self) -> tuple[ArrayData, ArrayData | None]:
        x = np.random.default_rng().normal(size=(100, WIDTH + 1)).astype(np.float32)
        return ArrayData(x, np.zeros(100, np.int64)), None


class Rounded(Traced):
    """The last bits differ, as where each rank computes its data on a CPU of another kind."""

    def data(self) -> tuple[ArrayData, ArrayData | None]:
        x = np.random.default_rng(1).normal(size=(100, WIDTH + 1)).astype(np.float32)
        return ArrayData(x * (1 + 1e-6 * int(os.environ["RANK"])), np.zeros(100, np.int64)), None


class Torn(Interrupted):
    """Before the second attempt looks for a checkpoint, a bit of the newest one has changed."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        if (os.environ["RAMPUP_ATTEMPT"], os.environ["RANK"]) == ("2", "0"):
            steps = Path(os.environ["RAMPUP_RUN_DIR"], "checkpoints").iterdir()
            newest = max(steps, key=lambda path: int(path.name.removeprefix("step-")))
            data = bytearray((newest / "arrays.npz").read_bytes())
            data[len(data) // 2] ^= 4
            (newest / "arrays.npz").write_bytes(data)


class Raises(Traced):
    """Rank 1 fails in the third step."""

    def begin_step(self, ids: Any, weights: Any) -> None:
        super().begin_step(ids, weights)
        if self.steps == 3 and os.environ["RANK"] == "1":
            raise ValueError("as planned")


class Keras3(Traced):
    def model(self) -> Any:
        os.environ["KERAS_BACKEND"] = "tensorflow"
        import keras as keras3

        return keras3.Sequential([keras3.Input((WIDTH + 1,)), keras3.layers.Dense(CLASSES)])


class Reads(SampleReader):
    """Arrays in memory as if they lay in files."""

    def __init__(self, data: ArrayData, fails: bool) -> None:
        self._arrays = [part.numpy() for part in data.batch(tf.range(len(data)))]
        self._fails = fails
        self.fields = tuple(Field(array.shape[1:], array.dtype) for array in self._arrays)

    def __len__(self) -> int:
        return len(self._arrays[0])

    def read(self, indices: Any, out: Any) -> None:
        if self._fails and (indices // 20 == 4).any():
            raise FileNotFoundError(2, "No such file or directory", "/data/one.h5")
        for array, found in zip(self._arrays, out, strict=True):
            found[:] = array[indices]


def _as_reads(task: Traced, found: tuple[ArrayData, ArrayData | None]) -> Any:
    train, validation = found
    assert validation is not None
    fails = os.environ["RANK"] == str(task.settings.get("failing_rank"))
    return Reads(train, fails), Reads(validation, False)


class Streamed(Traced):
    """The same samples, read while the steps compute."""

    def data(self) -> Any:
        return _as_reads(self, super().data())


class StreamedNoisy(Interrupted):
    def data(self) -> Any:
        return _as_reads(self, super().data())
