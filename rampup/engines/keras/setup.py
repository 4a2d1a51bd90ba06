"""TensorFlow as a rank needs it: imported quietly, with Keras 2, and the threads and devices of the
rank.

All of the keras engine imports `tf` and `tf_keras` from here, before anything else imports
TensorFlow, because most of this can't be changed afterwards. Of what TensorFlow writes while it is
imported, only errors are shown.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rampup.core.engines import keras as keras_version
from rampup.data.order import shard
from rampup.engines import parts
from rampup.errors import RampupError
from rampup.runtime.context import RankContext

__all__ = [
    "StagingError",
    "convert",
    "coordination_service",
    "mute",
    "prepare",
    "seed_everything",
    "tf",
    "tf_keras",
    "without_chatter",
]
DEFAULTS = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "KMP_BLOCKTIME": "1",
    keras_version.LEGACY: "1",
}
"""Variables that are read when TensorFlow is imported; those that a user has exported stay. With
KMP_BLOCKTIME the threads of Intel's OpenMP do not spin for long where others could work."""
THREAD_VARIABLES = (*("OMP_NUM_THREADS", "TF_ENABLE_ONEDNN_OPTS", "KMP_BLOCKTIME", "KMP_AFFINITY"),)
AS_THEY_ARE = ("tf_keras", "rampup.engines")
CHATTER = re.compile(
    rb"WARNING: All log messages before absl|[IW]\d{4} |\d{4}-\d\d-\d\d \S+ [IW] |E.*cuInit"
)
"""Lines of TensorFlow's log that are not errors. Without a GPU it also complains that there is
none."""


@contextmanager
def without_chatter() -> Iterator[None]:
    """Hold back what C++ writes to descriptor 2, and show the errors of it afterwards.

    TensorFlow's log level has no effect on the lines that it writes first.
    """
    sys.stderr.flush()
    real, kept = os.dup(2), os.memfd_create("chatter")
    os.dup2(kept, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)
        size = os.lseek(kept, 0, os.SEEK_END)
        lines = os.pread(kept, size, 0).splitlines(keepends=True)
        os.close(kept)
        os.close(real)
        os.write(2, b"".join(line for line in lines if not CHATTER.match(line)))


def mute() -> None:
    """Discard what C++ writes from now on: all work is done, and a rank that ends alarms the
    others."""
    sys.stderr.flush()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


keras_version.check()
for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
with without_chatter():
    import tensorflow as tf
    import tf_keras
    from tensorflow.python.autograph.core import config as autograph
    from tensorflow.python.autograph.impl.api import StagingError
# Python code that asks a tensor is converted to a graph. These two need no conversion; TensorFlow
# 2.15 knows that of Keras only under its old name, and would spend 10 s on every rank.
autograph.CONVERSION_RULES = (
    *map(autograph.DoNotConvert, AS_THEY_ARE),
    *autograph.CONVERSION_RULES,
)


def convert(function: Any) -> Any:
    """Convert a user's own function for a graph, as Keras does with layers and metrics."""
    autograph = tf.__internal__.autograph
    return autograph.tf_convert(function, autograph.control_status_ctx())


def seed_everything(seed: int) -> None:
    tf_keras.utils.set_random_seed(seed % 2**32)


def coordination_service() -> Any:
    """Return TensorFlow's key-value store: one worker sets a key, others wait for it."""
    from tensorflow.python.eager import context

    return context.context()


def prepare(
    context: RankContext,
    gpus_per_node: int,
    inter_threads: int | None,
    intra_threads: int | None,
    cpu_devices: int,
) -> list[str]:
    """Set threads, devices and exact arithmetic; returns the names of this rank's devices."""
    try:
        intra, inter = choose_threads(context, intra_threads, inter_threads)
        tf.config.threading.set_intra_op_parallelism_threads(intra)
        tf.config.threading.set_inter_op_parallelism_threads(inter)
        with without_chatter():
            devices = _devices(context, gpus_per_node, cpu_devices)
    except RuntimeError as error:
        raise RampupError(
            f"TensorFlow was used before the engine could set it up: {error}",
            "build tensors in data() and model(), not where the module is imported",
        ) from error
    tf.config.experimental.enable_op_determinism()
    # Dropout with a state that can be saved
    tf_keras.backend.experimental.enable_tf_random_generator()
    return devices


def choose_threads(
    context: RankContext, intra_threads: int | None, inter_threads: int | None
) -> tuple[int, int]:
    """Return the threads inside an operation, and how many operations run at the same time.

    What is not given follows from the CPUs of the rank; 0 leaves the choice to TensorFlow.
    """
    cpus = context.threads or 0
    intra = cpus if intra_threads is None else intra_threads
    inter = min(2, cpus or 2) if inter_threads is None else inter_threads
    return intra, inter


def describe_threads() -> dict[str, str | int]:
    """Return what decides how quickly a CPU computes, as it is now."""
    threading = tf.config.threading
    return {
        "intra": threading.get_intra_op_parallelism_threads(),
        "inter": threading.get_inter_op_parallelism_threads(),
        **{name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    }


def _devices(context: RankContext, gpus_per_node: int, cpu_devices: int) -> list[str]:
    """Return the GPUs of this rank, or else the CPU.

    The CPU can be cut into several devices, to try several replicas.
    """
    found = tf.config.list_physical_devices("GPU")
    if not found:
        parts.refuse_idle_gpus(gpus_per_node, "and TensorFlow sees none here", _hint_for_gpus)
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * cpu_devices
        )
        return [f"CPU:{index}" for index in range(cpu_devices)]
    low, high = shard(len(found), context.local_rank, context.local_world_size)
    # Where Slurm has bound one GPU to each task, a rank sees only its own; else too few of them are
    # shared in turn.
    alone = found[context.local_rank % len(found)]
    mine = found[low:high] if len(found) >= context.local_world_size else [alone]
    tf.config.set_visible_devices(mine, "GPU")
    for gpu in mine:
        tf.config.experimental.set_memory_growth(gpu, True)
    return [f"GPU:{index}" for index in range(len(mine))]


def _hint_for_gpus(without: str) -> str:
    return f"check nvidia-smi, install tensorflow[and-cuda], or {without}"
