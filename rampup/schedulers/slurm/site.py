"""What a Slurm has: partitions, nodes, settings, who may use what. Asked with few calls, side by
side; check.py and survey.py judge.

Readers of Slurm's texts are pure functions. What a site hides (PrivateData) or does not have
(accounting) comes back empty.
"""

import getpass
import re
from typing import NamedTuple

from rampup.core.spec import Cluster
from rampup.core.units import parse_clock_s
from rampup.errors import SchedulerError
from rampup.schedulers.slurm.commands import call

PING_S, ASK_S, TRIAL_S = 5.0, 15.0, 60.0
IN_SERVICE = (
    "idle",
    "allocated",
    "mixed",
    "completing",
    "planned",
    "reserved",
    "blocked",
    "powered_down",
    "powering_up",
)


class Partition(NamedTuple):
    name: str
    state: str = "UP"
    default: bool = False
    nodes: int = 0
    min_nodes: int = 0
    max_nodes: int | None = None
    max_time_s: float | None = None
    grace_s: int = 0
    preempt_mode: str = "OFF"

    @property
    def most_nodes(self) -> int:
        return self.nodes if self.max_nodes is None else min(self.nodes, self.max_nodes)


class Nodes(NamedTuple):
    """Nodes of a partition that are all alike."""

    partition: str
    how_many: int
    cpus: int
    memory_mb: int
    gpus: dict[str, int]
    """How many of which type; a type without a name is empty."""
    state: str

    @property
    def in_service(self) -> bool:
        return self.state.startswith(IN_SERVICE) and not self.state.endswith("*")

    def gpus_of(self, kind: str | None) -> int:
        return self.gpus.get(kind, 0) if kind else sum(self.gpus.values())


class Host(NamedTuple):
    """Where a node is, and how its CPUs are counted."""

    address: str
    threads_per_core: int


class Associations(NamedTuple):
    accounts: set[str]
    qos: set[str]


def check_that_it_answers(cluster: Cluster) -> None:
    """Quick, also when Slurm is down: its other programs would try again and again for many
    seconds."""
    done = call(cluster, ["scontrol", "ping"], PING_S)
    if " is UP" not in done.stdout:
        said = (done.stdout + done.stderr).strip().splitlines() or ["no answer"]
        raise SchedulerError(
            f"Slurm (cluster {cluster.name}) is not reachable from this machine: {said[0]}",
            "scontrol ping",
        )


def ask(cluster: Cluster, *argv: str) -> str:
    """What one of Slurm's programs prints."""
    done = call(cluster, list(argv), ASK_S)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise SchedulerError(f"{argv[0]} failed: {said[-1]}", "scontrol ping")
    return done.stdout


def partitions(cluster: Cluster) -> dict[str, Partition]:
    return read_partitions(ask(cluster, "scontrol", "--all", "--oneliner", "show", "partition"))


def nodes(cluster: Cluster) -> list[Nodes]:
    """--exact: without it unlike nodes are one row with the smallest values."""
    return read_nodes(
        ask(cluster, "sinfo", "--all", "--exact", "--noheader", "-o", "%R|%D|%c|%m|%G|%T")
    )


def hosts(cluster: Cluster) -> list[Host]:
    return read_hosts(ask(cluster, "scontrol", "--all", "--oneliner", "show", "node"))


def mpi_types(cluster: Cluster) -> list[str]:
    """What srun can do for programs of MPI; some versions tell it as an error."""
    done = call(cluster, ["srun", "--mpi=list"], ASK_S)
    named = [
        word for word in (done.stdout + done.stderr).split() if word.startswith(("pmi", "cray"))
    ]
    return list(dict.fromkeys(named))


def settings(cluster: Cluster) -> dict[str, str]:
    return read_settings(ask(cluster, "scontrol", "show", "config"))


def associations(cluster: Cluster) -> Associations:
    """Empty at a site without accounting, or when its data base does not answer."""
    who = f"user={getpass.getuser()}"
    try:
        return read_associations(
            ask(cluster, "sacctmgr", "-nP", "show", "assoc", who, "format=account,partition,qos")
        )
    except SchedulerError:
        return Associations(set(), set())


# reading ------------------------------------------------------------------------------------------


def read_partitions(text: str) -> dict[str, Partition]:
    found = {}
    for line in text.splitlines():
        row = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in row:
            found[row["PartitionName"]] = Partition(
                name=row["PartitionName"],
                state=row.get("State", "UP"),
                default=row.get("Default") == "YES",
                nodes=number(row.get("TotalNodes", "")) or 0,
                min_nodes=number(row.get("MinNodes", "")) or 0,
                max_nodes=number(row.get("MaxNodes", "")),
                max_time_s=parse_clock_s(row.get("MaxTime", "")),
                grace_s=number(row.get("GraceTime", "")) or 0,
                preempt_mode=row.get("PreemptMode", "OFF"),
            )
    return found


def read_hosts(text: str) -> list[Host]:
    rows = [
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in text.splitlines()
    ]
    return [
        Host(row["NodeAddr"], number(row.get("ThreadsPerCore", "")) or 1)
        for row in rows
        if "NodeAddr" in row
    ]


def read_nodes(text: str) -> list[Nodes]:
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 5]
    return [
        Nodes(
            name,
            number(count) or 0,
            number(cpus) or 0,
            number(memory) or 0,
            read_gpus(gres),
            state.strip(),
        )
        for name, count, cpus, memory, gres, state in rows
    ]


def read_gpus(gres: str) -> dict[str, int]:
    """`gpu:a100:4(S:0-1),nvme:1` -> {"a100": 4}"""
    found: dict[str, int] = {}
    for one in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *kind, count = one.split(":") if ":" in one else (one, "1")
        if name.strip() == "gpu":
            found[kind[0] if kind else ""] = found.get(kind[0] if kind else "", 0) + (
                number(count) or 0
            )
    return found


def read_settings(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def read_associations(text: str) -> Associations:
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 2]
    qos = {name for _, _, names in rows for name in names.split(",") if name}
    return Associations({account for account, _, _ in rows if account}, qos)


def number(text: str) -> int | None:
    """The leading digits (`8+`, `5 sec`); None for UNLIMITED."""
    found = re.match(r"\d+", text.strip())
    return int(found[0]) if found else None
