"""The guardian of one local rank: whatever happens to the launcher or to the rank, no process of
the rank is left behind.

`python guardian.py SUPERVISOR_PID PROGRAM ...`, started by the supervisor once per rank. It runs
the program as its child, passes signals on, kills it on SIGINT, and ends with the program's exit
code when everything below it is gone. Under Slurm slurmstepd does this. With `--contact FACTS`
before the program it looks, with the run's copy of contact.py, whether the rank meets another.
"""

import ctypes
import importlib.util
import json
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl. Elsewhere the guardian checks for its parent now and then, which is the
    best that can be done."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def children() -> list[int]:
    """Return the pids of all direct children of this process. Orphans below a child subreaper become
    its children too."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            found.extend(int(pid) for pid in file.read().split())
    return found


def kill_all_children(spared: int = 0) -> None:
    """Kill and reap until no child is left but `spared`: a killed child hands its own children up
    to us."""
    while True:
        found = children() if sys.platform.startswith("linux") else []
        pids = [pid for pid in found if pid != spared]
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


def start_child(argv: list[str], blocked: set[signal.Signals]) -> int:
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:  # it died before prctl: the signal will never come
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        os.execvp(argv[0], argv)
    return pid


def watch_contact(program: str, facts: dict[str, Any]) -> Any:
    """Begin to look whether the processes below this one ever talk to another rank."""
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("contact", program)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Watch(os.getpid(), **facts).start()


def guard(argv: list[str], parent: int, contact: dict[str, Any] | None = None) -> int:
    """Run argv; return its exit code when it and everything below it is gone."""
    watched = {
        signal.SIGCHLD,
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 1
    child = start_child(argv, watched)
    watch = watch_contact(**contact) if contact else None
    while True:
        got = signal.sigtimedwait(watched, 0.5)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        orphaned = os.getppid() != parent
        if (
            got
            and got.si_signo in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
            and not orphaned
        ):
            os.kill(child, got.si_signo)
        if orphaned or (got and got.si_signo == signal.SIGINT):
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
    if watch is not None:
        watch.finish(sum(os.times()[2:4]))
    kill_all_children()
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    words = sys.argv[2:]
    facts = json.loads(words[1]) if words[0] == "--contact" else None
    os._exit(guard(words[2:] if facts else words, int(sys.argv[1]), facts))
