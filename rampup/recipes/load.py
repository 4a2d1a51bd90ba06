"""Finds recipes and reads their recipe.toml into a RecipeInfo. A recipe is a folder: one of ours by its name, or a
user's own by its path. Control side: nothing of the recipe is imported."""

import tomllib
from pathlib import Path
from typing import Any, get_args

from rampup.engines.settings import ENGINES
from rampup.errors import Refused, nearest
from rampup.spec import RecipeInfo, Setting, SettingType, Value

HERE = Path(__file__).parent
KEYS = ("about", "engine", "entry", "extra", "requires", "data", "resources", "train", "help")
ORIGIN = "recipe.toml"
TYPES: dict[type, SettingType] = {bool: "bool", int: "int", float: "float", str: "str", list: "list"}


def names() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob("*/recipe.toml"))


def load(target: str, base: Path) -> RecipeInfo:
    """The recipe of that name, or in that folder (relative to `base`)."""
    if "/" not in target and target not in (".", ".."):
        if target not in names():
            raise Refused(f"unknown recipe {target!r}", nearest(target, names()))
        return read(HERE / target)
    folder = (base / target).resolve()
    if not (folder / "recipe.toml").is_file():
        raise Refused(f"no recipe in {folder}: it has no recipe.toml", "docs/add-a-recipe.md shows what a recipe needs")
    return read(folder)


def read(folder: Path) -> RecipeInfo:
    table = read_toml(folder / "recipe.toml")
    for key in table:
        if key not in KEYS:
            raise Refused(f"unknown key {key!r} in {folder / 'recipe.toml'}", nearest(key, KEYS))
    engine = table.get("engine", "none")
    if engine not in (*ENGINES, "none"):
        raise Refused(f"unknown engine {engine!r} in {folder / 'recipe.toml'}", nearest(engine, (*ENGINES, "none")))
    if "entry" not in table:
        raise Refused(f"{folder / 'recipe.toml'} has no `entry`", 'add e.g. entry = "train:MyTask"')
    return RecipeInfo(
        name=folder.name,
        about=table.get("about", ""),
        folder=str(folder),
        engine=engine,
        entry=table["entry"],
        extra=table.get("extra", ""),
        requires=tuple(table.get("requires", ())),
        data=tuple(table.get("data", ())),
        settings=settings_of(engine, table.get("train", {}), table.get("help", {}), folder),
        resources=table.get("resources", {}),
    )


def settings_of(engine: str, train: dict[str, Value], help_lines: dict[str, str], folder: Path) -> dict[str, Setting]:
    """The engine's own keys with the recipe's defaults, and the keys that only this recipe has."""
    from msgspec.structs import replace

    settings = dict(ENGINES.get(engine, {}))
    for key, value in train.items():
        known = settings.get(key)
        if known is not None:
            settings[key] = replace(known, default=value, help=help_lines.get(key, known.help), origin=ORIGIN)
        elif type(value) in TYPES:
            settings[key] = Setting(TYPES[type(value)], value, help_lines.get(key, ""), origin=ORIGIN)
        else:
            allowed = ", ".join(get_args(SettingType))
            raise Refused(
                f"train.{key} in {folder / 'recipe.toml'} has a value of no known type", f"allowed: {allowed}"
            )
    return settings


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file, with a clear error instead of a traceback."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"no such file: {path}", "check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{path} is not valid TOML: {error}", 'strings need quotes: name = "text"') from None
    except OSError as error:
        raise Refused(f"can't read {path}: {error.strerror}", "check the path and its permissions") from None
