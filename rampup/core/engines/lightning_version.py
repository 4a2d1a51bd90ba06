"""Which Lightning may be used: asked before it is imported, on the control side and by every rank.
Itself it is light.

Two releases of lightning on the public index were malicious: they must not even be imported.
"""

from importlib.metadata import PackageNotFoundError, version

from rampup.errors import Refused

OLDEST = (2, 6, 4)
MALICIOUS = ("2.6.2", "2.6.3")
INSTALL = "pip install 'rampup[lightning]'"


def check_installed(may_be_absent: bool = False) -> None:
    """Refuse where it is absent, too old, or one of the malicious releases."""
    try:
        found = version("lightning")
    except PackageNotFoundError:
        if may_be_absent:
            return
        raise Refused(
            "the lightning engine needs lightning, which is not installed", INSTALL
        ) from None
    if found in MALICIOUS:
        raise Refused(
            f"lightning {found} is a malicious release, and this environment must not be trusted",
            "make a new environment with lightning >= 2.6.4, and change the passwords and keys that this one could see",
        )
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    if numbers < OLDEST:
        raise Refused(
            f"lightning {found} is too old: the lightning engine needs 2.6.4 or newer", INSTALL
        )
