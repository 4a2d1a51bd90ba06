"""How a report names its runs: by the settings in which they differ.

Called by build.py for the labels of the legend, and by sections.py for the table of several runs.
Pure.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rampup.report.data import RunData, as_table
from rampup.report.page import cut, format_value

LABEL_SETTINGS = 3
LABEL_LENGTH = 60


def label_runs(runs: Sequence[RunData]) -> list[str]:
    """Return one label per run: what sets it apart, and its id where that is not enough."""
    if len(runs) == 1:
        return [cut(runs[0].name, LABEL_LENGTH)]
    names = list(dict.fromkeys(data.name for data in runs))
    chosen = {name: choose_settings([data for data in runs if data.name == name]) for name in names}
    labels = []
    for data in runs:
        settings = all_settings(data)
        given = [name for name in chosen[data.name] if settings.get(name) is not None]
        words = [f"{name}={format_value(settings[name])}" for name in given]
        if len(names) > 1:
            words.insert(0, data.name)
        labels.append(cut(" ".join(words) or data.name, LABEL_LENGTH))
    count = Counter(labels)
    labels = [
        f"{label} ({data.run.id})" if count[label] > 1 else label
        for label, data in zip(labels, runs, strict=True)
    ]
    count = Counter(labels)
    return [
        f"{label} #{place}" if count[label] > 1 else label for place, label in enumerate(labels, 1)
    ]


def choose_settings(runs: Sequence[RunData]) -> list[str]:
    """Return a few settings that differ among runs of one name: first those that tell apart what
    the ones before do not."""
    names = differing_settings(runs)
    known = [all_settings(data) for data in runs]
    needed: list[str] = []
    for name in names:
        if count_distinct(known, [*needed, name]) > count_distinct(known, needed):
            needed.append(name)
    chosen = [*needed, *(name for name in names if name not in needed)][:LABEL_SETTINGS]
    return [name for name in names if name in chosen]


def count_distinct(known: Sequence[dict[str, Any]], names: Sequence[str]) -> int:
    """Count the combinations of values that these settings have."""
    return len({repr([settings.get(name) for name in names]) for settings in known})


def differing_settings(runs: Sequence[RunData]) -> list[str]:
    """Return the names of settings that differ among the runs; those that somebody gave come
    first."""
    # a lost config.json differs in nothing
    known = [settings for data in runs if (settings := all_settings(data))]
    names = dict.fromkeys(name for settings in known for name in settings)
    found = [name for name in names if len({repr(settings.get(name)) for settings in known}) > 1]
    return sorted(found, key=lambda name: not any(was_given(data, name) for data in runs))


def all_settings(data: RunData) -> dict[str, Any]:
    checkpoint = as_table(data.config.get("checkpoint"))
    saving = {f"checkpoint.{key}": value for key, value in checkpoint.items()}
    return {**data.resources, **saving, **data.train}


def was_given(data: RunData, name: str) -> bool:
    origins = as_table(data.config.get("origins"))
    places = (name, f"train.{name}", f"resources.{name}")
    found = {str(origins.get(place, "default")) for place in places}
    return not found <= {"default", "recipe.toml"}
