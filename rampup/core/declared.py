"""A setting as it is declared: one record with type, default and help, from which everything follows.

Engines, recipes and resources declare theirs with it; config/setting_tables.py reads, checks and
fills them. Pure.
"""

from typing import Literal

from msgspec import Struct

Value = None | bool | int | float | str | list["Value"]
"""What a setting may hold: what TOML can say, and None for `not set`."""

SettingType = Literal["int", "float", "number", "str", "bool", "list", "any"]
"""`number`: whole or not, as it is typed. `any`: what it looks like, for arguments that do not say
their type."""


class Setting(Struct, frozen=True):
    """One key of `[train]`: its type, default and the line of help that `recipe show` prints."""

    type: SettingType
    default: Value
    help: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    """The smallest value that makes sense, inclusive."""
    optional: bool = False
    """May be `none`."""
    origin: str = "default"
    """Who set the default: the engine, or a recipe.toml."""


class Every(Struct, frozen=True):
    """How often checkpoints are written. `auto` chooses by what they cost."""

    unit: Literal["auto", "never", "steps", "epochs", "seconds"]
    number: int = 0
