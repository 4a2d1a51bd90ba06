"""What the settings of the ionosphere recipe may be: looked at before anything is submitted, so
without a framework."""

import math

from rampup.recipe import Needs, Refused, Settings

COLUMNS = 34
"""Numbers of a row."""


def check(settings: Settings) -> Needs:
    if not 0 < settings.test_size < 1:
        raise Refused(
            f"test_size={settings.test_size}: it must be a fraction of the rows", "test_size=0.33"
        )
    if not all(type(width) is int and width > 0 for width in settings.hidden):
        raise Refused(
            f"hidden={settings.hidden}: widths are whole numbers above 0", "hidden=[10,8]"
        )
    row = settings.predict
    if row and len(row) != COLUMNS:
        raise Refused(
            f"predict has {len(row)} numbers, a row has {COLUMNS}",
            "a row of ionosphere.csv, without its class",
        )
    for number in row:
        if type(number) not in (int, float) or not math.isfinite(number):
            raise Refused(
                f"predict: {number!r} is not a number",
                f"give {COLUMNS} numbers with commas between them",
            )
    return Needs()
