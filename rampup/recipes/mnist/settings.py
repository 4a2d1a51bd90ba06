"""What the settings of the mnist recipe may be: looked at before anything is submitted, so without a
framework."""

from rampup.recipe import Refused, Settings


def check(settings: Settings) -> None:
    if not all(type(width) is int and width > 0 for width in settings.hidden):
        raise Refused(
            f"hidden={settings.hidden}: widths are whole numbers above 0", "hidden=[128,256]"
        )
