"""The settings that every LightningModule has: those of Lightning's Trainer that people use by their own names.

All others are reached as `trainer.NAME`, except for those that rampup sets itself. Read by the command line, which
must stay light, and so this imports nothing but the record of a setting.
"""

from rampup.spec import Setting

LIGHTNING: dict[str, Setting] = {
    "data": Setting("str", None, "the LightningDataModule, as pkg.mod:Class", optional=True),
    "max_epochs": Setting("int", None, "passes over the training data; none: 1000, as Lightning has it", optional=True),
    "max_steps": Setting("int", None, "stop after so many optimizer steps", low=1, optional=True),
    "seed": Setting("int", 1, "of all random numbers, the same on every rank", low=0),
    "device": Setting("str", "auto", "where to compute", choices=("auto", "cpu", "cuda", "mps")),
    "precision": Setting("str", "32-true", "Lightning's words, as 16-mixed and bf16-mixed, or fp32, fp16, bf16"),
    "strategy": Setting("str", "auto", "of several ranks: ddp and its variants; auto chooses one"),
    "accumulate_grad_batches": Setting("int", 1, "batches per optimizer step", low=1),
    "gradient_clip_val": Setting("float", None, "largest norm of the gradient", low=0.0, optional=True),
    "limit_train_batches": Setting("number", None, "batches of an epoch, or a part of them", low=0, optional=True),
    "limit_val_batches": Setting("number", None, "batches of a validation, or a part", low=0, optional=True),
    "overfit_batches": Setting("number", 0.0, "train and validate on so many batches alone", low=0),
    "fast_dev_run": Setting("any", False, "true, or a number of batches: try everything once and keep nothing"),
    "log_every_n_steps": Setting("int", 50, "steps between two rows of metrics", low=1),
    "enable_model_summary": Setting("bool", True, "a table of the layers in the log"),
    "profiler": Setting(
        "str", None, "where the time goes, as a table", choices=("simple", "advanced", "pytorch"), optional=True
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
INSTEAD = {
    "devices": "--tasks-per-node N, or --gpus-per-node N",
    "num_nodes": "--nodes N",
    "accelerator": "device=cpu or device=cuda",
    "logger": "nothing: what the module logs is in metrics.jsonl and in TensorBoard; `rampup export` sends it on",
    "callbacks": "configure_callbacks() in your module",
    "plugins": "nothing: rampup has its own for the ranks and for checkpoints",
    "default_root_dir": "nothing: files go into the run directory",
    "enable_progress_bar": "nothing: rampup shows the progress itself",
    "enable_checkpointing": "checkpoint.every=never, or checkpoint.every=10min",
    "barebones": "nothing: it would switch off the metrics",
}
"""Arguments of the Trainer that rampup sets itself, and what to write."""
