"""Finds recipes and reads their recipe.toml into a RecipeInfo. A recipe is a folder: one of ours by
its name, or a user's own by its path; or a LightningModule of the user's as `pkg.mod:Class`.
Control side: nothing is imported."""

import importlib.util
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rampup.config.setting_tables import check_value, read_toml
from rampup.core import moved
from rampup.core.engines import ENGINES, NO_ENGINE, find_engine
from rampup.core.settings import Settings
from rampup.core.spec import Needs, RecipeInfo, Setting, SettingType, Value
from rampup.errors import Refused, nearest

HERE = Path(__file__).parents[1] / "recipes"
ORIGIN = "recipe.toml"
TYPES: dict[type, SettingType] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "list",
}


class RecipeFile(Struct, frozen=True, kw_only=True):
    """recipe.toml as it is written."""

    entry: str
    about: str = ""
    engine: str = "none"
    extra: str = ""
    requires: list[str] = []
    data: list[str] = []
    check: str = ""
    config: str = ""
    aliases: dict[str, str] = {}
    resources: dict[str, Any] = {}
    train: dict[str, Any] = {}
    help: dict[str, str] = {}


OR_OBJECT = ", or {0}=pkg.mod:Class for an object, with its own arguments as {0}.NAME=VALUE"


def names() -> list[str]:
    return sorted(path.parent.name for path in HERE.glob("*/recipe.toml"))


def load(target: str, base: Path, given: Mapping[str, Any] | None = None) -> RecipeInfo:
    """The recipe of that name, in that folder or of that class, as seen from `base`; `given`: what
    the user has set."""
    refuse_other_spellings(target, base)
    if ":" in target and "/" not in target:
        from rampup.config.targets import lightning as targets  # slow, and only for classes

        return targets.load(target, base, given or {})
    if "/" not in target and target not in (".", ".."):
        if target not in names():
            own = (base / target / "recipe.toml").is_file()
            hint = f"the one in this directory is ./{target}" if own else nearest(target, names())
            raise Refused(f"unknown recipe {target!r}", hint)
        return read(HERE / target)
    folder = (base / target).resolve()
    if not (folder / "recipe.toml").is_file():
        raise Refused(
            f"no recipe in {folder}: it has no recipe.toml",
            "a recipe is a folder with recipe.toml and a program; `rampup new DIR` makes a project",
        )
    return read(folder)


def refuse_other_spellings(target: str, base: Path) -> None:
    """Refuse `pkg/mod.py:Class` and `pkg.mod.Class`: a class is written pkg.mod:Class."""
    path, colon, name = target.rpartition(":")
    if colon and ("/" in path or path.endswith(".py")):
        module = path.removeprefix("./").removesuffix(".py").replace("/", ".").strip(".")
        raise Refused(f"{target!r} is not a class", f"write {module}:{name}")
    package, dot, name = target.rpartition(".")
    if name == "ipynb":
        raise Refused(
            f"{target!r} is a notebook",
            f"jupyter nbconvert --to script {shlex.quote(target)}, then: "
            f"rampup run -- python {shlex.quote(package)}.py",
        )
    parts = target.split(".")
    if not dot or not all(part.isidentifier() for part in parts) or (base / target).is_dir():
        return
    if name[:1].isupper():
        raise Refused(f"{target!r} is not a recipe", f"write {package}:{name} for a class")
    raise Refused(
        f"{target!r} is not a recipe",
        f"write {target}:CLASS for a class, or: rampup run -- python -m {target}",
    )


def read(folder: Path) -> RecipeInfo:
    file = folder / "recipe.toml"
    table = read_toml(file)
    for key in table:
        if key not in RecipeFile.__struct_fields__:
            raise Refused(
                f"unknown key {key!r} in {file}", nearest(key, RecipeFile.__struct_fields__)
            )
    try:
        given = msgspec.convert(table, RecipeFile)
    except msgspec.ValidationError as error:
        raise Refused(
            f"{file}: {error}", "docs/add-a-recipe.md shows what a recipe needs"
        ) from None
    known = [NO_ENGINE, *(name for name, engine in ENGINES.items() if engine.has_recipes)]
    if given.engine not in known:
        raise Refused(f"unknown engine {given.engine!r} in {file}", nearest(given.engine, known))
    program = folder / program_of(given.entry)
    if not program.is_file():
        raise Refused(
            f"entry = {given.entry!r} in {file}: there is no {program.name}",
            "name a file of that folder",
        )
    return RecipeInfo(
        name=folder.name,
        about=given.about,
        folder=str(folder),
        engine=given.engine,
        entry=given.entry,
        extra=given.extra,
        requires=tuple(given.requires),
        data=tuple(given.data),
        settings=settings_of(given.engine, given.train, given.help, folder),
        resources=given.resources,
        check=given.check,
        config=given.config,
        aliases=given.aliases,
    )


def program_of(entry: str) -> str:
    """The file that an entry names: `train:Mnist` and `train.py` both mean train.py."""
    return entry.partition(":")[0].removesuffix(".py") + ".py"


def settings_of(
    engine: str, train: dict[str, Any], help_lines: dict[str, str], folder: Path
) -> dict[str, Setting]:
    """The engine's own keys with the recipe's defaults, and the keys that only this recipe has."""
    declared = find_engine(engine)
    settings = dict(declared.settings) if declared else {}
    for key, value in train.items():
        known = settings.get(key)
        if known is not None:
            default = check_value(known, value, f"train.{key}", str(folder / "recipe.toml"))
            settings[key] = replace(
                known, default=default, help=help_lines.get(key, known.help), origin=ORIGIN
            )
        elif type(value) in TYPES:
            settings[key] = Setting(
                TYPES[type(value)], value, help_lines.get(key, ""), origin=ORIGIN
            )
        else:
            allowed = ", ".join(get_args(SettingType))
            raise Refused(
                f"train.{key} in {folder / 'recipe.toml'} has a value of an unsupported type",
                f"allowed: {allowed}",
            )
    return settings


def flatten_trainer(table: dict[str, Any]) -> dict[str, Any]:
    """[trainer] of a user's file, as settings `trainer.NAME` of [train]."""
    train, trainer = table.get("train"), table.get("trainer")
    if not isinstance(train, dict | None) or not isinstance(trainer, dict | None) or not trainer:
        return table
    rest = {key: value for key, value in table.items() if key != "trainer"}
    return {
        **rest,
        "train": {**(train or {}), **{f"trainer.{key}": value for key, value in trainer.items()}},
    }


def check_required(recipe: RecipeInfo, origins: Mapping[str, str]) -> None:
    """What a constructor can't do without."""
    for key in recipe.required:
        if origins.get(f"train.{key}", "default") == "default":
            setting = recipe.settings[key]
            raise Refused(
                f"{recipe.name} needs {key} ({setting.help}), and it has no default",
                f"add {key}=VALUE" + (OR_OBJECT.format(key) if setting.type == "any" else ""),
            )


def check_settings(recipe: RecipeInfo, values: Mapping[str, Value]) -> RecipeInfo:
    """What the recipe's own check says of its settings: it refuses some, and others need more than
    recipe.toml names."""
    look = import_from_folder(recipe, "check", recipe.check)
    # a check that only refuses returns nothing
    found: Needs = look(Settings(values)) or Needs()
    return replace(recipe, also=found.modules, data=(*recipe.data, *found.data))


def import_from_folder(recipe: RecipeInfo, key: str, entry: str) -> Any:
    """Return the function that a key of recipe.toml names. Its file is imported by its path, so
    nothing else of the folder can come in the way."""
    module, _, name = entry.partition(":")
    file = Path(recipe.folder) / f"{module}.py"
    where = importlib.util.spec_from_file_location(f"{recipe.name}_{module}", file)
    if not file.is_file() or where is None or where.loader is None:
        raise Refused(
            f"{key} = {entry!r} in {ORIGIN}: there is no {file}", f'{key} = "settings:{key}"'
        )
    made = importlib.util.module_from_spec(where)
    moved.install()
    where.loader.exec_module(made)
    if not hasattr(made, name):
        raise Refused(
            f"{key} = {entry!r} in {ORIGIN}: {file} has no {name!r}", nearest(name, vars(made))
        )
    return getattr(made, name)
