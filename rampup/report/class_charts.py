"""What a report shows of a classifier and of its model: confusion matrix, PR curves, sample
predictions, weights.

From the evaluation.json that rank 0 left at the last validation. charts.py asks for the charts,
sections.py for the words; a file that is damaged or foreign gives fewer of both, and nothing of it
reaches the page but as data or text.
"""

import re
from collections.abc import Iterator
from typing import Any

from rampup.report.chart import Chart, Series
from rampup.report.story import Story, finite
from rampup.report.template import text
from rampup.report.words import html_table
from rampup.rundir.records import Record

MOST_CELLS = 40
"""Classes of a confusion matrix that is drawn; of larger ones the table tells."""
MOST_ROWS = 200
HEAD = ("class", "precision", "recall", "F1", "samples")
MOST_TENSORS = 12
FEWEST = 100
"""Numbers of a tensor that is drawn: fewer are no curve."""
LARGEST_PICTURE = 600_000
"""Letters: with the rest of a page it stays below 2 MB."""
PICTURE = re.compile("iVBORw0KGgo[A-Za-z0-9+/]+=*")
"""A PNG in base64."""


def classes_of(evaluation: Record) -> tuple[list[str], list[list[float]]]:
    """Names and confusion matrix, where one fits the other."""
    names, confusion = evaluation.get("classes", []), evaluation.get("confusion", [])
    square = (
        names and len(confusion) == len(names) and all(len(row) == len(names) for row in confusion)
    )
    return (names, confusion) if square and len(set(names)) == len(names) else ([], [])


# charts -------------------------------------------------------------------------------------------


def charts_of(story: Story) -> list[Chart]:
    return [
        *confusion_chart(story.evaluation),
        *curves_chart(story.evaluation),
        *weights_chart(story.evaluation),
    ]


def confusion_chart(evaluation: Record) -> Iterator[Chart]:
    names, confusion = classes_of(evaluation)
    if not 0 < len(names) <= MOST_CELLS:
        return
    series = [
        Series(name, other, [count], [count / max(1, sum(row))])
        for name, row in zip(names, confusion, strict=True)
        for other, count in zip(names, row, strict=True)
    ]
    yield Chart(
        "confusion", "confusion matrix", "classes", "taken for", "is", series, names, cells=True
    )


def curves_chart(evaluation: Record) -> Iterator[Chart]:
    names, curves = classes_of(evaluation)[0], evaluation.get("curves", [])
    pairs = list(zip(names, curves[::2], curves[1::2], strict=False))
    series = [Series(name, "", recall, list(precision)) for name, precision, recall in pairs]
    if series:
        drawn = [name for name, *_ in pairs]
        yield Chart(
            "pr-curves",
            "precision and recall",
            "classes",
            "recall",
            "precision",
            series,
            drawn,
            nodes=True,
        )


def weights_chart(evaluation: Record) -> Iterator[Chart]:
    """Of the tensors with the most numbers, how these are spread."""
    tensors = [
        found for row in evaluation.get("weights", []) if (found := spread_of(row)) is not None
    ]
    largest = sorted(tensors, key=lambda it: -it[1])[:MOST_TENSORS]
    series = [line for line, _ in tensors if any(line is it for it, _ in largest)]
    if series:
        runs = [line.run for line in series]
        yield Chart(
            "weights",
            "weights",
            "model",
            "value",
            "part of them",
            series,
            runs,
            zero=True,
            nodes=True,
        )


def spread_of(row: Record) -> tuple[Series, float] | None:
    counts, low, high = row.get("counts"), finite(row.get("low")), finite(row.get("high"))
    if not isinstance(counts, list) or not counts or low is None or high is None or not low < high:
        return None
    numbers = [finite(count) for count in counts]
    total = sum(number or 0.0 for number in numbers)
    if None in numbers or total < FEWEST:
        return None
    width = (high - low) / len(counts)
    middles = [low + (place + 0.5) * width for place in range(len(counts))]
    return Series(
        str(row.get("name")), "", middles, [(number or 0.0) / total for number in numbers]
    ), total


def cells(chart: Chart) -> Any:
    """The specification of a table in colours."""
    import altair as alt

    base = alt.Chart(alt.NamedData(name="points")).encode(
        x=alt.X(
            "kind:N",
            sort=chart.runs,
            title=chart.x_title,
            axis=alt.Axis(orient="top", labelAngle=-40),
        ),
        y=alt.Y("run:N", sort=chart.runs, title=chart.y_title),
        tooltip=[
            alt.Tooltip("run:N", title=chart.y_title),
            alt.Tooltip("kind:N", title=chart.x_title),
            alt.Tooltip("x:Q", title="samples"),
            alt.Tooltip("y:Q", title="part of the class", format=".1%"),
        ],
    )
    shade = alt.Color(
        "y:Q", scale=alt.Scale(domain=[0, 1], range=["#f4f8fd", "#1e5ab4"]), legend=None
    )
    ink = alt.condition("datum.y > 0.5", alt.value("#ffffff"), alt.value("#1d232a"))
    return alt.layer(
        base.mark_rect().encode(color=shade),
        base.mark_text(fontSize=11).encode(text="x:Q", color=ink),
    )


# words --------------------------------------------------------------------------------------------


def class_table(evaluation: Record) -> str:
    names, scores = classes_of(evaluation)[0], evaluation.get("scores", [])
    if not names or len(scores) != len(names) or len(scores[0]) != len(HEAD) - 1:
        return ""
    *means, _ = (sum(column) / len(names) for column in zip(*scores, strict=True))
    told = [*zip(map(text, names), scores, strict=True)][:MOST_ROWS]
    told.append(("<b>mean, sum</b>", [*means, sum(row[-1] for row in scores)]))
    rows = [
        [name, *(f"{value:.4f}" for value in values), f"{samples:,.0f}"]
        for name, (*values, samples) in told
    ]
    when = f"The last validation, at step {text(evaluation.get('step', '?'))}, over all ranks."
    return (
        f"<p class='soft small'>{when}</p><div class='wide'>{html_table(HEAD, rows, 'tries')}</div>"
    )


def samples_picture(evaluation: Record) -> str:
    picture = evaluation.get("samples", "")
    if len(picture) > LARGEST_PICTURE or not PICTURE.fullmatch(picture):
        return ""
    return (
        "<h3>samples</h3><p class='soft small'>The first of the validation data: what the model says, and how sure it "
        "is; in red, with what is right, where it is wrong.</p>"
        f"<img alt='samples' src='data:image/png;base64,{picture}'>"
    )


def layers(evaluation: Record) -> str:
    found = evaluation.get("model", [])
    return (
        f"<details><summary>layers</summary><pre>{text(chr(10).join(found))}</pre></details>"
        if found
        else ""
    )
