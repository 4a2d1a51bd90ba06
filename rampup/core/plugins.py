"""Parts that other packages bring: schedulers and launchers, by entry points.

Asked only for a name that rampup itself does not have, so nobody else pays for the search.
"""

from collections.abc import Container
from typing import Any


def find_plugins(group: str, besides: Container[str]) -> dict[str, Any]:
    """The objects that installed packages offer in a group of entry points, by name; none can take
    a name that is known already."""
    from importlib.metadata import entry_points  # slow to import

    found = entry_points(group=group)
    return {entry.name: entry.load() for entry in found if entry.name not in besides}
