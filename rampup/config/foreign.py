"""`config=FILE`: the configuration of another program, turned into the settings of a recipe.

A recipe names the function that translates, in its own folder; only it knows the other program's
words. What it returns lies above recipe.toml and below everything that the user has written.
resolve.py calls `apply_config` once all other layers are there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rampup.config.recipes import import_from_folder
from rampup.config.setting_tables import Table
from rampup.config.yaml_file import read_yaml
from rampup.core.spec import RecipeInfo, Setting, Translation
from rampup.errors import Refused

SETTING = "config"
"""The setting that names the file."""
DEFAULTS = ("default", "recipe.toml")
"""Origins of values that a file may replace."""
NUMBERS = {"int": int, "float": float, "number": float}


def apply_config(recipe: RecipeInfo, train: Table, base: Path, ranks: int) -> RecipeInfo:
    """Put the settings of the file that `config` names into the table; nothing without one. The
    recipe is one that translates such files."""
    given = train.values.get(SETTING)
    if not given:
        return recipe
    path = base / str(given)
    if not path.is_file():
        raise Refused(f"config={given}: there is no such file", "check the path")
    translate = import_from_folder(recipe, "config", recipe.config)
    found: Translation = translate(flatten(read_yaml(path)), ranks)
    for key, (value, name) in found.settings.items():
        if train.origins.get(f"train.{key}") in DEFAULTS:
            train.put(key, as_number(train.schema.get(key), value), f"{path.name}: {name}")
    if not found.ignored:
        return recipe
    names = ", ".join(found.ignored)
    note = (f"{path.name}: without effect here: {names}", "docs/cosmoflow.md says why")
    return replace(recipe, notes=(*recipe.notes, note))


def as_number(setting: Setting | None, value: Any) -> Any:
    """Return the number that a text means: YAML takes 1e-3 for text, and people do not."""
    if setting is None or not isinstance(value, str) or setting.type not in NUMBERS:
        return value
    try:
        return NUMBERS[setting.type](value)
    except ValueError:
        return value


def flatten(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their names, such as data.n_train."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and value:
            found.update(flatten(value, f"{name}."))
        else:
            found[name] = value
    return found
