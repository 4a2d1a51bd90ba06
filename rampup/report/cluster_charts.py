"""What a report shows of clusters: samples as points, clusters against classes, and the accuracy.

All of it comes from `clusters` in the evaluation.json that rank 0 left at the last validation, and
from the curves. build.py asks for the charts; a file that is damaged or foreign gives fewer.
"""

from collections.abc import Iterator, Sequence

from rampup.report.charts import Chart, Mark, Series, switch_marks
from rampup.report.data import RunData, as_table, finite
from rampup.rundir.records import Record

MOST_POINTS = 3000
MOST_CLUSTERS = 40


def cluster_charts(data: RunData) -> list[Chart]:
    found = as_table(data.evaluation.get("clusters"))
    names, class_of = found.get("names", []), found.get("class_of", [])
    if not 0 < len(names) == len(class_of) <= MOST_CLUSTERS or len(set(names)) < len(names):
        return []
    return [*scatter_charts(found), *pairs_chart(found), *accuracy_chart(data, found)]


def order_clusters(class_of: Sequence[float]) -> list[int]:
    """Return the clusters in the order of their classes; those without a class come last."""
    places = [each if each >= 0 else len(class_of) for each in class_of]
    return sorted(range(len(class_of)), key=lambda cluster: (places[cluster], cluster))


def scatter_charts(found: Record) -> Iterator[Chart]:
    """Show the same points twice: in the colours of their classes, and of their clusters.

    A cluster has the colour of the class that it was matched to.
    """
    classes, names = found.get("classes", []), found["names"]
    points, axes = found.get("points", []), found.get("axes", [])
    groups = found.get("truth", []), found.get("assigned", [])
    fits = len(points) == len(groups[0]) == len(groups[1]) > 0 and len(points[0]) == 2
    if not fits or len(axes) != 2 or len(points) > MOST_POINTS or len(set(classes)) < len(classes):
        return
    matched = [int(each) for each in found["class_of"]]
    spare = iter(range(len(classes), len(classes) + len(names)))
    colours = [each if 0 <= each < len(classes) else next(spare) for each in matched]
    order, in_order = order_clusters(matched), list(range(len(classes)))
    yield scatter_chart("samples by class", axes, points, groups[0], classes, in_order)
    chart = scatter_chart("samples by cluster", axes, points, groups[1], names, colours)
    chart.runs = [names[each] for each in order]
    chart.colours = [colours[each] for each in order]
    yield chart


def scatter_chart(
    title: str,
    axes: Sequence[str],
    points: Sequence[Sequence[float]],
    group: Sequence[float],
    names: Sequence[str],
    colours: list[int],
) -> Chart:
    series = [Series(name, "", [], []) for name in names]
    for (x, y), which in zip(points, group, strict=True):
        if 0 <= which < len(series):
            series[int(which)].xs.append(x)
            series[int(which)].ys.append(y)
    return Chart(
        name=title.replace(" ", "-"),
        title=title,
        section="clusters",
        x_title=axes[0],
        y_title=axes[1],
        series=series,
        runs=list(names),
        colours=colours,
        nodes=True,
        scatter=True,
    )


def pairs_chart(found: Record) -> Iterator[Chart]:
    """Show how many samples of each class are in each cluster."""
    classes, names, pairs = found.get("classes", []), found["names"], found.get("pairs", [])
    if not classes or len(pairs) != len(classes) or len(pairs[0]) != len(names):
        return
    order = order_clusters(found["class_of"])
    yield Chart(
        name="cluster-confusion",
        title="classes and clusters",
        section="clusters",
        x_title="cluster",
        y_title="true class",
        series=[
            Series(name, names[each], [row[each]], [row[each] / max(1, sum(row))])
            for name, row in zip(classes, pairs, strict=True)
            for each in order
        ],
        runs=list(classes),
        columns=[names[each] for each in order],
        cells=True,
    )


def accuracy_chart(data: RunData, found: Record) -> Iterator[Chart]:
    """Show the clustering accuracy against the epoch, and where the training changed."""
    metric, steps = str(found.get("metric", "")), finite(found.get("steps_per_epoch")) or 0
    curve = data.curves.get(metric)
    if curve is None or steps < 1:
        return
    yield Chart(
        name="clustering-accuracy",
        title="clustering accuracy",
        section="clusters",
        x_title="epoch",
        y_title=metric,
        series=[Series("accuracy", "val", [x / steps for x in curve.xs], list(curve.ys))],
        runs=["accuracy"],
        marks=[
            Mark("accuracy", mark.x / steps, mark.label, mark.words)
            for mark in switch_marks(data, "")
        ],
    )
