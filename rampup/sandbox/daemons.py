"""The daemons of a sandbox: start each one detached, with its own log, and wait until it answers.

Called by sandbox.py, and by the drill to restore a daemon that it stopped. A daemon that fails is
named in the error, with the end of its log. Never ends a daemon: leftovers.py does.
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
from rampup.sandbox.machine import LOOPBACK, find_own_address, find_program, make_environment

READY_WITHIN_S = 60.0
CALL_TIMEOUT_S = 30.0
POLL_S = 0.05
LOG_LINES = 8
COMPLAINT = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)


def daemon_command(layout: Layout, daemon: str) -> list[str]:
    """Return the command of a daemon; it stays in the foreground, so that its pid is ours."""
    if daemon == "munged":
        return munged_command(layout)
    if daemon == "mariadbd":
        return ["mariadbd", f"--defaults-file={layout.mariadb_conf}"]
    if daemon == "slurmdbd":
        return ["slurmdbd", "-D"]
    if daemon == "slurmctld":
        return ["slurmctld", "-D", "-f", str(layout.slurm_conf)]
    return ["slurmd", "-D", "-N", daemon, "-f", str(layout.slurm_conf)]


def munged_command(layout: Layout) -> list[str]:
    """Return the command of munged.

    --force: munged wants every parent folder to be writable by root alone; only ours is private.
    """
    files = {
        "--socket": layout.munge_socket,
        "--key-file": layout.munge_key,
        "--pid-file": layout.run / "munged.pid",
        "--seed-file": layout.run / "munged.seed",
        "--log-file": layout.log("munged"),
    }
    options = [f"{option}={path}" for option, path in files.items()]
    return ["munged", "--foreground", "--force", *options]


def start(layout: Layout, daemon: str) -> None:
    """Start a daemon that outlives this process and the terminal, and add it to the record."""
    name, *words = daemon_command(layout, daemon)
    found = find_program(name)
    if found is None:
        raise SchedulerError(f"{name} is gone", "rampup sandbox up shows which package has it")
    with open(layout.logs / f"{daemon}.out", "ab") as output:
        process = subprocess.Popen(
            [found, *words],
            cwd=layout.directory,
            env=make_environment(layout),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process.returncode = 0  # nobody waits for it: it is meant to outlive this object
    record = layout.record()
    daemons = {**record["daemons"], daemon: processes.identify(process.pid)}
    layout.write_record({**record, "daemons": daemons})


def start_and_wait(layout: Layout, daemon: str) -> None:
    start(layout, daemon)
    address = find_address(layout, daemon)
    wait_until(layout, lambda: accepts_connections(address), lambda: daemon)


def prepare_database(layout: Layout) -> subprocess.Popen[bytes]:
    """Begin to make the tables of MariaDB; it takes about a second, so it runs beside the rest."""
    argv = [
        "mariadb-install-db",
        f"--defaults-file={layout.mariadb_conf}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
    ]
    with open(layout.logs / "mariadb-install-db.out", "ab") as output:
        return subprocess.Popen(
            argv,
            env=make_environment(layout),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def wait_for_database(layout: Layout, preparing: subprocess.Popen[bytes]) -> None:
    try:
        code = preparing.wait(READY_WITHIN_S)
    except subprocess.TimeoutExpired:
        preparing.kill()
        code = preparing.wait()
    if code != 0:
        raise SchedulerError(*describe_failure(layout, "mariadb-install-db", f"ended with {code}"))


def wait_until(layout: Layout, ready: Callable[[], bool], missing: Callable[[], str]) -> None:
    """Wait until `ready`; `missing` names the daemon that is not ready yet.

    Raises when any daemon of the sandbox ends meanwhile.
    """
    deadline = time.monotonic() + READY_WITHIN_S
    while not ready():
        for daemon, named in layout.record()["daemons"].items():
            if not processes.is_alive(named):
                raise SchedulerError(*describe_failure(layout, daemon, "ended"))
        if time.monotonic() > deadline:
            late = f"was not ready within {READY_WITHIN_S:.0f} s"
            raise SchedulerError(*describe_failure(layout, missing(), late))
        time.sleep(POLL_S)


def accepts_connections(address: Path | int) -> bool:
    """Whether a process listens at a unix socket or a local port."""
    local_port = isinstance(address, int)
    where = (find_own_address() or LOOPBACK, address) if local_port else str(address)
    with socket.socket(socket.AF_INET if local_port else socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(where) == 0


def find_address(layout: Layout, daemon: str) -> Path | int:
    """Return the socket or the port at which a daemon listens."""
    sockets = {"munged": layout.munge_socket, "mariadbd": layout.mariadb_socket}
    return sockets[daemon] if daemon in sockets else int(layout.record()["ports"][daemon])


def describe_failure(layout: Layout, daemon: str, what: str) -> tuple[str, str]:
    """Return message and hint: which daemon failed, and the end of its log."""
    said = read_lines(layout.logs / f"{daemon}.out") or read_lines(layout.log(daemon))
    complaints = [line for line in said if COMPLAINT.search(line)]
    end = "".join(f"\n  {line}" for line in (complaints or said)[-LOG_LINES:])
    return f"{daemon} {what}{end or ', and said nothing'}", f"the logs are in {layout.logs}"


def read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def call_slurm(layout: Layout, *argv: str) -> str:
    """Call a Slurm command of this sandbox and return what it prints."""
    try:
        done = subprocess.run(
            argv,
            env=make_environment(layout),
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
