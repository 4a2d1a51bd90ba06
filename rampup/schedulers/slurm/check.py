"""The part of the catalogue for clusters with Slurm: what a run asks for against what the site has.

`preflight` reads it before every submission. What we find ourselves is a finding; what Slurm itself
refuses, or that it does not answer, is a SchedulerError. Nothing is submitted or changed. Of several
partitions (`--partition a,b`) it is enough when one fits.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rampup.core.finding import Finding, Level
from rampup.core.spec import Cluster, RunSpec
from rampup.core.units import parse_memory_mb, parse_time_limit_s
from rampup.errors import SchedulerError, nearest
from rampup.schedulers.slurm import site as slurm_site
from rampup.schedulers.slurm import storage as shared_storage
from rampup.schedulers.slurm.commands import call
from rampup.schedulers.slurm.sbatch_options import DIRECTIVES, clock, options_of
from rampup.schedulers.slurm.site import Nodes, Partition

Trial = subprocess.CompletedProcess[str]
OF_THE_QUEUE = (*DIRECTIVES, "time", "slurm")
"""Settings that only sbatch reads."""
TRY_ID = "aaaaaa"
"""Stands for the id of a run that is not made yet."""
UNAVAILABLE = "node configuration is not available"
"""Slurm's trial says so of a request that is too large, and of one whose nodes are out of
service."""
JUST_NOW = ("not available now", "nodes are busy")
"""The trial fails, and a submitted job waits."""
CLOSED = {"DRAIN": "takes no new jobs", "INACTIVE": "is closed"}


def check_request(spec: RunSpec, run_dir: Path, script: str, inside: bool) -> Iterator[Finding]:
    """All that can be said of a run before it is submitted, the cheapest first; `inside`: within an
    allocation."""
    for finding in shared_storage.runs(run_dir.parent, spec.cluster):
        # of an allocation we may be the only node; if not, the ranks themselves name the node that
        # can't see it
        yield finding._replace(level="note") if inside and finding.level == "problem" else finding
    yield from shared_storage.needed(spec)
    yield from check_allocated(spec) if inside else check_queued(spec, run_dir, script)


def check_allocated(spec: RunSpec) -> Iterator[Finding]:
    """Inside an allocation the queue is behind us; what counts is what was granted."""
    granted = slurm_site.number(os.environ.get("SLURM_JOB_NUM_NODES", ""))
    if granted is not None and spec.resources.nodes > granted:
        cause = f"nodes is {spec.resources.nodes}, the allocation {os.environ['SLURM_JOB_ID']} has {granted}"
        yield Finding("nodes", "problem", "nodes", cause, f"--nodes {granted}")
    ignored = [f"--{name}" for name in OF_THE_QUEUE if getattr(spec.resources, name)]
    if ignored:
        cause = (
            f"{', '.join(ignored)}: no effect inside the allocation {os.environ['SLURM_JOB_ID']}"
        )
        yield Finding("queue-options", "note", "options", cause, "give them to salloc")


def check_queued(spec: RunSpec, run_dir: Path, script: str) -> Iterator[Finding]:
    """Against the partition's limits, and last against Slurm itself."""
    from concurrent.futures import ThreadPoolExecutor  # only here; it is slow to import

    cluster, options = spec.cluster, options_of(spec, run_dir, TRY_ID)
    yield from find_unsaid(spec, options)
    slurm_site.check_that_it_answers(cluster)
    with ThreadPoolExecutor() as side_by_side:
        asked_partitions = side_by_side.submit(slurm_site.partitions, cluster)
        asked_nodes = side_by_side.submit(slurm_site.nodes, cluster)
        asked_trial = side_by_side.submit(run_trial, cluster, script)
        partitions, nodes, trial = (
            asked_partitions.result(),
            asked_nodes.result(),
            asked_trial.result(),
        )
    if partitions:  # a site may hide them
        yield from judge_request(spec, options, partitions, nodes)
    chosen = choose_partitions(options, partitions)
    yield from judge_trial(
        cluster, options, trial, [one for one in nodes if one.partition in chosen]
    )


def find_unsaid(spec: RunSpec, options: Mapping[str, str]) -> Iterator[Finding]:
    """What only the user can know, and the site wants of every job."""
    for key in spec.cluster.needs:
        if DIRECTIVES.get(key, key) not in options:
            cause = f"{spec.cluster.name} requires --{key}"
            yield Finding(
                "needs",
                "problem",
                key,
                cause,
                f"--{key} …, or {key} = … under [resources] in rampup.toml",
            )


# the partition: does it exist, is it open, does it have what the run asks for? --------------------


def judge_request(
    spec: RunSpec,
    options: Mapping[str, str],
    partitions: Mapping[str, Partition],
    nodes: Iterable[Nodes],
) -> Iterator[Finding]:
    yield from judge_partitions(options, partitions)
    found = choose_partitions(options, partitions)
    if not found:
        return
    # a QOS or a reservation may lift the limits of a partition: then Slurm has the last word
    level: Level = "note" if "qos" in options or "reservation" in options else "problem"
    yield from time_limit(options, found, partitions, level)
    yield from node_count(spec, found, level)
    yield from node_size(spec, options, found, list(nodes))


def choose_partitions(
    options: Mapping[str, str], partitions: Mapping[str, Partition]
) -> dict[str, Partition]:
    """The partitions that the job names, or the site's default."""
    if "partition" in options:
        return {
            name: partitions[name] for name in options["partition"].split(",") if name in partitions
        }
    return {name: partition for name, partition in partitions.items() if partition.default}


def judge_partitions(
    options: Mapping[str, str], partitions: Mapping[str, Partition]
) -> Iterator[Finding]:
    """Partitions that are there and take jobs."""
    if "partition" not in options:
        if not choose_partitions(options, partitions):
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
        cause = f"the time limit is {clock(asked)}, {_join_names(found)} grants at most {clock(int(most))}"
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
            f"nodes is {asked}, {_join_names(found)} has {there}",
            f"--nodes {there}",
        )
    elif asked > most:
        cause = f"nodes is {asked}, {_join_names(found)} grants at most {most} to a job"
        yield Finding("nodes", level, "nodes", cause, f"--nodes {most}")
    elif asked < least:
        cause = f"nodes is {asked}, {_join_names(found)} is for jobs of {least} or more"
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
        cause = f"tasks_per_node {ranks} x cpus_per_task {each} is {ranks * each}, a node of {_join_names(found)} has {most}"
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
        cause = f"gpus_per_node is {asked}, a node of {_join_names(found)} has {has}{f' of type {kind}' if kind else ''}"
        remedy = f"--gpus-per-node {most}" + (
            f", or --partition {elsewhere[0]}" if elsewhere else ""
        )
        yield Finding("gpus", "problem", "GPUs of a node", cause, remedy)


def memory(
    options: Mapping[str, str], found: Mapping[str, Partition], nodes: list[Nodes]
) -> Iterator[Finding]:
    asked, most = parse_memory_mb(options.get("mem", "")), max(one.memory_mb for one in nodes)
    if asked is not None and asked > most > 1:  # sites that do not count memory say 1
        cause = f"mem is {options['mem']}, a node of {_join_names(found)} has {most} MB"
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
        cause = f"nodes is {asked.nodes}, and {most} nodes of {_join_names(found)} have {wishes}"
        remedy = (
            f"--nodes {most}" if most else "sinfo -o '%R %D %c %m %G' lists what the nodes have"
        )
        yield Finding("nodes", "problem", "nodes", cause, remedy)


def _join_names(found: Mapping[str, Partition]) -> str:
    return f"partition {' or '.join(found)}"


# Slurm's own trial --------------------------------------------------------------------------------


def run_trial(cluster: Cluster, script: str) -> Trial:
    """`sbatch --test-only`: Slurm looks at the real script and says when it would start, or why
    not."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="rampup-", suffix=".sh") as file:
        file.write(script)
        file.flush()
        return call(cluster, ["sbatch", "--test-only", file.name], slurm_site.TRIAL_S)


def judge_trial(
    cluster: Cluster, options: Mapping[str, str], trial: Trial, nodes: list[Nodes]
) -> Iterator[Finding]:
    """Says nothing of a script that Slurm takes."""
    if trial.returncode == 0:
        return
    words = refusal_of(trial.stderr)
    out_of_service = sum(one.how_many for one in nodes if not one.in_service)
    if any(sign in words for sign in JUST_NOW) or (UNAVAILABLE in words and out_of_service):
        cause = f"the job will wait: {out_of_service or 'some'} of the nodes are out of service ({words})"
        yield Finding(
            "sbatch",
            "note",
            "sbatch --test-only",
            cause,
            f"sinfo -p {options.get('partition', '')}",
        )
        return
    about_accounts = "account" in words.lower() or "qos" in words.lower()
    explained = list(unknown_to_accounting(cluster, options)) if about_accounts else []
    if not explained:
        raise SchedulerError(f"Slurm would refuse the job: {words}", remedy_of(words, cluster))
    yield from explained


def refusal_of(text: str) -> str:
    """All reasons that were given, without the prefixes."""
    found: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        for prefix in ("sbatch: ", "error: ", "allocation failure: "):
            words = words.removeprefix(prefix)
        if words and not words.startswith('Try "sbatch') and words not in found:
            found.append(words)
    return "; ".join(found) or "no reason given"


def unknown_to_accounting(cluster: Cluster, options: Mapping[str, str]) -> Iterator[Finding]:
    """Which account or QOS it is that Slurm does not take, and which it would."""
    known = slurm_site.associations(cluster)
    for word, mine in (("account", known.accounts), ("qos", known.qos)):
        asked = options.get(word)
        if mine and asked is not None and asked.lower() not in mine:
            cause = f"{word} {asked!r} is not one of yours on cluster {cluster.name}"
            yield Finding(word, "problem", word, cause, nearest(asked, mine))
    if known.accounts and "account" not in options:
        cause = f"{cluster.name} requires --account"
        yield Finding(
            "account",
            "problem",
            "account",
            cause,
            f"--account, one of: {', '.join(sorted(known.accounts))}",
        )


def remedy_of(words: str, cluster: Cluster) -> str:
    lower = words.lower()
    if "gres" in lower or "gpu" in lower or "tres" in lower:
        others = [way for way in ("gpus-per-node", "gres", "gpus") if way != cluster.gpu_directive]
        return f"the site may want GPUs requested in another way: cluster.gpu_directive={others[0]} (or {others[1]})"
    return f"rampup doctor --on {cluster.name} shows what the site has"
