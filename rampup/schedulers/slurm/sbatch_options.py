"""What a run asks of sbatch: every option with its value, and the #SBATCH line for each. Pure.

The site's profile < what rampup itself says < `--slurm` of the user. What rampup must know (how
many ranks there are, where the log is, the name by which a job is found again) can't be changed
behind its back. Called by script.py, and by the checks before a submission.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from rampup.core.resources import list_directives
from rampup.core.spec import RunSpec
from rampup.core.units import parse_time_limit_s
from rampup.errors import Refused
from rampup.launchers import find_launcher
from rampup.rundir.files import slurm_log_name

NAME = re.compile(r"(?=.{2,40}$)[a-z][a-z0-9]*(-[a-z0-9]+)*")
PLAIN = re.compile(r"[A-Za-z0-9_.,:/@%+=-]+")
"""Values that need no quotes in a directive."""
LONGEST = 1024
LONGER = {"output": 4096, "exclude": 65536, "nodelist": 65536}
"""Bytes that slurmctld takes in a value; it calls a longer one a `pathname too long`."""

LOG = "the log is kept in the run directory: rampup logs"
RANKS = "ranks are asked for with --nodes and --tasks-per-node"
GPUS = "GPUs are asked for with --gpus-per-node; the profile's gpu_directive decides how"
NOT_OF_A_JOB = "it is for the command sbatch; rampup calls that"
DIRECTIVES = list_directives()
"""Resources with the option of sbatch that gets their value."""
OWN = {
    "nodes": RANKS,
    "ntasks": RANKS,
    "ntasks-per-node": RANKS,
    "ntasks-per-gpu": RANKS,
    "tasks-per-node": RANKS,
    "cpus-per-task": "write --cpus-per-task",
    "gpus": GPUS,
    "gpus-per-node": GPUS,
    "gpus-per-task": GPUS,
    "time": "write --time",
    **{option: f"write --{name.replace('_', '-')}" for name, option in DIRECTIVES.items()},
    "job-name": "write --name",
    "output": LOG,
    "error": LOG,
    "open-mode": LOG,
    "array": "rampup sweep starts many runs as an array",
    "clusters": "write --on CLUSTER",
    "parsable": NOT_OF_A_JOB,
    "quiet": NOT_OF_A_JOB,
    "test-only": NOT_OF_A_JOB,
    "wait": NOT_OF_A_JOB,
    "wrap": NOT_OF_A_JOB,
}
"""Options that `--slurm` can't set, and what to do instead."""
SITE_DEFAULTS = ("time", *DIRECTIVES.values())
"""Those of them that a profile may set: the user's own option wins over it."""
FLAGS = (
    *(
        "contiguous",
        "exclusive",
        "get-user-env",
        "hold",
        "ignore-pbs",
        "nice",
        "no-kill",
        "no-requeue",
        "overcommit",
    ),
    *(
        "oversubscribe",
        "propagate",
        "reboot",
        "requeue",
        "spread-job",
        "stepmgr",
        "use-min-nodes",
        "verbose",
    ),
)
"""What may stand without a value. sbatch would take the next directive for the value of any
other."""
ONE_OF = (("mem", "mem-per-cpu", "mem-per-gpu"), ("requeue", "no-requeue"))
"""Options that exclude each other."""


def job_name(spec: RunSpec, run_id: str) -> str:
    """Unique, so that a submission whose answer was lost is found again."""
    return f"{spec.name}-{run_id}"


def options_of(spec: RunSpec, run_dir: Path, run_id: str) -> dict[str, str]:
    """Every sbatch option of the job; the value of a flag is empty."""
    ours = own_options(spec, run_dir, run_id)
    for key, value in spec.cluster.sbatch.items():
        check(key, value, f"in the profile {spec.cluster.name}", SITE_DEFAULTS)
    merged = overlay(overlay(spec.cluster.sbatch, ours), parse_asked(spec.resources.slurm))
    # ours first, in the order of people
    return {key: merged[key] for key in (*ours, *merged) if key in merged}


def own_options(spec: RunSpec, run_dir: Path, run_id: str) -> dict[str, str]:
    """What rampup says by itself, in the order in which people read it."""
    resources, cluster = spec.resources, spec.cluster
    tasks, cpus = find_launcher(spec.cluster.launcher).tasks(spec.resources)
    jobs = [before.job for before in spec.after]
    given = {
        # the site's own value is the key of its profile with that name, where it has one
        option: getattr(resources, name) or getattr(cluster, name, None)
        for name, option in DIRECTIVES.items()
    }
    options: dict[str, str | None] = {
        "job-name": job_name(spec, run_id),
        "output": log_pattern(run_dir),
        "open-mode": "append",  # a requeued job continues the same log
        "nodes": str(resources.nodes),
        "ntasks-per-node": str(tasks),
        "cpus-per-task": str(cpus),
        "time": clock(parse_time_limit_s(resources.time)) if resources.time else None,
        "signal": warning(spec),
        "dependency": ":".join(["afterany", *jobs]) if jobs else None,
        "mem": given["mem"],
        **gpu_options(spec),
        "hint": cluster.hint,
        "clusters": cluster.slurm_cluster,
        **given,
        "mail-type": "BEGIN,END,FAIL,REQUEUE,TIME_LIMIT" if resources.mail else None,
        # always said: the site's own default differs
        "requeue" if cluster.requeue else "no-requeue": "",
    }
    return {key: value for key, value in options.items() if value is not None}


def warning(spec: RunSpec) -> str | None:
    """Slurm's word before the time limit, for programs that listen to it. USR1 may be taken by a
    library."""
    if not spec.resources.time or spec.program.stop_signal:  # rank.py sends that one
        return None
    return f"USR2@{min(spec.resources.lead_s, parse_time_limit_s(spec.resources.time) // 4)}"


def log_pattern(run_dir: Path, name: str = slurm_log_name("%j")) -> str:
    """Slurm's own log. In this one option %x stands for something, and a backslash turns all of
    that off."""
    if "\\" in str(run_dir):
        raise Refused(
            f"Slurm can't write a log into {run_dir}: the path has a backslash", "set RAMPUP_RUNS"
        )
    return str(run_dir).replace("%", "%%") + f"/{name}"


def gpu_options(spec: RunSpec) -> dict[str, str | None]:
    """Sites take one way of asking for GPUs and refuse the others."""
    count, kind = spec.resources.gpus_per_node, spec.cluster.gpu_type
    if count == 0:
        return {}
    if spec.cluster.gpu_directive == "gres":
        return {"gres": f"gpu:{kind}:{count}" if kind else f"gpu:{count}"}
    number = count * spec.resources.nodes if spec.cluster.gpu_directive == "gpus" else count
    return {spec.cluster.gpu_directive: f"{kind}:{number}" if kind else str(number)}


def parse_asked(words: Collection[str]) -> dict[str, str]:
    """The options that a user gave with `--slurm`."""
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.removeprefix("--").partition("=")
        if equals and not value:
            raise Refused(f"--slurm {shorten(word)} has no value", "write --slurm KEY=VALUE")
        check(key, value, "by --slurm", ())
        options[key] = value
    return options


def check(key: str, value: str, origin: str, allowed: Collection[str]) -> None:
    """Refuse a name that sbatch does not have, or that is not for the user to set."""
    if not NAME.fullmatch(key):
        raise Refused(
            f"{shorten(key)} is not the long name of an sbatch option",
            "write --slurm KEY=VALUE, e.g. --slurm comment=hello",
        )
    for own, instead in OWN.items():
        # sbatch takes the beginning of a name for the whole: ntasks-per-n is ntasks-per-node
        if own.startswith(key) and key not in allowed:
            raise Refused(f"the sbatch option {key} can't be set {origin}", instead)
    if not value and key not in FLAGS:
        raise Refused(f"the sbatch option {key} ({origin}) needs a value", f"write {key}=VALUE")


def overlay(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """`above` wins, and chases away what it excludes; generic resources add up."""
    gone = {key for group in ONE_OF if any(key in above for key in group) for key in group}
    kept = {key: value for key, value in below.items() if key not in gone}
    if "gres" in kept and "gres" in above:
        return {**kept, **above, "gres": f"{kept['gres']},{above['gres']}"}
    return {**kept, **above}


def directive(key: str, value: str) -> str:
    """One #SBATCH line that sbatch reads as it is meant, or a refusal."""
    if not value.isprintable():
        raise Refused(
            f"{key} = {shorten(value)} can't be written into a job script",
            "use printable characters",
        )
    longest, length = LONGER.get(key, LONGEST), len(value.encode())
    if length > longest:
        raise Refused(
            f"{key} = {shorten(value)} has {length} bytes", f"Slurm takes at most {longest}"
        )
    if not value:
        return f"#SBATCH --{key}"
    if PLAIN.fullmatch(value):
        return f"#SBATCH --{key}={value}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'#SBATCH --{key}="{escaped}"'


def shorten(value: str) -> str:
    return repr(value) if len(value) <= 60 else f"{value[:60]!r}..."


def clock(seconds: int) -> str:
    """D-HH:MM:SS: a bare number would be minutes to Slurm."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02d}:{minute:02d}:{second:02d}"
