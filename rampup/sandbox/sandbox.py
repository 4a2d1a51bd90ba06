"""A sandbox: a real Slurm of several nodes on this machine, run by the calling user.

`up`, `status` and `down` are called by `rampup sandbox`, by benchmarks and by tests. One directory
holds everything, and a cluster profile makes it a place for `rampup run --on`. Never touches /etc
or /run, and never needs the machine's own Slurm, munge or MariaDB.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from rampup.core import processes
from rampup.errors import Refused, SchedulerError
from rampup.sandbox import configuration, daemons, leftovers
from rampup.sandbox.layout import (
    Layout,
    Options,
    find_layout,
    make_folders,
    node_names,
    owns_profile,
    refuse_unusable,
    sandboxes_folder,
)
from rampup.sandbox.machine import Machine, check_packages, describe_machine, reserve_ports

Say = Callable[[str], None]
KEY_BYTES = 128


class Status(Struct, frozen=True, kw_only=True):
    """The state of a sandbox just now."""

    name: str
    state: str
    """up, down, or damaged: some daemons are gone."""
    directory: str
    slurm_conf: str
    options: dict[str, Any]
    daemons: dict[str, int | None]
    """The process id of each daemon, None for one that is gone."""
    nodes: list[dict[str, str]]
    jobs: list[dict[str, str]]


def up(name: str, options: Options, say: Say) -> tuple[Status, bool]:
    """Start a sandbox unless it is up; returns its status, and whether it had to be started.

    The remains of an earlier one that crashed are removed first.
    """
    layout = find_layout(name)
    refuse_unusable(layout)
    check_packages(options)
    with lock_sandboxes():
        refuse_other_host(layout)
        found = status(name)
        if found.state == "up":
            return found, False
        if found.state == "damaged":
            say(f"removing what is left of an earlier {name}")
        remove(layout)
        try:
            layout = make_folders(layout, options)
            start_daemons(layout, options, say)
        except OSError as error:
            leftovers.end_all(layout)
            hint = f"check the free space: df -h {layout.directory}"
            raise SchedulerError(f"the sandbox could not be made: {error}", hint) from None
        except BaseException:
            leftovers.end_all(layout)
            raise
    return status(name), True


def down(name: str) -> bool:
    """Stop and remove a sandbox; returns False when there was none."""
    layout = find_layout(name)
    if os.environ.get("SLURM_CONF") == str(layout.slurm_conf) and "SLURM_JOB_ID" in os.environ:
        raise Refused(
            f"this shell runs in a job of sandbox {name}",
            "leave it with `exit`, then take the sandbox down",
        )
    with lock_sandboxes():
        refuse_other_host(layout)
        existed = layout.directory.exists()
        remove(layout)
    return existed


def status(name: str) -> Status:
    """Return the status of a sandbox, which need not exist."""
    layout = find_layout(name)
    record = layout.record()
    living = {
        daemon: fact["pid"] if processes.is_alive(fact) else None
        for daemon, fact in record.get("daemons", {}).items()
    }
    complete = bool(record.get("ready")) and None not in living.values()
    answering = living.get("slurmctld") is not None and living.get("munged") is not None
    state = "damaged" if layout.directory.exists() else "down"
    return Status(
        name=name,
        state="up" if complete else state,
        directory=str(layout.directory),
        slurm_conf=str(layout.slurm_conf),
        options=record.get("options", {}),
        daemons=living,
        nodes=list_nodes(layout) if answering else [],
        jobs=list_jobs(layout) if answering else [],
    )


def list_nodes(layout: Layout) -> list[dict[str, str]]:
    return query_rows(
        layout, "sinfo", "-N", node="%N", state="%t", cpus="%c", memory_mb="%m", gres="%G"
    )


def list_jobs(layout: Layout) -> list[dict[str, str]]:
    columns = {"job": "%i", "partition": "%P", "state": "%T", "time": "%M", "where": "%R"}
    return query_rows(layout, "squeue", **columns, job_name="%j")


def query_rows(layout: Layout, program: str, *flags: str, **columns: str) -> list[dict[str, str]]:
    """Ask sinfo or squeue for columns, and return each row once.

    sinfo prints one row per node and partition. The last column may hold any text; the part of it
    after a line break is left out.
    """
    text = daemons.call_slurm(
        layout, program, *flags, "--noheader", "-o", "\t".join(columns.values())
    )
    cells = [tuple(line.split("\t", len(columns) - 1)) for line in text.split("\n")]
    return [
        dict(zip(columns, row, strict=True))
        for row in dict.fromkeys(cells)
        if len(row) == len(columns)
    ]


# starting -----------------------------------------------------------------------------------------


def start_daemons(layout: Layout, options: Options, say: Say) -> None:
    with reserve_ports(2 + options.nodes) as ports:
        machine = describe_machine(ports)
        write_files(layout, options, machine)
        by_daemon = dict(zip(("slurmctld", "slurmdbd", *node_names(options)), ports, strict=True))
        layout.write_record({**layout.record(), "ports": by_daemon})
        preparing = daemons.prepare_database(layout) if options.accounting else None
        daemons.start_and_wait(layout, "munged")
        if preparing is not None:
            say("starting the accounting database")
            daemons.wait_for_database(layout, preparing)
            daemons.start_and_wait(layout, "mariadbd")
            daemons.start_and_wait(layout, "slurmdbd")
            add_account(layout, machine)
        say(f"starting the controller and {options.nodes} nodes")
        daemons.start_and_wait(layout, "slurmctld")
        for node in node_names(options):
            daemons.start(layout, node)
        wait_until_idle(layout, options)
    layout.profile.parent.mkdir(parents=True, exist_ok=True)
    layout.profile.write_text(configuration.render_profile(layout, options), encoding="utf-8")
    layout.write_record({**layout.record(), "ready": True})


def write_files(layout: Layout, options: Options, machine: Machine) -> None:
    texts = {
        layout.slurm_conf: configuration.render_slurm_conf(layout, options, machine),
        layout.gres_conf: configuration.render_gres_conf(layout, options),
        layout.slurmdbd_conf: configuration.render_slurmdbd_conf(layout, machine),
        layout.mariadb_conf: configuration.render_mariadb_conf(layout, machine),
    }
    for path, text in texts.items():
        write_private(path, text.encode())
    write_private(layout.munge_key, os.urandom(KEY_BYTES))
    for number in range(options.gpus_per_node):
        (layout.gpus / f"gpu{number}").symlink_to("/dev/null")


def write_private(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def add_account(layout: Layout, machine: Machine) -> None:
    account = configuration.ACCOUNT
    additions = (
        ("cluster", layout.name),
        ("account", account, "Description=sandbox", "Organization=rampup"),
        ("user", machine.user, f"Account={account}", f"DefaultAccount={account}"),
    )
    for words in additions:
        daemons.call_slurm(layout, "sacctmgr", "-i", "add", *words)


def wait_until_idle(layout: Layout, options: Options) -> None:
    waiting = set(node_names(options))

    def idle() -> bool:
        waiting.difference_update(
            row["node"] for row in list_nodes(layout) if row["state"] == "idle"
        )
        return not waiting

    daemons.wait_until(layout, idle, lambda: min(waiting))


# stopping -----------------------------------------------------------------------------------------


def remove(layout: Layout) -> None:
    leftovers.end_all(layout)
    if layout.short != layout.directory:
        shutil.rmtree(layout.short, ignore_errors=True)
    if layout.directory.exists():
        shutil.rmtree(layout.directory)
    if owns_profile(layout):
        layout.profile.unlink()


def refuse_other_host(layout: Layout) -> None:
    """Refuse a sandbox of another machine: several may share a home directory."""
    host = layout.record().get("host", processes.host())
    if host != processes.host():
        hint = f"go there, or use another --name; if that machine is gone: rm -r {layout.directory}"
        raise Refused(f"sandbox {layout.name} belongs to {host}, not to this machine", hint)


@contextmanager
def lock_sandboxes() -> Iterator[None]:
    """Let one `up` or `down` at a time change the sandboxes of this user."""
    folder = sandboxes_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        hint = "set XDG_STATE_HOME to a directory that you can write"
        raise Refused(f"can't write in {folder}: {error.strerror}", hint) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
