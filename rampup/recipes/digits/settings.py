"""What the settings of the digits recipe may be: looked at before anything is submitted, so without
a framework."""

from rampup.recipe import Refused, Settings


def check(settings: Settings) -> None:
    if settings.hidden < 1:
        raise Refused(f"hidden={settings.hidden}: a width is a whole number above 0", "hidden=128")
