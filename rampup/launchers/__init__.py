"""The launchers that there are, by name.

A new one is a class in a file of this folder and one entry in the table below, or an entry point
`rampup.launchers` of another package; docs/add-a-launcher.md shows both.
"""

from rampup.core.plugins import find_plugins
from rampup.errors import Refused, nearest
from rampup.launchers.barrier import Barrier
from rampup.launchers.base import Launcher
from rampup.launchers.mpirun import Mpirun
from rampup.launchers.spawn import Spawn
from rampup.launchers.srun import Pmix, Srun
from rampup.launchers.torchrun import Torchrun

LAUNCHERS: dict[str, Launcher] = {
    launcher.name: launcher
    for launcher in (Spawn(), Srun(), Pmix(), Mpirun(), Torchrun(), Barrier())
}


def find_launcher(name: str) -> Launcher:
    if name not in LAUNCHERS:
        LAUNCHERS.update(find_plugins("rampup.launchers", besides=LAUNCHERS))
    if name not in LAUNCHERS:
        raise Refused(f"unknown launcher {name!r}", nearest(name, LAUNCHERS))
    return LAUNCHERS[name]
