"""The engines that there are, by name, as the control side sees them."""

from pathlib import Path

from rampup.core.engines.base import EngineInfo
from rampup.core.engines.keras import KerasInfo
from rampup.core.engines.lightning import LightningInfo
from rampup.core.engines.torch import TorchInfo

NO_ENGINE = "none"
"""In place of a name: a recipe that is a script of its own."""
ENGINES: dict[str, EngineInfo] = {
    engine.name: engine for engine in (KerasInfo(), LightningInfo(), TorchInfo())
}


def find_engine(name: str | None) -> EngineInfo | None:
    """None for a command, and for a recipe that is a script."""
    return ENGINES.get(name or NO_ENGINE)


def is_target(engine: str | None, folder: str | None) -> bool:
    """Whether a run trains a user's own class or function, and not a folder with a recipe.toml."""
    found = find_engine(engine)
    if found is None or not found.has_targets:
        return False
    has_recipe = bool(folder) and Path(str(folder), "recipe.toml").is_file()
    return not (found.has_recipes and has_recipe)
