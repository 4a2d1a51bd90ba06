"""What the settings of the deepcam recipe may be: looked at before anything is submitted, so without
a framework."""

from pathlib import Path

from rampup.recipe import Needs, Refused, Settings, check_deepcam, dataset_folder

SETS = ("deepcam-demo", "deepcam")
"""Names that `rampup fetch` knows; anything else is a folder."""
DIVISIONS, STATUSES = ("open", "closed"), ("onprem", "cloud", "preview", "research")
VARIABLES = 16
STRIDES = (8, 16)


def check(settings: Settings) -> Needs:
    if settings.width <= 0:
        raise Refused(f"width={settings.width}: it multiplies the channels", "width=0.5")
    if settings.output_stride not in STRIDES:
        raise Refused(
            f"output_stride={settings.output_stride} is not one that the network has",
            "output_stride=16, or 8 for finer and slower",
        )
    check_channels(settings.channels)
    for name, allowed in (("division", DIVISIONS), ("status", STATUSES)):
        if settings[name] not in allowed:
            raise Refused(
                f"{name}={settings[name]} is not one that MLPerf knows",
                f"{name}={' or '.join(allowed)}",
            )
    if not settings.organisation:
        raise Refused("organisation= is empty, and MLPerf asks for one", "organisation=NAME")
    for name in ("samples", "validation"):
        if settings[name] < 0:
            raise Refused(f"{name}={settings[name]} is too small", f"{name}=0 takes all")
    if settings.data in SETS:
        return Needs(data=(settings.data,))
    check_deepcam(Path(settings.data))
    return Needs()


def check_channels(channels: list[int]) -> None:
    known = all(type(it) is int and 0 <= it < VARIABLES for it in channels)
    if not channels or not known or len(set(channels)) < len(channels):
        raise Refused(
            f"channels={channels} does not name different variables",
            f"numbers from 0 to {VARIABLES - 1}, such as channels=0,1,2,10",
        )


def find_folder(settings: Settings) -> Path:
    """Return where the data is."""
    return dataset_folder(settings.data) if settings.data in SETS else Path(settings.data)
