"""Where a drill is held, and which faults can be caused there: on this machine, on a sandbox, on a
real cluster.

Pure questions to the settings, to the sandbox's record and to the system; nothing is changed. What
can't be done is said in words that tell how it could be.
"""

import os
from typing import Literal

import msgspec
from msgspec import Struct

from rampup.core.spec import Cluster, RunSpec
from rampup.errors import Refused
from rampup.sandbox import layout as sandboxes
from rampup.sandbox.layout import Layout, Options
from rampup.schedulers import find_scheduler
from rampup.schedulers.slurm import allocation

NO_SLURM = "there is no Slurm here: rampup sandbox up, then --on sandbox"
NOT_YOURS = "only who runs the cluster can cause it"
NO_PROCESS = "nobody may kill a single process on a compute node from here"


class Place(Struct, frozen=True):
    kind: Literal["here", "sandbox", "cluster"]
    cluster: Cluster
    sandbox: Layout | None = None

    @property
    def options(self) -> Options:
        """How the sandbox was brought up."""
        assert self.sandbox is not None
        return msgspec.convert(self.sandbox.record()["options"], Options)

    @property
    def slurm(self) -> bool:
        return self.kind != "here"

    def requeues(self) -> bool:
        """Whether a run comes back by itself."""
        return self.cluster.requeue and (self.kind != "sandbox" or self.options.requeue)


def place_of(spec: RunSpec) -> Place:
    cluster = spec.cluster
    if find_scheduler(cluster.scheduler).is_here:
        return Place("here", cluster)
    if allocation.is_here(cluster):
        raise Refused(
            "a drill can't be held inside an allocation of Slurm", "start it on a login node"
        )
    if cluster.name in sandboxes.known():
        layout = sandboxes.find(cluster.name)
        if cluster.slurm_conf == str(layout.slurm_conf):
            return Place("sandbox", cluster, layout)
    return Place("cluster", cluster)


def why_not(fault: str, place: Place, spec: RunSpec) -> str:
    """Why this fault can't be caused there; empty when it can."""
    if place.kind == "here":
        return _why_not_here(fault)
    if place.kind == "cluster":
        return _why_not_on_a_cluster(fault, place)
    return _why_not_on_a_sandbox(fault, place, spec)


def _why_not_here(fault: str) -> str:
    if fault in ("preempted", "preempted-with-grace", "node-lost", "first-node-lost", "ghost"):
        return NO_SLURM
    return _why_no_small_disk() if fault == "full-disk" else ""


def _why_not_on_a_cluster(fault: str, place: Place) -> str:
    if fault in ("rank-killed", "launcher-killed"):
        return NO_PROCESS
    if fault in ("preempted-with-grace", "node-lost", "first-node-lost", "ghost", "full-disk"):
        return f"{NOT_YOURS}; a sandbox can show it: --on sandbox"
    if fault == "preempted" and not place.requeues():
        return "the site does not requeue jobs"
    return ""


def _why_not_on_a_sandbox(fault: str, place: Place, spec: RunSpec) -> str:
    options, nodes = place.options, spec.resources.nodes
    if fault == "preempted" and options.grace_time_s:
        return f"this sandbox gives {options.grace_time_s} s of grace: bring it up without --grace-time"
    if fault == "preempted-with-grace" and not options.grace_time_s:
        return "this sandbox gives no grace: bring it up with --grace-time 10"
    if fault == "node-lost" and nodes < 2:
        return "all ranks are on one node, which has rank 0: --nodes 2"
    if fault == "ghost" and options.nodes < 2 * nodes:
        return f"the next attempt needs {nodes} other nodes: bring the sandbox up with --nodes {2 * nodes}"
    return _why_no_small_disk() if fault == "full-disk" else ""


def _why_no_small_disk() -> str:
    return "" if os.geteuid() == 0 else "only root can mount a small disk to fill"
