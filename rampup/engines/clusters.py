"""What people look at where a training finds clusters: where the samples lie, and how clusters agree
with classes.

An engine makes a Clustering of a validation, hands it to `draw_clusters` for TensorBoard, and puts
what `describe_clusters` returns into evaluation.json for the report. Pure numpy: it never counts,
matches or fits anything.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rampup.core.png import Pixels, write_png
from rampup.engines.pictures import (
    BLACK,
    CLASS_COLOURS,
    LINE,
    STEP,
    Colour,
    confusion_picture,
    write,
)
from rampup.runtime.telemetry.tensorboard import NoTensorBoard

MOST_POINTS = 1500
"""Samples that are drawn: more would cover each other, and make the page large."""
SIDE = 320
"""Pixels of each of the two drawings."""
DOT = 3
GAP = 12
GREY: Colour = (150, 150, 150)
DIGITS = 4


class Clustering(NamedTuple):
    """The clusters of the validation samples, matched to classes."""

    classes: tuple[str, ...]
    names: Sequence[str]
    """Of the clusters."""
    class_of: Sequence[int]
    """The class that each cluster was matched to; -1 for none."""
    pairs: NDArray[Any]
    """The numbers of samples of each class (row) in each cluster (column), over all ranks."""
    points: NDArray[Any]
    """Where samples lie, one row each: some of them are enough."""
    truth: NDArray[Any]
    """The class of each of these samples."""
    assigned: NDArray[Any]
    """The cluster of each of these samples."""


def describe_clusters(found: Clustering, metric: str, steps_per_epoch: int) -> dict[str, Any]:
    """Return what evaluation.json holds. `metric` is the name of the clustering accuracy."""
    flat, axes, rows = flatten(found.points)
    return {
        "classes": list(found.classes),
        "names": list(found.names),
        "class_of": [int(each) for each in found.class_of],
        "pairs": np.asarray(found.pairs).astype(int).tolist(),
        "points": np.round(flat, DIGITS).tolist(),
        "truth": np.asarray(found.truth)[rows].astype(int).tolist(),
        "assigned": np.asarray(found.assigned)[rows].astype(int).tolist(),
        "axes": axes,
        "metric": metric,
        "steps_per_epoch": steps_per_epoch,
    }


def draw_clusters(board: NoTensorBoard, step: int, found: Clustering) -> None:
    """Put the scatter plot and the confusion matrix into TensorBoard."""
    board.image(step, "embedding", scatter_picture(found))
    order = order_clusters(found.class_of)
    pairs = np.asarray(found.pairs, np.float64)[:, order]
    picture = confusion_picture(pairs, found.classes, [f"{place}" for place in order])
    if picture is not None:
        board.image(step, "clusters", picture)


def order_clusters(class_of: Sequence[int]) -> list[int]:
    """Return the clusters in the order of their classes; those without a class come last."""
    places = [each if each >= 0 else len(class_of) for each in class_of]
    return sorted(range(len(class_of)), key=lambda cluster: (places[cluster], cluster))


def flatten(points: NDArray[Any]) -> tuple[NDArray[np.float64], list[str], NDArray[np.int64]]:
    """Return two columns to draw, their names, and which rows they are of.

    Of more than two columns these are the two axes along which the points differ most.
    """
    cloud = np.asarray(points, np.float64)
    rows = np.flatnonzero(np.isfinite(cloud).all(1))[:MOST_POINTS]
    cloud = cloud[rows]
    width = cloud.shape[1]
    if width == 2 or not len(cloud):
        return cloud[:, :2], ["z1", "z2"], rows
    if width == 1:
        return np.concatenate([cloud, np.zeros_like(cloud)], 1), ["z1", ""], rows
    centred = cloud - cloud.mean(0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    chosen = directions[:, ::-1][:, :2]
    # a direction may point either way: the larger part points up, so that a picture stays as it is
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(0), [0, 1]])
    shares = variances[::-1][:2] / max(float(variances.sum()), 1e-30)
    names = ("first", "second")
    axes = [
        f"{name} axis of {width} ({share:.0%} of the variance)"
        for name, share in zip(names, shares, strict=True)
    ]
    return centred @ chosen, axes, rows


# a picture ----------------------------------------------------------------------------------------


def scatter_picture(found: Clustering) -> bytes:
    """Draw the points twice side by side: in the colours of their classes and of their clusters."""
    flat, _, rows = flatten(found.points)
    truth, assigned = (np.asarray(each)[rows] for each in (found.truth, found.assigned))
    by_class = [CLASS_COLOURS[each % len(CLASS_COLOURS)] for each in range(len(found.classes))]
    by_cluster = [by_class[each] if each >= 0 else GREY for each in found.class_of]
    order = order_clusters(found.class_of)
    panels = [
        draw_panel(flat, truth, by_class, "truth", list(zip(found.classes, by_class, strict=True))),
        draw_panel(
            flat,
            assigned,
            by_cluster,
            "clusters",
            [(f"{each}", by_cluster[each]) for each in order],
        ),
    ]
    gap = np.full((len(panels[0]), GAP, 3), 255, np.uint8)
    return write_png(np.concatenate([panels[0], gap, panels[1]], 1))


def draw_panel(
    flat: NDArray[np.float64],
    group: NDArray[Any],
    colours: Sequence[Colour],
    title: str,
    legend: Sequence[tuple[str, Colour]],
) -> Pixels:
    """Return one drawing with its title and the names of its colours above it."""
    top = 2 * LINE + 4
    canvas = np.full((top + SIDE, SIDE, 3), 255, np.uint8)
    write(canvas, 0, 0, title, BLACK)
    left = 0
    for name, colour in legend:
        write(canvas, LINE, left, name, colour)
        left += (len(name) + 2) * STEP
    canvas[top:] = 246
    if not len(flat):
        return canvas
    low, high = flat.min(0), flat.max(0)
    span = np.where(high > low, high - low, 1.0)
    places = ((flat - low) / span * (SIDE - DOT)).astype(int)
    shades = np.array(colours, np.uint8)[np.asarray(group, int)]
    for down in range(DOT):
        for right in range(DOT):
            canvas[top + SIDE - DOT - places[:, 1] + down, places[:, 0] + right] = shades
    return canvas
