"""What the settings of the questions recipe may be: looked at before anything is submitted, so
without a framework."""

import os
from pathlib import Path

from rampup.recipe import Needs, Refused, Settings

AT_LEAST = {"rows": 1000, "dimensions": 1, "vocabulary": 3, "words": 1}
"""Below so many made-up questions there are too few insincere ones to hold some out."""

GLOVE = "glove"
"""The word vectors that `rampup fetch glove` brings."""


def check(settings: Settings) -> Needs:
    for name, least in AT_LEAST.items():
        if settings[name] < least:
            raise Refused(f"{name}={settings[name]} is too small", f"{name}={least} is the least")
    if not 0 < settings.validation < 1:
        raise Refused(
            f"validation={settings.validation}: it must be a fraction of the questions",
            "validation=0.1",
        )
    if settings.csv and not (Path(settings.csv).is_file() and os.access(settings.csv, os.R_OK)):
        raise Refused(
            f"csv={settings.csv}: there is no such file, or it can't be read", "check the path"
        )
    if settings.embedding == GLOVE:
        return Needs(data=(GLOVE,))
    embedding = Path(settings.embedding)
    if settings.embedding and not embedding.exists():
        raise Refused(f"embedding={embedding}: there is no such file or folder", "check the path")
    if settings.embedding and embedding.is_dir() and not (embedding / "saved_model.pb").is_file():
        raise Refused(
            f"embedding={embedding} is not a SavedModel: it has no saved_model.pb",
            "name its folder",
        )
    return Needs()
