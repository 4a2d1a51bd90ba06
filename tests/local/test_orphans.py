"""No process outlives its run, whoever is killed."""

import os
import signal
import time
from pathlib import Path

import pytest

FAMILY = """
    import os, signal, subprocess, sys, time
    # loader workers that ignore SIGTERM, and a shell child in a session of its own
    for _ in range(2):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)
            os._exit(0)
    subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 300; true"], start_new_session=True)
    open(f"ready-{os.environ['RANK']}", "w").close()
    time.sleep(300)
"""


def processes_of(marker: str) -> list[int]:
    """Every process whose environment names the run: children inherit it, whatever their parent
    is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ, state = (
                    (entry / "environ").read_bytes(),
                    (entry / "stat").read_text().rpartition(")")[2].split()[0],
                )
            except OSError:
                continue
            if marker.encode() in environ and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("victim", ["launcher", "command line", "guardian", "rank"])
def test_nobody_outlives_a_killed(cli, eventually, victim: str) -> None:
    marker = f"RAMPUP_TEST_MARKER={cli.cwd}"
    cli.env["RAMPUP_TEST_MARKER"] = str(cli.cwd)
    running = cli.start("run", "--tasks-per-node=2", "--", "python", cli.script(FAMILY))
    eventually(
        lambda: all((cli.cwd / f"ready-{rank}").exists() for rank in range(2)), what="both ranks"
    )
    family = "command line, launcher, and per rank: guardian, rank, 2 workers, shell, sleep"
    # one that just became sleep shows nothing
    eventually(lambda: len(processes_of(marker)) >= 2 + 2 * 6, what=family)
    os.kill(pid_of(victim, running.pid, cli), signal.SIGKILL)
    eventually(
        lambda: [pid for pid in processes_of(marker) if pid != running.pid] == [],
        what="nobody left",
    )
    running.communicate(timeout=45)
    state = cli.json("show")["state"]
    assert state == ("cancelled" if victim == "command line" else "failed")


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1])
def test_a_launcher_killed_while_it_starts_leaves_nobody(cli, eventually, delay_s: float) -> None:
    cli.env["RAMPUP_TEST_MARKER"] = str(cli.cwd)
    running = cli.start("run", "--tasks-per-node=4", "--", "sleep", "300")
    deadline = time.monotonic() + 20
    while not (launchers := children_of(running.pid)) or not children_of(launchers[0]):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(delay_s)
    os.kill(launchers[0], signal.SIGKILL)
    running.communicate(timeout=45)
    eventually(lambda: processes_of(f"RAMPUP_TEST_MARKER={cli.cwd}") == [], what="nobody left")


def children_of(pid: int) -> list[int]:
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []


def pid_of(victim: str, command_line: int, cli) -> int:
    if victim == "command line":
        return command_line
    launcher = only_child(command_line)
    if victim == "launcher":
        return launcher
    guardian = only_child(launcher)
    return guardian if victim == "guardian" else only_child(guardian)


def only_child(pid: int) -> int:
    return children_of(pid)[0]
