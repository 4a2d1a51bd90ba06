"""The settings that every LightningModule has: those of Lightning's Trainer that people use by
their own names.

All others are reached as `trainer.NAME`, except for those that rampup sets itself. Read by the
command line, which must stay light, and so this imports nothing but the record of a setting and the
errors.
"""

import re
from collections.abc import Mapping
from typing import Any

from rampup.core.engines.base import EngineInfo, find_version
from rampup.core.spec import Setting
from rampup.errors import Refused

OLDEST = (2, 6, 4)
MALICIOUS = ("2.6.2", "2.6.3")
"""Releases on the public index that must not even be imported."""
INSTALL = "pip install 'rampup[lightning]'"
PRECISIONS = (
    "fp32",
    "fp16",
    "bf16",
    "32-true",
    "16-mixed",
    "bf16-mixed",
    "16-true",
    "bf16-true",
    "64-true",
)
STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_true", "ddp_find_unused_parameters_false")
"""Others write shards of their own, which would not be sealed, or start ranks themselves."""
LIGHTNING: dict[str, Setting] = {
    "data": Setting("str", None, "the LightningDataModule, as pkg.mod:Class", optional=True),
    "max_epochs": Setting(
        "int", None, "passes over the training data; none: 1000, Lightning's default", optional=True
    ),
    "max_steps": Setting("int", None, "stop after this many optimizer steps", low=1, optional=True),
    "seed": Setting("int", 1, "seed of all random numbers, the same on every rank", low=0),
    "device": Setting("str", "auto", "where to compute", choices=("auto", "cpu", "cuda", "mps")),
    "devices": Setting(
        "int", None, "ranks on each node, as --tasks-per-node", low=1, optional=True
    ),
    "precision": Setting(
        "str", "32-true", "Lightning's names, or fp32, fp16, bf16", choices=PRECISIONS
    ),
    "strategy": Setting(
        "str",
        "auto",
        "how several ranks train; limited to what this engine can save and resume",
        choices=STRATEGIES,
    ),
    "accumulate_grad_batches": Setting("int", 1, "batches per optimizer step", low=1),
    "gradient_clip_val": Setting(
        "float", None, "largest norm of the gradient", low=0.0, optional=True
    ),
    "limit_train_batches": Setting(
        "number", None, "batches per epoch, or a fraction of them", low=0, optional=True
    ),
    "limit_val_batches": Setting(
        "number", None, "batches per validation, or a fraction of them", low=0, optional=True
    ),
    "overfit_batches": Setting(
        "number", 0.0, "train and validate on only this many batches", low=0
    ),
    "fast_dev_run": Setting(
        "any", False, "true, or a number of batches: try everything once and keep nothing"
    ),
    "log_every_n_steps": Setting("int", 50, "steps between two rows of metrics", low=1),
    "enable_model_summary": Setting("bool", True, "print a table of the layers in the log"),
    "classes": Setting(
        "any",
        None,
        "number of classes, or their names; adds the confusion matrix, F1 and PR curves",
        optional=True,
    ),
    "num_workers": Setting(
        "any", "own", "processes that read data; own: as the module sets it, auto: by the CPUs"
    ),
    "profiler": Setting(
        "str",
        None,
        "write a table of where the time goes",
        choices=("simple", "advanced", "pytorch"),
        optional=True,
    ),
    "monitor": Setting(
        "str",
        None,
        "metric that decides what is best; none: that of the module's own ModelCheckpoint, val_accuracy or val_loss",
        optional=True,
    ),
    "monitor_mode": Setting(
        "str",
        "auto",
        "which value is better; auto: the lower one for a loss or an error",
        choices=("auto", "max", "min"),
    ),
}
OBJECT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""The path of a class as the value of an argument that is an object: net=pkg.mod:Net."""
LATER = ("params", "optimizer")
"""Arguments that only the module can give: those of an optimizer and of a scheduler."""
OF_TRAINER = (
    "accumulate_grad_batches",
    "gradient_clip_val",
    "limit_train_batches",
    "limit_val_batches",
    "overfit_batches",
    "fast_dev_run",
    "log_every_n_steps",
    "enable_model_summary",
    "max_epochs",
)
"""Those that the Trainer gets as they are."""
YOURS_FIRST = ("classes", "num_workers")
"""An argument of the user's own with such a name is his alone: its type and its default stay."""
MOST_CLASSES = 1000
INSTEAD = {
    "num_nodes": "write --nodes N",
    "accelerator": "write device=cpu or device=cuda",
    "logger": "leave it out: what the module logs is in metrics.jsonl and TensorBoard; `rampup export` sends it to a tracker",
    "callbacks": "write configure_callbacks() in your module",
    "plugins": "leave it out: rampup has its own for the ranks and for checkpoints",
    "default_root_dir": "leave it out: files go into the run directory",
    "enable_progress_bar": "leave it out: rampup shows the progress itself",
    "enable_checkpointing": "write checkpoint.every=never, or checkpoint.every=10min",
    "barebones": "leave it out: it would switch off the metrics",
}
"""Arguments of the Trainer that rampup sets itself, and what to write."""


def check(given: Mapping[str, Any], own: Mapping[str, Setting]) -> None:
    """Refuse what no type tells: `given` has values of a file, and text of the command line."""
    if "classes" in given and "classes" not in own:
        class_names(given["classes"])
    fast = given.get("fast_dev_run", False)
    if fast not in (True, False, "true", "false") and not _is_count(fast):
        raise Refused(
            f"fast_dev_run={fast} is not a number of batches",
            "fast_dev_run=true, or a whole number",
        )
    if str(given.get("limit_train_batches")) in ("0", "0.0"):
        raise Refused(
            "limit_train_batches=0 trains nothing",
            "limit_train_batches=1, or --dev for one batch of everything",
        )
    workers = given.get("num_workers", "own")
    if "num_workers" not in own and workers not in ("own", "auto") and not _is_count(workers):
        raise Refused(
            f"num_workers={workers} is not a number of processes",
            "num_workers=auto, own, or a whole number",
        )


def class_names(value: Any) -> tuple[str, ...]:
    """Of a number, of names with commas between them, of a list of names; none of nothing."""
    if value is None or str(value).lower() == "none":
        return ()
    if _is_count(value):
        count = int(value)
        names = [str(number) for number in range(min(count, MOST_CLASSES + 1))]
    else:
        parts = value if isinstance(value, list) else str(value).strip("[]").split(",")
        names = [str(part).strip().strip("\"'") for part in parts]
    if not 2 <= len(names) <= MOST_CLASSES or len(set(names)) < len(names) or not all(names):
        raise Refused(
            f"classes={value} is neither a number of classes nor a list of names",
            f"a number from 2 to {MOST_CLASSES}, as classes=10, or different names, as classes=cat,dog",
        )
    return tuple(names)


def _is_count(value: Any) -> bool:
    return (type(value) is int and value >= 0) or (isinstance(value, str) and value.isdecimal())


def check_installed(may_be_absent: bool = False) -> None:
    """Refuse where it is absent, too old, or one of the malicious releases."""
    found = find_version("lightning")
    if found is None:
        if may_be_absent:
            return
        raise Refused("the lightning engine needs lightning, which is not installed", INSTALL)
    if found in MALICIOUS:
        raise Refused(
            f"lightning {found} is a malicious release, and this environment must not be trusted",
            "make a new environment with lightning >= 2.6.4, and change the passwords and keys that this one could see",
        )
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    if numbers < OLDEST:
        raise Refused(
            f"lightning {found} is too old: the lightning engine needs 2.6.4 or newer", INSTALL
        )


class LightningInfo(EngineInfo):
    name = "lightning"
    settings = LIGHTNING
    has_recipes = False
    has_targets = True
    ranks_setting = "devices"

    def check_installed(self) -> None:
        check_installed()
