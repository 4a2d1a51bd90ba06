"""Text that somebody else wrote, made harmless for a terminal.

A terminal obeys what it is sent: it moves the cursor, changes its title, writes the clipboard. So
every character that is a command, or that turns letters around (U+202E and its kin), is shown as
`\\x1b`-style text. The command line passes all that it prints through here. Pure.
"""

import re

COMMANDS = (
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # unseen, or turns
    "\ud800-\udfff"  # half a character: can't be printed at all
    "\U000e0000-\U000e007f]"  # tags: letters that nobody sees
)
BUT_LINES = COMMANDS.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f")
"""The same without newlines and tabs. Both are compiled when the first odd text is shown."""


def escape_line(text: str) -> str:
    """Return a name or a value as it may stand within a line: a newline in it is text, too."""
    if text.isascii() and text.isprintable():  # nearly all
        return text
    return re.sub(COMMANDS, _name, text)


def escape(text: str) -> str:
    """Return lines of text that may be printed."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(BUT_LINES, _name, text)


def _name(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
