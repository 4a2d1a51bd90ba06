"""What other tools call our settings: `learning_rate` is answered with `lr`.

Called where an unknown setting or option is refused; a synonym is never accepted in silence.
"""

from collections.abc import Iterable

SAME = (
    ("lr", "learning_rate", "learningrate", "eta"),
    ("batch_size", "bs", "batch", "batchsize", "train_batch_size"),
    ("epochs", "max_epochs", "num_epochs", "n_epochs", "nb_epochs", "epoch", "num_train_epochs"),
    ("max_steps", "steps", "num_steps", "total_steps"),
    ("weight_decay", "wd", "decay"),
    ("optimizer", "optim", "opt"),
    ("clip", "gradient_clip_val", "grad_clip", "max_grad_norm", "clip_norm"),
    ("accumulate", "accumulate_grad_batches", "gradient_accumulation_steps", "grad_accum"),
    ("seed", "random_seed", "random_state"),
    ("log_every", "log_every_n_steps", "logging_steps", "log_interval"),
    ("schedule", "scheduler", "lr_scheduler", "lr_schedule"),
    ("warmup_steps", "warmup", "num_warmup_steps"),
    ("eval_batch_size", "val_batch_size", "test_batch_size"),
    ("precision", "dtype", "amp"),
)
"""Names that other tools have for our settings: each row is one setting."""


def find_synonym(key: str, known: Iterable[str]) -> str | None:
    """Return the known name that means the same as `key`, however it is spelled."""
    plain = key.lower().replace("-", "_")
    names = list(known)
    wanted = [plain, *(name for row in SAME if plain in row for name in row)]
    return next((name for name in wanted if name in names), None)
