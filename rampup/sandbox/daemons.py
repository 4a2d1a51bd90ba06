"""Starts the daemons of a sandbox, each detached and with a log of its own, and waits until they
answer.

Called by sandbox.py, and to bring back a daemon that was stopped on purpose. What fails is named,
with the end of its log. Ending them is the job of leftovers.py.
"""

import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rampup.core import processes
from rampup.errors import SchedulerError
from rampup.sandbox.layout import Layout
from rampup.sandbox.machine import environment, program

READY_WITHIN_S = 60.0
CALL_TIMEOUT_S = 30.0
POLL_S = 0.05
LOG_LINES = 8
COMPLAINT = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)


def command(layout: Layout, daemon: str) -> list[str]:
    """All stay in the foreground, so that the process that we start is the daemon itself."""
    if daemon == "munged":
        return munged(layout)
    if daemon == "mariadbd":
        return ["mariadbd", f"--defaults-file={layout.mariadb_conf}"]
    if daemon == "slurmdbd":
        return ["slurmdbd", "-D"]
    if daemon == "slurmctld":
        return ["slurmctld", "-D", "-f", str(layout.slurm_conf)]
    return ["slurmd", "-D", "-N", daemon, "-f", str(layout.slurm_conf)]


def munged(layout: Layout) -> list[str]:
    """--force: munged wants a path that only root can write, all the way up; ours ends in a private
    directory."""
    files = {
        "--socket": layout.munge_socket,
        "--key-file": layout.munge_key,
        "--pid-file": layout.run / "munged.pid",
        "--seed-file": layout.run / "munged.seed",
        "--log-file": layout.log("munged"),
    }
    return [
        "munged",
        "--foreground",
        "--force",
        *(f"{option}={path}" for option, path in files.items()),
    ]


def start(layout: Layout, daemon: str) -> None:
    """In a session of its own: it outlives us and the terminal. Its name goes into the record."""
    name, *words = command(layout, daemon)
    found = program(name)
    if found is None:
        raise SchedulerError(f"{name} is gone", "rampup sandbox up says which package has it")
    with open(layout.logs / f"{daemon}.out", "ab") as output:
        process = subprocess.Popen(
            [found, *words],
            cwd=layout.directory,
            env=environment(layout),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process.returncode = 0  # nobody waits for it: it is meant to outlive this object
    record = layout.record()
    layout.write_record(
        {**record, "daemons": {**record["daemons"], daemon: processes.identify(process.pid)}}
    )


def start_and_wait(layout: Layout, daemon: str) -> None:
    start(layout, daemon)
    wait(layout, lambda: answers(address(layout, daemon)), lambda: daemon)


def prepare_database(layout: Layout) -> subprocess.Popen[bytes]:
    """The empty tables of MariaDB; takes about a second, so it runs beside the rest."""
    argv = [
        "mariadb-install-db",
        f"--defaults-file={layout.mariadb_conf}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]
    with open(layout.logs / "mariadb-install-db.out", "ab") as output:
        return subprocess.Popen(
            argv, env=environment(layout), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def wait_for_database(layout: Layout, preparing: subprocess.Popen[bytes]) -> None:
    try:
        code = preparing.wait(READY_WITHIN_S)
    except subprocess.TimeoutExpired:
        preparing.kill()
        code = preparing.wait()
    if code != 0:
        raise SchedulerError(*failure(layout, "mariadb-install-db", f"ended with {code}"))


def wait(layout: Layout, ready: Callable[[], bool], missing: Callable[[], str]) -> None:
    """Until `ready`; `missing` names the daemon that it waits for. Any daemon that ends meanwhile
    is an error."""
    deadline = time.monotonic() + READY_WITHIN_S
    while not ready():
        for daemon, named in layout.record()["daemons"].items():
            if not processes.is_alive(named):
                raise SchedulerError(*failure(layout, daemon, "ended"))
        if time.monotonic() > deadline:
            raise SchedulerError(
                *failure(layout, missing(), f"was not ready within {READY_WITHIN_S:.0f} s")
            )
        time.sleep(POLL_S)


def answers(address: Path | int) -> bool:
    """Whether somebody listens at a unix socket or a local port."""
    family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
    with socket.socket(family) as probe:
        probe.settimeout(1.0)
        return (
            probe.connect_ex(("127.0.0.1", address) if isinstance(address, int) else str(address))
            == 0
        )


def address(layout: Layout, daemon: str) -> Path | int:
    sockets = {"munged": layout.munge_socket, "mariadbd": layout.mariadb_socket}
    return sockets[daemon] if daemon in sockets else int(layout.record()["ports"][daemon])


def failure(layout: Layout, daemon: str, what: str) -> tuple[str, str]:
    """Message and hint: which daemon, and the last that it said."""
    said = lines_of(layout.logs / f"{daemon}.out") or lines_of(layout.log(daemon))
    complaints = [line for line in said if COMPLAINT.search(line)]
    end = "".join(f"\n  {line}" for line in (complaints or said)[-LOG_LINES:])
    return f"{daemon} {what}{end or ', and said nothing'}", f"the logs are in {layout.logs}"


def lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def call(layout: Layout, *argv: str) -> str:
    """What a Slurm command of this sandbox prints."""
    try:
        done = subprocess.run(
            argv,
            env=environment(layout),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CALL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SchedulerError(
            f"{' '.join(argv)}: {error}", f"rampup sandbox down --name {layout.name}, and up again"
        ) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise SchedulerError(
            f"{' '.join(argv)} failed: {said[-500:]}", f"the logs are in {layout.logs}"
        )
    return done.stdout
