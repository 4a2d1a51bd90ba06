"""The settings of a user's own loop: collected from all their origins, and recorded in the attempt.

`rampup.init()` calls it. What the user typed for this run wins over the TOML file beside the script,
and that over what the script hands to `init`. Rank 0 writes settings.json once; it is the only
writer. Secrets are hidden before anything is written.
"""

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rampup.core.redact import to_stored
from rampup.core.settings import Settings
from rampup.errors import RampupError
from rampup.rundir.files import AttemptDir
from rampup.rundir.records import Record, write_json
from rampup.runtime.storage import guard_writes

INIT, COMMAND_LINE = "rampup.init", "command line"
FILES = ("recipe.toml", "rampup.toml")


@dataclass(frozen=True)
class OwnSettings:
    """Values by name, and the origin of each."""

    values: dict[str, Any]
    origins: dict[str, str]
    given: tuple[str, ...] = ()
    """Those of this run's command line and of the files: the user expects an effect of them."""

    def to_stored(self) -> dict[str, Any]:
        """Return the values as they may be written: plain, and without secrets."""
        return {name: to_stored(value, name) for name, value in self.values.items()}

    def record(self, attempt: AttemptDir) -> None:
        """Write them into the attempt; a loop without settings leaves no file."""
        if self.values:
            with guard_writes(attempt.settings_file):
                write_json(
                    attempt.settings_file, {"train": self.to_stored(), "origins": self.origins}
                )


class TrackedSettings(Settings):
    """Settings that remember which of them were read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        self._read.add(name)
        return value


def describe_unread(settings: OwnSettings, config: TrackedSettings) -> str:
    """Name the settings that were given and that the loop never read; empty if it read all."""
    unread = [name for name in settings.given if name not in config._read]
    listed = ", ".join(f"{name} ({settings.origins[name]})" for name in unread)
    return f"note: your loop never read run.config for: {listed}" if listed else ""


def collect_settings(config: Record, given: object, named: Mapping[str, Any]) -> OwnSettings:
    """Return the settings of the loop. `config` is the run's, `given` and `named` are what the
    script handed to `init`."""
    handed = {**read_given(given), **named}
    typed = {name: value for name, value in handed.items() if was_typed(name, sys.argv)}
    file, written = read_script_file()
    values, origins = {}, {}
    for layer, origin in ((handed, INIT), (written, file), (typed, COMMAND_LINE)):
        values.update(layer)
        origins.update(dict.fromkeys(layer, origin))
    known = config.get("origins", {})
    for name, value in config.get("train", {}).items():
        values[name] = value
        origins[name] = str(known.get(f"train.{name}", COMMAND_LINE))
    given = [name for name in (*written, *config.get("train", {})) if name not in typed]
    return OwnSettings(values, origins, tuple(dict.fromkeys(given)))


def read_given(given: object) -> dict[str, Any]:
    """Return the settings of a dict, or of an object such as argparse's Namespace."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if isinstance(given, type) or not hasattr(given, "__dict__"):
        raise RampupError(
            f"rampup.init({given!r}): settings are a dict or a Namespace",
            "rampup.init(parser.parse_args()) or rampup.init(lr=0.1)",
        )
    return dict(vars(given))


def was_typed(name: str, words: list[str]) -> bool:
    """Return whether the script's own command line has the long option of that name."""
    options = {word.partition("=")[0].replace("-", "_") for word in words if word[:2] == "--"}
    return f"__{name}" in options


def read_script_file() -> tuple[str, dict[str, Any]]:
    """Return the name and the [train] table of the TOML file beside the script."""
    folder = Path(sys.argv[0] or ".").absolute().parent
    for name in FILES:
        if (folder / name).is_file():
            return name, _read_train_table(folder / name)
    return "", {}


def _read_train_table(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("train", {})
    except tomllib.TOMLDecodeError as error:
        raise RampupError(f"{file} is not valid TOML: {error}", "correct that line") from None
    return dict(found)
