"""`rampup run my_pkg.my_module:LitModel data=my_pkg.my_data:MyData`: a LightningModule of the
user's own as a recipe.

Called by config/recipes.py on the control side, and by `rampup resume`. The arguments of both
classes become settings, read from their source; what neither knows is refused before anything is
submitted. Imports nothing of the user's.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rampup.config.setting_tables import check_value
from rampup.config.targets import keras as keras_targets
from rampup.config.targets.downloads import find_download
from rampup.config.targets.objects import read_objects
from rampup.config.targets.signatures import Found, Source, locate, needed_packages, read_class
from rampup.core.engines.lightning import (
    INSTEAD,
    LIGHTNING,
    YOURS_FIRST,
    check,
    check_installed,
)
from rampup.core.spec import RecipeInfo, Setting, Value
from rampup.errors import Refused, nearest
from rampup.rundir.records import Record

TRAINER = "trainer."
FORM = "write pkg.mod:Class, as in `import pkg.mod`, from the folder that holds pkg"
ON_EVERY_RANK = ("__init__", "setup", "train_dataloader", "val_dataloader")
OF_THE_MACHINE = ("device", "precision", "strategy")
"""Arguments that say where and how to compute. A class may have its own defaults for them, which are
not wishes of the person who runs it."""


def load(target: str, base: Path, given: Mapping[str, Any]) -> RecipeInfo:
    """The recipe behind a class; `given` is what the user has set, by name: it names the data
    module, too."""
    of_function = keras_targets.load(target, base, given)
    if of_function is not None:
        return of_function
    check_installed(may_be_absent=True)  # the run may have an environment of its own
    source, name, module = _class_at(target, base, "LightningModule")
    parts, sources, names = [module], [source], [name]
    if given.get("data"):
        if "data" in module.settings:
            raise Refused(
                f"{name} has an argument named data",
                "rename it: data= is the data module",
            )
        data_source, data_name, data = _class_at(str(given["data"]), base, "LightningDataModule")
        parts.append(data)
        sources.append(data_source)
        names.append(data_name)
    own = {key: setting for part in parts for key, setting in part.settings.items()}
    built = read_objects(given, own, base)
    own |= built.settings
    sources += built.sources
    check(given, own)
    needed = [
        each for source in sources if not source.installed for each in needed_packages(source)
    ]
    return RecipeInfo(
        name=name,
        about=f"{target}, your class",
        folder="" if source.installed else str(source.root.resolve()),
        engine="lightning",
        entry=target,
        requires=tuple(dict.fromkeys(["torch", "lightning", *needed])),
        settings=_merge(own) | _trainer_settings(given, own),
        required=tuple(
            dict.fromkeys(
                [
                    *(key for part in parts for key in part.required),
                    *built.required,
                    *_needs_data(source, parts),
                ]
            )
        ),
        free=any(part.free for part in parts),
        notes=(
            *_without_validation(name, module),
            *(doubt for pair in zip(sources, names, strict=False) for doubt in _downloads(*pair)),
        ),
    )


def again(config: Record) -> RecipeInfo:
    """The recipe of a run that exists: its settings are resolved, and its code is where config.json
    says."""
    return RecipeInfo(
        name=config["recipe"],
        about="",
        folder=config["folder"] or "",
        engine=config["engine"],
        entry=config["entry"],
    )


def _class_at(target: str, base: Path, kind: str) -> tuple[Source, str, Found]:
    module, _, name = target.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise Refused(f"{target!r} is not the path of a class", FORM)
    source = locate(module, (base,))
    if source is None:
        raise Refused(
            f"no module {module!r} in {base.absolute()}, and none is installed",
            _near_module(module, base),
        )
    found = read_class(source, name)
    if found is None and name in source.functions():
        raise Refused(f"{target} is a function, not a {kind}", f"name a class that is a {kind}")
    if found is None:
        raise Refused(
            f"{module} has no class or function {name!r}",
            nearest(name, source.classes() | source.functions()),
        )
    if found.base and found.base != kind:
        hint = f"rampup run MODULE data={target}" if kind == "LightningModule" else f"name a {kind}"
        raise Refused(f"{target} is a {found.base}, not a {kind}", hint)
    return source, name, found


def _near_module(module: str, base: Path) -> str:
    known = [path.stem for path in base.glob("*.py")]
    known += [
        ".".join(path.relative_to(base).with_suffix("").parts) for path in base.glob("*/*.py")
    ]
    known = [name.removesuffix(".__init__") for name in known]
    return nearest(module, known[:100]) if known else FORM


def _merge(own: Mapping[str, Setting]) -> dict[str, Setting]:
    """One name, one value: an argument that is called as a setting of the engine has the engine's
    type and help."""
    settings = {**LIGHTNING, **own}
    for key in (LIGHTNING.keys() & own.keys()) - set(YOURS_FIRST):
        settings[key] = replace(LIGHTNING[key], default=_default(key, own[key].default))
    return settings


def _default(key: str, of_class: Any) -> Value:
    """That of the class, if the engine can do with it: an argument `strategy` may be about
    something else."""
    setting = LIGHTNING[key]
    if of_class is None or key in OF_THE_MACHINE:
        return setting.default
    try:
        return check_value(setting, of_class, key, "default")
    except Refused:
        return setting.default


def _trainer_settings(given: Mapping[str, Any], own: Mapping[str, Setting]) -> dict[str, Setting]:
    """Those arguments of Lightning's Trainer that were named, by its own signature."""
    for key in given:
        name = key.removeprefix(TRAINER)
        if name in INSTEAD and (key != name or name not in own):
            raise Refused(f"{key} is set by rampup itself", INSTEAD[name])
        if key != name and name in LIGHTNING:
            raise Refused(f"{key} has another name here", f"write {name}=...")
    wanted = [key for key in given if key.startswith(TRAINER)]
    if not wanted:
        return {}
    source = locate("lightning.pytorch.trainer.trainer", ())
    found = read_class(source, "Trainer") if source else None
    if found is None:
        return {key: Setting("any", None, optional=True) for key in wanted}
    known = found.settings
    for key in wanted:
        name = key.removeprefix(TRAINER)
        if name not in known:
            free = [each for each in known if each not in INSTEAD and each not in LIGHTNING]
            raise Refused(f"Lightning's Trainer has no argument {name!r}", nearest(name, free))
    return {key: known[key.removeprefix(TRAINER)] for key in wanted}


def _needs_data(source: Source, parts: list[Found]) -> tuple[str, ...]:
    """A module without loaders of its own can't do without a data module; not where one may be
    assigned to it."""
    methods = parts[0].methods
    if (
        len(parts) > 1
        or methods is None
        or "train_dataloader" in methods
        or "data" in parts[0].settings
    ):
        return ()
    named = (node.attr for node in ast.walk(source.tree) if isinstance(node, ast.Attribute))
    return () if "train_dataloader" in named else ("data",)


def _without_validation(name: str, module: Found) -> Iterator[tuple[str, str]]:
    if module.methods is not None and "validation_step" not in module.methods:
        cause = f"{name} has no validation_step: it is not measured on unseen data"
        yield cause, "add validation_step(), which logs val_loss, and a val_dataloader()"


def _downloads(source: Source, name: str) -> Iterator[tuple[str, str]]:
    """A download that every rank would make: prepare_data() is called once on each node, setup() on
    every rank."""
    for method, definition in _methods(source, name).items():
        if method in ON_EVERY_RANK:
            line = find_download(definition)
            if line is not None:
                where = f"line {line} of {source.file.name}"
                cause = f"{name}.{method}() seems to download ({where}), and every rank calls it"
                yield (
                    cause,
                    "download in prepare_data(), which one rank of each node calls, or before the run",
                )


def _methods(source: Source, name: str, below: tuple[str, ...] = ()) -> dict[str, ast.FunctionDef]:
    """Of a class, and of its bases that are in the same file. `below`: who asks, for two may be
    named as each other."""
    definition = source.classes().get(name)
    if definition is None or name in below:
        return {}
    bases = [base.id for base in definition.bases if isinstance(base, ast.Name)]
    inherited = {
        key: found
        for base in reversed(bases)
        for key, found in _methods(source, base, (*below, name)).items()
    }
    return inherited | {
        part.name: part for part in definition.body if isinstance(part, ast.FunctionDef)
    }
