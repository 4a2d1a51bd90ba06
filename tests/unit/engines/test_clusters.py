"""What is shown of clusters: two columns of any embedding, pictures, and the record of the report."""

import json
from typing import Any

import numpy as np

from rampup.core.png import read_png
from rampup.engines import clusters
from rampup.engines.clusters import Clustering, describe_clusters, draw_clusters, flatten
from rampup.engines.pictures import CLASS_COLOURS, WHITE
from rampup.runtime.telemetry.tensorboard import NoTensorBoard

DRAWS = np.random.RandomState(0)


def make(count: int = 40, width: int = 3) -> Clustering:
    truth = np.arange(count) % 3
    return Clustering(
        classes=("W", "Z", "top"),
        names=["cluster 0 (top)", "cluster 1 (W)", "cluster 2 (Z)"],
        class_of=(2, 0, 1),
        pairs=np.array([[0, 5, 1], [2, 1, 6], [7, 0, 0]]),
        points=DRAWS.normal(size=(count, width)),
        truth=truth,
        assigned=np.array([1, 2, 0])[truth],
    )


def test_the_plane_is_the_one_in_which_points_differ_most() -> None:
    along = DRAWS.normal(size=(500, 2)) * [9.0, 3.0]
    points = np.stack([0.01 * DRAWS.normal(size=500), along[:, 1], along[:, 0]], 1)
    flat, axes, rows = flatten(points)
    assert len(rows) == 500
    shares = [name.partition(" of the variance")[0].rpartition("(")[2] for name in axes]
    assert shares == ["90%", "10%"] and axes[0].startswith("first axis of 3 (")
    for column, source in ((0, 2), (1, 1)):
        assert np.corrcoef(flat[:, column], points[:, source])[0, 1] > 0.999, "and not mirrored"


def test_columns_stay_as_they_are_where_there_are_two() -> None:
    points = DRAWS.normal(size=(5, 2))
    assert (flatten(points)[0] == points).all()
    assert flatten(points[:, :1])[0].shape == (5, 2)


def test_what_is_not_finite_is_left_out_and_many_points_are_cut() -> None:
    found = make(clusters.MOST_POINTS + 9)
    found.points[3] = np.nan
    record = describe_clusters(found, "val_accuracy", 7)
    assert len(record["points"]) == len(record["truth"]) == clusters.MOST_POINTS
    assert record["truth"][:5] == [0, 1, 2, 1, 2], "the fourth is gone, in all columns"
    assert "NaN" not in json.dumps(record)
    assert record["metric"] == "val_accuracy" and record["steps_per_epoch"] == 7


class Board(NoTensorBoard):
    def __init__(self) -> None:
        self.images: dict[str, Any] = {}

    def image(self, step: int, name: str, png: bytes) -> None:
        self.images[name] = step, read_png(png)


def test_tensorboard_gets_both_pictures_in_the_same_colours() -> None:
    board = Board()
    draw_clusters(board, 12, make())
    step, picture = board.images["embedding"]
    assert step == 12
    middle = clusters.SIDE + clusters.GAP
    left, right = picture[:, : clusters.SIDE], picture[:, middle:]
    top = len(picture) - clusters.SIDE
    assert (left[top:] == right[top:]).all(), "each cluster is a class here: the same points"
    for colour in CLASS_COLOURS[:3]:
        assert (left[top:] == colour).all(2).any()
    _, cells = board.images["clusters"]
    assert (cells == WHITE).all(2).any() and cells.shape[2] == 3


def test_no_points_at_all_are_a_picture_too() -> None:
    board = Board()
    draw_clusters(board, 1, make()._replace(points=np.zeros((0, 3)), truth=[], assigned=[]))
    assert "embedding" in board.images
