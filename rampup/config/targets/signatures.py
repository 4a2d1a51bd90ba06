"""The arguments of a user's class, read from its source: nothing is imported, so it takes
milliseconds.

targets.py asks for the class behind `pkg.mod:Class`. Imports and base classes are followed from
file to file; where the source does not tell (a class made at run time), the answer says so, and the
job side has the last word.
"""

import ast
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rampup.core.spec import Setting, SettingType, Value
from rampup.errors import Refused

LIGHTNING_BASES = ("LightningModule", "LightningDataModule")
KINDS: dict[str, SettingType] = {
    "int": "int",
    "float": "float",
    "str": "str",
    "bool": "bool",
    "Path": "str",
}
KINDS |= dict.fromkeys(("list", "List", "tuple", "Tuple", "Sequence", "Iterable"), "list")
OF_VALUES: dict[type, SettingType] = {
    bool: "bool",
    int: "number",
    float: "float",
    str: "str",
    list: "list",
}
MAX_FOLLOWED = 20


class Found(NamedTuple):
    """A class, as far as its source tells."""

    settings: dict[str, Setting]
    required: tuple[str, ...] = ()
    free: bool = False
    """It takes any name, or it is not known which."""
    base: str = ""
    """LightningModule or LightningDataModule, when it comes from one."""
    methods: frozenset[str] | None = None
    """What it and its bases define, Lightning's own apart; none when the source does not tell
    all."""


class Source:
    """A module's file, parsed."""

    def __init__(
        self, name: str, file: Path, root: Path, is_package: bool, places: tuple[Path, ...]
    ) -> None:
        self.name, self.file, self.root, self._is_package, self.places = (
            name,
            file,
            root,
            is_package,
            places,
        )

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.file.read_bytes(), str(self.file))
        except SyntaxError as error:
            raise Refused(
                f"{error.filename}, line {error.lineno}: {error.msg}", "correct that line"
            ) from None

    @property
    def installed(self) -> bool:
        """It comes with the environment, so it needs no copy."""
        return (
            bool({"site-packages", "dist-packages"} & set(self.file.parts))
            or self.root == Path(ast.__file__).parent
        )

    def statements(self) -> Iterator[ast.stmt]:
        """Those of the module itself, also in `if` and `try`."""
        waiting = list(self.tree.body)
        while waiting:
            statement = waiting.pop(0)
            yield statement
            for part in ("body", "orelse", "finalbody"):
                if not isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    waiting += getattr(statement, part, [])

    def classes(self) -> dict[str, ast.ClassDef]:
        return {
            statement.name: statement
            for statement in self.statements()
            if isinstance(statement, ast.ClassDef)
        }

    def functions(self) -> dict[str, ast.FunctionDef]:
        return {
            statement.name: statement
            for statement in self.statements()
            if isinstance(statement, ast.FunctionDef)
        }

    def imported(self) -> dict[str, tuple[str, str]]:
        """Name here -> module and name there."""
        return {
            alias.asname or alias.name: (self.absolute(statement), alias.name)
            for statement in self.statements()
            if isinstance(statement, ast.ImportFrom)
            for alias in statement.names
        }

    def absolute(self, statement: ast.ImportFrom) -> str:
        """The module that `from ..x import y` means."""
        if not statement.level:
            return statement.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - statement.level + self._is_package]
        return ".".join([*parts, *([statement.module] if statement.module else [])])

    def needs(self) -> Iterator[str]:
        """The modules that it can't be imported without."""
        for statement in self.tree.body:
            if isinstance(statement, ast.Import):
                yield from (alias.name for alias in statement.names)
            elif isinstance(statement, ast.ImportFrom):
                yield self.absolute(statement)


def locate(module: str, places: tuple[Path, ...]) -> Source | None:
    """The file of a module, looked for in these folders first; none when there is no such
    module."""
    first, *rest = module.split(".")
    path = [str(place) for place in places]
    found = importlib.machinery.PathFinder.find_spec(first, path + sys.path) or _by_other_finders(
        first
    )
    name = first
    for part in rest:
        if found is None or found.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        found = importlib.machinery.PathFinder.find_spec(
            name, list(found.submodule_search_locations)
        )
    if found is None or not found.origin or not found.origin.endswith(".py"):
        return None
    file, is_package = Path(found.origin), found.submodule_search_locations is not None
    return Source(module, file, file.parents[len(rest) + is_package], is_package, places)


def _by_other_finders(first: str) -> importlib.machinery.ModuleSpec | None:
    """Such as those of editable installs. A name without dots is found without importing
    anything."""
    try:
        return importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return None


def needed_packages(source: Source) -> list[str]:
    """What it imports, directly or by other files of the same project, apart from Python's own and
    the project's."""
    needed: list[str] = []
    waiting, seen = [source], {source.name}
    while waiting and len(seen) < MAX_FOLLOWED:
        for name in waiting.pop(0).needs():
            top = name.partition(".")[0]
            if not top or name in seen or top in sys.stdlib_module_names:
                continue
            seen.add(name)
            found = locate(name, source.places) or locate(top, source.places)
            if found is None or found.installed:
                needed.append(top)
            elif found.root == source.root:
                waiting.append(found)
    return list(dict.fromkeys(needed))


# classes ------------------------------------------------------------------------------------------


def read_class(source: Source, name: str, followed: int = 0) -> Found | None:
    """What `name` in that module takes; none when there is certainly no such name."""
    if name in source.classes():
        return _read_definition(source, source.classes()[name], followed)
    if name in source.imported() and followed < MAX_FOLLOWED:
        module, there = source.imported()[name]
        other = locate(module, source.places)
        if there in LIGHTNING_BASES:
            return Found({}, base=there, methods=frozenset())
        return read_class(other, there, followed + 1) if other else Found({}, free=True)
    return Found({}, free=True) if _may_have(source, name) else None


def read_function(source: Source, name: str) -> Found | None:
    """What a function of that module takes; none when it has no function of that name."""
    definition = source.functions().get(name)
    if definition is None:
        return None
    settings, required = _arguments(definition.args, name, first=0)
    return Found(settings, required, free=definition.args.kwarg is not None)


def _may_have(source: Source, name: str) -> bool:
    """Whether the module may get that name in a way that its source does not show."""
    if "*" in source.imported():
        return True
    for statement in source.statements():
        if isinstance(statement, ast.FunctionDef) and statement.name == "__getattr__":
            return True
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return True
    return False


def _read_definition(source: Source, definition: ast.ClassDef, followed: int) -> Found:
    bases = [
        found
        for base in definition.bases
        if (found := _read_base(source, base, followed)) is not None
    ]
    kind = next((found.base for found in bases if found.base), "")
    methods = _methods(definition, bases)
    made = [
        part
        for part in definition.body
        if isinstance(part, ast.FunctionDef) and part.name == "__init__"
    ]
    if not made:
        first = next((found for found in bases if found.settings or found.free), Found({}))
        return first._replace(base=kind, methods=methods)
    settings, required = _arguments(made[-1].args, definition.name)
    if made[-1].args.kwarg is None:
        return Found(settings, required, base=kind, methods=methods)
    passed_on = {name: setting for found in bases for name, setting in found.settings.items()}
    return Found({**passed_on, **settings}, required, free=True, base=kind, methods=methods)


def _methods(definition: ast.ClassDef, bases: list[Found]) -> frozenset[str] | None:
    known = [found.methods for found in bases if found.methods is not None]
    if len(known) < len(definition.bases) or definition.decorator_list:
        return None
    assigned = [
        each for part in definition.body if isinstance(part, ast.Assign) for each in part.targets
    ]
    names = [part.name for part in definition.body if isinstance(part, ast.FunctionDef)]
    names += [target.id for target in assigned if isinstance(target, ast.Name)]
    return frozenset(names).union(*known)


def _read_base(source: Source, base: ast.expr, followed: int) -> Found | None:
    if isinstance(base, ast.Attribute):
        if base.attr in LIGHTNING_BASES:
            return Found({}, base=base.attr, methods=frozenset())
        return Found({}, free=True)
    if isinstance(base, ast.Name):
        return (
            read_class(source, base.id, followed + 1)
            if followed < MAX_FOLLOWED
            else Found({}, free=True)
        )
    return None


def _arguments(
    arguments: ast.arguments, owner: str, first: int = 1
) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """From the `first` on: a method has its object before."""
    positional = [*arguments.posonlyargs, *arguments.args][first:]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults[-len(positional) :] if positional else []
    pairs = [
        *zip(positional, defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    settings = {argument.arg: _setting(argument, default, owner) for argument, default in pairs}
    return settings, tuple(argument.arg for argument, default in pairs if default is None)


def _setting(argument: ast.arg, default: ast.expr | None, owner: str) -> Setting:
    value, is_plain = _plain(default)
    words = _words(argument.annotation)
    choices = tuple(word for word in _choices(argument.annotation) if isinstance(word, str))
    optional = "None" in words or (is_plain and value is None)
    kinds = {KINDS.get(word, "any") for word in words if word != "None"}
    kind: SettingType = "any"
    if choices:
        kind = "str"
    elif kinds == {"int", "float"}:
        kind = "number"
    elif len(kinds) == 1:
        kind = next(iter(kinds))
    elif not kinds and is_plain:
        kind = OF_VALUES.get(type(value), "any")
    told = f", default {ast.unparse(default)}" if default is not None and not is_plain else ""
    fits = value is None or kind == "any" or OF_VALUES.get(type(value)) in (kind, "number")
    return Setting(
        kind if fits else "any",
        value,
        f"argument of {owner}{told}",
        choices=choices,
        optional=optional,
    )


def _plain(default: ast.expr | None) -> tuple[Value, bool]:
    """The default as a value that TOML could say, and whether it is one."""
    if default is None:
        return None, False
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError):
        return None, False
    if isinstance(value, tuple):
        value = list(value)
    plain = value is None or type(value) in OF_VALUES
    return (value, True) if plain else (None, False)


def _words(annotation: ast.expr | None) -> set[str]:
    """The names of the types that an annotation allows."""
    if annotation is None:
        return set()
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _words(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.Constant):
        return {str(annotation.value)}
    if isinstance(annotation, ast.BinOp):
        return _words(annotation.left) | _words(annotation.right)
    if isinstance(annotation, ast.Subscript):
        outer = next(iter(_words(annotation.value)), "")
        if outer in ("Optional", "Union"):
            inner = (
                annotation.slice.elts
                if isinstance(annotation.slice, ast.Tuple)
                else [annotation.slice]
            )
            return set().union(*(_words(each) for each in inner)) | (
                {"None"} if outer == "Optional" else set()
            )
        return {outer}
    return {annotation.attr if isinstance(annotation, ast.Attribute) else ast.unparse(annotation)}


def _choices(annotation: ast.expr | None) -> list[object]:
    """Of Literal["a", "b"]."""
    if not isinstance(annotation, ast.Subscript) or _words(annotation.value) != {"Literal"}:
        return []
    inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    return [each.value for each in inner if isinstance(each, ast.Constant)]
