"""Starts real ranks, many runs after one another, and pays for importing a framework once: every
rank is a fork.

    python ranks.py CASES.json        prints {name: [exit code of each rank in the last attempt]}

Each fork gets the variables that rank.py sets and becomes `python -m rampup.worker RUN_DIR`.
"""

import importlib
import json
import os
import random
import resource
import runpy
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

IMPORTED_ONCE = {
    "torch": ("torch", "torch._dynamo", "rampup.engines.torch.engine"),
    "keras": ("rampup.engines.keras.engine",),
}
IMPORTED_ONCE["lightning"] = (
    "rampup.engines.lightning.engine",
    "lightning.pytorch.demos.boring_classes",
    "sklearn.datasets",
)
"""Before the first fork, so that no rank has to. DDP and torch's own optimizers import
torch._dynamo."""
ENDS_AFTER_S = 120
HEARD_WITHIN_S = 30
BLOCK = 16
"""Ports of one attempt: that of rank 0, and one for each worker of TensorFlow."""
PORTS = range(61_000, 65_520)
"""Above those that rampup chooses, and above those that Linux hands out to anybody who asks for any
port."""


def main(cases: dict[str, dict[str, Any]]) -> None:
    for engine in {case.get("engine", "torch") for case in cases.values()}:
        for module in IMPORTED_ONCE[engine]:
            importlib.import_module(module)
    print(json.dumps({name: run(case) for name, case in cases.items()}))


def run(case: dict[str, Any]) -> list[int]:
    """Every attempt of a case may have a number of ranks of its own."""
    codes: list[int] = []
    for attempt, world in enumerate(case["worlds"], start=1):
        os.makedirs(f"{case['dir']}/attempts/{attempt}", exist_ok=True)
        port = free_port()
        ranks = [
            fork({**case, "attempt": attempt, "world": world}, rank, port) for rank in range(world)
        ]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    return codes


def fork(case: dict[str, Any], rank: int, port: int) -> int:
    pid = os.fork()
    if pid == 0:
        become_rank(case, rank, port)
    return pid


def become_rank(case: dict[str, Any], rank: int, port: int) -> NoReturn:
    folder, world, attempt = case["dir"], case["world"], case["attempt"]
    log = os.open(
        f"{folder}/attempts/{attempt}/rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND
    )
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= variables(folder, rank, world, port, attempt)
    if case.get("limit"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (case["limit"], case["limit"]))
    if attempt == 1 and case.get("asked_after"):
        ask_after(case["asked_after"], rank)
    if attempt == 1 and case.get("killed_at_sync"):
        die_at_sync(case["killed_at_sync"])
    signal.alarm(ENDS_AFTER_S)  # a rank that hangs must not outlive the test
    sys.argv = ["worker", folder]
    try:
        runpy.run_module("rampup.worker", run_name="__main__")
    except SystemExit as left:
        os._exit(left.code if isinstance(left.code, int) else 1)
    os._exit(0)


def ask_after(steps: int, rank: int) -> None:
    """SIGUSR2 to the last rank, after so many steps of an optimizer: the code that trains knows
    nothing of it."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from rampup.runtime.stop import StopFlag

    seen, heard, usual = [], threading.Event(), StopFlag.request

    def ask(*arguments: Any) -> None:
        seen.append(1)
        if len(seen) == steps:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert heard.wait(HEARD_WITHIN_S), "nobody waits for the signal"

    def note(stop: StopFlag, reason: str) -> None:
        usual(stop, reason)
        heard.set()

    if rank == int(os.environ["WORLD_SIZE"]) - 1:
        StopFlag.request = note  # type: ignore[method-assign]
        register_optimizer_step_post_hook(ask)


def die_at_sync(number: int) -> None:
    """SIGKILL when a file would be brought to the disk for the so-manieth time: in the middle of a
    save."""
    usual, seen = os.fsync, []

    def sync(descriptor: int) -> None:
        seen.append(1)
        if len(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        usual(descriptor)

    os.fsync = sync


def variables(folder: str, rank: int, world: int, port: int, attempt: int = 1) -> dict[str, str]:
    """What rank.py sets."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "RAMPUP_RUN_DIR": folder,
        "RAMPUP_ATTEMPT": str(attempt),
        "RAMPUP_STARTED": str(time.time()),
        "RAMPUP_NODE": "here",
        **tensorflow(rank, world, port),
    }


def tensorflow(rank: int, world: int, port: int) -> dict[str, str]:
    """TF_CONFIG, on the other ports of the block."""
    if world == 1:
        return {}
    workers = [f"127.0.0.1:{port + 1 + other}" for other in range(world)]
    return {
        "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        )
    }


def free_port() -> int:
    """The first of a block of free ports. Another process that looks for one at the same time looks
    elsewhere."""
    # a seed that all workers of the tests share would send them to the same ports
    anywhere = random.SystemRandom()
    while True:
        first = anywhere.choice(PORTS[::BLOCK])
        if all(is_free(port) for port in range(first, first + BLOCK)):
            return first


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
