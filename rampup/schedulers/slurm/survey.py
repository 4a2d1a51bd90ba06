"""What `doctor --on CLUSTER` tells of a Slurm: partitions, accounts, what a preempted job will see,
a trial.

Looks at the site with the eyes of the profile, as a run without further options would.
"""

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rampup.core.finding import Finding
from rampup.core.spec import Cluster, Resources, RunSpec
from rampup.errors import RampupError, SchedulerError, nearest
from rampup.schedulers.slurm import check as slurm
from rampup.schedulers.slurm import site as slurm_site
from rampup.schedulers.slurm import storage as shared_storage
from rampup.schedulers.slurm.job_script import render
from rampup.schedulers.slurm.sbatch_options import clock, options_of
from rampup.schedulers.slurm.site import Associations, Nodes, Partition

START = re.compile(r"to start at (\S+)")
REQUEUE_WAIT_S = 120
"""Slurm's own: so long a requeued job is not started again, where the site has not set
cred_expire."""


def survey(cluster: Cluster, runs_root: Path) -> Iterator[Finding]:
    yield from shared_storage.runs(runs_root, cluster)
    yield from shared_storage.software(cluster, package=True)
    try:
        yield from queue(cluster, runs_root)
    except RampupError as error:
        yield Finding(
            "slurm", "problem", f"the Slurm of cluster {cluster.name}", error.message, error.hint
        )


def queue(cluster: Cluster, runs_root: Path) -> Iterator[Finding]:
    spec = smallest(cluster)
    options, script = options_of(spec, runs_root, slurm.TRY_ID), render(spec, runs_root)
    slurm_site.check_that_it_answers(cluster)
    with ThreadPoolExecutor() as side_by_side:
        asked_partitions = side_by_side.submit(slurm_site.partitions, cluster)
        asked_nodes = side_by_side.submit(slurm_site.nodes, cluster)
        asked_settings = side_by_side.submit(slurm_site.settings, cluster)
        asked_accounts = side_by_side.submit(slurm_site.associations, cluster)
        asked_trial = side_by_side.submit(slurm.run_trial, cluster, script)
        partitions, nodes, settings = (
            asked_partitions.result(),
            asked_nodes.result(),
            asked_settings.result(),
        )
        known, tried = asked_accounts.result(), asked_trial.result()
    yield Finding("slurm", "ok", f"Slurm {settings.get('SLURM_VERSION', '')} answers")
    yield from slurm.judge_partitions(options, partitions)
    for partition in slurm.choose_partitions(options, partitions).values():
        mine = [one for one in nodes if one.partition == partition.name]
        yield from describe(partition, mine)
        yield Finding(
            "preemption",
            "ok",
            f"preemption in {partition.name}: {preemption(settings, partition, cluster)}",
        )
    others = ", ".join(
        name for name in partitions if name not in slurm.choose_partitions(options, partitions)
    )
    if others:
        yield Finding("partitions", "ok", f"other partitions: {others}")
    yield from accounts(known, options, cluster)
    yield from trial(cluster, options, tried, nodes)


def smallest(cluster: Cluster) -> RunSpec:
    """One rank of nothing, with what the profile says."""
    return RunSpec(
        name="doctor",
        kind="command",
        recipe=None,
        command=("true",),
        train={},
        resources=Resources(time="1"),
        cluster=cluster,
        origins={},
        config_file=None,
        cwd=os.getcwd(),
    )


def describe(partition: Partition, nodes: list[Nodes]) -> Iterator[Finding]:
    shapes = {(one.cpus, one.memory_mb, tuple(sorted(one.gpus.items()))) for one in nodes}
    limit = (
        "no time limit"
        if partition.max_time_s is None
        else f"at most {clock(int(partition.max_time_s))}"
    )
    about = f"partition {partition.name}: {partition.nodes} nodes, {limit}"
    about += "".join(f"; {shape_in_words(*shape)}" for shape in sorted(shapes))
    lost = sum(one.how_many for one in nodes if not one.in_service)
    if lost == 0:
        yield Finding("nodes", "ok", about)
    else:
        states = ", ".join(sorted({one.state for one in nodes if not one.in_service}))
        cause = f"{lost} of its {partition.nodes} nodes are out of service ({states})"
        yield Finding("nodes", "note", about, cause, f"sinfo -R -p {partition.name} shows why")


def shape_in_words(cpus: int, memory_mb: int, gpus: tuple[tuple[str, int], ...]) -> str:
    cards = [f"{count} GPUs{f' ({kind})' if kind else ''}" for kind, count in gpus]
    return ", ".join([f"{cpus} CPUs", f"{memory_mb / 1024:.0f} GB", *cards]) + " each"


def accounts(
    known: Associations, options: Mapping[str, str], cluster: Cluster
) -> Iterator[Finding]:
    """Nothing to say at a site without accounting."""
    if not known.accounts:
        return
    about = f"your accounts: {', '.join(sorted(known.accounts))}; QOS: {', '.join(sorted(known.qos)) or 'none'}"
    wrong = [
        (word, options[word], mine)
        for word, mine in (("account", known.accounts), ("qos", known.qos))
        if word in options and mine and options[word].lower() not in mine
    ]
    if not wrong:
        yield Finding("accounts", "ok", about)
    for word, asked, mine in wrong:
        cause = f"the profile of {cluster.name} says {word} = {asked!r}, which is not one of yours"
        yield Finding("accounts", "problem", about, cause, nearest(asked, mine))


def preemption(settings: Mapping[str, str], partition: Partition, cluster: Cluster) -> str:
    """What a job sees whose nodes are taken by another."""
    mode = partition.preempt_mode.upper()
    if settings.get("PreemptType", "preempt/none").endswith("none") or mode == "OFF":
        return "none"
    if "SUSPEND" in mode:
        return "a job is suspended, and continues when its nodes are free again"
    if partition.grace_s == 0:
        kill = slurm_site.number(settings.get("KillWait", "")) or 30
        words = f"SIGTERM to all, SIGKILL {kill} s later"
    else:
        words = f"SIGTERM to the ranks, SIGKILL {partition.grace_s} s later"
    parameters = settings.get("PreemptParameters", "") + settings.get("SlurmctldParameters", "")
    if "send_user_signal" in parameters:
        words = f"the signal that the job asked for, or {words}"
    return f"{words}; {afterwards(mode, settings, partition, cluster)}"


def afterwards(
    mode: str, settings: Mapping[str, str], partition: Partition, cluster: Cluster
) -> str:
    if "REQUEUE" not in mode:
        return "the job is over"
    if not cluster.requeue:
        return "the job is over: the profile says requeue = false"
    found = re.search(r"cred_expire=(\d+)", settings.get("AuthInfo", ""))
    wait = f"back in the queue for at least {found[1] if found else REQUEUE_WAIT_S} s"
    if partition.grace_s:
        wait = f"if it has not ended by then, {wait}"
    by_default = settings.get("JobRequeue") != "0"
    return (
        wait
        if by_default
        else f"{wait} (the site's default is not to requeue; the job script asks for it)"
    )


def trial(
    cluster: Cluster, options: Mapping[str, str], tried: slurm.Trial, nodes: list[Nodes]
) -> Iterator[Finding]:
    about = "sbatch --test-only of a job with one rank"
    try:
        found = list(slurm.judge_trial(cluster, options, tried, nodes))
    except SchedulerError as error:
        yield Finding("sbatch", "problem", about, error.message, error.hint)
        return
    start = START.search(tried.stderr)
    when = f"it would start at {start[1]}" if start else "accepted"
    yield from found or [Finding("sbatch", "ok", f"{about}: {when}")]
