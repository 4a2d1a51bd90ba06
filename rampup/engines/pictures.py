"""Pictures of a running training: samples with their predictions, and a confusion matrix.

engines/torch/insight.py asks for them after a validation and hands them to TensorBoard and to the
run directory as PNG files. They are drawn with numpy alone: letters are five rows of three dots,
enough for a label, so no font has to be installed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.core.png import Pixels, write_png

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%.-/_"
DOTS = (
    "257556565634443655567464774644345535575572227111525565544447577556555525552656442557"
    "3656553421672222555575555255775552555522271247755572622761247612165571174616347577122"
    "275757757165124500002007001124400007"
)
LETTERS = {letter: DOTS[5 * place :][:5] for place, letter in enumerate(ALPHABET)}
"""The rows of each sign from the top, each of three dots as an octal digit. Other signs are left
blank."""
DOT = 2
"""The width and height of a dot of a letter, in pixels."""
STEP = 4 * DOT
LINE = 7 * DOT
SIDE = 96
"""The size of a sample in pixels, as near as whole multiples of its own come."""
ACROSS = 5
MOST_CELLS = 40
"""The most classes of a confusion matrix that is drawn: its PNG is for a screen."""
WHITE, BLACK, GREEN, RED = (255, 255, 255), (30, 30, 30), (20, 130, 60), (200, 40, 40)
DARK = (30, 90, 180)

Colour = tuple[int, int, int]
CLASS_COLOURS: tuple[Colour, ...] = (
    *((200, 40, 40), (40, 110, 220), (240, 160, 30), (20, 130, 60), (150, 60, 180), (0, 160, 160)),
)
"""The colours of classes on a map, without the first one, the background; they repeat."""
MAP_WIDTH = 288
"""The width of a map in pixels, as near as whole multiples come."""
MAP_GAP = 4


class Sample(NamedTuple):
    """A picture with its class and the prediction."""

    picture: Pixels
    """Bytes of shape (height, width), or with three colours at the end."""
    truth: str
    said: str
    probability: float


def write(canvas: Pixels, top: int, left: int, words: str, colour: Colour) -> None:
    """Write into the canvas; what does not fit is cut off."""
    for place, letter in enumerate(words.upper()):
        dots = np.array(
            [[int(row) >> bit & 1 for bit in (2, 1, 0)] for row in LETTERS.get(letter, "00000")],
            bool,
        )
        dots = dots.repeat(DOT, 0).repeat(DOT, 1)
        begin = left + place * STEP
        part = canvas[top : top + len(dots), begin : begin + dots.shape[1]]
        part[dots[: part.shape[0], : part.shape[1]]] = colour


def sample_grid(samples: Sequence[Sample]) -> bytes:
    """Draw samples, five in a row, with the prediction and its probability.

    A wrong prediction is red, with the correct class below it.
    """
    pictures = [_scale(sample.picture) for sample in samples]
    height = max(len(it) for it in pictures) + 2 * LINE + DOT
    width = max(max(it.shape[1] for it in pictures), 14 * STEP)
    rows = -(-len(samples) // ACROSS)
    canvas = np.full((rows * (height + 4), ACROSS * (width + 4), 3), 255, np.uint8)
    for index, (sample, picture) in enumerate(zip(samples, pictures, strict=True)):
        top, left = index // ACROSS * (height + 4), index % ACROSS * (width + 4)
        right = sample.said == sample.truth
        canvas[top : top + len(picture), left : left + picture.shape[1]] = picture
        top += height - 2 * LINE
        label = f"{sample.said[:9]} {sample.probability:.0%}"
        write(canvas, top, left, label, GREEN if right else RED)
        if not right:
            write(canvas, top + LINE, left, f"is {sample.truth[:10]}", RED)
    return write_png(canvas)


def map_grid(
    maps: Sequence[Pixels], truths: Sequence[Pixels], said: Sequence[Pixels], names: Sequence[str]
) -> bytes:
    """Draw each map three times in a row: as it is, with the true classes, with the predicted ones.

    The classes are numbers, one for each pixel; the background is left as the map is.
    """
    rows = []
    for picture, *classes in zip(maps, truths, said, strict=True):
        fitted = _fit(picture)
        plain = fitted if fitted.ndim == 3 else np.stack([fitted] * 3, 2)
        drawn = [plain, *(_colour(plain, _fit(each)) for each in classes)]
        gap = np.full((len(plain), MAP_GAP, 3), 255, np.uint8)
        rows.append(np.concatenate([drawn[0], gap, drawn[1], gap, drawn[2]], 1))
    height, width = rows[0].shape[:2]
    top = 2 * LINE
    canvas = np.full((top + len(rows) * (height + MAP_GAP), width, 3), 255, np.uint8)
    for index, title in enumerate(("map", "truth", "prediction")):
        write(canvas, 0, index * (width // 3 + 1), title, BLACK)
    left = 0
    for index, name in enumerate(names[1:]):
        write(canvas, LINE, left, name, CLASS_COLOURS[index % len(CLASS_COLOURS)])
        left += (len(name) + 2) * STEP
    for index, row in enumerate(rows):
        begin = top + index * (height + MAP_GAP)
        canvas[begin : begin + height, : row.shape[1]] = row
    return write_png(canvas)


def _fit(picture: Pixels) -> Pixels:
    """Bring a map to about MAP_WIDTH: every so many pixels of it, or each one several times."""
    width = picture.shape[1]
    if width >= 2 * MAP_WIDTH:
        picture = picture[:: width // MAP_WIDTH, :: width // MAP_WIDTH]
    times = max(1, MAP_WIDTH // picture.shape[1])
    return picture.repeat(times, 0).repeat(times, 1)


def _colour(picture: Pixels, classes: Pixels) -> Pixels:
    """Return a map with the pixels of each class in its colour."""
    drawn = picture.copy()
    for number in np.unique(classes[classes > 0]):
        drawn[classes == number] = CLASS_COLOURS[(int(number) - 1) % len(CLASS_COLOURS)]
    return drawn


def _scale(picture: Pixels) -> Pixels:
    colours = picture if picture.ndim == 3 else np.stack([picture] * 3, 2)
    longest = max(colours.shape[:2])
    if longest > SIDE:
        return colours[:: -(-longest // SIDE), :: -(-longest // SIDE)]
    return colours.repeat(SIDE // longest, 0).repeat(SIDE // longest, 1)


def confusion_picture(
    confusion: NDArray[np.float64], names: Sequence[str], columns: Sequence[str] | None = None
) -> bytes | None:
    """Draw the true classes as rows and the predictions as columns; None for very many classes.

    `columns` names the predictions where they are not the classes, as clusters are.
    """
    columns = names if columns is None else columns
    if max(len(names), len(columns)) > MOST_CELLS:
        return None
    cell = max(5 * STEP, 28)
    left = 10 * STEP + 6
    size = (len(names) * cell + LINE + 6, left + len(columns) * cell, 3)
    canvas = np.full(size, 255, np.uint8)
    shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    for place, name in enumerate(columns):
        write(canvas, 0, left + place * cell, name[:4], BLACK)
    for row, name in enumerate(names):
        top = LINE + 6 + row * cell
        write(canvas, top + cell // 2 - DOT, 0, name[:10], BLACK)
        for column in range(len(columns)):
            begin, share = left + column * cell, shares[row, column]
            shade = [round(255 + (dark - 255) * share) for dark in DARK]
            canvas[top : top + cell - 1, begin : begin + cell - 1] = shade
            count = f"{confusion[row, column]:.0f}" if confusion[row, column] else ""
            write(canvas, top + cell // 2 - DOT, begin + 2, count, WHITE if share > 0.5 else BLACK)
    return write_png(canvas)
