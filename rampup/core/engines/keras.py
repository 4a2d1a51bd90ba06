"""The Keras engine as the control side sees it: its settings, and whether TensorFlow, tf_keras and
Horovod are here, in versions that it knows. Nothing is imported for it.

Asked before a run is made, on the machine where it is submitted, and again by every rank, on the
machine where it trains. Multi-worker training does not work in Keras 3, so the engine trains with
Keras 2, which is `tf_keras` now.
"""

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec

from rampup.core.engines.base import EngineInfo, EngineNeeds, find_version
from rampup.core.engines.torch import TORCH, check_staging
from rampup.core.spec import Setting
from rampup.errors import RampupError

KERAS: dict[str, Setting] = {
    name: TORCH[name]
    for name in (
        *("epochs", "max_steps", "batch_size", "lr", "lr_scaling", "base_batch_size"),
        *("momentum", "weight_decay", "schedule", "warmup_steps", "warmup_factor"),
        *("warmup_epochs", "drops", "decay_epochs", "decay_samples", "decay_factor"),
        *("milestones", "cosine_steps", "min_lr", "clip", "seed"),
        *("eval_batch_size", "eval_batches"),
        *("readers", "read_ahead", "stage", "decode", "log_every"),
        *("monitor", "monitor_mode", "target", "patience", "min_delta"),
    )
} | {
    "optimizer": Setting("str", "adam", "update rule", choices=("adam", "adamw", "sgd")),
    "strategy": Setting(
        "str",
        "auto",
        "which devices train together; auto: multiworker with several ranks, mirrored with several GPUs, else single",
        choices=("auto", "single", "mirrored", "multiworker", "horovod"),
    ),
    "statistics_samples": Setting(
        "int",
        0,
        "training samples from which batch statistics are recomputed before each validation; "
        "0: use the moving averages",
        low=0,
    ),
    "intra_threads": Setting(
        "int",
        None,
        "threads inside an operation; default: the CPUs of the rank; 0: TensorFlow chooses",
        low=0,
        optional=True,
    ),
    "inter_threads": Setting(
        "int",
        None,
        "operations that run at the same time; default: 2; 0: TensorFlow chooses",
        low=0,
        optional=True,
    ),
    "cpu_devices": Setting(
        "int", 1, "without a GPU, split the CPU into this many devices, to try mirrored", low=1
    ),
}
OLDEST = (2, 15)
INSTALL = "pip install 'rampup[keras]'"
WHEELS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-rocm",
    "tensorflow-intel",
    "tensorflow-aarch64",
)
"""Each of them brings the module tensorflow."""
LEGACY = "TF_USE_LEGACY_KERAS"
"""TensorFlow's own variable: with 1 in it, `tf.keras` is tf_keras."""
BUILD_HOROVOD = (
    "`make horovod-env` builds an environment with it, for --env .venv-horovod; docs/horovod.md"
)


def check(environ: Mapping[str, str] = os.environ) -> None:
    """An error tells what is missing, too old or in the way."""
    for module in ("tensorflow", "tf_keras"):
        if find_spec(module) is None:
            raise RampupError(f"the keras engine needs {module}, which is not installed", INSTALL)
    found = version()
    if found is not None and found < OLDEST:
        oldest, here = (".".join(map(str, each)) for each in (OLDEST, found))
        raise RampupError(
            f"the keras engine needs TensorFlow {oldest} or newer; this is {here}", INSTALL
        )
    if environ.get(LEGACY, "1").lower() not in ("1", "true"):
        message = f"{LEGACY}={environ[LEGACY]} makes tf.keras Keras 3, where training on several workers does not work"
        raise RampupError(message, f"unset {LEGACY}, or export {LEGACY}=1")


def needs_horovod(train: Mapping[str, object], ranks: int) -> bool:
    """One rank alone has nothing to add up."""
    return train.get("strategy") == "horovod" and ranks > 1


def check_horovod() -> None:
    if find_spec("horovod") is None:
        raise RampupError("strategy=horovod needs horovod, which is not installed", BUILD_HOROVOD)


def version() -> tuple[int, ...] | None:
    """Major and minor of TensorFlow; None where it is not told."""
    told = next(filter(None, map(find_version, WHEELS)), None)
    return tuple(int(part) for part in re.findall(r"\d+", told)[:2]) if told else None


class KerasInfo(EngineInfo):
    name = "keras"
    settings = KERAS
    has_targets = True
    one_gpu_per_rank = False
    checks_versions = True
    builds = {"horovod": BUILD_HOROVOD}

    def check_installed(self) -> None:
        check()

    def find_needs(self, train: Mapping[str, object], ranks: int) -> EngineNeeds:
        check_staging(train)
        kind = train.get("strategy")
        if needs_horovod(train, ranks):
            setting = f"strategy={kind}"
            return EngineNeeds(modules={"horovod": setting}, mpi=setting)
        if kind in ("single", "mirrored") and ranks > 1:
            cause = f"strategy={kind} trains in one process, and this run has {ranks} ranks"
            remedy = "strategy=multiworker, or --nodes 1 --tasks-per-node 1"
            return EngineNeeds(fewer_ranks=(cause, remedy))
        return EngineNeeds()
