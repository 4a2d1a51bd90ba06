"""Presets: what --smoke, --dev, GPUs and a module's `devices` change of the settings of a run.

Called by resolve.py when all values are known, before they become a RunSpec.
"""

from collections.abc import Mapping

from rampup.config.tables import Table
from rampup.core.engines import NO_ENGINE
from rampup.core.spec import Cluster, RecipeInfo
from rampup.errors import Refused

SMOKE_TIME = "0:02:00"


def apply_smoke(tables: Mapping[str, Table], cluster: Cluster, options: Mapping[str, str]) -> None:
    """--smoke: the same run, in the debug queue, with two minutes; an engine takes one step in each
    attempt."""
    if cluster.debug_partition and "partition" not in options:
        tables["resources"].put("partition", cluster.debug_partition, "--smoke")
    if "time" not in options:
        tables["resources"].put("time", SMOKE_TIME, "--smoke")


def apply_dev(tables: Mapping[str, Table], recipe: RecipeInfo | None) -> None:
    """--dev: one rank of this machine takes one step and validates, and keeps no checkpoint."""
    if recipe is None or recipe.engine == NO_ENGINE:
        raise Refused(
            "--dev is for recipes with an engine: a loop of your own decides itself",
            "shorten it yourself",
        )
    for key in ("nodes", "tasks_per_node"):
        tables["resources"].put(key, 1, "--dev")
    tables["resources"].put("gpus_per_node", 0, "--dev")
    tables["checkpoint"].put("every", "never", "--dev")
    known = tables["train"].schema
    for key in ("fast_dev_run",) if "fast_dev_run" in known else ("max_steps", "eval_batches"):
        if key in known:
            tables["train"].put(key, 1, "--dev")


def apply_devices(train: Table, resources: Table, key: str) -> None:
    """`devices=2`, as Lightning's users write it. The default of an argument of a class's own asks
    for nothing."""
    devices, origin = train.values[key], train.origins[f"train.{key}"]
    if devices is None or origin == "default":
        return
    ranks, by = resources.values["tasks_per_node"], resources.origins["resources.tasks_per_node"]
    if by != "default" and ranks != devices:
        raise Refused(
            f"{key}={devices} ({origin}) and tasks_per_node={ranks} ({by})",
            "leave one of them out",
        )
    resources.put("tasks_per_node", devices, f"{key}, {origin}")


def give_each_gpu_a_rank(resources: Table) -> None:
    gpus = resources.values["gpus_per_node"]
    if (
        isinstance(gpus, int)
        and gpus > 1
        and resources.origins["resources.tasks_per_node"] == "default"
    ):
        resources.put("tasks_per_node", gpus, "one for each GPU")
