"""A finding: what was looked at, why it is not good, what to do about it. Made by the checks of
diagnose and of the schedulers; shown by `doctor`, `preflight` and the report."""

from typing import Literal, NamedTuple

Level = Literal["ok", "note", "problem"]


class Finding(NamedTuple):
    id: str
    level: Level
    about: str
    """What was looked at, and what is there."""
    cause: str = ""
    """Why that is not good: a whole sentence."""
    remedy: str = ""
    """One command or edit."""
