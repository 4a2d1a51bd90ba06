"""CosmoFlow as MLPerf HPC describes it: what its log has besides what every log has.

train.py asks for it before the training starts. The keys are those that the rules for CosmoFlow
name; the values are those of the run, whether the rules allow them or not.
"""

from typing import Any

from rampup.recipe import Benchmark, Settings

QUALITY = 0.124
"""The mean absolute error that the rules ask for."""
RESULTS = {"eval_error": "val_mae", "eval_loss": "val_loss"}
BY_EPOCHS = "epochs"
"""The schedule that the rules have."""


POWERS = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}


def describe(settings: Settings, rule: str) -> Benchmark:
    """`rule` is the name of the optimizer's class."""
    peak = (settings.batch_size / settings.base_batch_size) ** POWERS[settings.lr_scaling]
    by_epochs = settings.schedule == BY_EPOCHS
    drops = sorted(settings.drops) if by_epochs else []
    constants: dict[str, Any] = {
        "opt_name": rule,
        "opt_base_learning_rate": settings.lr * peak,
        "opt_learning_rate_warmup_epochs": settings.warmup_epochs if by_epochs else 0,
        "opt_learning_rate_warmup_factor": peak,
        "opt_learning_rate_decay_boundary_epochs": [epoch for epoch, _ in drops],
        # all of them, and not the largest alone
        "opt_learning_rate_decay_factor": [factor for _, factor in drops],
        "opt_weight_decay": settings.l2,
        "dropout": settings.dropout,
    }
    return Benchmark(
        name="cosmoflow",
        quality=QUALITY,
        results=RESULTS,
        constants=constants,
        division=settings.division,
        organisation=settings.organisation,
        platform=settings.platform,
        status=settings.status,
    )
