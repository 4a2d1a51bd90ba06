"""Starting, watching, stopping: from another terminal, after the terminal is gone, and with
Ctrl-C."""

import functools
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

LOOP = """
    import time
    print("begun", flush=True)
    time.sleep(60)
"""


def test_detached_run_is_watched_and_cancelled_from_elsewhere(cli, eventually) -> None:
    done = cli("run", "--detach", "--json", "--", "python", cli.script(LOOP))
    run = json.loads(done.stdout)["id"]
    eventually(lambda: "begun" in cli("logs", run).stdout, what="its first line")
    assert cli.json("show", run)["state"] == "running"
    assert cli("wait", run, "--timeout", "0.2", check=101)
    follower = cli.start("logs", "-f", run)
    cli("cancel", run)
    out, _ = follower.communicate(timeout=45)
    assert out == "begun\n"
    assert cli.json("show", run)["state"] == "cancelled"
    assert cli("wait", run, check=103)
    assert "already cancelled" in cli("cancel", run).stderr


def test_a_detached_run_survives_its_terminal(cli, eventually) -> None:
    """The terminal is a session that is hung up; the run goes on to its end."""
    script = cli.script("import time; time.sleep(4); open('finished', 'w')")
    shell = cli.start("run", "--detach", "--", "python", script, start_new_session=True)
    shell.communicate(timeout=45)
    subprocess.run(["pkill", "-HUP", "-s", str(shell.pid)], check=False)
    cli("wait")
    assert (cli.cwd / "finished").exists()


def test_wait_tells_the_outcome(cli) -> None:
    for code, expected in ((0, 0), (3, 100)):
        run = json.loads(
            cli("run", "--detach", "--json", "--", "sh", "-c", f"sleep 0.3; exit {code}").stdout
        )["id"]
        assert cli.json("wait", run, check=expected)["exit_code"] == expected


def test_ctrl_c_cancels_cleanly(cli, eventually) -> None:
    script = cli.script(
        """
        import signal, sys, time
        def tidy(*_):
            open("tidied", "w").close()
            sys.exit(0)
        signal.signal(signal.SIGTERM, tidy)
        print("begun", flush=True)
        time.sleep(60)
        """
    )
    running = cli.start("run", "--", "python", script, start_new_session=True)
    assert running.stdout is not None and running.stdout.readline() == "begun\n"
    os.killpg(running.pid, signal.SIGINT)  # what a terminal does: to the whole foreground group
    _, err = running.communicate(timeout=45)
    assert running.returncode == 130, err
    assert (cli.cwd / "tidied").exists()
    assert cli.json("show")["state"] == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_from_elsewhere_is_not_ctrl_c(cli, number: signal.Signals) -> None:
    heard = functools.partial(signal.signal, number, signal.SIG_DFL)  # also below nohup
    words = ("run", "--", "sh", "-c", "echo begun; exec sleep 60")
    running = cli.start(*words, preexec_fn=heard)
    assert running.stdout is not None and running.stdout.readline() == "begun\n"
    running.send_signal(number)
    _, err = running.communicate(timeout=45)
    assert running.returncode == 128 + number, err
    found = cli.json("why")
    assert found["problem"] == "cancelled-elsewhere"
    assert found["cause"].endswith(f"not by rampup: {number.name}, sent to rampup")
    assert "Ctrl-C" not in err


@pytest.mark.parametrize("after_s", [0.0, 0.03])
def test_ctrl_c_while_the_launcher_starts(cli, after_s: float) -> None:
    running = cli.start("run", "--", "sleep", "60")
    assert running.stderr is not None and running.stderr.readline().startswith("run ")
    time.sleep(after_s)
    for _ in range(3):
        running.send_signal(signal.SIGINT)
        time.sleep(0.01)
    running.communicate(timeout=45)
    assert running.returncode == 130
    assert cli.json("show")["state"] == "cancelled"


def test_a_rank_that_ignores_sigterm_is_killed(cli) -> None:
    script = cli.script(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('begun', flush=True); time.sleep(60)"
    )
    running = cli.start("run", "--", "python", script)
    assert running.stdout is not None and running.stdout.readline() == "begun\n"
    begun = time.monotonic()
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=45)
    assert time.monotonic() - begun < 30


def test_time_limit(cli) -> None:
    run = cli.run_command("sleep", "60", options=("--time=0:01",), check=104)
    assert (run["state"], run["exit_code"]) == ("timeout", 104)


def test_when_a_rank_fails_the_others_end_and_its_traceback_is_shown(cli) -> None:
    script = cli.script(
        """
        import os, time
        if os.environ["RANK"] == "1":
            raise ValueError("rank one is broken")
        time.sleep(60)
        """
    )
    begun = time.monotonic()
    done = cli("run", "--tasks-per-node=3", "--", "python", script, check=100)
    assert time.monotonic() - begun < 40
    assert "ValueError: rank one is broken" in done.stderr
    assert "rampup logs" in done.stderr and "--rank 1" in done.stderr


def test_list_show_and_latest(cli) -> None:
    cli.env["TMPDIR"] = str(cli.cwd)  # a root below it would not be remembered
    # names that sort the wrong way, within one second
    first = cli.run_command("true", options=("--name=zzz",))
    second = cli.run_command("false", options=("--name=aaa",), check=100)
    rows = cli.json("list")
    assert [(row["name"], row["state"]) for row in rows] == [
        ("aaa", "failed"),
        ("zzz", "completed"),
    ]
    assert cli.json("show")["id"] == second["id"]
    assert cli.json("show", first["id"][:4])["id"] == first["id"]
    assert cli.json("show", first["dir"])["id"] == first["id"]
    assert cli("show", "zzzzzz", check=102)
    assert cli("cancel", check=2)
    elsewhere = cli("list", "--json", RAMPUP_RUNS=str(cli.cwd / "other")).stdout
    assert len(json.loads(elsewhere)) == 2, "used roots are remembered"


def test_a_damaged_run_is_still_listed(cli) -> None:
    run = cli.run_command("true")
    (Path(run["dir"]) / "attempts" / "1" / "attempt.json").write_text('{"torn')
    (Path(run["dir"]) / "config.json").unlink()
    assert cli.json("list")[0]["state"] == "failed"
    assert "config.json" in cli("show").stderr
