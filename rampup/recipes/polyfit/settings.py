"""What the settings of the polyfit recipe may be: looked at before anything is submitted, so without
a framework."""

from rampup.recipe import Refused, Settings

AT_LEAST = {"steps": 1, "points": 2}


def check(settings: Settings) -> None:
    for name, least in AT_LEAST.items():
        if settings[name] < least:
            raise Refused(f"{name}={settings[name]} is too small", f"{name}={least} is the least")
    if settings.lr < 0:
        raise Refused(f"lr={settings.lr}: a learning rate is not negative", "lr=1e-6")
