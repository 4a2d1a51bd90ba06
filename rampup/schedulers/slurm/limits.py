"""The part of the catalogue about a partition: does it exist, is it open, does it have what a run
asks for?

Pure judgement of what slurm_site.py has read. Several partitions (`--partition a,b`) are enough
when one of them fits.
"""

from collections.abc import Iterable, Iterator, Mapping

from rampup.core.finding import Finding, Level
from rampup.core.spec import RunSpec
from rampup.core.units import parse_memory_mb, parse_time_limit_s
from rampup.errors import nearest
from rampup.schedulers.slurm.options import clock
from rampup.schedulers.slurm.site import Nodes, Partition

CLOSED = {"DRAIN": "takes no new jobs", "INACTIVE": "is closed"}


def request(
    spec: RunSpec,
    options: Mapping[str, str],
    partitions: Mapping[str, Partition],
    nodes: Iterable[Nodes],
) -> Iterator[Finding]:
    yield from existing(options, partitions)
    found = chosen(options, partitions)
    if not found:
        return
    # a QOS or a reservation may lift the limits of a partition: then Slurm has the last word
    level: Level = "note" if "qos" in options or "reservation" in options else "problem"
    yield from time_limit(options, found, partitions, level)
    yield from node_count(spec, found, level)
    yield from node_size(spec, options, found, list(nodes))


def chosen(options: Mapping[str, str], partitions: Mapping[str, Partition]) -> dict[str, Partition]:
    """The partitions that the job names, or the site's default."""
    if "partition" in options:
        return {
            name: partitions[name] for name in options["partition"].split(",") if name in partitions
        }
    return {name: partition for name, partition in partitions.items() if partition.default}


def existing(options: Mapping[str, str], partitions: Mapping[str, Partition]) -> Iterator[Finding]:
    """Partitions that are there and take jobs."""
    if "partition" not in options:
        if not chosen(options, partitions):
            cause, remedy = (
                "the site has no default partition",
                f"--partition, one of: {', '.join(partitions)}",
            )
            yield Finding("partition", "problem", "partition", cause, remedy)
        return
    for name in options["partition"].split(","):
        if name not in partitions:
            yield Finding(
                "partition",
                "problem",
                "partition",
                f"there is no partition {name!r}",
                nearest(name, partitions),
            )
            continue
        state = partitions[name].state
        open_ones = ", ".join(
            other for other, partition in partitions.items() if partition.state == "UP"
        )
        if state in CLOSED:
            cause, remedy = (
                f"partition {name} {CLOSED[state]} ({state})",
                f"--partition, one of: {open_ones or 'none'}",
            )
            yield Finding("partition", "problem", "partition", cause, remedy)
        elif state != "UP":
            cause = f"partition {name} is {state.lower()}: the job will wait until it is up again"
            yield Finding(
                "partition",
                "note",
                "partition",
                cause,
                f"--partition, one of: {open_ones or 'none'}",
            )


def time_limit(
    options: Mapping[str, str],
    found: Mapping[str, Partition],
    others: Mapping[str, Partition],
    level: Level,
) -> Iterator[Finding]:
    limits = [partition.max_time_s for partition in found.values()]
    known = [limit for limit in limits if limit is not None]
    if "time" not in options or len(known) < len(limits):
        return
    asked, most = parse_time_limit_s(options["time"]), max(known)
    if asked > most:
        longer = [
            name
            for name, one in others.items()
            if one.state == "UP" and (one.max_time_s is None or one.max_time_s >= asked)
        ]
        cause = (
            f"the time limit is {clock(asked)}, {_named(found)} grants at most {clock(int(most))}"
        )
        remedy = f"--time {clock(int(most))}" + (f", or --partition {longer[0]}" if longer else "")
        yield Finding("time", level, "time limit", cause, remedy)


def node_count(spec: RunSpec, found: Mapping[str, Partition], level: Level) -> Iterator[Finding]:
    asked = spec.resources.nodes
    least = min(partition.min_nodes for partition in found.values())
    there = max(partition.nodes for partition in found.values())
    most = max(partition.most_nodes for partition in found.values())
    if asked > there:
        yield Finding(
            "nodes",
            "problem",
            "nodes",
            f"nodes is {asked}, {_named(found)} has {there}",
            f"--nodes {there}",
        )
    elif asked > most:
        cause = f"nodes is {asked}, {_named(found)} grants at most {most} to a job"
        yield Finding("nodes", level, "nodes", cause, f"--nodes {most}")
    elif asked < least:
        cause = f"nodes is {asked}, {_named(found)} is for jobs of {least} or more"
        yield Finding("nodes", level, "nodes", cause, f"--nodes {least}")


def node_size(
    spec: RunSpec,
    options: Mapping[str, str],
    found: Mapping[str, Partition],
    all_nodes: list[Nodes],
) -> Iterator[Finding]:
    """CPUs, GPUs and memory of a node, each by itself; then whether enough nodes have all of it."""
    nodes = [one for one in all_nodes if one.partition in found]
    if not nodes:  # a site may hide them
        return
    problems = [
        *cpus(spec, found, nodes),
        *gpus(spec, found, all_nodes),
        *memory(options, found, nodes),
    ]
    yield from problems
    if not problems:
        yield from enough(spec, options, found, nodes)


def cpus(spec: RunSpec, found: Mapping[str, Partition], nodes: list[Nodes]) -> Iterator[Finding]:
    ranks, each = spec.resources.tasks_per_node, spec.resources.cpus_per_task or 1
    most = max(one.cpus for one in nodes)
    if ranks * each > most:
        cause = f"tasks_per_node {ranks} x cpus_per_task {each} is {ranks * each}, a node of {_named(found)} has {most}"
        remedy = f"--cpus-per-task {most // ranks}" if ranks <= most else f"--tasks-per-node {most}"
        yield Finding("cpus", "problem", "CPUs of a node", cause, remedy)


def gpus(
    spec: RunSpec, found: Mapping[str, Partition], all_nodes: list[Nodes]
) -> Iterator[Finding]:
    asked, kind = spec.resources.gpus_per_node, spec.cluster.gpu_type
    if asked == 0:
        return
    kinds = sorted({name for one in all_nodes for name in one.gpus if name})
    if kind and kind not in kinds:
        cause = f"no node has GPUs of type {kind!r} (cluster.gpu_type)"
        yield Finding("gpu-type", "problem", "GPUs of a node", cause, nearest(kind, kinds))
        return
    most = max(one.gpus_of(kind) for one in all_nodes if one.partition in found)
    if asked > most:
        elsewhere = [one.partition for one in all_nodes if one.gpus_of(kind) >= asked]
        has = f"at most {most} GPUs" if most else "no GPUs"
        cause = f"gpus_per_node is {asked}, a node of {_named(found)} has {has}{f' of type {kind}' if kind else ''}"
        remedy = f"--gpus-per-node {most}" + (
            f", or --partition {elsewhere[0]}" if elsewhere else ""
        )
        yield Finding("gpus", "problem", "GPUs of a node", cause, remedy)


def memory(
    options: Mapping[str, str], found: Mapping[str, Partition], nodes: list[Nodes]
) -> Iterator[Finding]:
    asked, most = parse_memory_mb(options.get("mem", "")), max(one.memory_mb for one in nodes)
    if asked is not None and asked > most > 1:  # sites that do not count memory say 1
        cause = f"mem is {options['mem']}, a node of {_named(found)} has {most} MB"
        yield Finding("mem", "problem", "memory of a node", cause, f"--mem {most}M")


def enough(
    spec: RunSpec, options: Mapping[str, str], found: Mapping[str, Partition], nodes: list[Nodes]
) -> Iterator[Finding]:
    """At a site with unlike nodes, each wish may be met by some node and all of them by none."""
    asked = spec.resources
    wanted_cpus = asked.tasks_per_node * (asked.cpus_per_task or 1)
    wanted_mb = parse_memory_mb(options.get("mem", "")) or 0
    fitting = {
        name: sum(
            one.how_many
            for one in nodes
            if one.partition == name
            and one.cpus >= wanted_cpus
            and one.gpus_of(spec.cluster.gpu_type) >= asked.gpus_per_node
            and (one.memory_mb >= wanted_mb or one.memory_mb <= 1)
        )
        for name in found
    }
    most = max(fitting.values())
    if asked.nodes <= max(partition.nodes for partition in found.values()) and most < asked.nodes:
        wishes = f"{wanted_cpus} CPUs" + (
            f", {asked.gpus_per_node} GPUs" if asked.gpus_per_node else ""
        )
        wishes += f", {options['mem']} of memory" if wanted_mb else ""
        cause = f"nodes is {asked.nodes}, and {most} nodes of {_named(found)} have {wishes}"
        remedy = (
            f"--nodes {most}" if most else "sinfo -o '%R %D %c %m %G' lists what the nodes have"
        )
        yield Finding("nodes", "problem", "nodes", cause, remedy)


def _named(found: Mapping[str, Partition]) -> str:
    return f"partition {' or '.join(found)}"
