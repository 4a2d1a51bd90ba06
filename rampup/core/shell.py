"""Scripts of shell, kept as `*.sh` files and filled in here, so that they can be read and linted.

`@name@` becomes a value. A line `#@put name` becomes lines that are text already, or nothing. The
lines between `#@if name` and `#@end` stay where the value counts as true, those after `#@else`
where it does not. Every name of a file must be given, and every name that is given must be used:
a slot that nobody fills never reaches a shell. Values are inserted as they are: the caller quotes.
"""

import re
from collections.abc import Mapping
from pathlib import Path

SLOT = re.compile(r"@([a-z_]+)@")
STEP = re.compile(r"#@(\w+) ?(\w*)")


def fill(script: Path, values: Mapping[str, str | int | bool]) -> str:
    """Return the text of `script` with all its slots filled."""
    used: set[str] = set()

    def take(name: str) -> str:
        used.add(name)
        return str(values[name])

    lines: list[str] = []
    kept = [True]
    for line in script.read_text().splitlines(keepends=True):
        step = STEP.match(line)
        if step is None:
            if all(kept):
                lines.append(SLOT.sub(lambda slot: take(slot[1]), line))
            continue
        word, name = step.groups()
        if word == "if":
            used.add(name)
            kept.append(bool(values[name]))
        elif word == "else":
            kept[-1] = not kept[-1]
        elif word == "end":
            kept.pop()
        elif word == "put" and all(kept):
            lines.append(end_line(take(name)))
    if len(kept) != 1:
        raise ValueError(f"{script.name}: an #@if without its #@end")
    unknown = values.keys() - used - find_names(script)
    if unknown:
        raise ValueError(f"{script.name} has no slot for {', '.join(sorted(unknown))}")
    return "".join(lines)


def end_line(text: str) -> str:
    """Return whole lines: `text` with a newline at its end, or nothing."""
    return f"{text}\n" if text and not text.endswith("\n") else text


def find_names(script: Path) -> set[str]:
    """Return the names of all slots of `script`, also of those in lines that are left out."""
    text = script.read_text()
    steps = {step[2] for step in STEP.finditer(text)}
    return steps | {slot[1] for slot in SLOT.finditer(text)}
