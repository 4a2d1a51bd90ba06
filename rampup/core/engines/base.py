"""What the control side knows of an engine: its settings, and what it needs. The engine itself lies
in rampup/engines/<name>/ and is never imported here.

A new engine is a class in a file of this folder, one entry in the table of __init__.py, and a room
in rampup/engines/.
"""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from rampup.core.spec import Setting


class EngineNeeds(NamedTuple):
    """What an engine needs because of its settings and the number of ranks."""

    modules: Mapping[str, str] = {}
    """Modules that must be importable, each with the setting that needs it."""
    mpi: str = ""
    """The setting that needs ranks which MPI has started; empty where none does."""
    fewer_ranks: tuple[str, str] | None = None
    """Why so many ranks can't train, and a remedy; None where they can."""


class EngineInfo:
    """The defaults are those of an engine that trains recipes with one rank on each GPU."""

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, Setting]]
    """Those that every recipe or class of the engine has, besides its own."""
    has_recipes: ClassVar[bool] = True
    """Whether a recipe.toml can name it."""
    has_targets: ClassVar[bool] = False
    """Whether it trains a user's own class or function, named as pkg.mod:name."""
    one_gpu_per_rank: ClassVar[bool] = True
    """Whether each GPU needs a rank; otherwise one rank can drive several."""
    ranks_setting: ClassVar[str] = ""
    """A setting that means the number of ranks on each node, in the words of its users."""
    checks_versions: ClassVar[bool] = False
    """Whether preflight asks `check_installed`, besides looking for the modules."""
    builds: ClassVar[Mapping[str, str]] = {}
    """Modules that pip alone can't install, each with the way to get it."""

    def check_installed(self) -> None:
        """Raise an error that says which package is missing, too old or in the way; nothing is
        imported."""

    def find_needs(self, train: Mapping[str, object], ranks: int) -> EngineNeeds:
        """What a run with these settings and so many ranks needs, besides the engine itself."""
        return EngineNeeds()


def find_version(distribution: str) -> str | None:
    """The version of an installed distribution; None where it is absent."""
    from importlib import metadata  # slow to import, and only a run of an engine needs it

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
