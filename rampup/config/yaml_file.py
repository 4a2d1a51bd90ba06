"""YAML files of other programs, read without trusting them: plain values only, and limits.

foreign.py calls `read_yaml`. A few bytes of YAML can name each other again and again and stand for
more than any memory holds, so aliases and sizes are counted before a value is built. PyYAML is
imported only here, when such a file is named.
"""

from pathlib import Path
from typing import Any

from rampup.errors import Refused

MOST_BYTES = 1_000_000
MOST_EVENTS = 20_000
"""Scalars, lists and tables of a file."""
MOST_DEPTH = 20
MOST_ALIASES = 20
INSTALL = "pip install pyyaml"


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the tables of a YAML file; everything else is refused with a clear error."""
    text = _read_text(path)
    try:
        import yaml
    except ImportError:
        raise Refused(f"{path} is YAML, which needs PyYAML", INSTALL) from None
    try:
        _check_limits(yaml, text, path)
        found = yaml.load(text, _strict(yaml))
        _refuse_cycles(found, path)
    except yaml.YAMLError as error:
        about = " ".join(str(error).split())
        raise Refused(f"{path} is not valid YAML: {about}", "check that line") from None
    except (RecursionError, ValueError, TypeError) as error:
        raise Refused(f"{path} can't be read as YAML: {error}", "check the file") from None
    if not isinstance(found, dict):
        raise Refused(f"{path} has no keys at its top", "write KEY: VALUE, one in each line")
    return found


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise Refused(
                f"{path} is larger than {MOST_BYTES // 1_000_000} MB, which no configuration is",
                "name a YAML file of settings",
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Refused(f"config={path}: there is no such file", "check the path") from None
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not text: {error}", "name a YAML file of settings") from None
    except OSError as error:
        raise Refused(
            f"can't read {path}: {error.strerror}", "check the path and its permissions"
        ) from None


def _check_limits(yaml: Any, text: str, path: Path) -> None:
    depth = aliases = 0
    for events, event in enumerate(yaml.parse(text, yaml.SafeLoader), 1):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        for found, most, what in (
            (events, MOST_EVENTS, "values"),
            (depth, MOST_DEPTH, "levels"),
            (aliases, MOST_ALIASES, "aliases"),
        ):
            if found > most:
                raise Refused(f"{path} has more than {most} {what}", "shorten it to its settings")


def _refuse_cycles(found: Any, path: Path, depth: int = 0) -> None:
    """Refuse a table that contains itself; the other limits keep this walk short."""
    if depth > 2 * MOST_DEPTH:
        raise Refused(f"{path} has a table that contains itself", "write it out")
    inner = found.values() if isinstance(found, dict) else found
    for each in inner if isinstance(found, dict | list) else ():
        _refuse_cycles(each, path, depth + 1)


def _strict(yaml: Any) -> Any:
    """Return a loader of plain values that refuses a key that is there twice."""

    class Strict(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = [key for index, key in enumerate(keys) if key in keys[:index] and key != "<<"]
            if twice:
                message = f"{twice[0]!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
            return super().construct_mapping(node, deep)

    return Strict
