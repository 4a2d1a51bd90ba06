"""A grid of settings: `lr=1e-2,1e-3 batch_size=16,32` becomes one RunSpec per point. Called by
`rampup sweep`.

Every point passes config.resolve, so a wrong type or an unknown key is refused here, with the point
named, before anything is written. It reads files of settings and writes nothing.
"""

import functools
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from rampup.config.clusters import Profile
from rampup.config.clusters import find as find_cluster
from rampup.config.program import PLACE
from rampup.config.recipes import HERE as BUILTIN_RECIPES
from rampup.config.resolve import Request, resolve
from rampup.core.spec import RunSpec, Value
from rampup.errors import RampupError, Refused, UsageError, nearest

MOST_POINTS = 10_000
SIZE = ("nodes", "tasks_per_node", "gpus_per_node")
Find = Callable[[str], Profile]
"""Returns the profile of a cluster by its name."""


class Point(Struct, frozen=True):
    """One run of a study."""

    values: dict[str, Value]
    """The settings that the study varies, as they were resolved."""
    spec: RunSpec
    id: str
    """The same for the same work: how a study that is started again finds its runs."""

    @property
    def label(self) -> str:
        return label_of(self.values)


def label_of(values: Mapping[str, Value]) -> str:
    return " ".join(f"{key}={text_of(value)}" for key, value in values.items()) or "its one point"


def text_of(value: Value) -> str:
    return "none" if value is None else str(value)


def points(request: Request, cwd: Path) -> list[Point]:
    """All points, in the order in which they were written, each once."""
    choices, find = choices_of(request.settings), functools.cache(find_cluster)
    first = resolve_point(request, {key: texts[0] for key, texts in choices.items()}, cwd, find)
    for key, texts in choices.items():
        # a setting that is a list has commas of its own: [1,2],[3,4] are two values of it, 1,2 is
        # one
        if isinstance(value_of(first, key), list) and not texts[0].startswith("["):
            choices[key] = [whole_text(request.settings, key)]
    count = math.prod(len(texts) for texts in choices.values())
    if count > MOST_POINTS:
        raise Refused(
            f"{count:,} points are too many for one study",
            f"at most {MOST_POINTS:,}: leave out some values",
        )
    varied = [key for key, texts in choices.items() if len(texts) > 1] or list(choices)
    study = replace(request, name=request.name or first.name)
    found: dict[str, Point] = {}
    for chosen in itertools.product(*choices.values()):
        spec = resolve_point(study, dict(zip(choices, chosen, strict=True)), cwd, find)
        values = {key: value_of(spec, key) for key in varied}
        point = Point(
            values,
            spec,
            identity_of(spec, {key: values[key] for key in varied if len(choices[key]) > 1}),
        )
        found.setdefault(point.id, point)
    return list(found.values())


# what was typed -----------------------------------------------------------------------------------


def choices_of(settings: Sequence[str]) -> dict[str, list[str]]:
    """The values of each key, as text."""
    found: dict[str, list[str]] = {}
    for setting in settings:
        key, _, text = setting.partition("=")
        if key in found:
            raise UsageError(
                f"{key} is given twice", f"write all its values in one word: {key}=a,b"
            )
        found[key] = split(text, setting)
    return found


def whole_text(settings: Sequence[str], key: str) -> str:
    return next(
        text for name, _, text in (setting.partition("=") for setting in settings) if name == key
    )


def split(text: str, setting: str) -> list[str]:
    """At commas that stand neither in brackets nor in quotes. Quotes around a value with a comma
    are taken away."""
    pieces = [text[begin:end] for begin, end in pieces_of(text, setting)]
    if len(pieces) > 1 and not all(pieces):
        raise UsageError(
            f"{setting!r} has an empty value", "write key=a,b; an empty text alone is key="
        )
    quoted = [piece for piece in pieces if piece[:1] in ('"', "'") and "," in piece]
    for piece in quoted:
        if piece[-1] != piece[0]:
            raise UsageError(
                f"{setting!r} continues after a closing quote: {piece}",
                "quote the whole value, or nothing",
            )
    return [piece[1:-1] if piece in quoted else piece for piece in pieces]


def pieces_of(text: str, setting: str) -> Iterator[tuple[int, int]]:
    """Where each value begins and ends. Brackets and quotes count where a value begins with
    them."""
    begin, depth, quote = 0, 0, ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (index == begin or depth):
            quote = letter
        elif letter == "[" and (index == begin or depth):
            depth += 1
        elif letter == "]" and depth:
            depth -= 1
        elif letter == "," and not depth:
            yield begin, index
            begin = index + 1
    if quote or depth:
        raise UsageError(
            f"{setting!r} has a {quote or '['} that is not closed", "close it, or leave it out"
        )
    yield begin, len(text)


# one point ----------------------------------------------------------------------------------------


def resolve_point(request: Request, texts: Mapping[str, str], cwd: Path, find: Find) -> RunSpec:
    settings = tuple(f"{key}={text}" for key, text in texts.items())
    try:
        return resolve(replace(request, settings=settings), cwd, find)
    except RampupError as error:
        error.hint = restore_values(error, request, texts)
        if settings and not fails_alike(request, texts, error, cwd):
            raise type(error)(
                f"{error.message}, in the point {' '.join(settings)}", error.hint
            ) from None
        raise


def restore_values(error: RampupError, request: Request, texts: Mapping[str, str]) -> str:
    """Return the hint with all values of the key that it is about, not those of one point."""
    for key, text in texts.items():
        if f"train.{key} (" in error.message or f"{key}={text}" in error.message:
            return error.hint.replace(f"={text}", f"={whole_text(request.settings, key)}")
    return error.hint


def fails_alike(request: Request, texts: Mapping[str, str], error: RampupError, cwd: Path) -> bool:
    """Whether an error does not depend on the point: the same is wrong without any settings, or with
    a key whatever its value."""
    for settings in ((), *((f"{key}=",) for key in texts)):
        try:
            resolve(replace(request, settings=settings), cwd)
        except RampupError as plain:
            if plain.message == error.message:
                return True
    return False


def find_unfilled(request: Request, found: Sequence[Point]) -> Iterator[str]:
    """Words of a command that look like the place of a setting and are none: perhaps a slip, above
    all where nothing that the study varies comes into the command."""
    keys, command = choices_of(request.settings), request.command or found[0].spec.command
    alike = len(found) > 1 and len({point.spec.command for point in found}) == 1
    for name in dict.fromkeys(PLACE.findall(" ".join(command))):
        if name not in keys and ((hint := nearest(name, keys)).startswith("did you mean") or alike):
            yield f"{{{name}}} in the command is not a setting of this study and is left unchanged: {hint}"


def value_of(spec: RunSpec, key: str) -> Value:
    """`lr` is in [train], a dotted key in the table that it names."""
    name, dot, inner = key.partition(".")
    table = {"train": spec.train, "checkpoint": spec.checkpoint}.get(name if dot else "train")
    if table is None:
        table = to_builtins(spec.resources if name == "resources" else spec.cluster)
    value: Value = table.get(inner if dot else key)
    return value


def is_told(key: str) -> bool:
    """Whether an identity has the value of this dotted key anyhow."""
    name, _, inner = key.partition(".")
    return name == "train" or (name == "resources" and inner in SIZE)


def identity_of(spec: RunSpec, varied: Mapping[str, Value]) -> str:
    """What decides the result: program, settings, number of ranks, and whatever the study varies.
    How long it may take, in which queue and with how much memory does not: who repeats a study with
    more time wants the rest of it."""
    recipe, resources = spec.recipe, spec.resources
    facts = {
        "recipe": recipe
        and (recipe.name if Path(recipe.folder).parent == BUILTIN_RECIPES else recipe.folder),
        "entry": recipe and recipe.entry,  # a folder may have several classes
        "command": spec.command,
        "cwd": spec.cwd if spec.command else None,
        "train": spec.train,
        "size": [getattr(resources, key) for key in SIZE],
        "values": {key: value for key, value in varied.items() if "." in key and not is_told(key)},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
