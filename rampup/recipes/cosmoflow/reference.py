"""cosmo.yaml of the MLPerf reference, as settings of this recipe: `config=cosmo.yaml`.

Read before anything is submitted, so without a framework. What only concerns the reference's own
pipeline is named as without effect, and a name that it does not know either is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rampup.recipe import Refused, Translation, nearest

SAME = {
    "mlperf.org": "organisation",
    "mlperf.division": "division",
    "mlperf.status": "status",
    "mlperf.platform": "platform",
    "data.data_dir": "data",
    "data.n_train": "n_train",
    "data.n_valid": "n_valid",
    "data.n_epochs": "epochs",
    "model.kernel_size": "kernel_size",
    "model.conv_size": "conv_size",
    "model.n_conv_layers": "n_conv_layers",
    "model.fc1_size": "fc1_size",
    "model.fc2_size": "fc2_size",
    "model.dropout": "dropout",
    "model.l2": "l2",
    "optimizer.momentum": "momentum",
    "lr_schedule.base_lr": "lr",
    "lr_schedule.base_batch_size": "base_batch_size",
    "lr_schedule.n_warmup_epochs": "warmup_epochs",
    "train.early_stopping_patience": "patience",
    "train.target_mae": "target",
}
WITHOUT_EFFECT = (
    "output_dir",
    "data.name",
    "data.compression",
    "data.sample_shape",
    "data.shard",
    "data.prefetch",
    "data.stage_dir",
    "data.samples_per_file",
    "data.n_parallel_reads",
    "data.shuffle",
    "data.shuffle_buffer_size",
    "data.shuffle_size",
    "model.name",
    "model.input_shape",
    "train.metrics",
)
"""The files themselves tell how large the cubes are and whether they are compressed; runs have a
directory of their own; and how data is read and shuffled is the engine's."""
DROPS = "lr_schedule.decay_schedule"
BATCH = "data.batch_size"
LOSSES = {"mean_squared_error": "mse", "mean_absolute_error": "mae"}
ACTIVATIONS = {"leakyrelu": "leaky_relu"}
POOLINGS = ("maxpool3d", "maxpooling3d")


def translate(given: Mapping[str, Any], ranks: int) -> Translation:
    """Return what the file sets; `given` has names such as data.n_train."""
    found: dict[str, tuple[Any, str]] = dict.fromkeys(
        ("augment", "standardize"), (False, "not in the reference")
    )
    drops: list[Any] = []
    ignored = []
    for name, value in given.items():
        if name in SAME:
            # its own null means: as if the line were not there
            if value is not None:
                found[SAME[name]] = (value, name)
        elif name == BATCH:
            found["batch_size"] = times_ranks(name, value, ranks)
        elif name.startswith(f"{DROPS}."):
            drops.append([as_epoch(name), value])
        elif name in WORDS:
            WORDS[name](name, value, found)
        elif is_without_effect(name):
            ignored.append(name)
        elif name != DROPS or value:
            raise Refused(
                f"{name} is not a key of CosmoFlow's configuration that this recipe knows",
                nearest(name, KNOWN),
            )
    if any(name.startswith("lr_schedule.") for name in given):
        found["schedule"] = ("epochs", "lr_schedule")
    if drops:
        found["drops"] = (sorted(drops), DROPS)
    if "target" in found or "patience" in found:
        found["monitor"] = ("val_mae", "train")
    return Translation(found, tuple(ignored))


def is_without_effect(name: str) -> bool:
    return any(name == known or name.startswith(f"{known}.") for known in WITHOUT_EFFECT)


def times_ranks(name: str, value: Any, ranks: int) -> tuple[Any, str]:
    """Return the global batch: the reference gives that of one rank."""
    if type(value) is not int:
        return value, name
    return value * ranks, f"{name} {value} x {ranks} rank{'s' * (ranks > 1)}"


def as_epoch(name: str) -> int:
    text = name.removeprefix(f"{DROPS}.")
    if not text.isdecimal():
        raise Refused(f"{name}: {text!r} is not an epoch", f"{DROPS}: {{32: 0.25, 64: 0.125}}")
    return int(text)


# words that mean something else here --------------------------------------------------------------

Found = dict[str, tuple[Any, str]]


def read_loss(name: str, value: Any, found: Found) -> None:
    found["loss"] = (LOSSES.get(str(value).lower(), value), name)


def read_activation(name: str, value: Any, found: Found) -> None:
    word = str(value).lower()
    found["hidden_activation"] = (ACTIVATIONS.get(word, word), name)


def read_pooling(name: str, value: Any, found: Found) -> None:
    if str(value).lower() not in POOLINGS:
        raise Refused(
            f"{name}: {value} is not a pooling that this recipe has", f"{name}: MaxPool3D"
        )


def read_targets(name: str, value: Any, found: Found) -> None:
    if value != 4:
        raise Refused(f"{name}: {value}, and there are 4 parameters", f"{name}: 4")


def read_switch(name: str, value: Any, found: Found) -> None:
    """Also 0 and 1, which the reference's own option takes."""
    found["apply_log"] = (bool(value) if value in (0, 1) else value, name)


def read_optimizer(name: str, value: Any, found: Found) -> None:
    found["optimizer"] = (str(value).lower(), name)


def read_scaling(name: str, value: Any, found: Found) -> None:
    found["lr_scaling"] = (str(value).lower() if value else "none", name)


WORDS: dict[str, Callable[[str, Any, Found], None]] = {
    "data.apply_log": read_switch,
    "train.loss": read_loss,
    "model.hidden_activation": read_activation,
    "model.pooling_type": read_pooling,
    "model.target_size": read_targets,
    "optimizer.name": read_optimizer,
    "lr_schedule.scaling": read_scaling,
}
KNOWN = (*SAME, *WITHOUT_EFFECT, *WORDS, DROPS, BATCH)
