"""The place of a drill: this machine, a sandbox or a real cluster, and which faults it allows.

Drill and `rampup drill --dry-run` ask it. It reads the settings, the sandbox's record and the
system, and never changes anything. For a fault that is not possible it says how it could be.
"""

import os
from typing import Literal

import msgspec
from msgspec import Struct

from rampup.core.spec import Cluster, RunSpec
from rampup.errors import Refused
from rampup.sandbox.layout import Layout, Options, find_layout, list_sandboxes
from rampup.schedulers import find_scheduler

NO_SLURM = "there is no Slurm here: rampup sandbox up, then --on sandbox"
NOT_YOURS = "only an administrator of the cluster can cause it"
NO_PROCESS = "a single process on a compute node can't be killed from here"


class Place(Struct, frozen=True):
    """Where the runs of a drill are started."""

    kind: Literal["here", "sandbox", "cluster"]
    cluster: Cluster
    sandbox: Layout | None = None

    @property
    def options(self) -> Options:
        """The options with which the sandbox was started."""
        assert self.sandbox is not None
        return msgspec.convert(self.sandbox.record()["options"], Options)

    @property
    def on_slurm(self) -> bool:
        return self.kind != "here"

    def requeues(self) -> bool:
        """Whether Slurm puts a run back into the queue that it has ended."""
        return self.cluster.requeue and (self.kind != "sandbox" or self.options.requeue)


def find_place(spec: RunSpec) -> Place:
    """Return the place at which a run of this specification is started."""
    cluster = spec.cluster
    scheduler = find_scheduler(cluster.scheduler)
    if scheduler.is_here:
        return Place("here", cluster)
    if scheduler.is_inside(cluster):
        raise Refused(
            "a drill can't be held inside an allocation of Slurm", "start it on a login node"
        )
    if cluster.name in list_sandboxes():
        layout = find_layout(cluster.name)
        if cluster.slurm_conf == str(layout.slurm_conf):
            return Place("sandbox", cluster, layout)
    return Place("cluster", cluster)


def find_obstacle(fault: str, place: Place, spec: RunSpec) -> str:
    """Say why this fault can't be caused there; empty when it can."""
    if place.kind == "here":
        return _find_obstacle_here(fault)
    if place.kind == "cluster":
        return _find_obstacle_on_cluster(fault, place)
    return _find_obstacle_on_sandbox(fault, place, spec)


def _find_obstacle_here(fault: str) -> str:
    if fault in ("preempted", "preempted-with-grace", "node-lost", "first-node-lost", "ghost"):
        return NO_SLURM
    return _find_disk_obstacle() if fault == "full-disk" else ""


def _find_obstacle_on_cluster(fault: str, place: Place) -> str:
    if fault in ("rank-killed", "launcher-killed"):
        return NO_PROCESS
    if fault in ("preempted-with-grace", "node-lost", "first-node-lost", "ghost", "full-disk"):
        return f"{NOT_YOURS}; a sandbox can show it: --on sandbox"
    if fault == "preempted" and not place.requeues():
        return "the site does not requeue jobs"
    return ""


def _find_obstacle_on_sandbox(fault: str, place: Place, spec: RunSpec) -> str:
    options, nodes = place.options, spec.resources.nodes
    if fault == "preempted" and options.grace_time_s:
        return f"this sandbox gives {options.grace_time_s} s of grace: bring it up without --grace-time"
    if fault == "preempted-with-grace" and not options.grace_time_s:
        return "this sandbox gives no grace: bring it up with --grace-time 10"
    if fault == "node-lost" and nodes < 2:
        return "all ranks are on one node, which has rank 0: --nodes 2"
    if fault == "ghost" and options.nodes < 2 * nodes:
        return f"the next attempt needs {nodes} other nodes: bring the sandbox up with --nodes {2 * nodes}"
    return _find_disk_obstacle() if fault == "full-disk" else ""


def _find_disk_obstacle() -> str:
    return "" if os.geteuid() == 0 else "only root can mount a small disk to fill"
