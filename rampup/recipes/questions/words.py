"""Texts as rows of word numbers, and word vectors from a file. Framework-free; used once, before
the training."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rampup.recipe import RampupError

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
BETWEEN = re.compile(r"[ \t]+")
"""Not any white space: GloVe has words with a no-break space in them."""
PADDING, UNKNOWN, FIRST = 0, 1, 2
"""The numbers of an empty place, of a word that the vocabulary lacks, and of its first word."""


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


class Vocabulary:
    """The most frequent words of some texts; equally frequent ones in the order of the alphabet."""

    def __init__(self, texts: list[str], size: int) -> None:
        counts = Counter(word for text in texts for word in words_of(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))[: max(0, size - FIRST)]
        self.numbers = {word: number for number, word in enumerate(ranked, FIRST)}

    def __len__(self) -> int:
        return len(self.numbers) + FIRST

    def rows(self, texts: list[str], width: int) -> NDArray[np.int32]:
        """One row per text, cut or filled up to `width` words.

        A text without any word is one unknown word: a row of padding alone has no mean, and would
        spoil all weights.
        """
        found = np.full((len(texts), width), PADDING, np.int32)
        for row, text in zip(found, texts, strict=True):
            numbers = [self.numbers.get(word, UNKNOWN) for word in words_of(text)[:width]] or [
                UNKNOWN
            ]
            row[: len(numbers)] = numbers
        return found


def vectors(path: Path, vocabulary: Vocabulary, seed: int) -> NDArray[np.float32]:
    """A vector for each word of the vocabulary, from a text file with a word and its numbers on
    each line.

    As GloVe and fastText write it, or with tabs between; a first line with two numbers tells only
    sizes. Words that are not in the file get small random vectors.
    """
    found: dict[str, NDArray[np.float32]] = {}
    width = 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip()
            if width and BETWEEN.split(line, maxsplit=1)[0] not in vocabulary.numbers:
                continue  # most lines: GloVe knows many more words than the questions have
            word, *rest = BETWEEN.split(line)
            if number == 1 and len(rest) == 1:
                continue
            width = width or len(rest)
            if 0 < width < len(rest) and not _is_number(rest[0]):
                continue  # GloVe also has words with spaces in them, and a question has none
            if len(rest) != width or width == 0:
                raise RampupError(
                    f"{path}, line {number}: {len(rest)} numbers, not {width}",
                    "one word on each line",
                )
            if word in vocabulary.numbers:
                found[word] = _numbers(rest, path, number)
    if not found:
        raise RampupError(
            f"{path} has no vector for any word of the questions",
            "word v1 v2 ..., the format of GloVe",
        )
    table = np.random.default_rng(seed).normal(0, 0.05, (len(vocabulary), width)).astype(np.float32)
    table[PADDING] = 0
    for word, vector in found.items():
        table[vocabulary.numbers[word]] = vector
    return table


def _numbers(parts: list[str], path: Path, line: int) -> NDArray[np.float32]:
    try:
        return np.array([float(part) for part in parts], np.float32)
    except ValueError as error:
        raise RampupError(
            f"{path}, line {line}: {error}", "a word and its numbers, with spaces or tabs between"
        ) from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
