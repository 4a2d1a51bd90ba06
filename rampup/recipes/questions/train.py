"""Questions: sincere or not? A classifier on top of an embedding: from scratch, word vectors, or a
SavedModel."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from rampup.keras import ArrayData, Task
from rampup.recipe import RampupError, Settings, dataset_folder
from rampup.recipes.questions.generate import COLUMNS, questions
from rampup.recipes.questions.settings import GLOVE
from rampup.recipes.questions.words import Vocabulary, vectors

SPLIT_SEED = 42
"""The same questions are held out for every seed."""
ENCODED_AT_ONCE = 1024


class Questions(Task):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.embedding = find_embedding(settings.embedding)
        self.is_text = False

    def data(self) -> tuple[ArrayData, ArrayData]:
        path = self.settings.csv
        texts, targets = read(Path(path)) if path else questions(self.settings.rows, SPLIT_SEED)
        train_x, held_out, train_y, held_y = train_test_split(
            texts,
            targets,
            test_size=self.settings.validation,
            random_state=SPLIT_SEED,
            stratify=targets,
        )
        encode = self._encoder(train_x)
        pairs = ((train_x, train_y), (held_out, held_y))
        train, validation = (
            ArrayData(encode(x), np.array(y, np.float32)[:, None]) for x, y in pairs
        )
        return train, validation

    def model(self) -> keras.Model:
        layers = keras.layers
        head = [layers.Dense(256, activation="relu"), layers.Dense(64, activation="relu")]
        return keras.Sequential(
            [*self._first_layers(), *head, layers.Dense(1, activation="sigmoid")]
        )

    def compile_settings(self) -> Mapping[str, Any]:
        f1 = keras.metrics.F1Score(average="micro", threshold=0.5, name="f1")
        return {"loss": "binary_crossentropy", "metrics": ["accuracy", f1]}

    # the embedding --------------------------------------------------------------------------------

    def _encoder(self, texts: list[str]) -> Any:
        """What turns texts into the rows that the model takes."""
        if self.embedding is not None and self.embedding.is_dir():
            loaded = tf.saved_model.load(str(self.embedding))
            # here, as a model of several replicas can't be asked
            self.width = width_of(loaded, self.embedding)
            if self.settings.trainable:
                self.is_text = True
                return lambda each: np.array(each, object)
            return _frozen(loaded)  # the same vectors in every epoch: computed once
        self.words = Vocabulary(texts, self.settings.vocabulary)
        self.table = vectors(self.embedding, self.words, SPLIT_SEED) if self.embedding else None
        return lambda each: self.words.rows(each, self.settings.words)

    def _first_layers(self) -> list[Any]:
        layers, trainable = keras.layers, self.settings.trainable
        if self.embedding is not None and self.embedding.is_dir():
            if self.is_text:
                return [keras.Input((), dtype=tf.string), Sentences(self.embedding, self.width)]
            return [keras.Input((self.width,))]
        size, width = (
            (len(self.words), self.settings.dimensions) if self.table is None else self.table.shape
        )
        start = keras.initializers.Constant(self.table) if self.table is not None else "uniform"
        embedding = layers.Embedding(
            size, width, start, mask_zero=True, trainable=trainable or self.table is None
        )
        return [
            keras.Input((self.settings.words,), dtype=tf.int32),
            embedding,
            layers.GlobalAveragePooling1D(),
        ]


def find_embedding(setting: str) -> Path | None:
    """A path, or the file that `rampup fetch glove` has brought; None: trained from scratch."""
    if setting == GLOVE:
        return dataset_folder(GLOVE) / "glove.txt"
    return Path(setting) if setting else None


class Sentences(keras.layers.Layer):  # type: ignore[misc]
    """A SavedModel that turns texts into vectors, and is trained with the rest."""

    def __init__(self, folder: Path, width: int) -> None:
        super().__init__()
        self.loaded, self.width = tf.saved_model.load(str(folder)), width
        functions = self.loaded.__call__.concrete_functions
        used = {id(variable): variable for function in functions for variable in function.variables}
        for variable in used.values():
            (self._trainable_weights if variable.trainable else self._non_trainable_weights).append(
                variable
            )

    def call(self, texts: Any) -> Any:
        return tf.ensure_shape(self.loaded(texts), [None, self.width])


def width_of(loaded: Any, folder: Path) -> int:
    """How many numbers it makes of a text."""
    try:
        return int(loaded(tf.constant(["a question"])).shape[-1])
    except (TypeError, ValueError) as error:
        message = (
            f"embedding: {folder} does not turn texts into vectors: {str(error).splitlines()[0]}"
        )
        raise RampupError(
            message, "a SavedModel that is called with texts and gives a row for each"
        ) from error


def _frozen(loaded: Any) -> Any:
    def encode(texts: list[str]) -> NDArray[np.float32]:
        parts = [
            texts[begin : begin + ENCODED_AT_ONCE]
            for begin in range(0, len(texts), ENCODED_AT_ONCE)
        ]
        return np.concatenate([loaded(tf.constant(part)).numpy() for part in parts])

    return encode


def read(path: Path) -> tuple[list[str], list[int]]:
    """Texts and targets of a file in the layout of the Quora set."""
    texts, targets = [], []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            absent = [name for name in COLUMNS[1:] if name not in (rows.fieldnames or ())]
            if absent:
                raise RampupError(
                    f"{path} has no column {absent[0]!r}",
                    f"its columns must be {', '.join(COLUMNS)}",
                )
            for row in rows:
                if row["target"] not in ("0", "1"):
                    message = f"{path}, line {rows.line_num}: target is {row['target']!r}"
                    raise RampupError(message, "every target is 0 or 1")
                texts.append(row["question_text"] or "")
                targets.append(int(row["target"]))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RampupError(
            f"csv: can't read {path}: {error}", f"a CSV file with {', '.join(COLUMNS)}"
        ) from error
    if min(targets.count(0), targets.count(1)) < 2:
        raise RampupError(
            f"{path} has {targets.count(1)} of {len(targets)} questions with target 1",
            "both are needed",
        )
    return texts, targets
