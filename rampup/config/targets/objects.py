"""Arguments of a LightningModule that are objects: `net=pkg.mod:Net net.width=64`.

lightning.py asks for the settings of the classes that a user names so. They are read from the source,
as those of the module itself; the job side builds the objects (engines/lightning/objects.py).
Imports nothing of the user's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from rampup.config.targets.signatures import Found, Source, locate, read_class, read_function
from rampup.core.engines.lightning import LATER, OBJECT
from rampup.core.spec import Setting
from rampup.errors import Refused, nearest


class Objects(NamedTuple):
    """What the named classes take."""

    settings: dict[str, Setting]
    """Each with the name of its argument before: net.width."""
    required: tuple[str, ...]
    sources: tuple[Source, ...]


def read_objects(given: Mapping[str, Any], own: Mapping[str, Setting], base: Path) -> Objects:
    """Return the settings of all objects that were asked for; an object may need others."""
    settings: dict[str, Setting] = {}
    required: list[str] = []
    sources: list[Source] = []
    waiting = list(own.items())
    while waiting:
        key, setting = waiting.pop()
        target = given.get(key)
        if setting.type != "any" or not isinstance(target, str) or not OBJECT.fullmatch(target):
            continue
        source, found = _find(key, target, base)
        inner = {f"{key}.{name}": one for name, one in found.settings.items() if name not in LATER}
        for name in given:
            if name.startswith(f"{key}.") and name not in inner and not _is_deeper(name, inner):
                if not found.free:
                    word = name.removeprefix(f"{key}.")
                    raise Refused(
                        f"{target} has no argument {word!r}", nearest(word, found.settings)
                    )
                inner[name] = Setting("any", None, optional=True)
        settings |= {name: replace(one, help=f"{key}: {one.help}") for name, one in inner.items()}
        required += [f"{key}.{name}" for name in found.required if name not in LATER]
        sources.append(source)
        waiting += inner.items()
    return Objects(settings, tuple(required), tuple(sources))


def _is_deeper(name: str, inner: Mapping[str, Setting]) -> bool:
    """Whether it is an argument of an object below: net.block.size."""
    return any(name.startswith(f"{key}.") for key in inner)


def _find(key: str, target: str, base: Path) -> tuple[Source, Found]:
    module, _, name = target.partition(":")
    source = locate(module, (base,))
    if source is None:
        raise Refused(
            f"{key}={target}: no module {module!r} in {base.absolute()}, and none is installed",
            f"write {key}=pkg.mod:Class, as in `import pkg.mod`",
        )
    found = read_class(source, name) or read_function(source, name)
    if found is None:
        raise Refused(
            f"{key}={target}: {module} has no class or function {name!r}",
            nearest(name, source.classes() | source.functions()),
        )
    return source, found
