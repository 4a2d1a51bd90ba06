"""The questions recipe outside of a run, for benchmarks that train it in another way."""

from pathlib import Path

from rampup.config import recipes as load
from rampup.recipe import Settings
from rampup.recipes.questions.train import Questions


def settings_of(rows: int) -> Settings:
    known = load.load("questions", Path()).settings
    return Settings({name: setting.default for name, setting in known.items()} | {"rows": rows})


def recipe(settings: Settings) -> Questions:
    return Questions(settings)
