"""A user's own command: the settings that stand in it, and what [program] asks of it.

resolve.py calls both. What can't work is refused here, before anything is written: a pattern that
is not one, an option that has no effect. Pure.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from rampup.config.setting_tables import Table
from rampup.core.program import Pattern, Program, parse_lead_s
from rampup.errors import Refused

PLACE = re.compile(r"\{([A-Za-z_][\w.]*)\}")
"""Where the value of a setting stands in a command."""


def fill_command(
    command: tuple[str, ...], settings: Sequence[str], own: Mapping[str, Any]
) -> tuple[str, ...]:
    """{key} becomes the value of that setting, as it was typed; any other brace is the command's
    own."""
    typed = {
        key: text for key, equals, text in (each.partition("=") for each in settings) if equals
    }
    texts = {key: write_value(value) for key, value in own.items()} | typed
    return tuple(PLACE.sub(lambda found: texts.get(found[1], found[0]), word) for word in command)


def write_value(value: Any) -> str:
    """Return a value of a file as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def make_program(
    kind: str, table: Table, settings: Sequence[str], file: Mapping[str, Any]
) -> Program:
    """Return what is asked of the user's program; only a command is one that rampup knows nothing
    of."""
    asked = [key for key in table.values if table.origins[f"program.{key}"] != "default"]
    if asked and kind != "command":
        origin = table.origins[f"program.{asked[0]}"]
        raise Refused(
            f"program.{asked[0]} ({origin}) is for a command; recipes and functions log their "
            "metrics, save and resume themselves",
            "leave it out; or run a command: rampup run ... -- python train.py",
        )
    program = msgspec.convert(table.values, Program)
    for text in program.metric:
        Pattern(text)  # refuse now what no rank could look for
    if program.stop_lead is not None:
        parse_lead_s(program.stop_lead)
    for key in ("stop_lead", "progress", "on_resume"):
        needed = ("stop_signal",) if key == "stop_lead" else ("stop_signal", "again", "on_resume")
        if getattr(program, key) and not any(getattr(program, other) for other in needed):
            raise Refused(
                f"program.{key} ({table.origins[f'program.{key}']}) has no effect without "
                f"--{' or --'.join(needed).replace('_', '-')}",
                "add --stop-signal TERM for a program that saves when it is asked to"
                + ("" if key == "stop_lead" else ", or --again for one that saves by itself"),
            )
    try:
        words = tuple(shlex.split(program.on_resume))
    except ValueError as error:
        raise Refused(
            f"--on-resume {program.on_resume!r}: {error}", "quote it as for a shell"
        ) from None
    words = fill_command(words, settings, file.get("train", {}))
    return replace(program, on_resume=shlex.join(words))
