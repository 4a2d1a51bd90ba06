"""What the settings of the ucluster recipe may be: looked at before anything is submitted, so
without a framework."""

from pathlib import Path
from typing import Any

from rampup.recipe import Needs, Refused, Settings, check_jets, dataset_folder, nearest

WORDS = {
    "mass_bins": ("quantile", "fixed"),
    "start_clusters": ("probabilities", "embedding"),
    "assignment": ("probabilities", "embedding"),
    "alpha_unit": ("distance", "current", "one"),
}
LEAST = {
    "bins": 2,
    "points": 2,
    "k": 1,
    "heads": 1,
    "max_dim": 1,
    "clusters": 2,
    "pretrain_epochs": 1,
    "bn_samples": 1,
    "kmeans_weight": 0,
    "alpha_slope": 0,
}
WIDTHS = {"attention_widths": 2, "widths": 4, "dense_widths": 2}
PREPARED = "jets"
"""The set that `rampup fetch` prepares of the published files; anything else is a path."""
MOST_POINTS = 100
MOST_CLUSTERS = 12


def check(settings: Settings) -> Needs:
    for name, least in LEAST.items():
        if settings[name] < least:
            raise Refused(f"{name}={settings[name]} is too small", f"{name}={least} is the least")
    for name, known in WORDS.items():
        if settings[name] not in known:
            raise Refused(f"{name}={settings[name]} is not known", nearest(settings[name], known))
    for name, count in WIDTHS.items():
        check_widths(name, settings[name], count)
    if settings.points > MOST_POINTS:
        raise Refused(
            f"points={settings.points}: a jet has at most {MOST_POINTS} particles",
            f"points={MOST_POINTS}",
        )
    if settings.k > settings.points:
        raise Refused(
            f"k={settings.k} neighbours, and there are {settings.points} particles",
            f"k={settings.points}",
        )
    if settings.clusters > MOST_CLUSTERS:
        raise Refused(
            f"clusters={settings.clusters} are too many to be matched to classes",
            f"clusters={MOST_CLUSTERS} is the most",
        )
    if settings.pretrain_epochs >= settings.epochs:
        raise Refused(
            f"pretrain_epochs={settings.pretrain_epochs} leaves no epoch for the clustering loss",
            f"epochs={settings.pretrain_epochs + 1}, or more",
        )
    if settings.data == PREPARED:
        return Needs(data=(PREPARED,))
    if settings.data:
        check_jets(Path(settings.data))
    return Needs()


def find_jets(settings: Settings) -> Path | None:
    """Return where the jets are; None for those that come with rampup."""
    if settings.data == PREPARED:
        return dataset_folder(PREPARED)
    return Path(settings.data) if settings.data else None


def check_widths(name: str, given: Any, count: int) -> None:
    """Refuse what is not a list of so many whole numbers above 0."""
    good = isinstance(given, list) and len(given) == count
    if not good or any(type(each) is not int or each < 1 for each in given):
        example = ",".join(["64"] * count)
        raise Refused(
            f"{name}={given}: {count} whole numbers above 0 are needed", f"{name}=[{example}]"
        )
