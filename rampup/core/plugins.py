"""Parts that other packages bring: schedulers and launchers, by entry points.

Asked only for a name that rampup itself does not have, so nobody else pays for the search.
"""

from typing import Any


def find_plugins(group: str) -> dict[str, Any]:
    """The objects that installed packages offer in a group of entry points, by name."""
    from importlib.metadata import entry_points  # slow to import

    return {entry.name: entry.load() for entry in entry_points(group=group)}
