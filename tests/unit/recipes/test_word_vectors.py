"""Texts and files of word vectors as they are in the wild, read by the questions recipe."""

from pathlib import Path

import numpy as np
import pytest

from rampup.errors import RampupError
from rampup.recipes.questions.words import PADDING, UNKNOWN, Vocabulary, vectors

VOCABULARY = Vocabulary(["why do", "why"], 10)


def test_words_with_spaces_in_them_are_passed_over_as_glove_840b_has_some(tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text("why 0.1 0.2\n. . . 0.5 0.5\nat name@domain.com 0.5 0.5\ndo 0.3 0.4\n")
    table = vectors(file, VOCABULARY, seed=1)
    found = [table[VOCABULARY.numbers[word]] for word in ("why", "do")]
    assert np.allclose(found, [[0.1, 0.2], [0.3, 0.4]])


@pytest.mark.parametrize("line", ["do 0.3", "do 0.3 0.4 0.5", "do"])
def test_a_line_of_another_width_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text(f"why 0.1 0.2\n{line}\n")
    with pytest.raises(RampupError, match=r"vectors\.txt, line 2: \d numbers, not 2"):
        vectors(file, VOCABULARY, seed=1)


def test_tabs_are_as_good_as_spaces(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("2\t2\nwhy\t0.1\t0.2\ndo\t0.3\t0.4\n")
    table = vectors(file, VOCABULARY, seed=1)
    assert np.allclose(
        [table[VOCABULARY.numbers[word]] for word in ("why", "do")], [[0.1, 0.2], [0.3, 0.4]]
    )


def test_a_text_without_any_word_is_an_unknown_word_and_not_only_padding() -> None:
    rows = VOCABULARY.rows(["", "???", "why"], 3)
    assert rows.tolist() == [[UNKNOWN, PADDING, PADDING]] * 2 + [
        [VOCABULARY.numbers["why"], PADDING, PADDING]
    ]
