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
    launcher = children_of(command_line)[0]
    if victim == "launcher":
        return launcher
    guardian = guardians_of(launcher)[0]
    return guardian if victim == "guardian" else children_of(guardian)[0]


def guardians_of(launcher: int) -> list[int]:
    """Those of the ranks; the watcher of the command is a child of the launcher, too."""
    return [pid for pid in children_of(launcher) if "guardian.py" in command_of(pid)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_a_killed_watcher_costs_nothing_but_metrics(cli, eventually) -> None:
    go = cli.cwd / "go"
    script = cli.script(f"""
        import os, time
        open("ready", "w").close()
        while not os.path.exists({str(go)!r}):
            time.sleep(0.05)
    """)
    running = cli.start("run", "--", "python", script)
    eventually(lambda: (cli.cwd / "ready").exists(), what="the rank")
    launcher = children_of(running.pid)[0]
    (watcher,) = set(children_of(launcher)) - set(guardians_of(launcher))
    os.kill(watcher, signal.SIGKILL)
    go.touch()
    running.communicate(timeout=45)
    assert cli.json("show")["state"] == "completed"
