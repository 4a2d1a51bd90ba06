"""The questions recipe outside of a run, for benchmarks that train it in another way."""

from pathlib import Path

from rampup.recipes import load
from rampup.recipes.questions.train import Questions
from rampup.runtime.settings import Settings


def settings_of(rows: int) -> Settings:
    known = load.load("questions", Path()).settings
    return Settings({name: setting.default for name, setting in known.items()} | {"rows": rows})


def recipe(settings: Settings) -> Questions:
    return Questions(settings)
