"""The part of the catalogue for clusters with Slurm: what a run asks for against what the site has.

`preflight` reads it before every submission. What we find ourselves is a finding; what Slurm itself
refuses, or that it does not answer, is a SchedulerError. Nothing is submitted or changed.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rampup.core.finding import Finding
from rampup.core.spec import Cluster, RunSpec
from rampup.errors import SchedulerError, nearest
from rampup.rundir import files as rundir
from rampup.schedulers.slurm import allocation
from rampup.schedulers.slurm import limits as slurm_limits
from rampup.schedulers.slurm import site as slurm_site
from rampup.schedulers.slurm import storage as shared_storage
from rampup.schedulers.slurm.commands import call
from rampup.schedulers.slurm.options import options_of
from rampup.schedulers.slurm.site import Nodes

Trial = subprocess.CompletedProcess[str]
OF_THE_QUEUE = (
    "partition",
    "account",
    "qos",
    "mem",
    "time",
    "reservation",
    "constraint",
    "exclude",
    "mail",
    "slurm",
)
"""Settings that only sbatch reads."""
TRY_ID = "aaaaaa"
"""Stands for the id of a run that is not made yet."""
UNAVAILABLE = "node configuration is not available"
"""Slurm's trial says so of a request that is too large, and of one whose nodes are out of
service."""
JUST_NOW = ("not available now", "nodes are busy")
"""The trial fails, and a submitted job waits."""


def check_request(spec: RunSpec, runs_root: Path, script: str) -> Iterator[Finding]:
    """All that can be said of a run before it is submitted, the cheapest first."""
    inside = allocation.is_here(spec.cluster)
    for finding in shared_storage.runs(runs_root, spec.cluster):
        # of an allocation we may be the only node; if not, the ranks themselves name the node that
        # can't see it
        yield finding._replace(level="note") if inside and finding.level == "problem" else finding
    yield from shared_storage.needed(spec)
    yield from allocated(spec) if inside else queued(spec, runs_root, script)


def allocated(spec: RunSpec) -> Iterator[Finding]:
    """Inside an allocation the queue is behind us; what counts is what was granted."""
    granted = slurm_site.number(os.environ.get("SLURM_JOB_NUM_NODES", ""))
    if granted is not None and spec.resources.nodes > granted:
        cause = f"nodes is {spec.resources.nodes}, the allocation {os.environ['SLURM_JOB_ID']} has {granted}"
        yield Finding("nodes", "problem", "nodes", cause, f"--nodes {granted}")
    ignored = [f"--{name}" for name in OF_THE_QUEUE if getattr(spec.resources, name)]
    if ignored:
        cause = f"{', '.join(ignored)}: without effect inside the allocation {os.environ['SLURM_JOB_ID']}"
        yield Finding("queue-options", "note", "options", cause, "give them to salloc")


def queued(spec: RunSpec, runs_root: Path, script: str) -> Iterator[Finding]:
    """Against the partition's limits, and last against Slurm itself."""
    from concurrent.futures import ThreadPoolExecutor  # only here; it is slow to import

    cluster, run_dir = spec.cluster, rundir.run_directory(runs_root, spec.name, TRY_ID, time.time())
    options = options_of(spec, run_dir, TRY_ID)
    yield from unsaid(spec, options)
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
        yield from slurm_limits.request(spec, options, partitions, nodes)
    chosen = slurm_limits.chosen(options, partitions)
    yield from judge_trial(
        cluster, options, trial, [one for one in nodes if one.partition in chosen]
    )


def unsaid(spec: RunSpec, options: Mapping[str, str]) -> Iterator[Finding]:
    """What only the user can know, and the site wants of every job."""
    for key in spec.cluster.needs:
        if key not in options:
            cause = f"cluster {spec.cluster.name} wants to know the {key} of every job"
            yield Finding(
                "needs",
                "problem",
                key,
                cause,
                f"--{key} …, or {key} = … under [resources] in rampup.toml",
            )


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
        cause = f"cluster {cluster.name} wants an account"
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
        return f"the site may want GPUs asked for in another way: cluster.gpu_directive={others[0]} (or {others[1]})"
    return f"rampup doctor --on {cluster.name} tells what the site has"
