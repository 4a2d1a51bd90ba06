"""The words of a report: outcome, notes, tables, log, as HTML. Pure: from stories and charts to
text.

Everything that comes from a run passes `text()`, which escapes it. Called by build.py.
"""

import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rampup.core.finding import Finding
from rampup.report import class_charts, model_graph
from rampup.report.charts import COLOURS, MOST_NODES, Chart, colour_of
from rampup.report.story import NOT_MEASURED, Story, finite, table
from rampup.report.template import text
from rampup.report.tries import attempts_table, effective
from rampup.report.words import LONGEST_VALUE, cut, duration, html_table, moment, number, shown
from rampup.rundir.records import Record

SETTING = re.compile(r"--[\w-]+ [\w.]+|[\w.]+=[\w.]+(?: [\w.]+=[\w.]+)*|RAMPUP_\w+")
LABEL_SETTINGS = 3
LABEL_LENGTH = 60
SECTIONS = {
    "curves": "Curves",
    "throughput": "Throughput",
    "phases": "Where the time went",
    "machine": "CPU and memory",
}
TABLES = ("train", "checkpoint", "resources")
"""Of the settings."""
NOT_OF_ALL = ("samples/s", "epoch takes", "best")
"""Columns that are left out where no run has them: a loop of one's own says no metric that
counts."""
LOADER = ("workers", "persistent_workers", "pin_memory")
AFTER_CHARTS = 2
"""Of these sections stand before that on attempts."""
KILLED = "by when its training began; rank 0 writes the phases when it ends, and it could not"
SOME_KILLED = "as rank 0 measured it; where it was killed, only when its training began is known"
MARKS = "A dashed line is where a later attempt took up; its number stands above."
MARKS_OF_MANY = "A dashed line is where a later attempt of the run of that colour took up."
OWN_LOOP = "The phases of a loop of one's own are not measured."
NO_CHART = {
    "curves": "No metrics were written.",
    "throughput": "No samples_s was written.",
    "phases": "The phases were not measured: rank 0 writes them when it ends.",
    "machine": "There are no samples of CPU and memory.",
}


def title_of(stories: Sequence[Story]) -> str:
    return f"{stories[0].name} {stories[0].run.id}" if len(stories) == 1 else several_title(stories)


def several_title(stories: Sequence[Story]) -> str:
    """Of several runs, and of which study they are."""
    studies = {str(story.identity.get("study") or "") for story in stories}
    study = f"study {studies.pop()}: " if len(studies) == 1 and "" not in studies else ""
    return f"{study}{len(stories)} runs"


def body(
    stories: Sequence[Story],
    labels: Sequence[str],
    drawn: Sequence[Chart],
    left: Sequence[str],
    points: str = "",
) -> str:
    """`points` is the table of a study of which these runs are a part."""
    head = one_head(stories[0]) if len(stories) == 1 else many_head(stories, labels) + points
    parts = [
        head,
        notes(stories, labels),
        *(section(key, drawn, stories, left) for key in SECTIONS),
    ]
    if len(stories) == 1 and (inner := attempts_table(stories[0])):
        parts.insert(2 + AFTER_CHARTS, f"<h2>Attempts</h2>{inner}")
    if len(stories) == 1:
        parts.insert(3, told(stories[0].evaluation, drawn))  # after the curves
        parts += [f"<h2>{name}</h2>{inner}" for name, inner in particulars(stories[0]) if inner]
    else:
        parts += [
            "<h2>Each run</h2>",
            *(folded(story, label) for story, label in zip(stories, labels, strict=True)),
        ]
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return "\n".join([*parts, f'<p class="soft small">made by rampup report, {made}</p>'])


# head ---------------------------------------------------------------------------------------------


def one_head(story: Story) -> str:
    where = table(story.config.get("cluster")).get("name")
    cards = {
        "took": duration(story.wall_s) if story.wall_s is not None else None,
        "ranks": story.attempt.get("world_size"),
        "attempts": len(story.tries) if len(story.tries) > 1 else None,
        "effective training time": effective(story),
        "on": where,
        "created": moment(story.identity.get("created")),
        **(
            {f"best {story.best['metric']}{when(story.best)}": number(story.best["value"])}
            if story.best
            else {}
        ),
        **{
            f"last {name}": number(value)
            for name, value in story.last.items()
            if is_shown(name, value)
        },
    }
    shown = "".join(
        f"<div><b>{text(value)}</b><span>{text(name)}</span></div>"
        for name, value in cards.items()
        if value
    )
    return (
        f"<h1>{text(story.name)} <span class='soft'>{text(story.run.id)}</span> {badge(story)}</h1>"
        f'<p class="soft small">{text(story.run.path)}</p>{cause(story)}'
        f'<div class="facts">{shown}</div>{missing(story)}'
    )


def is_shown(name: str, value: Any) -> bool:
    """A table or a list in a row of metrics is foreign."""
    return name not in ("step", "lr") and not isinstance(value, dict | list)


def many_head(stories: Sequence[Story], labels: Sequence[str]) -> str:
    head = ["run", "id", "state", "took", "samples/s", "epoch takes", "best", "all that differs"]
    rows = [many_row(index, story, labels[index], stories) for index, story in enumerate(stories)]
    # the label says it all
    if len(differing_of(stories)) <= LABEL_SETTINGS and len({it.name for it in stories}) == 1:
        head, rows = head[:-1], [row[:-1] for row in rows]
    kept = [
        at for at, name in enumerate(head) if name not in NOT_OF_ALL or any(row[at] for row in rows)
    ]
    head, rows = [head[at] for at in kept], [[row[at] for at in kept] for row in rows]
    shades = (
        f" From the {len(COLOURS) + 1}th run on they are shades of the first."
        if len(stories) > len(COLOURS)
        else ""
    )
    return (
        f"<h1>{text(several_title(stories))}</h1><p class='soft small'>The colours are the legend of all charts; "
        f"a click on a run hides it.{shades}</p><div class='wide'>{html_table(head, rows, 'runs')}</div>"
    )


def many_row(index: int, story: Story, label: str, stories: Sequence[Story]) -> list[str]:
    colour = colour_of(index)
    key = (
        f"<button class='key' aria-pressed='true'><span class='swatch' style='background:{colour}'></span>"
        f"{text(label)}</button>"
    )
    best = (
        f"{story.best['metric']} {number(story.best['value'])}{when(story.best)}"
        if story.best
        else ""
    )
    took = duration(story.wall_s) if story.wall_s is not None else ""
    took += f" in {len(story.tries)} attempts" if len(story.tries) > 1 else ""
    epoch_s = finite(story.last.get("epoch_s"))
    settings = settings_of(story)
    differing = ", ".join(
        f"{name}={shown(settings[name])}" for name in differing_of(stories) if name in settings
    )
    why = f": {story.state.cause}" if story.state.cause else ""
    return [
        key,
        text(story.run.id),
        f"{badge(story)}{text(cut(why, 80))}",
        text(took),
        text(number(story.last["samples_s"]) if "samples_s" in story.last else ""),
        text(duration(epoch_s) if epoch_s is not None else ""),
        text(best),
        f"<div class='all'>{text(cut(differing, 300))}</div>",
    ]


def badge(story: Story) -> str:
    return f'<span class="state {text(story.state.name)}">{text(story.state.name)}</span>'


def cause(story: Story) -> str:
    if not story.state.cause:
        return ""
    trace = (
        f"<details><summary>traceback</summary><pre>{text(story.trace)}</pre></details>"
        if story.trace
        else ""
    )
    return f'<p class="cause">{text(story.state.cause)}</p>{trace}'


def missing(story: Story) -> str:
    found = "".join(f"<li>{text(words)}</li>" for words in story.missing)
    return f'<div class="small soft">Missing or unreadable:<ul>{found}</ul></div>' if found else ""


def when(best: dict[str, Any]) -> str:
    return (
        f" at epoch {best['epoch']}"
        if best.get("epoch") is not None
        else f" at step {best.get('step')}"
    )


# notes and charts ---------------------------------------------------------------------------------


def notes(stories: Sequence[Story], labels: Sequence[str]) -> str:
    """Runs that share a note are named in one line."""
    shared: dict[Finding, list[str]] = {}
    for story, label in zip(stories, labels, strict=True):
        for finding in story.notes:
            shared.setdefault(finding, []).append(label)
    lines = [note(finding, whose if len(stories) > 1 else []) for finding, whose in shared.items()]
    return f"<h2>Notes</h2><ul class='notes'>{''.join(lines)}</ul>" if lines else ""


def note(finding: Finding, whose: Sequence[str]) -> str:
    of = f"<span class='soft'>{text(cut('; '.join(whose), 200))}: </span>" if whose else ""
    why = f": <span class='soft'>{text(finding.cause)}</span>" if finding.cause else ""
    return f"<li class='{finding.level}'>{of}{text(finding.about)}{why}. {remedy_of(finding)}</li>"


def remedy_of(finding: Finding) -> str:
    """Only what can be typed is set as code; words that are no setting are a sentence of their
    own."""
    marked, settings = SETTING.subn(lambda found: f"<code>{found[0]}</code>", text(finding.remedy))
    return f"Try {marked}" if settings else f"{marked[:1].upper()}{marked[1:]}."


def told(evaluation: Record, drawn: Sequence[Chart]) -> str:
    """Of a classifier and its model, as the last validation saw them."""
    classes = (
        class_charts.class_table(evaluation)
        + plots("classes", drawn)
        + class_charts.samples_picture(evaluation)
    )
    model = (
        plots("model", drawn) + model_graph.picture(evaluation) + class_charts.layers(evaluation)
    )
    return "".join(
        f"<h2>{name}</h2>{inner}"
        for name, inner in (("Classes", classes), ("Model", model))
        if inner
    )


def plots(key: str, drawn: Sequence[Chart]) -> str:
    mine = [(index, chart) for index, chart in enumerate(drawn) if chart.section == key]
    found = "".join(
        f'<div class="chart">{heading(chart)}<div class="plot" id="plot-{index}"></div></div>'
        for index, chart in mine
    )
    return f'<div class="charts">{found}</div>' if found else ""


def section(key: str, drawn: Sequence[Chart], stories: Sequence[Story], left: Sequence[str]) -> str:
    own = key == "phases" and all(
        story.config.get("kind", "engine") != "engine" for story in stories
    )
    inner = plots(key, drawn) or f"<p class='soft'>{OWN_LOOP if own else NO_CHART[key]}</p>"
    return f"<h2>{SECTIONS[key]}</h2>{inner}{below(key, stories, left)}"


def heading(chart: Chart) -> str:
    scale = " <span class='soft'>log scale</span>" if chart.log_scale else ""
    return f"<h3>{text(chart.title)}{scale}</h3>" if chart.title else ""


def below(key: str, stories: Sequence[Story], left: Sequence[str]) -> str:
    words: list[str] = []
    if key == "curves" and any(len(story.tries) > 1 for story in stories):
        words.append(MARKS if len(stories) == 1 else MARKS_OF_MANY)
    if key == "curves" and left:
        words.append(f"Not drawn, for there are too many: {cut(', '.join(left), 600)}")
    if key == "phases" and len(stories) == 1 and stories[0].phases.get("wall", 0.0) > 0:
        return f"<p class='small'>{text(phases_line(stories[0]))}</p>"
    hidden = sum(max(0, len(story.system) - MOST_NODES) for story in stories)
    if key == "machine" and hidden:
        words.append(f"{hidden} more nodes are not drawn.")
    return "".join(f"<p class='soft small'>{text(line)}</p>" for line in words)


def phases_line(story: Story) -> str:
    wall, several = story.phases["wall"], len(story.tries) > 1
    shares = [
        f"{name} {value / wall:.0%}" for name, value in story.phases.items() if name != "wall"
    ]
    of = f"{duration(wall)} over {len(story.tries)} attempts" if several else duration(wall)
    how = (
        (SOME_KILLED if several else KILLED)
        if NOT_MEASURED in story.phases
        else "as rank 0 measured it"
    )
    return f"{' · '.join(shares)} of {of}, {how}"


# particulars --------------------------------------------------------------------------------------


def folded(story: Story, label: str) -> str:
    parts = [("Attempts", attempts_table(story)), *particulars(story)]
    inner = "".join(f"<h2>{name}</h2>{part}" for name, part in parts if part)
    return (
        f"<details><summary>{text(label)} <span class='soft'>{text(story.run.id)}</span> {badge(story)}</summary>"
        f'<p class="soft small">{text(story.run.path)}</p>{cause(story)}{missing(story)}{inner}</details>'
    )


def particulars(story: Story) -> list[tuple[str, str]]:
    log = (
        f"<p class='soft small'>the end of {text(story.log_name)}</p><pre>{text(story.log)}</pre>"
        if story.log
        else ""
    )
    profile = f"<pre>{text(story.profile)}</pre>" if story.profile else ""
    return [
        ("Settings", settings_tables(story)),
        ("Log", log),
        ("Profile", profile),
        ("Environment", environment(story)),
    ]


def settings_tables(story: Story) -> str:
    origins = table(story.config.get("origins"))
    tables = []
    for name in TABLES:
        values = table(story.config.get(name))
        rows = [
            [text(key), text(shown(value)), text(cut(str(origins.get(f"{name}.{key}", "")), 100))]
            for key, value in values.items()
            if name == "train" or value not in (None, [])
        ]
        if rows:
            tables.append(f"<div class='wide'>{html_table((name, 'value', 'origin'), rows)}</div>")
    words = story.config.get("command")
    words = words if isinstance(words, list) else []
    command = (
        f"<p>command: <code>{text(cut(' '.join(map(str, words)), LONGEST_VALUE))}</code></p>"
        if words
        else ""
    )
    return f"{command}<div class='two'>{''.join(tables)}</div>" if command or tables else ""


def environment(story: Story) -> str:
    machine = {
        key: value
        for key, value in story.env.items()
        if key not in ("packages", "variables") and value is not None
    }
    machine |= {
        key: story.start[key] for key in ("device", "threads", "gradients") if key in story.start
    }
    machine |= {f"loader {key}": story.loader[key] for key in LOADER if key in story.loader}
    parts = (("machine", machine), ("package", table(story.env.get("packages"))))
    tables = [pairs(name, values) for name, values in parts if values]
    variables = table(story.env.get("variables"))
    more = (
        f"<details><summary>variables</summary>{pairs('variable', variables)}</details>"
        if variables
        else ""
    )
    return f"<div class='two'>{''.join(tables)}</div>{more}" if tables or more else ""


def pairs(name: str, values: dict[str, Any]) -> str:
    rows = [[text(key), text(shown(value))] for key, value in values.items()]
    return f"<div class='wide'>{html_table((name, ''), rows)}</div>"


# settings that differ -----------------------------------------------------------------------------


def settings_of(story: Story) -> dict[str, Any]:
    saving = {
        f"checkpoint.{key}": value for key, value in table(story.config.get("checkpoint")).items()
    }
    return {**story.resources, **saving, **story.train}


def differing_of(stories: Sequence[Story]) -> list[str]:
    """Names of settings that are not the same in all runs; those that somebody typed come first."""
    # a lost config.json differs in nothing
    known = [settings for story in stories if (settings := settings_of(story))]
    names = dict.fromkeys(name for settings in known for name in settings)
    found = [name for name in names if len({repr(settings.get(name)) for settings in known}) > 1]
    return sorted(found, key=lambda name: not any(typed(story, name) for story in stories))


def typed(story: Story, name: str) -> bool:
    origins = table(story.config.get("origins"))
    found = {
        str(origins.get(place, "default")) for place in (name, f"train.{name}", f"resources.{name}")
    }
    return not found <= {"default", "recipe.toml"}


def telling_of(stories: Sequence[Story]) -> list[str]:
    """A few settings that differ among runs of one name: first those that tell apart what the ones
    before do not."""
    names, known = differing_of(stories), [settings_of(story) for story in stories]
    needed: list[str] = []
    for name in names:
        before, with_it = (
            len({repr([it.get(key) for key in keys]) for it in known})
            for keys in (needed, [*needed, name])
        )
        needed += [name] if with_it > before else []
    chosen = [*needed, *(name for name in names if name not in needed)][:LABEL_SETTINGS]
    return [name for name in names if name in chosen]


def labels_of(stories: Sequence[Story]) -> list[str]:
    """How a legend names the runs: by what sets them apart, and by their ids where that is not
    enough."""
    if len(stories) == 1:
        return [cut(stories[0].name, LABEL_LENGTH)]
    several = len({story.name for story in stories}) > 1
    alike = {story.name: [it for it in stories if it.name == story.name] for story in stories}
    telling = {name: telling_of(group) for name, group in alike.items()}
    labels = []
    for story in stories:
        settings = settings_of(story)
        words = [
            f"{name}={shown(settings[name])}"
            for name in telling[story.name]
            if settings.get(name) is not None
        ]
        labels.append(
            cut(" ".join([*([story.name] if several else []), *words]) or story.name, LABEL_LENGTH)
        )
    count = Counter(labels)
    labels = [
        f"{label} ({it.run.id})" if count[label] > 1 else label
        for label, it in zip(labels, stories, strict=True)
    ]
    count = Counter(labels)
    return [
        f"{label} #{place}" if count[label] > 1 else label for place, label in enumerate(labels, 1)
    ]
