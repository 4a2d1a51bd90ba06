"""The program of one task of the barrier stage: it starts one rank, and ends with it.

It travels to the executors by value, so that they need no rampup for a command: only the standard
library and what pyspark brings is imported here. Whatever dies, no process of the rank stays: the
guardian of the rank dies with this Python worker, and this worker ends when its own parent is gone.
"""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

POLL_S, FILES_EVERY_S = 0.05, 0.5
GRACE_S, SAVE_WITHIN_S, LATE_S = 5.0, 30.0, 3.0
"""From the request to end to SIGKILL: for a rank that does not listen, and for one that saves."""
MARK = "rampup-rank: "
"""Begins the message of a task that ends because its rank failed."""
OF_SPARK = ("PYTHON_WORKER_FACTORY", "_SPARK_AUTH", "SPARK_AUTH")
"""Variables of the worker that no rank needs: they hold secrets."""


def make_task(order: Mapping[str, Any]) -> Callable[[Iterator[Any]], Iterator[str]]:
    """Return what each task of the stage does; `order` says which attempt of which run it is."""

    def run_task(rows: Iterator[Any]) -> Iterator[str]:
        from pyspark import BarrierTaskContext

        context: Any = BarrierTaskContext.get()
        rank = context.partitionId()
        hosts = [info.address.rpartition(":")[0] for info in context.getTaskInfos()]
        try:
            check_place(order)
            claim(order, rank)
            gpus = context.resources().get("gpu")
            devices = list(gpus.addresses) if gpus else []
            code, was_asked = run_rank(order, rank, hosts, context.cpus(), devices)
        except RankError as error:
            raise RuntimeError(MARK + json.dumps(error.args[0])) from None
        end = json.dumps({"rank": rank, "code": code, "t": time.time()})
        if code not in (0, order["again"]) and not was_asked:
            raise RuntimeError(MARK + end)
        yield end

    return run_task


class RankError(Exception):
    """Why a rank was not started; its argument is what the driver gets."""


def check_place(order: Mapping[str, Any]) -> None:
    """Refuse to start where the run directory is not the one that the driver wrote."""
    path = os.path.join(order["run_dir"], "run.json")
    deadline = time.time() + order["files_within"]
    while hash_of(path) != order["run_hash"]:
        if time.time() > deadline:
            what = "sees another" if os.path.exists(path) else "can't read"
            hint = "put runs on storage that all executors see: set RAMPUP_RUNS"
            is_closed = os.path.exists(order["run_dir"]) and not os.access(
                order["run_dir"], os.X_OK
            )
            if is_closed:
                hint = f"it runs as the user with the number {os.getuid()}: let it run as you"
            cause = f"the executor on {socket.gethostname()} {what} {path}"
            raise RankError({"cause": cause, "hint": hint})
        time.sleep(0.2)


def hash_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def claim(order: Mapping[str, Any], rank: int) -> None:
    """Take the right to run this rank, which nobody gets twice: Spark starts a stage again by itself
    after it has lost a task."""
    name = f"task-{order['port_retry']}-{rank}"
    about = {"host": socket.gethostname(), "pid": os.getpid()}
    try:
        with open(os.path.join(order["attempt_dir"], name), "x") as file:
            json.dump(about, file)
    except FileExistsError:
        raise RankError({"cause": f"Spark started rank {rank} a second time"}) from None


def run_rank(
    order: Mapping[str, Any], rank: int, hosts: list[str], cpus: int, devices: list[str]
) -> tuple[int, bool]:
    """Start the rank under its guardian. Return its exit code when nothing of it is left, and whether
    somebody had asked it to end."""
    facts = {
        "attempt": order["attempt"],
        "port-retry": order["port_retry"],
        "rank": rank,
        "local-rank": hosts[:rank].count(hosts[rank]),
        "world-size": len(hosts),
        "local-world-size": hosts.count(hosts[rank]),
        "node-rank": list(dict.fromkeys(hosts)).index(hosts[rank]),
        "master-addr": hosts[0],
        "started": order["started"],
        "stop-at": order["stop_at"],
        "cpus": cpus,
    }
    python = [sys.executable, "-I", "-S"]
    program = [*python, os.path.join(order["run_dir"], "rank.py"), order["run_dir"]]
    options = [f"--{name}={value}" for name, value in facts.items()]
    guardian = [*python, os.path.join(order["run_dir"], "guardian.py"), str(os.getpid())]
    env = {name: it for name, it in os.environ.items() if not name.startswith(OF_SPARK)}
    env.update(order["variables"])
    if devices:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    parent = os.getppid()
    process = subprocess.Popen([*guardian, *program, *options], stdin=subprocess.DEVNULL, env=env)
    try:
        was_asked = watch(process, order["attempt_dir"], parent)
    finally:
        end_now(process)
    code = process.returncode
    return 128 - code if code < 0 else code, was_asked


def watch(process: "subprocess.Popen[bytes]", attempt_dir: str, parent: int) -> bool:
    """Return when the rank has ended, and whether somebody had asked for that. It is also ended when
    this worker has lost the executor that it belongs to."""
    look_at, kill_at = 0.0, float("inf")
    while process.poll() is None:
        now = time.monotonic()
        if os.getppid() != parent:
            return True
        if now >= kill_at:
            process.send_signal(signal.SIGINT)  # the guardian kills all below it
            kill_at = now + LATE_S
        if now >= look_at and kill_at == float("inf"):
            look_at = now + FILES_EVERY_S
            is_gone = not os.path.isdir(attempt_dir)
            if is_gone or os.path.exists(os.path.join(attempt_dir, "end")):
                process.send_signal(signal.SIGTERM)
                saves = os.path.exists(os.path.join(attempt_dir, "listens"))
                kill_at = now + (SAVE_WITHIN_S if saves else GRACE_S)
        time.sleep(POLL_S)
    return kill_at < float("inf")


def end_now(process: "subprocess.Popen[bytes]") -> None:
    """End the rank at once, if it still runs: Spark interrupts a task by an exception."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        try:
            process.wait(LATE_S)
        except subprocess.TimeoutExpired:
            process.kill()  # its child dies with it, by PR_SET_PDEATHSIG
            process.wait()
