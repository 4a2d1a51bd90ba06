"""`rampup run my_module:build_model data=my_module:load_data`: functions of the user's own as a
recipe for Keras.

Called by targets.py on the control side. The arguments of both functions become settings, read from
their source; what neither knows is refused before anything is submitted. Imports nothing of the
user's.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rampup.config.targets.signatures import Found, Source, locate, needed_packages, read_function
from rampup.core.engines.keras import KERAS
from rampup.core.spec import RecipeInfo, Setting
from rampup.errors import Refused, nearest

OF_COMPILE = ("lr", "min_lr", "optimizer", "momentum", "weight_decay")
"""What the user's own `model.compile` decides, unless the function has an argument of that name."""
KERAS_3 = "keras"
"""The package that brings it."""
DATA = Setting("str", "", "a function that returns the data, as pkg.mod:function, or a .npz file")


def load(target: str, base: Path, given: Mapping[str, Any]) -> RecipeInfo | None:
    """The recipe behind a function that builds a model; none where the name is not a function's."""
    module, _, name = target.partition(":")
    source = locate(module, (base,)) if name.isidentifier() else None
    found = read_function(source, name) if source else None
    if source is None or found is None:
        return None
    _refuse_keras_3(source, name, target)
    data, data_source = _data(str(given.get("data") or ""), target, base)
    parts, sources = [found, *data], [source, *data_source]
    own = {key: setting for part in parts for key, setting in part.settings.items()}
    needed = [each for each in sources if not each.installed]
    return RecipeInfo(
        name=name,
        about=f"{target}, your function",
        folder="" if source.installed else str(source.root.resolve()),
        engine="keras",
        entry=target,
        extra="keras",
        requires=tuple(
            dict.fromkeys(
                ["tensorflow", "tf_keras", *(p for s in needed for p in needed_packages(s))]
            )
        ),
        settings=_merge(own),
        required=tuple(dict.fromkeys(key for part in parts for key in part.required)),
        free=any(part.free for part in parts),
    )


def _refuse_keras_3(source: Source, name: str, target: str) -> None:
    """Refuse a function that builds its model with the package keras; the engine would, in the job.
    An import in `if` or `try` may be another package, so only the job can tell."""
    function = source.functions().get(name)
    if function is None:  # imported from elsewhere
        return
    foreign = {
        (alias.asname or alias.name).partition(".")[0]: statement.lineno
        for statement in (*source.tree.body, *function.body)
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
        if _package_of(statement, alias) == KERAS_3
    }
    used = [node.id for node in ast.walk(function) if isinstance(node, ast.Name)]
    for word in used:
        if word in foreign:
            raise Refused(
                f"{target} builds a model of Keras 3, which does not train on several workers "
                f"({source.file.name}, line {foreign[word]})",
                "import tf_keras as keras, or use tf.keras, which is the same here",
            )


def _package_of(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    if isinstance(statement, ast.Import):
        return alias.name.partition(".")[0]
    return "" if statement.level else (statement.module or "").partition(".")[0]


def _data(where: str, target: str, base: Path) -> tuple[list[Found], list[Source]]:
    if not where:
        raise Refused(
            f"{target} builds a model, but there is no data to train it on",
            f"add data=...: {DATA.help}",
        )
    if where.endswith(".npz"):
        if not (base / where).is_file():
            raise Refused(f"data={where}: there is no such file", "check the path")
        return [], []
    module, _, name = where.partition(":")
    source = locate(module, (base,)) if name.isidentifier() else None
    if source is None:
        raise Refused(f"data={where}: no module {module!r} in {base.absolute()}", DATA.help)
    found = read_function(source, name)
    if found is None:
        raise Refused(
            f"data={where}: {module} has no function {name!r}", nearest(name, source.functions())
        )
    return [found], [source]


def _merge(own: Mapping[str, Setting]) -> dict[str, Setting]:
    """One name, one value: an argument that is called as a setting of the engine has the engine's
    type and help.

    Unless the user's own `model.compile` decides it: then the engine does not read it, and any
    value is as good.
    """
    engine = {key: setting for key, setting in KERAS.items() if key not in OF_COMPILE}
    engine["monitor"] = replace(engine["monitor"], default="val_loss")
    both = {
        key: replace(
            KERAS[key],
            default=own[key].default if own[key].default is not None else KERAS[key].default,
        )
        for key in engine.keys() & own.keys()
    }
    return {**engine, **own, **both, "data": DATA}
