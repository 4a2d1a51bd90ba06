"""What the recipe says of its settings before a run starts."""

from typing import Any

from rampup.errors import Refused
from rampup.spec import Needs


def check(settings: Any) -> Needs:
    if settings.samples < 100:
        raise Refused(f"{settings.samples} waves are too few", "samples=1000")
    return Needs(modules={"numpy": "samples"})
