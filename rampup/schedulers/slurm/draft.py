"""`rampup cluster probe`: a profile as commented TOML, drafted from the Slurm that answers here.

What can be tried is tried, with `sbatch --test-only`: nothing is submitted or changed. The rest is
told in comments, for a person to look over.
"""

import json
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, get_args

from msgspec.structs import fields, replace

from rampup.core.spec import Cluster, Resources
from rampup.errors import SchedulerError
from rampup.schedulers.slurm import check as slurm
from rampup.schedulers.slurm import site as slurm_site
from rampup.schedulers.slurm import survey as slurm_survey
from rampup.schedulers.slurm.job_script import render
from rampup.schedulers.slurm.sbatch_options import options_of
from rampup.schedulers.slurm.site import Associations, Host, Nodes, Partition

FOR_TRIALS = re.compile(r"debug|devel|test|short|express", re.IGNORECASE)
DIRECTIVES: tuple[Any, ...] = get_args(
    {field.name: field.type for field in fields(Cluster)}["gpu_directive"]
)
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


class Site(NamedTuple):
    """What Slurm tells of itself."""

    partitions: dict[str, Partition]
    nodes: list[Nodes]
    hosts: list[Host]
    settings: dict[str, str]
    known: Associations
    mpi: list[str]

    def nodes_of(self, partition: str) -> list[Nodes]:
        return [one for one in self.nodes if one.partition == partition]

    def words(self, partition: str) -> str:
        """4 nodes, at most 1-00:00:00; 8 CPUs, 24 GB each"""
        found = next(slurm_survey.describe(self.partitions[partition], self.nodes_of(partition)))
        return found.about.partition(": ")[2]


class Line(NamedTuple):
    """One line of the draft; without a key it is only a comment."""

    comment: str = ""
    key: str = ""
    value: Any = None

    def __str__(self) -> str:
        about = "# " + " ".join(self.comment.split())
        said = f"{self.key} = {json.dumps(self.value, ensure_ascii=False)}"  # also TOML
        return about if not self.key else f"{said}  {about}" if self.comment else said


def draft() -> str:
    cluster = Cluster(
        name="slurm", scheduler="slurm", launcher="srun", slurm_conf=os.environ.get("SLURM_CONF")
    )
    slurm_site.check_that_it_answers(cluster)
    site = look(cluster)
    cluster = replace(
        cluster, partition=usual(site), account=min(site.known.accounts, default=None)
    )
    return "".join(f"{line}\n" for line in lines(cluster, site))


def look(cluster: Cluster) -> Site:
    with ThreadPoolExecutor() as side_by_side:
        partitions = side_by_side.submit(slurm_site.partitions, cluster)
        nodes = side_by_side.submit(slurm_site.nodes, cluster)
        hosts = side_by_side.submit(slurm_site.hosts, cluster)
        settings = side_by_side.submit(slurm_site.settings, cluster)
        known = side_by_side.submit(slurm_site.associations, cluster)
        mpi = slurm_site.mpi_types(cluster)
        return Site(
            partitions.result(),
            nodes.result(),
            hosts.result(),
            settings.result(),
            known.result(),
            mpi,
        )


def lines(cluster: Cluster, site: Site) -> Iterator[Line]:
    host, version = socket.gethostname(), site.settings.get("SLURM_VERSION", "")
    yield Line(
        f"Drafted by `rampup cluster probe` on {host}, from Slurm {version}. Review it: it is yours to edit."
    )
    yield Line(key="about", value=f"the cluster of {host}")
    yield Line("for --on auto", "hostnames", [pattern_of(host)])
    yield Line(key="scheduler", value="slurm")
    yield Line(
        f"srun --mpi=list: {', '.join(site.mpi) or 'none'}{mpi_in_words(site.mpi)}",
        "launcher",
        "srun",
    )
    if cluster.slurm_conf:
        yield Line("as SLURM_CONF says", "slurm_conf", cluster.slurm_conf)
    if site.hosts and all(one.address in (*THIS_MACHINE, host) for one in site.hosts):
        yield Line("all nodes are this machine", "shared", ["/"])
    else:
        yield Line(
            'shared = ["/scratch"]: what every node sees, where the type of its file system does not tell'
        )
    yield from queues(cluster, site)
    yield from accounts(site)
    yield from trials(cluster, site)
    if any(one.threads_per_core > 1 for one in site.hosts):
        yield Line("nodes have several hardware threads to a core", "hint", "nomultithread")
    yield Line(f"array jobs: MaxArraySize is {site.settings.get('MaxArraySize', 'unknown')}")


def pattern_of(host: str) -> str:
    """login2.site.org is one of several."""
    first, dot, rest = host.partition(".")
    return re.sub(r"\d+$", "[0-9]*", first) + dot + rest


def mpi_in_words(types: list[str]) -> str:
    return "; for programs of MPI: --launcher pmix" if "pmix" in types else ""


# queues -------------------------------------------------------------------------------------------


def usual(site: Site) -> str | None:
    """Where jobs go when nobody says where; without a default the largest that is open."""
    default = [name for name, one in site.partitions.items() if one.default]
    open_ones = sorted(
        (one for one in site.partitions.values() if one.state == "UP"), key=lambda one: -one.nodes
    )
    return default[0] if default else open_ones[0].name if open_ones else None


def queues(cluster: Cluster, site: Site) -> Iterator[Line]:
    if cluster.partition is None:  # a site may hide them
        yield Line("partition: Slurm shows none")
        return
    yield Line(site.words(cluster.partition), "partition", cluster.partition)
    debug = for_trials(cluster, site)
    if debug:
        yield Line(f"for --smoke; {site.words(debug)}", "debug_partition", debug)
    for name, one in site.partitions.items():
        if name not in (cluster.partition, debug):
            closed = "" if one.state == "UP" else f" ({one.state})"
            yield Line(f"another partition: {name}{closed}, {site.words(name)}")
    chosen = site.partitions[cluster.partition]
    yield Line(
        f"preemption in {chosen.name}: {slurm_survey.preemption(site.settings, chosen, cluster)}"
    )


def for_trials(cluster: Cluster, site: Site) -> str | None:
    """The one with the shortest limit among those that are named for it and take our jobs."""
    named = [
        one
        for one in site.partitions.values()
        if FOR_TRIALS.search(one.name) and one.name != cluster.partition
    ]
    limited = sorted(
        (one for one in named if one.max_time_s is not None), key=lambda one: one.max_time_s or 0
    )
    fitting = (
        one.name for one in limited if not refusal(replace(cluster, partition=one.name), site)
    )
    return next(fitting, None)


def accounts(site: Site) -> Iterator[Line]:
    mine = sorted(site.known.accounts)
    if len(mine) == 1:
        yield Line("the only one that you have", "account", mine[0])
    elif mine:
        yield Line(f"account: one of {', '.join(mine)}")
    if site.known.qos:
        yield Line(f"qos: one of {', '.join(sorted(site.known.qos))}")


# what sbatch --test-only says ---------------------------------------------------------------------


def trials(cluster: Cluster, site: Site) -> Iterator[Line]:
    words = refusal(cluster, site)
    if words and not refusal(replace(cluster, requeue=False), site):
        cluster = replace(cluster, requeue=False)
        yield Line(f"sbatch refuses --requeue: {words}", "requeue", False)
    elif words:
        yield Line(f"sbatch --test-only refuses a job with one rank: {words}")
    elif site.settings.get("JobRequeue") == "0":
        yield Line(
            "jobs are not requeued by default here, but may ask for it, and ours do",
            "requeue",
            True,
        )
    yield from gpus(cluster, site)


def gpus(cluster: Cluster, site: Site) -> Iterator[Line]:
    """The first directive that sbatch takes, tried where the GPUs are."""
    open_ones = [name for name, one in site.partitions.items() if one.state == "UP"]
    having = [one for one in site.nodes if one.gpus and one.partition in open_ones]
    if not having:
        return
    here = [one for one in having if one.partition == cluster.partition]
    where = (here or having)[0].partition
    counts: dict[str, int] = {}
    for one in (one for one in having if one.partition == where):
        for kind, count in one.gpus.items():
            counts[kind] = counts.get(kind, 0) + count * one.how_many
    kinds = sorted((kind for kind in counts if kind), key=lambda kind: -counts[kind])
    cluster = replace(
        cluster, partition=where, gpu_type=kinds[0] if len(counts) > 1 and kinds else None
    )
    said = {way: refusal(replace(cluster, gpu_directive=way), site, gpus=1) for way in DIRECTIVES}
    taken = [way for way in DIRECTIVES if not said[way]]
    place = "" if here else f"; GPUs are in other partitions: --partition {where}"
    about = (
        f"sbatch takes: {', '.join(taken)}" if taken else f"none was taken: {said[DIRECTIVES[0]]}"
    )
    yield Line(about + place, "gpu_directive", (taken or DIRECTIVES)[0])
    if cluster.gpu_type:
        yield Line(f"all types in {where}: {', '.join(kinds)}", "gpu_type", cluster.gpu_type)


def refusal(cluster: Cluster, site: Site, gpus: int = 0) -> str:
    """Why Slurm would not take a job with one rank; empty when it would, now or later."""
    spec = replace(
        slurm_survey.smallest(cluster), resources=Resources(time="1", gpus_per_node=gpus)
    )
    options, script = options_of(spec, Path.cwd(), slurm.TRY_ID), render(spec, Path.cwd())
    nodes = site.nodes_of(cluster.partition or "")
    try:
        found = list(slurm.judge_trial(cluster, options, slurm.run_trial(cluster, script), nodes))
    except SchedulerError as error:
        return error.message
    return next((finding.cause for finding in found if finding.level == "problem"), "")
