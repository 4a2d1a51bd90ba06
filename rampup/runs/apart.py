"""Ranks that never met: whether the ranks of a run talked to each other at all, in words and with a
remedy. Two ranks that know nothing of each other do the same work twice.

`list`, `show`, `why`, the report and the end of a run ask here. What the ranks did is in the files
that contact.py writes beside them; where those do not say it for sure, nothing is said.
"""

import itertools
from functools import partial

from msgspec import Struct

from rampup import contact
from rampup.rundir import opening
from rampup.rundir.files import AttemptDir, RunDir

MOST_BYTES = 200_000
STARTERS = {
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch"), "torchrun"),
    **dict.fromkeys(("mpirun", "mpiexec", "horovodrun"), "mpirun"),
    **dict.fromkeys(("accelerate", "fabric", "deepspeed"), "torchrun"),
}
"""Programs that start ranks of their own, and the launcher to use instead."""


class Apart(Struct, frozen=True):
    """Ranks of which no two have talked to each other."""

    ranks: int
    ended: bool
    uses_mpi: bool
    """Whether the ranks have a library of MPI in their memory."""

    @property
    def words(self) -> str:
        if not self.ended:
            return f"the {self.ranks} ranks have never talked to each other: each trains alone"
        return f"the {self.ranks} ranks never talked to each other: each trained alone"


def find_apart(run: RunDir, attempt: AttemptDir | None, size: object, state: str) -> Apart | None:
    """Return what is known of a run whose ranks never met, by its newest attempt and the number of
    its ranks; None where they met, where nobody knows, and where it is meant."""
    several = isinstance(size, int) and size > 1
    if (
        attempt is None
        or not several
        or state not in ("completed", "timeout", "cancelled", "running")
    ):
        return None
    assert isinstance(size, int)
    earlier = run.attempts()[-2::-1] if attempt.number > 1 else []
    found: Apart | None = None
    for each in (attempt, *earlier):
        records = contact.read_records(partial(read, each), size)
        verdict = contact.judge(records, size)
        if verdict == contact.MET or (verdict == contact.UNKNOWN and len(records) == size):
            return None
        limit = "enough_s" if state == "completed" else "notice_s"
        if verdict == contact.APART and all(row["cpu_s"] >= row[limit] for row in records):
            found = Apart(size, state != "running", any(row["mpi"] for row in records))
    return None if found and run.config.get("resources", {}).get("independent") else found


def read(attempt: AttemptDir, rank: int) -> str:
    return opening.read_text(attempt.contact_file(rank), MOST_BYTES)


def find_apart_of(run: RunDir, state: str) -> Apart | None:
    """The same for a reader of one run."""
    attempt = run.last_attempt()
    return find_apart(run, attempt, attempt.facts.get("world_size") if attempt else None, state)


def remedy_of(run: RunDir, apart: Apart) -> str:
    """Return what makes the ranks of such a run meet."""
    resources, command = run.config.get("resources", {}), run.config.get("command") or []
    asked = [
        f"--{name.replace('_', '-')} {resources[name]}"
        for name in ("nodes", "tasks_per_node")
        if resources.get(name, 1) != 1
    ]
    fewer = f"leave out {' '.join(asked)}"
    starter = find_starter([str(word) for word in command])
    if starter:
        launcher = f"--launcher {STARTERS[starter]} and no {starter} in the command"
        return f"{starter} starts ranks itself: {fewer}, or use {launcher}"
    join = "torch.distributed.init_process_group(), or Fabric(devices=..., num_nodes=...)"
    joins = f"the program must join its ranks, e.g. {join}"
    if apart.uses_mpi:
        joins = f"ranks of MPI need --launcher mpirun, on a cluster also pmix; without MPI {joins}"
    return f"{joins}; or {fewer}; --independent says that it is meant"


def find_starter(command: list[str]) -> str:
    """Return the program of a command that starts ranks of its own: its first word, or a module."""
    modules = [after for before, after in itertools.pairwise(command) if before == "-m"][:1]
    for word in (*command[:1], *modules):
        name = word.rpartition("/")[2]
        if name in STARTERS:
            return name
    return ""
