"""DeepCam as MLPerf HPC describes it: what its log has besides what every log has.

train.py asks for it when the optimizer is built. The keys are those that the rules for DeepCam
name; the values are those of the run, whether the rules allow them or not.
"""

from typing import Any

from rampup.recipe import Benchmark, Settings

QUALITY = 0.82
"""The IoU that the rules ask for."""
NAMES = {"Lamb": "LAMB"}
"""How the rules call an optimizer."""
RESULTS = {"eval_accuracy": "val_iou", "eval_loss": "val_loss"}


def describe(settings: Settings, group: dict[str, Any], rule: str, steps: int) -> Benchmark:
    """`group` is the optimizer's group of parameters, `rule` the name of its class; `steps` is how
    long the schedule is."""
    constants: dict[str, Any] = {
        "batchnorm_group_size": settings.batchnorm_group_size,
        "opt_name": NAMES.get(rule, rule),
        "opt_lr": settings.lr,
    }
    for name, value in group.items():
        if name not in ("params", "lr", "initial_lr"):
            constants[f"opt_{name}"] = list(value) if isinstance(value, tuple) else value
    return Benchmark(
        name="deepcam",
        quality=QUALITY,
        results=RESULTS,
        constants=constants | describe_schedule(settings, steps),
        division=settings.division,
        organisation=settings.organisation,
        platform=settings.platform,
        status=settings.status,
    )


def describe_schedule(settings: Settings, steps: int) -> dict[str, Any]:
    kind = settings.schedule
    found: dict[str, Any] = {
        "scheduler_type": kind,
        "scheduler_lr_warmup_steps": settings.warmup_steps,
        "scheduler_lr_warmup_factor": settings.warmup_factor,
    }
    if kind in ("constant", "multistep"):  # a constant rate has no milestones
        found["scheduler_type"] = "multistep"
        found["scheduler_milestones"] = settings.milestones if kind == "multistep" else []
        found["scheduler_decay_rate"] = settings.decay_factor
    elif kind == "cosine":
        found["scheduler_type"] = "cosine_annealing"
        found["scheduler_eta_min"] = settings.min_lr
        left = max(1, steps - settings.warmup_steps)
        found["scheduler_t_max"] = settings.cosine_steps or left
    return found
