"""The official checker of MLPerf HPC, for tests: whether it accepts a log, and which events it must
have."""

import json
from pathlib import Path
from typing import Any

from mlperf_logging.compliance_checker import mlp_compliance

from rampup.core.mlperf import TOKEN

COMMON = (
    *("submission_benchmark", "submission_org", "submission_division", "submission_status"),
    *("submission_platform", "init_start", "cache_clear", "train_samples", "eval_samples"),
    *("init_stop", "run_start", "epoch_start", "eval_start", "eval_accuracy", "eval_stop"),
    *("epoch_stop", "run_stop"),
)
"""What every log of DeepCam must have."""
CLOSED = (
    *("number_of_nodes", "accelerators_per_node", "seed", "global_batch_size"),
    *("batchnorm_group_size", "gradient_accumulation_frequency", "opt_name", "opt_lr", "opt_betas"),
    *("opt_eps", "scheduler_type", "scheduler_lr_warmup_steps", "scheduler_lr_warmup_factor"),
)


def accepts(log: str, folder: Path) -> bool:
    """Return whether the checker accepts a log; warnings count."""
    path = folder / "result_0.txt"
    path.write_text(log)
    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker("hpc", "3.0.0", False, True)
    accepted: bool = mlp_compliance.main(str(path), "hpc_3.0.0/common.yaml", checker)[0]
    return accepted


def read_lines(log: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(TOKEN)) for line in log.splitlines()]


def without(log: str, key: str) -> str:
    """Return the log without the events of this key, of which it has some."""
    kept = [line for line in log.splitlines() if json.loads(line.removeprefix(TOKEN))["key"] != key]
    assert len(kept) < len(log.splitlines()), key
    return "\n".join(kept) + "\n"


def values(log: str, key: str) -> list[Any]:
    return [line["value"] for line in read_lines(log) if line["key"] == key]


def keys(log: str) -> list[str]:
    return [line["key"] for line in read_lines(log)]
