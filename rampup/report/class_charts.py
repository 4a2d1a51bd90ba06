"""What a report shows of a classifier and of its model: confusion matrix, PR curves, sample
predictions, weights, the graph of the model.

All of it comes from the evaluation.json that rank 0 left at the last validation. build.py asks for
the charts, sections.py for the HTML; a file that is damaged or foreign gives less of both, and
nothing of it reaches the page but as data or text.
"""

import re
from collections.abc import Iterator, Sequence

from rampup.report.charts import Chart, Series
from rampup.report.data import finite
from rampup.report.page import escape, html_table
from rampup.rundir.records import Record

MOST_CELLS = 40
"""Classes of a confusion matrix that is drawn; of larger ones the table tells."""
MOST_ROWS = 200
HEAD = ("class", "precision", "recall", "F1", "samples")
MOST_TENSORS = 12
FEWEST = 100
"""Numbers of a tensor that is drawn: fewer do not make a curve."""
LARGEST_PICTURE = 600_000
"""Letters: with the rest of a page it stays below 2 MB."""
PICTURE = re.compile("iVBORw0KGgo[A-Za-z0-9+/]+=*")
"""A PNG in base64."""
UNSAFE = re.compile(r"[^\w.-]")
"""What the name of a file does not have."""
ROW, AXIS, WIDTH, TOP = 22, 90, 900, 14
"""Pixels of the model's graph: the height of a line, where the dots are, and the whole picture."""
NEAREST_ARC, ARC_PER_ROW = 14, 4
LONGEST_NAME = 90


def read_classes(evaluation: Record) -> tuple[list[str], list[list[float]]]:
    """Return names and confusion matrix, where one fits the other."""
    names, confusion = evaluation.get("classes", []), evaluation.get("confusion", [])
    size = len(names)
    is_square = len(confusion) == size and all(len(row) == size for row in confusion)
    if not names or not is_square or len(set(names)) != size:
        return [], []
    return names, confusion


# charts -------------------------------------------------------------------------------------------


def evaluation_charts(evaluation: Record) -> list[Chart]:
    return [
        *confusion_chart(evaluation),
        *precision_recall_chart(evaluation),
        *output_charts(evaluation),
        *weights_chart(evaluation),
    ]


def confusion_chart(evaluation: Record) -> Iterator[Chart]:
    names, confusion = read_classes(evaluation)
    if not 0 < len(names) <= MOST_CELLS:
        return
    series = [
        Series(name, other, [count], [count / max(1, sum(row))])
        for name, row in zip(names, confusion, strict=True)
        for other, count in zip(names, row, strict=True)
    ]
    yield Chart(
        "confusion",
        "confusion matrix",
        "classes",
        "predicted class",
        "true class",
        series,
        names,
        cells=True,
    )


def precision_recall_chart(evaluation: Record) -> Iterator[Chart]:
    names, curves = read_classes(evaluation)[0], evaluation.get("curves", [])
    lines = zip(names, curves[::2], curves[1::2], strict=False)
    series = [Series(name, "", recall, list(precision)) for name, precision, recall in lines]
    if series:
        yield Chart(
            name="pr-curves",
            title="precision and recall",
            section="classes",
            x_title="recall",
            y_title="precision",
            series=series,
            runs=[line.run for line in series],
            nodes=True,
        )


def output_charts(evaluation: Record) -> Iterator[Chart]:
    """Show what a model predicts against what is true, one chart for each number."""
    columns = evaluation.get("truth", []), evaluation.get("predicted", [])
    for name, truth, predicted in zip(evaluation.get("outputs", []), *columns, strict=False):
        size = min(len(truth), len(predicted))
        if size:
            shown: list[float | None] = list(predicted[:size])
            yield Chart(
                name=f"predicted-{UNSAFE.sub('-', name)}",
                title=name,
                section="outputs",
                x_title=f"true {name}",
                y_title=f"predicted {name}",
                series=[Series(name, "", truth[:size], shown)],
                runs=[name],
                nodes=True,
                points=True,
            )


def weights_chart(evaluation: Record) -> Iterator[Chart]:
    """Show how the numbers of the largest tensors are spread."""
    tensors = [found for row in evaluation.get("weights", []) if (found := weight_series(row))]
    largest = sorted(tensors, key=lambda it: -it[1])[:MOST_TENSORS]
    series = [line for line, _ in tensors if any(line is it for it, _ in largest)]
    if series:
        yield Chart(
            name="weights",
            title="weights",
            section="model",
            x_title="value",
            y_title="fraction of weights",
            series=series,
            runs=[line.run for line in series],
            zero=True,
            nodes=True,
        )


def weight_series(row: Record) -> tuple[Series, float] | None:
    """Return the spread of one tensor and how many numbers it has."""
    counts, low, high = row.get("counts"), finite(row.get("low")), finite(row.get("high"))
    if not isinstance(counts, list) or not counts or low is None or high is None or not low < high:
        return None
    numbers = [finite(count) for count in counts]
    total = sum(number or 0.0 for number in numbers)
    if None in numbers or total < FEWEST:
        return None
    width = (high - low) / len(counts)
    middles = [low + (place + 0.5) * width for place in range(len(counts))]
    shares: list[float | None] = [(number or 0.0) / total for number in numbers]
    return Series(str(row.get("name")), "", middles, shares), total


# HTML ---------------------------------------------------------------------------------------------


def class_table(evaluation: Record) -> str:
    names, scores = read_classes(evaluation)[0], evaluation.get("scores", [])
    if not names or len(scores) != len(names) or len(scores[0]) != len(HEAD) - 1:
        return ""
    *means, _ = (sum(column) / len(names) for column in zip(*scores, strict=True))
    shown = [*zip(map(escape, names), scores, strict=True)][:MOST_ROWS]
    shown.append(("<b>mean, sum</b>", [*means, sum(row[-1] for row in scores)]))
    rows = [
        [name, *(f"{value:.4f}" for value in values), f"{samples:,.0f}"]
        for name, (*values, samples) in shown
    ]
    when = f"The last validation, at step {escape(evaluation.get('step', '?'))}, over all ranks."
    table = html_table(HEAD, rows, "attempts")
    return f"<p class='soft small'>{when}</p><div class='wide'>{table}</div>"


def samples_picture(evaluation: Record) -> str:
    picture = evaluation.get("samples", "")
    if len(picture) > LARGEST_PICTURE or not PICTURE.fullmatch(picture):
        return ""
    what = "each map, its true classes, and the predicted ones"
    if evaluation.get("classes"):
        what = "prediction and confidence; errors in red with the true label"
    return (
        f"<h3>samples</h3><p class='soft small'>The first validation samples: {what}.</p>"
        f"<img alt='samples' src='data:image/png;base64,{picture}'>"
    )


def layers_list(evaluation: Record) -> str:
    layers = evaluation.get("model", [])
    if not layers:
        return ""
    lines = escape("\n".join(layers))
    return f"<details><summary>layers</summary><pre>{lines}</pre></details>"


# the graph of the model ---------------------------------------------------------------------------


def model_graph(evaluation: Record) -> str:
    """Draw a line for each operation, in the order in which they are called.

    What feeds the next line is a short stroke; what skips lines, as the shortcut of a ResNet does,
    is an arc beside them. Names are shown as text, and what is not a graph draws nothing.
    """
    rows = [row for row in evaluation.get("graph", []) if is_operation(row)]
    if not rows:
        return ""
    places = {row["name"]: TOP + ROW * index for index, row in enumerate(rows)}
    drawn = [*input_lines(rows, places), *(operation(row, places[row["name"]]) for row in rows)]
    size = f"viewBox='0 0 {WIDTH} {TOP + ROW * len(rows)}' width='{WIDTH}' style='max-width:100%'"
    picture = f"<svg role='img' aria-label='graph' {size}>{''.join(drawn)}</svg>"
    return f"<details><summary>graph</summary>{picture}</details>"


def is_operation(row: Record) -> bool:
    inputs = row.get("inputs")
    has_names = isinstance(inputs, list) and all(isinstance(each, str) for each in inputs)
    return has_names and isinstance(row.get("name"), str) and isinstance(row.get("kind"), str)


def input_lines(rows: Sequence[Record], places: dict[str, int]) -> Iterator[str]:
    for row in rows:
        end = places[row["name"]]
        begins = {places[name] for name in row["inputs"] if places.get(name, end) < end}
        for begin in sorted(begins):
            apart = (end - begin) // ROW
            bend = 0 if apart == 1 else min(AXIS - 6, NEAREST_ARC + ARC_PER_ROW * apart)
            path = f"M{AXIS},{begin} C{AXIS - bend},{begin} {AXIS - bend},{end} {AXIS},{end}"
            yield f"<path d='{path}' fill='none' stroke='#9aa7b4' stroke-width='1.5'/>"


def operation(row: Record, y: int) -> str:
    name, kind = escape(row["name"][:LONGEST_NAME]), escape(row["kind"][:LONGEST_NAME])
    return (
        f"<circle cx='{AXIS}' cy='{y}' r='4' fill='#1e5ab4'/>"
        f"<text x='{AXIS + 12}' y='{y + 4}' font-size='13' fill='currentColor'>"
        f"{name} <tspan fill='#7b8794'>{kind}</tspan></text>"
    )
