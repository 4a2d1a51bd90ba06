"""`rampup sandbox up|status|down`: a real Slurm of several nodes on this machine, to practise and
to test."""

import time
from typing import TextIO

import click
from msgspec import to_builtins

from rampup.cli import output
from rampup.cli.guesses import Subcommands
from rampup.cli.options import json_option
from rampup.sandbox import sandbox
from rampup.sandbox.layout import DEFAULT_NAME, Options, list_sandboxes
from rampup.sandbox.sandbox import Status

STATE_COLOURS = {"up": output.GREEN, "down": output.DIM, "damaged": output.RED}
name_option = click.option(
    "--name",
    metavar="NAME",
    default=DEFAULT_NAME,
    show_default=True,
    help="Name of the sandbox; you can have several.",
)


@click.group(
    cls=Subcommands,
    meanings={
        "start": "rampup sandbox up",
        "create": "rampup sandbox up",
        "stop": "rampup sandbox down",
        "rm": "rampup sandbox down",
        "delete": "rampup sandbox down",
        "ls": "rampup sandbox status",
        "list": "rampup sandbox status",
    },
)
def command() -> None:
    """Run a real Slurm of several nodes on this machine."""


@command.command("up")
@name_option
@click.option(
    "--nodes",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="How many nodes.",
)
@click.option(
    "--cpus-per-node",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    metavar="N",
    help="CPUs that each node reports.",
)
@click.option(
    "--gpus-per-node",
    type=click.IntRange(0, 64),
    default=0,
    show_default=True,
    metavar="N",
    help="Simulated GPUs per node.",
)
@click.option(
    "--max-array-size",
    type=click.IntRange(1, 4_000_001),
    default=1001,
    show_default=True,
    metavar="N",
    help="Slurm's MaxArraySize.",
)
@click.option("--no-accounting", is_flag=True, help="No database: no sacct, no accounts.")
@click.option(
    "--grace-time",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="S",
    help="Seconds from preemption to kill.",
)
@click.option("--no-requeue", is_flag=True, help="JobRequeue=0, as at sites that do not requeue.")
@click.option(
    "--node-timeout",
    type=click.IntRange(5),
    default=30,
    show_default=True,
    metavar="S",
    help="Seconds until Slurm marks a silent node as down.",
)
@click.option(
    "--slurm-conf",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Lines to add to slurm.conf: a site's partitions, features, nodes.",
)
@json_option
def up(
    name: str,
    nodes: int,
    cpus_per_node: int,
    gpus_per_node: int,
    max_array_size: int,
    no_accounting: bool,
    grace_time: int,
    no_requeue: bool,
    node_timeout: int,
    slurm_conf: TextIO | None,
    as_json: bool,
) -> int:
    """Start a sandbox (does nothing if it is running)."""
    wanted = Options(
        nodes=nodes,
        cpus_per_node=cpus_per_node,
        gpus_per_node=gpus_per_node,
        max_array_size=max_array_size,
        accounting=not no_accounting,
        grace_time_s=grace_time,
        requeue=not no_requeue,
        node_timeout_s=node_timeout,
        further=slurm_conf.read() if slurm_conf else "",
    )
    began = time.monotonic()
    found, started = sandbox.up(name, wanted, output.say)
    took = output.duration(time.monotonic() - began)
    size = f"{output.count(len(found.nodes), 'node')}, partitions normal, debug, long and urgent"
    output.say(f"sandbox {name} {f'is up after {took}' if started else 'was up already'}: {size}")
    if found.options != to_builtins(wanted):
        change = f"rampup sandbox down{name_words(name)}"
        output.say(f"it keeps the options that it was started with; to change them: {change}")
    if as_json:
        output.emit_json(to_builtins(found))
        return 0
    output.write_whole(
        f"export SLURM_CONF={found.slurm_conf}  # for squeue, sinfo and sacct by hand"
    )
    output.next_step(f"rampup run digits --on {name} --nodes {min(2, len(found.nodes))}")
    return 0


@command.command("status")
@name_option
@json_option
def show_status(name: str, as_json: bool) -> int:
    """Show the sandbox's daemons, nodes and jobs. Exit code 0 if it is up, 1 otherwise."""
    found = sandbox.status(name)
    code = 0 if found.state == "up" else 1
    if as_json:
        output.emit_json(to_builtins(found))
        return code
    output.write_whole(f"sandbox {name}: {output.paint(found.state, STATE_COLOURS[found.state])}")
    if found.state == "down":
        others = [other for other in list_sandboxes() if other != name]
        if others:
            output.next_step(f"rampup sandbox status --name {others[0]}")
        else:
            output.next_step(f"rampup sandbox up{name_words(name)}")
        return code
    show_details(found)
    output.next_step(
        f"rampup run digits --on {name}" if code == 0 else f"rampup sandbox up{name_words(name)}"
    )
    return code


def show_details(found: Status) -> None:
    output.write_whole(f"export SLURM_CONF={found.slurm_conf}")
    output.write_whole()
    pids = {name: "gone" if pid is None else str(pid) for name, pid in found.daemons.items()}
    output.table(("daemon", "pid"), list(pids.items()))
    for rows in (found.nodes, found.jobs):
        if rows:
            output.write_whole()
            head = [column.replace("_", " ") for column in rows[0]]
            output.table(head, [tuple(row.values()) for row in rows])


@command.command("down")
@name_option
def down(name: str) -> int:
    """Stop the sandbox and remove it. Your runs are kept."""
    began = time.monotonic()
    if sandbox.down(name):
        output.say(f"sandbox {name} was removed after {output.duration(time.monotonic() - began)}")
    else:
        output.say(f"there is no sandbox {name}; known: {', '.join(list_sandboxes()) or 'none'}")
    output.next_step(f"rampup sandbox up{name_words(name)}")
    return 0


def name_words(name: str) -> str:
    return "" if name == DEFAULT_NAME else f" --name {name}"
