"""Pictures that a run draws: they are what they should be, to the pixel."""

import numpy as np

from rampup.core.png import read_png
from rampup.engines.pictures import (
    ACROSS,
    ALPHABET,
    CLASS_COLOURS,
    DOT,
    GREEN,
    LETTERS,
    LINE,
    MAP_GAP,
    MAP_WIDTH,
    RED,
    SIDE,
    Sample,
    confusion_picture,
    map_grid,
    sample_grid,
    write,
)


def has(pixels: np.ndarray, colour: tuple[int, int, int]) -> bool:
    return bool((pixels == colour).all(2).any())


def test_letters() -> None:
    canvas = np.full((5 * DOT, 12 * DOT, 3), 255, np.uint8)
    write(canvas, 0, 0, "t-l", RED)
    dots = (canvas[::DOT, ::DOT] == RED).all(2)
    drawn = ["".join("#" if dot else "." for dot in row) for row in dots]
    assert drawn == ["###.....#...", ".#......#...", ".#..###.#...", ".#......#...", ".#......###."]
    assert len(set(LETTERS.values())) == len(ALPHABET) and all(
        len(rows) == 5 for rows in LETTERS.values()
    )
    write(canvas, 3, 10 * DOT, "long words that do not fit é", RED)


def test_right_and_wrong_have_their_colours() -> None:
    grey = np.full((32, 32), 77, np.uint8)
    samples = [
        Sample(grey, "cat", "cat", 0.5),
        Sample(np.stack([grey] * 3, 2), "cat", "dog", 0.9),
    ] * 4
    pixels = read_png(sample_grid(samples))
    assert tuple(pixels[0, 0]) == (77, 77, 77) == tuple(pixels[SIDE - 1, SIDE - 1])
    width, height = pixels.shape[1] // ACROSS, len(pixels) // 2
    below = slice(height - 2 * LINE - 4, height)
    assert has(pixels[below, :width], GREEN) and not has(pixels[below, :width], RED)
    assert has(pixels[below, width : 2 * width], RED) and not has(
        pixels[below, width : 2 * width], GREEN
    )


def test_pictures_of_any_size_fit() -> None:
    for side in (1, 8, 28, 97, 500):
        pixels = read_png(
            sample_grid([Sample(np.zeros((side, side // 2 + 1, 3), np.uint8), "a", "a", 1.0)])
        )
        assert len(pixels) <= SIDE + 3 * LINE


def test_the_confusion_matrix() -> None:
    confusion = np.array([[90.0, 10.0], [0.0, 0.0]])
    data = confusion_picture(confusion, ["cat", "dog"])
    assert data is not None
    pixels = read_png(data)
    cell = (len(pixels) - LINE - 6) // 2
    left, top = pixels.shape[1] - 2 * cell, LINE + 6
    blue = [int(pixels[top + 1, left + 1 + column * cell][0]) for column in (0, 1)]
    assert blue[0] < 100 < blue[1], "what is more often is darker"
    assert tuple(pixels[top + cell + 1, left + 1]) == (255, 255, 255), (
        "none of a class that is not there"
    )
    assert confusion_picture(np.zeros((1000, 1000)), ["x"] * 1000) is None


def test_maps_with_truth_and_prediction_side_by_side() -> None:
    grey = np.full((10, 20), 100, np.uint8)
    truth, said = np.zeros_like(grey), np.zeros_like(grey)
    truth[2:4, 3:6], said[7:9, 10:12] = 1, 2
    found = read_png(map_grid([grey, grey], [truth, truth], [said, said], ("none", "one", "two")))
    times = MAP_WIDTH // 20
    height, width = 10 * times, 20 * times
    assert found.shape == (2 * LINE + 2 * (height + MAP_GAP), 3 * width + 2 * MAP_GAP, 3)
    row = found[2 * LINE : 2 * LINE + height]
    parts = [row[:, place * (width + MAP_GAP) :][:, :width] for place in range(3)]
    for part, classes in zip(parts, (np.zeros_like(grey), truth, said), strict=True):
        for line in range(10):
            for column in range(20):
                number = classes[line, column]
                wanted = CLASS_COLOURS[number - 1] if number else (100, 100, 100)
                assert tuple(part[line * times, column * times]) == wanted


def test_a_large_map_is_thinned() -> None:
    grey = np.zeros((768, 1152), np.uint8)
    found = read_png(map_grid([grey], [grey], [grey], ("none", "one")))
    assert found.shape[1] < 4 * MAP_WIDTH
