"""The settings that every recipe of an engine has. A recipe.toml changes their defaults and adds
its own.

Read by the command line, which must stay light, and so this imports nothing but the record of a
setting.
"""

from collections.abc import Mapping

from rampup.core.engines.base import EngineInfo, EngineNeeds
from rampup.core.spec import Setting
from rampup.errors import Refused

TORCH: dict[str, Setting] = {
    "engine": Setting(
        "str", "torch", "the library that runs the loop", choices=("torch", "lightning")
    ),
    "epochs": Setting("int", 10, "passes over the training data", low=1),
    "max_steps": Setting(
        "int", None, "stop after this many steps in total, for a test", low=1, optional=True
    ),
    "batch_size": Setting("int", 100, "samples per optimizer step, over all ranks", low=1),
    "lr": Setting("float", 1e-3, "learning rate", low=0.0),
    "optimizer": Setting("str", "adam", "update rule", choices=("adam", "adamw", "sgd", "lamb")),
    "momentum": Setting("float", 0.9, "momentum of sgd", low=0.0),
    "betas": Setting("list", [0.9, 0.999], "decay of the two moments of adam, adamw and lamb"),
    "eps": Setting("float", 1e-8, "adam, adamw and lamb: keeps the divisor from being 0", low=0.0),
    "weight_decay": Setting("float", 0.0, "weight decay", low=0.0),
    "schedule": Setting(
        "str",
        "constant",
        "how the rate falls after the warmup; onecycle: rise for a quarter of the run, then fall to 0",
        choices=("constant", "cosine", "linear", "step", "multistep", "epochs", "onecycle"),
    ),
    "lr_scaling": Setting(
        "str",
        "none",
        "how lr grows with batch_size / base_batch_size: constant, linear, or square root",
        choices=("none", "linear", "sqrt"),
    ),
    "base_batch_size": Setting(
        "int", 64, "lr_scaling: the batch size for which lr is meant", low=1
    ),
    "warmup_steps": Setting("int", 0, "steps over which the rate rises to lr", low=0),
    "warmup_factor": Setting(
        "float", 1.0, "more than 1: the warmup rises from lr to this multiple of it", low=1.0
    ),
    "decay_epochs": Setting(
        "int", 30, "schedule=step: epochs between two drops of the rate", low=1
    ),
    "decay_samples": Setting(
        "int",
        0,
        "schedule=step: samples between two drops, in place of decay_epochs; 0: epochs",
        low=0,
    ),
    "decay_factor": Setting(
        "float", 0.1, "schedule=step or multistep: factor of each drop", low=0.0
    ),
    "milestones": Setting(
        "list", [], "schedule=multistep: steps after the warmup at which the rate drops"
    ),
    "warmup_epochs": Setting(
        "int",
        0,
        "schedule=epochs: epochs over which the rate rises from lr to the scaled rate (lr_scaling)",
        low=0,
    ),
    "drops": Setting(
        "list",
        [],
        "schedule=epochs: pairs of complete epochs and the factor of the rate from then on",
    ),
    "cosine_steps": Setting(
        "int",
        None,
        "schedule=cosine: steps after the warmup until the rate is min_lr; none: the rest of the run",
        low=1,
        optional=True,
    ),
    "min_lr": Setting("float", 0.0, "schedule=cosine or step: the lowest rate", low=0.0),
    "accumulate": Setting(
        "int",
        1,
        "split each batch into this many pieces to save memory; the step stays the same",
        low=1,
    ),
    "clip": Setting("float", None, "largest norm of the gradient", low=1e-9, optional=True),
    "seed": Setting("int", 1, "seed of the weights, the order of the data and dropout", low=0),
    "device": Setting("str", "auto", "where to compute", choices=("auto", "cpu", "cuda", "mps")),
    "precision": Setting(
        "str",
        "fp32",
        "precision of the forward pass; weights stay fp32",
        choices=("fp32", "bf16", "fp16"),
    ),
    "batchnorm_group_size": Setting(
        "int", 1, "ranks that share the batch statistics of batch normalisation", low=1
    ),
    "backend": Setting(
        "str",
        "auto",
        "how ranks talk to each other; auto: nccl on GPUs, gloo elsewhere",
        choices=("auto", "gloo", "nccl", "mpi"),
    ),
    "compile": Setting("bool", False, "compile the model with torch.compile"),
    "channels_last": Setting("bool", False, "memory layout that suits convolutions on images"),
    "gradients": Setting(
        "str",
        "auto",
        "how ranks add up gradients; auto: ddp on nccl, flat elsewhere",
        choices=("auto", "flat", "ddp"),
    ),
    "eval_batch_size": Setting("int", 1000, "samples per validation batch on each rank", low=1),
    "eval_batches": Setting(
        "int", None, "validate with this many batches per rank, for a test", low=1, optional=True
    ),
    "readers": Setting(
        "int",
        None,
        "threads that read the next samples of a SampleReader; default: half of the rank's CPUs",
        low=1,
        optional=True,
    ),
    "read_ahead": Setting(
        "int", 256, "memory on each rank for samples that are read ahead, in MB", low=1
    ),
    "stage": Setting(
        "str",
        "none",
        "node: keep what a SampleReader reads on the node's own disk",
        choices=("none", "node"),
    ),
    "decode": Setting(
        "bool", False, "stage=node: keep decoded samples instead of copies of the files"
    ),
    "monitor": Setting("str", "val_accuracy", "metric that decides which epoch is the best"),
    "monitor_mode": Setting(
        "str",
        "auto",
        "which value is better; auto: the lower one for a loss or an error",
        choices=("auto", "max", "min"),
    ),
    "target": Setting("float", None, "stop when the monitored metric reaches this", optional=True),
    "patience": Setting(
        "int",
        None,
        "stop after this many epochs without an improvement of the monitored metric",
        low=1,
        optional=True,
    ),
    "min_delta": Setting(
        "float", 0.0, "patience: smallest change that counts as an improvement", low=0.0
    ),
    "log_every": Setting("int", 50, "steps between two rows of train_loss", low=1),
}


class TorchInfo(EngineInfo):
    name = "torch"
    settings = TORCH

    def find_needs(self, train: Mapping[str, object], ranks: int) -> EngineNeeds:
        check_lists(train)
        check_staging(train)
        by_lightning = train.get("engine") == "lightning"
        backend = train.get("backend")
        return EngineNeeds(
            modules={"lightning": "engine=lightning"} if by_lightning else {},
            mpi="backend=mpi" if backend == "mpi" and ranks > 1 else "",
            fewer_ranks=refuse_group(train.get("batchnorm_group_size", 1), ranks),
        )


def check_lists(train: Mapping[str, object]) -> None:
    """Refuse lists that are no decay rates, or no steps."""
    betas, milestones = train.get("betas", [0.9, 0.999]), train.get("milestones", [])
    if not _are_numbers(betas, below=1.0) or len(betas) != 2:  # type: ignore[arg-type]
        raise Refused(f"betas={betas} is not a pair of decay rates below 1", "betas=0.9,0.999")
    whole = _are_numbers(milestones) and all(type(it) is int for it in milestones)  # type: ignore[attr-defined]
    if not whole:
        raise Refused(
            f"milestones={milestones} is not a list of steps", "whole numbers: milestones=4096,8192"
        )
    if train.get("schedule") == "multistep" and not milestones:
        raise Refused(
            "schedule=multistep has no milestones", "milestones=4096,8192, or schedule=constant"
        )


def check_staging(train: Mapping[str, object]) -> None:
    """Refuse decoded samples that are kept nowhere."""
    if train.get("decode") and train.get("stage", "none") == "none":
        raise Refused("decode=true keeps decoded samples nowhere", "add stage=node")


def _are_numbers(values: object, below: float = float("inf")) -> bool:
    if not isinstance(values, list | tuple):
        return False
    return all(type(it) in (int, float) and 0 <= it < below for it in values)


def refuse_group(size: object, ranks: int) -> tuple[str, str] | None:
    """Return why ranks can't share statistics in groups of this size, and a remedy."""
    if not isinstance(size, int) or ranks % size == 0:
        return None
    sizes = [str(it) for it in range(1, ranks + 1) if ranks % it == 0]
    return (
        f"batchnorm_group_size={size} does not divide {ranks} rank{'' if ranks == 1 else 's'}",
        f"batchnorm_group_size={' or '.join(sizes)}",
    )
