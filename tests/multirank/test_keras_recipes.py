"""The recipes of the keras engine reach what they promise, with every kind of embedding."""

import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampup.recipes.questions.generate import questions, write

from .conftest import Case, Start

pytestmark = pytest.mark.skipif(
    find_spec("tf_keras") is None, reason="it needs pip install 'rampup[keras]'"
)

SEEDS = (1, 2, 3, 4, 5)
ROW = "1 0 .99539 -.05889 .85243 .02306 .83398 -.37708 1 .0376 .85243 -.17755 .59755 -.44945 .60536 -.38223 .84356 "
ROW += "-.38542 .58212 -.32192 .56971 -.29674 .36946 -.47357 .56811 -.51171 .41078 -.46168 .21266 -.3409 .42267 -.54487 "
ROW += ".18641 -.453"
WORDS = ("always", "never", "idiots", "teachers", "engineers", "why")
SAVES = """
import sys
import numpy as np
import tensorflow as tf

class Hashed(tf.Module):
    def __init__(self):
        self.table = tf.Variable(tf.random.stateless_normal([500, 8], [1, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts):
        words = tf.strings.to_hash_bucket_fast(tf.strings.split(texts), 500)
        return tf.reduce_mean(tf.gather(self.table, words), axis=1)

hashed = Hashed()
tf.saved_model.save(hashed, sys.argv[1])
np.save(sys.argv[1] + "/table.npy", hashed.table.numpy())
"""
WORDLESS = "".join(f"{number},{text},0\n" for number in range(20) for text in ("", "???", "_ ! _"))
"""Questions without a single word, in both parts of the data."""
ON_TWO = {"ranks": {"world": 2}, "devices": {"strategy": "mirrored", "cpu_devices": 2}}


@pytest.fixture(scope="module")
def cases(start: Start, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("given")
    write(folder / "questions.csv", 3000, 3)
    (folder / "bad.csv").write_text("qid,question_text,target\n1,Why?,0\n2,How?,maybe\n")
    (folder / "vectors.txt").write_text(
        "6 4\n" + "".join(f"{word} 0.1 0.2 0.3 {len(word)}\n" for word in WORDS)
    )
    (folder / "wordless.csv").write_text((folder / "questions.csv").read_text() + WORDLESS)
    subprocess.run(
        [sys.executable, "-c", SAVES, folder / "model"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    row = [float(number) for number in ROW.split()]
    small: dict[str, Any] = {
        "recipe": "questions",
        "csv": str(folder / "questions.csv"),
        "epochs": 1,
    }
    wanted: dict[str, dict[str, Any]] = {
        **{
            f"ionosphere-{seed}": {"recipe": "ionosphere", "seed": seed, "predict": row}
            for seed in SEEDS
        },
        "scratch": {"recipe": "questions"},
        "vectors": {**small, "embedding": str(folder / "vectors.txt")},
        "frozen": {**small, "embedding": str(folder / "vectors.txt"), "trainable": False},
        "model": {**small, "embedding": str(folder / "model")},
        "frozen-model": {**small, "embedding": str(folder / "model"), "trainable": False},
        **{
            f"model-{how}": {**small, "embedding": str(folder / "model"), **two}
            for how, two in ON_TWO.items()
        },
        "frozen-model-ranks": {
            **small,
            "embedding": str(folder / "model"),
            "trainable": False,
            "world": 2,
        },
        "wordless": {**small, "csv": str(folder / "wordless.csv")},
        "bad": {**small, "csv": str(folder / "bad.csv")},
    }
    found = start({name: {"world": 1, "engine": "keras", **case} for name, case in wanted.items()})
    for name, case in found.items():
        assert name == "bad" or set(case.codes) == {0}, f"{name}: {case.log(0)}"
    return found


def test_ionosphere(cases: dict[str, Case]) -> None:
    found = [cases[f"ionosphere-{seed}"].end["metrics"]["val_accuracy"] for seed in SEEDS]
    assert statistics.mean(found) >= 0.90, found
    assert min(found) >= 0.85, found


def test_ionosphere_predicts_a_row(cases: dict[str, Case]) -> None:
    assert "\npredicted: good (probability of good 0.9" in cases["ionosphere-1"].log(0)
    told = cases["ionosphere-1"].attempt.event("result")
    assert told is not None and told["name"] == "predicted"


def test_questions_are_as_hard_as_they_must_be_and_ours_learns_them(cases: dict[str, Case]) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.model_selection import train_test_split

    texts, targets = questions(40_000, 42)
    assert sum(targets) / len(targets) == pytest.approx(0.06, abs=0.005)
    train, held_out, labels, expected = train_test_split(
        texts, targets, test_size=0.1, random_state=42, stratify=targets
    )
    words = TfidfVectorizer()
    table = words.fit_transform(train)
    model = LogisticRegression(max_iter=1000).fit(table, labels)
    theirs = f1_score(expected, model.predict(words.transform(held_out)))
    assert 0.75 <= theirs <= 0.92
    assert cases["scratch"].end["best"]["value"] >= theirs - 0.03
    assert {"val_f1", "val_accuracy"} <= set(cases["scratch"].end["metrics"])
    assert keyword_rule(train, labels, held_out, expected) < 0.6


def keyword_rule(
    texts: list[str], targets: list[int], held_out: list[str], expected: list[int]
) -> float:
    """The best F1 of `insincere if it has any of these words`, for the words that tell most."""
    from collections import Counter

    from sklearn.metrics import f1_score

    both = Counter(word for text in texts for word in set(text.lower().split()))
    bad = Counter(
        word
        for text, target in zip(texts, targets, strict=True)
        if target
        for word in set(text.lower().split())
    )
    ranked = sorted(
        (word for word in both if both[word] > 20), key=lambda word: -bad[word] / both[word]
    )
    rules = [set(ranked[:count]) for count in (1, 2, 5, 10, 20, 40, 60)]
    return max(
        f1_score(expected, [bool(rule & set(text.lower().split())) for text in held_out])
        for rule in rules
    )


@pytest.mark.parametrize("name", ["vectors", "frozen", "model", "frozen-model"])
def test_embeddings_that_are_given(cases: dict[str, Case], name: str) -> None:
    case, state = cases[name], cases[name].state()["model"]
    assert 0 < case.end["metrics"]["val_loss"] < 1
    sizes = [array.shape for array in state]
    tables = {"vectors": 4, "frozen": 4, "model": 8}
    widths = [shape[1] for shape in sizes if shape[0] > 256 or shape in ((500, 8),)]
    assert widths == ([tables[name]] if name in tables else []), sizes


@pytest.mark.parametrize("name", ["model", "model-ranks", "model-devices"])
def test_a_saved_model_is_trained_with_the_rest(cases: dict[str, Case], name: str) -> None:
    before = np.load(Path(cases[name].train["embedding"]) / "table.npy")
    (table,) = (array for array in cases[name].state()["model"] if array.shape == before.shape)
    moved = np.abs(table - before).max(axis=1) > 1e-4
    assert moved.sum() > 200, "a row for each word of the questions"
    assert not moved.all(), "and no others"


@pytest.mark.parametrize("name", ["model-ranks", "model-devices", "frozen-model-ranks"])
def test_a_saved_model_on_several_replicas_learns_the_same(
    cases: dict[str, Case], name: str
) -> None:
    alone = cases[name.removesuffix("-ranks").removesuffix("-devices")]
    assert cases[name].end["metrics"]["val_loss"] == pytest.approx(
        alone.end["metrics"]["val_loss"], abs=1e-3
    )


def test_questions_without_a_word_spoil_no_weights(cases: dict[str, Case]) -> None:
    assert all(np.isfinite(array).all() for array in cases["wordless"].state()["model"])
    assert 0 < cases["wordless"].end["metrics"]["val_loss"] < 1


def test_a_frozen_embedding_stays_as_it_was(cases: dict[str, Case]) -> None:
    frozen, trained = (cases[name].state()["model"] for name in ("frozen", "vectors"))
    table = next(array for array in frozen if array.shape[1:] == (4,))
    words = {round(float(number), 4) for number in table[:, 0]}
    assert 0.1 in words, "a vector of the file"
    other = next(array for array in trained if array.shape[1:] == (4,))
    assert 0.1 not in {round(float(number), 6) for number in other[2:20, 0]}, (
        "frequent words have moved"
    )


def test_a_table_that_is_not_as_it_must_be(cases: dict[str, Case]) -> None:
    bad = cases["bad"]
    line = bad.log(0).splitlines()[0]
    assert line.startswith("error: ") and "line 3: target is 'maybe'" in line
    assert bad.codes == [1] and "Traceback" not in bad.log(0)


def test_made_up_questions_are_the_same_again(tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        write(tmp_path / name, 50, 7)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert (tmp_path / "one.csv").read_text().splitlines()[0] == "qid,question_text,target"
