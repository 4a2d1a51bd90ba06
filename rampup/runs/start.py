"""Handing a run to its scheduler."""

import subprocess
from collections.abc import Mapping

from rampup.core.spec import RunSpec
from rampup.rundir.files import RunDir
from rampup.schedulers import find_scheduler
from rampup.schedulers.base import NO_SHARE


def start(
    run: RunDir, spec: RunSpec, detach: bool, share: Mapping[str, str] = NO_SHARE
) -> subprocess.Popen[bytes] | None:
    """Hand the run to its scheduler. A process of this machine is returned, for a caller that waits
    for it."""
    return find_scheduler(spec.cluster.scheduler).submit(run, spec, detach, share)
