"""`rampup why` on runs that were really broken here: the cause of each, where it stands, and what
helps."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rampup import rank
from rampup.diagnose.why.explain import Answer, explain
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.rundir.records import write_json
from rampup.schedulers.local import supervisor_argv

BROKEN = {
    # problem: a script that has it, what the first line says, what the remedy says
    "exception": (
        "import json\ndef read(text):\n    return json.loads(text)\nread('{')",
        "rank 0: json.decoder.JSONDecodeError: Expecting property name",
        "correct script.py:3",
    ),
    "module-missing": (
        "import yaml2.parts",
        "has no module yaml2, at script.py:1",
        "python -m pip install yaml2",
    ),
    "file-missing": (
        "open('data/train.csv')",
        "file not found: data/train.csv, at script.py:1",
        "the program ran in /",
    ),
    "data-not-fetched": (
        """
        import os, rampup
        from rampup.datasets import sets
        os.environ["XDG_CACHE_HOME"] = "/nowhere"
        rampup.init()
        sets.folder("mnist")
        """,
        "data set mnist is not on this machine",
        "rampup fetch mnist",
    ),
    "memory": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\nbytearray(2**31)",
        "rank 0 ran out of memory, at script.py:3",
        "a smaller batch",
    ),
    "segmentation-fault": (
        "import ctypes, faulthandler\nfaulthandler.enable()\nctypes.string_at(0)",
        "died of a segmentation fault, at script.py:3",
        "PYTHONFAULTHANDLER=1 rampup resume",
    ),
    "bus-error": (
        """
        import mmap
        file = open("mapped", "w+b")
        file.truncate(8192)
        seen = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        seen[5000]
        """,
        "of a bus error",
        "df -h /dev/shm",
    ),
    "illegal-instruction": (
        "import os; os.kill(os.getpid(), 4)",
        "built for another CPU",
        "--constraint",
    ),
    "aborted": (
        "import os; print('terminate called: a bad thing', flush=True); os.abort()",
        "aborted by a library; last output: terminate called: a bad thing",
        "rampup logs",
    ),
    "ended-by-signal": ("import os; os.kill(os.getpid(), 10)", "ended by SIGUSR1", "rampup logs"),
    "port-in-use": (
        """
        import socket
        first, second = socket.socket(), socket.socket()
        first.bind(("", 0))
        first.listen()
        second.bind(first.getsockname())
        """,
        "a port that another program uses, at script.py:6",
        "MASTER_PORT",
    ),
    "not-permitted": (
        "import subprocess\nopen('my tool', 'w').close()\nsubprocess.run(['./my tool'])",
        "not permitted to use ./my tool, at script.py:3",
        "ls -ld './my tool'",
    ),
    "asks-a-person": ("input('Continue? ')", "waited for input, at script.py:1", "as an argument"),
    "wrong-arguments": (
        "import argparse; argparse.ArgumentParser().parse_args(['--lrr=1'])",
        "rejected its arguments: unrecognized arguments: --lrr=1",
        "python script.py",
    ),
    "syntax": (
        "print('fine')\nfor x in range(3)\n    print(x)",
        "SyntaxError: expected ':'",
        "correct script.py:2",
    ),
    "files-open": (
        """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        kept = [open("/dev/null") for _ in range(30)]
        """,
        "too many open files, at script.py:4",
        "ulimit -n",
    ),
    "threads-refused": (
        """
        import resource, threading, time
        now = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (now + 2**24, now + 2**24))
        while True:
            threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
        """,
        "could not start another thread or process, at script.py:6",
        "--cpus-per-task 1",
    ),
    "no-network": (
        "import urllib.request\nurllib.request.urlopen('http://data.invalid/weights')",
        "needed the network, at script.py:2",
        "before the run",
    ),
    "library-missing": (
        "import ctypes\nctypes.CDLL('libnosuch.so.3')",
        "could not load the library libnosuch.so.3, at script.py:2",
        "LD_LIBRARY_PATH",
    ),
    "gpu-missing": (
        "import torch\ntorch.zeros(1, device='cuda')",
        "a GPU, but there is none, at script.py:2: AssertionError: Torch not compiled with CUDA",
        "rampup doctor",
    ),
    "not-known": (
        "import sys; print('Error: Killed, out of memory'); sys.exit(3)",
        "not known: rank 0 ended with exit code 3; last output: Error: Killed, out of memory",
        "rampup logs",
    ),
}


def why(run: dict[str, Any]) -> Answer:
    return explain(RunDir(run["dir"]))


def detached(cli: Any, *command: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("run", "--detach", "--json", "--", *command).stdout)
    return found


def told(answer: Answer) -> tuple[str, str, bool]:
    return answer.finding.id, answer.finding.about, answer.known


@pytest.mark.parametrize("problem", BROKEN)
def test_a_script_that_fails(cli, problem: str) -> None:
    script, cause, remedy = BROKEN[problem]
    answer = why(cli.run_command("python", cli.script(script), check=100))
    assert told(answer) == (problem, "failed", problem != "not-known")
    assert cause in answer.finding.cause and remedy in answer.finding.remedy
    assert answer.rank == 0
    assert all(clue.file.startswith("attempts/1/") for clue in answer.evidence) and answer.evidence


def test_the_first_line_the_evidence_and_what_to_do(cli) -> None:
    """As a person sees it, with a log that does its best to confuse a terminal."""
    hostile = "\x1b]0;title\x07\x1b[31mbad\x00\u202e" + "x" * 5000
    cli.script(
        f"import os\nif os.environ['RANK'] == '1':\n    raise ValueError({hostile!r})\nimport time; time.sleep(60)"
    )
    run = cli.run_command("python", "script.py", options=("--tasks-per-node=2",), check=100)
    done = cli("why")
    name, first, *evidence, hint = done.stdout.splitlines()
    assert name == f"script {run['id']}: failed"
    assert first.startswith("rank 1: ValueError: badxxx") and first.endswith(", at script.py:3")
    assert evidence[0].startswith("  attempts/1/rank-1.log:4  ValueError: badxxx")
    assert hint == f"hint: correct script.py:3, then: rampup resume {run['id']} --code current"
    assert done.stderr == f"next: rampup logs {run['id']} --rank 1\n"
    assert all(line.isprintable() and len(line) < 500 for line in done.stdout.splitlines())
    whole = cli.json("why", run["id"])
    assert (whole["problem"], whole["rank"], whole["known"], whole["attempt"]) == (
        "exception",
        1,
        True,
        1,
    )
    assert whole["evidence"][0]["line"] == 4
    assert first in cli("show").stdout, "show has the same first line"
    assert cli("why", "zzzzzz", check=102)


# the program --------------------------------------------------------------------------------------


def test_programs_that_do_not_start(cli) -> None:
    missing = why(cli.run_command("sh", "-c", "nosuchprogram --lr 1", check=100))
    assert (
        told(missing)[0] == "program-missing"
        and "could not start nosuchprogram" in missing.finding.cause
    )
    cli.script("#!/bin/sh\n", "tool.sh")
    refused = why(cli.run_command("sh", "-c", "./tool.sh", check=100))
    assert (
        told(refused)[0] == "program-not-executable"
        and "chmod +x ./tool.sh" in refused.finding.remedy
    )


def test_another_python(cli) -> None:
    answer = why(cli.run_command("python", "-I", "-S", cli.script("import rampup"), check=100))
    assert told(answer)[0] == "other-python" and "rampup run -- /" in answer.finding.remedy


def test_what_the_copy_of_the_code_does_not_have(cli) -> None:
    """Only the folder of the script is copied; this one reaches out of it, in a way that nobody
    can see in its text."""
    (cli.cwd / "src").mkdir()
    (cli.cwd / "library").mkdir()
    (cli.cwd / "library" / "layers.py").touch()
    (cli.cwd / "table.csv").touch()
    up = "import pathlib, sys\nup = pathlib.Path('/'.join(__file__.split('/')[:-2]))\n"
    cli.script(f"{up}sys.path.append(str(up / 'library'))\nimport layers", "src/train.py")
    module = why(cli.run_command("python", "src/train.py", check=100))
    assert told(module)[0] == "module-left-out"
    assert f"{cli.cwd}/library/layers.py is not in the copy" in module.finding.cause
    cli.script(f"{up}open(up / 'table.csv')", "src/read.py")
    file = why(cli.run_command("python", "src/read.py", check=100))
    assert (
        told(file)[0] == "file-left-out"
        and f"{cli.cwd}/table.csv is not in the copy" in file.finding.cause
    )


def test_a_loss_that_is_no_number(cli) -> None:
    text = """
        import rampup
        run = rampup.init(lr=0.5)
        for step in range(1, 30):
            run.log(step=step, loss=1 / step if step < 20 else float("nan"))
        """
    answer = why(cli.run_command("python", cli.script(text), options=("lr=0.5",)))
    assert told(answer)[:2] == ("loss-not-finite", "completed")
    assert answer.finding.cause.startswith("loss became NaN or infinite at step 20")
    assert answer.finding.remedy == "lr=0.05"
    assert (answer.evidence[0].file, answer.evidence[0].line) == ("attempts/1/metrics.jsonl", 20)
    cli.script(
        "import rampup\nrampup.init().log(step=1, loss=float('nan'))\nraise ValueError('loss is nan')",
        "raises.py",
    )
    assert told(why(cli.run_command("python", "raises.py", check=100)))[:2] == (
        "loss-not-finite",
        "failed",
    )


def test_a_full_disk(cli, small_disk: Path) -> None:
    """Of the program's own data; of the run directory that is told in test_storage.py."""
    script = cli.script(f"open('{small_disk}/data', 'wb').write(bytes(60_000_000))")
    answer = why(cli.run_command("python", script, check=100))
    assert told(answer)[0] == "disk-full" and "script.py:1" in answer.finding.cause
    assert "df -h" in answer.finding.remedy
    (small_disk / "data").unlink()
    logs = cli.script("for _ in range(700): print('x' * 100_000)")
    answer = why(cli.run_command("python", logs, check=100, RAMPUP_RUNS=str(small_disk / "runs")))
    assert told(answer)[0] == "disk-full"


# the ranks ----------------------------------------------------------------------------------------


def test_a_rank_that_is_killed_from_outside(cli, eventually) -> None:
    text = "import os, time; open(f'pid-{os.environ[\"RANK\"]}', 'w').write(str(os.getpid())); time.sleep(60)"
    run = json.loads(
        cli(
            "run", "--detach", "--json", "--tasks-per-node=2", "--", "python", cli.script(text)
        ).stdout
    )
    pids = [cli.cwd / f"pid-{number}" for number in range(2)]
    eventually(lambda: all(file.exists() and file.read_text() for file in pids), what="both ranks")
    os.kill(int(pids[1].read_text()), signal.SIGKILL)
    eventually(lambda: why(run).finding.about == "failed", what="the end")
    answer = why(run)
    assert (told(answer)[0], answer.rank) == ("killed", 1)
    assert answer.finding.cause.startswith("rank 1 was killed by signal 9 (SIGKILL) from outside")
    assert answer.evidence[0].text == "signal 9 (SIGKILL) of rank 1"


def test_a_lost_peer_is_not_the_cause(cli) -> None:
    """Rank 0 waits for rank 1 over a real connection, and falls when that one fails."""
    text = """
        import atexit, os, socket, time
        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if os.environ["RANK"] == "0":
            with socket.create_server(place) as server:
                peer = server.accept()[0]
                peer.sendall(b"gradients")
                peer.recv(10)
        time.sleep(0.3)
        peer = socket.create_connection(place)
        time.sleep(0.3)
        atexit.register(time.sleep, 5)  # a library that takes its time: rank 0 ends first
        atexit.register(peer.close)
        raise ValueError("wrong shape")
        """
    run = cli.run_command("python", cli.script(text), options=("--tasks-per-node=2",), check=100)
    assert "Connection reset by peer" in cli("logs", run["id"]).stdout
    answer = why(run)
    assert (told(answer)[0], answer.rank) == ("exception", 1)
    assert "rank 1: ValueError: wrong shape, at script.py:14" in answer.finding.cause


def test_all_ports_are_taken(cli) -> None:
    run = RunDir(cli.runs / "20260101-000000-port-aaaaaa")
    config = {"argv": ["true"], "resources": {"tasks_per_node": 2}}
    with rundir.create_run(run.path, {"id": run.id}) as made:
        write_json(made.config_file, config)
    shutil.copyfile(rank.__file__, run.rank_program)
    with ExitStack() as held:
        for retry in range(3):
            holder = held.enter_context(socket.socket())
            holder.bind(("127.0.0.1", rank.first_port(f"{run.path}/1", retry)))
            holder.listen()
        subprocess.run(supervisor_argv(run.path), timeout=30)
    answer = explain(run)
    assert told(answer)[0] == "ports-taken" and "rampup resume aaaaaa" in answer.finding.remedy


def test_the_time_limit(cli) -> None:
    text = """
        import rampup, time
        run = rampup.init(steps=100)
        for step in range(100):
            run.log(step=step, loss=1.0)
            time.sleep(0.1)
        """
    run = cli.run_command("python", cli.script(text), options=("--time=0:05",), check=104)
    answer = why(run)
    assert told(answer)[:2] == ("time-limit", "timeout")
    assert "the time limit of 0-00:00:05 was reached, at step " in answer.finding.cause
    assert answer.finding.remedy == f"rampup resume {run['id']} --time 0-00:01:00"


# from outside, and nothing wrong ------------------------------------------------------------------


def test_a_run_that_hangs_and_then_its_launcher_is_killed(cli, eventually) -> None:
    run = detached(cli, "sleep", "60")
    attempt = RunDir(run["dir"]).attempt(1)
    eventually(lambda: list(attempt.path.glob("system-*.jsonl")), what="the first sample")
    assert told(why(run)) == ("running", "running", True)
    hour_ago = time.time() - 3600
    write_json(attempt.facts_file, {**attempt.facts, "started": hour_ago})
    os.utime(attempt.rank_log(0), (hour_ago, hour_ago))
    answer = why(run)
    assert told(answer)[:2] == ("hang", "running")
    assert (
        "nothing was written for 36" in answer.finding.cause
        and "use no CPU" in answer.finding.cause
    )
    assert f"rampup cancel {run['id']}" in answer.finding.remedy
    os.kill(attempt.facts["pid"], signal.SIGKILL)
    eventually(lambda: why(run).finding.about == "failed", what="the end")
    assert told(why(run)) == ("launcher-killed", "failed", True)


def test_runs_that_somebody_ended(cli, eventually) -> None:
    first, second = (detached(cli, "sleep", "60") for _ in range(2))
    cli("cancel", first["id"])
    answer = why(first)
    assert told(answer) == ("cancelled", "cancelled", True) and answer.finding.level == "ok"
    assert answer.finding.cause == "cancelled by rampup cancel" and not answer.finding.remedy
    os.kill(RunDir(second["dir"]).attempt(1).facts["pid"], signal.SIGTERM)
    eventually(lambda: why(second).finding.about == "cancelled", what="its end")
    answer = why(second)
    assert told(answer)[0] == "cancelled-elsewhere" and answer.finding.level == "ok"
    assert "not by rampup: stopped by SIGTERM" in answer.finding.cause


def test_a_run_that_was_asked_to_stop_and_saved(cli, eventually) -> None:
    listens = """
        import time
        import rampup

        run = rampup.init()
        while not run.should_stop:
            time.sleep(0.05)
        run.save({"step": 1}, 1)
    """
    run = detached(cli, "python", cli.script(listens))
    eventually(
        lambda: RunDir(run["dir"]).attempt(1).path.joinpath("listens").exists(), what="the loop"
    )
    cli("cancel", "--save", run["id"])
    answer = why(run)
    assert told(answer) == ("stopped", "cancelled", True) and answer.finding.level == "ok"
    assert answer.finding.remedy == f"rampup resume {run['id']}"


def test_a_run_that_ended_well_has_no_cause(cli) -> None:
    scary = """
        import traceback
        print("Error: Killed by signal 9, CUDA out of memory, No space left on device")
        try:
            raise MemoryError("not fatal")
        except MemoryError:
            traceback.print_exc()
        """
    answer = why(cli.run_command("python", cli.script(scary)))
    assert told(answer) == ("completed", "completed", True)
    assert (answer.finding.level, answer.finding.remedy, answer.evidence) == ("ok", "", ())
    assert "cause" not in cli("show").stdout
    assert json.loads(cli("why", "--json").stdout)["remedy"] is None


def test_an_exception_that_was_caught_is_not_the_cause(cli) -> None:
    script = cli.script(
        """
        import sys, traceback
        try:
            raise MemoryError("not fatal")
        except MemoryError:
            traceback.print_exc()
        for line in range(30):
            print("going on", line)
        sys.exit("no such model: resnet0")
        """
    )
    answer = why(cli.run_command("python", script, check=100))
    assert told(answer) == ("not-known", "failed", False)
    assert "last output: no such model: resnet0" in answer.finding.cause
