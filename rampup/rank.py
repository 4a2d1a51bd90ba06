"""One rank: set the rank context, then become the user's program. Copied into every run directory.

Started once per rank by a launcher, on a node that may have nothing but an old Python: standard library only,
Python >= 3.6, imports nothing of rampup. The argv to run is read from config.json, so no user value ever passes
through a shell.

With --guard (local runs; under Slurm slurmstepd does this) it stays as the rank's guardian: whatever happens to the
launcher or to the rank, no process of the rank outlives it.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import sys
import time
import zlib
from typing import Any, Dict, List, Set

PORT_TAKEN = 98
"""Exit code: rank 0 could not bind its port; the launcher tries the next block."""
PORT_BLOCKS, PORTS_IN_BLOCK, FIRST_PORT = 1124, 16, 12000
"""Below 32768, where the kernel starts to hand out ports by itself."""
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


# the context ------------------------------------------------------------------------------------------------------


def port_of(identity: str, retry: int) -> int:
    """The first port of the block that belongs to this attempt, the same on every node without asking anyone."""
    block = (zlib.crc32(identity.encode()) + retry) % PORT_BLOCKS
    return FIRST_PORT + PORTS_IN_BLOCK * block


def threads_of(asked: int, local_world: int) -> int:
    """CPUs of one rank: what was asked for, else what the user exported, else a fair share of what is there."""
    if asked:
        return asked
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        return int(os.environ["OMP_NUM_THREADS"])
    try:
        there = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        there = os.cpu_count() or 1
    return max(1, there // local_world)


def context_of(options: argparse.Namespace, config: Dict[str, Any]) -> Dict[str, str]:
    """The variables of torchrun, and TF_CONFIG: a script written for either runs unchanged."""
    port = port_of("%s/%d" % (options.run_dir, options.attempt), options.port_retry)
    threads = str(threads_of(config["resources"].get("cpus_per_task") or 0, options.local_world_size))
    context = {
        "RANK": options.rank,
        "LOCAL_RANK": options.local_rank,
        "WORLD_SIZE": options.world_size,
        "LOCAL_WORLD_SIZE": options.local_world_size,
        "GROUP_RANK": options.node_rank,
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "PYTHONUNBUFFERED": "1",  # a log that is read while the run lives
        "RAMPUP_RUN_DIR": options.run_dir,
        "RAMPUP_ATTEMPT": options.attempt,
        "RAMPUP_STARTED": options.started,
        "RAMPUP_NODE": options.node,
    }
    if options.world_size == options.local_world_size and "GLOO_SOCKET_IFNAME" not in os.environ:
        # gloo looks its own host name up otherwise, which fails on a laptop without a network
        context["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform.startswith("linux") else "lo0"
    if 1 < options.world_size < PORTS_IN_BLOCK:
        workers = ["%s:%d" % (options.master_addr, port + 1 + rank) for rank in range(options.world_size)]
        task = {"type": "worker", "index": options.rank}
        context["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    return {name: str(value) for name, value in context.items()}


def port_is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


# the guardian -----------------------------------------------------------------------------------------------------


def prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the guardian asks for its parent now and then, which is the best that can be had."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def children() -> List[int]:
    """Pids of all direct children of this process. Orphans below a child subreaper become its children too."""
    found = []  # type: List[int]
    for thread in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/children" % thread) as file:
            found.extend(int(pid) for pid in file.read().split())
    return found


def kill_all_children() -> None:
    """Kill and reap until nobody is left: a killed child hands its own children up to us."""
    while True:
        pids = children() if sys.platform.startswith("linux") else []
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for pid in pids:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                continue


def become(argv: List[str], env: Dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        sys.stderr.write("rampup: can't start %s: %s\n" % (argv[0], error.strerror))
        sys.stderr.flush()
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def start_child(argv: List[str], env: Dict[str, str], blocked: Set[signal.Signals]) -> int:
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:  # it died before prctl: the signal will never come
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        become(argv, env)
    return pid


def guard(argv: List[str], env: Dict[str, str], parent: int) -> int:
    """Run argv; return its exit code when it and everything below it is gone."""
    watched = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 1
    child = start_child(argv, env, watched)
    deadline = None
    while True:
        got = signal.sigtimedwait(watched, 0.5)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        orphaned = os.getppid() != parent
        if got and got.si_signo in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2) and not orphaned:
            os.kill(child, got.si_signo)
            if got.si_signo == signal.SIGTERM and deadline is None:
                deadline = time.monotonic() + GRACE_S
        if orphaned or (deadline is not None and time.monotonic() > deadline):
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
    kill_all_children()
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# the program ------------------------------------------------------------------------------------------------------


def parse(argv: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rank.py")
    parser.add_argument("run_dir")
    for name in ("attempt", "rank", "local-rank", "world-size", "local-world-size", "node-rank", "port-retry"):
        parser.add_argument("--" + name, type=int, required=True)
    for name in ("node", "master-addr", "started"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--guard", action="store_true")
    return parser.parse_args(argv)


def log_to_file(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def main() -> None:
    parent = os.getppid()
    options = parse(sys.argv[1:])
    with open(os.path.join(options.run_dir, "config.json")) as file:
        config = json.load(file)
    context = context_of(options, config)
    first = options.rank == 0 and options.world_size > 1
    if first and not port_is_free(options.master_addr, int(context["MASTER_PORT"])):
        sys.exit(PORT_TAKEN)
    log_to_file(os.path.join(options.run_dir, "attempts", str(options.attempt), "rank-%d.log" % options.rank))
    env = dict(os.environ, **context)
    if options.guard:
        os._exit(guard(config["argv"], env, parent))
    become(config["argv"], env)


if __name__ == "__main__":
    main()
