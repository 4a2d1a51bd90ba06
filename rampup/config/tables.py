"""The tables of settings that a run has besides [train]: their keys, and the values with the origin
of each."""

from collections.abc import Mapping
from typing import Any

from rampup.core.settings import check_value, guess_value, parse_value
from rampup.core.spec import Setting, Value
from rampup.errors import Refused, nearest

CHECKPOINT = {
    "every": Setting(
        "str",
        "auto",
        "auto, 100steps, 30s, 15min, 2h, 1epoch or never; auto: at most 1 % of the time",
    ),
    "keep": Setting("int", 2, "how many of the newest to keep, besides the best", low=2),
}
RESOURCES = {
    "nodes": Setting("int", 1, "machines"),
    "tasks_per_node": Setting("int", 1, "ranks on each machine"),
    "gpus_per_node": Setting("int", 0, "GPUs on each machine", low=0),
    "cpus_per_task": Setting("int", None, "CPUs of each rank", low=1, optional=True),
    "time": Setting("str", None, "time limit: minutes, H:MM:SS or D-HH:MM:SS", optional=True),
    "mem": Setting("str", None, "memory of each node, e.g. 16G", optional=True),
    "partition": Setting("str", None, "Slurm partition", optional=True),
    "account": Setting("str", None, "Slurm account", optional=True),
    "qos": Setting("str", None, "Slurm quality of service", optional=True),
    "reservation": Setting("str", None, "Slurm reservation", optional=True),
    "constraint": Setting("str", None, "features that nodes must have", optional=True),
    "exclude": Setting("str", None, "nodes to avoid", optional=True),
    "lead_s": Setting(
        "int", 180, "seconds before the time limit to save and stop; at most a quarter of it", low=1
    ),
    "requeues": Setting("int", 50, "how often to start again after a time limit", low=0),
    "mail": Setting("str", None, "where Slurm writes to", optional=True),
    "env": Setting(
        "str", "", "what the program runs in: a venv's path, conda:NAME, container:IMAGE, none"
    ),
    "software": Setting("str", "", "which of the site's lists of modules to load, or none"),
    "slurm": Setting("list", [], "further sbatch options, each KEY=VALUE"),
    "devices": Setting(
        "list", None, "which GPUs, by index; an empty list hides them all", optional=True
    ),
}


class Table:
    """One table of settings: its schema, the values so far, and the origin of each."""

    def __init__(self, name: str, schema: Mapping[str, Setting], free: bool = False) -> None:
        self.name, self.schema, self.free = name, dict(schema), free
        self.values: dict[str, Value] = {key: setting.default for key, setting in schema.items()}
        self.origins = {f"{name}.{key}": setting.origin for key, setting in schema.items()}

    def put(self, key: str, value: Any, origin: str) -> None:
        """A value from a TOML file."""
        setting = self._setting(key, origin)
        self._set(
            key,
            check_value(setting, value, f"{self.name}.{key}", origin) if setting else value,
            origin,
        )

    def put_text(self, key: str, text: str, origin: str) -> None:
        """A value from the command line."""
        setting = self._setting(key, origin)
        self._set(
            key,
            parse_value(setting, text, f"{self.name}.{key}", origin)
            if setting
            else guess_value(text),
            origin,
        )

    def _setting(self, key: str, origin: str) -> Setting | None:
        if key not in self.schema and not self.free:
            raise Refused(
                f"unknown setting {self.name}.{key} ({origin})", nearest(key, self.schema)
            )
        return self.schema.get(key)

    def _set(self, key: str, value: Value, origin: str) -> None:
        self.values[key] = value
        self.origins[f"{self.name}.{key}"] = origin
