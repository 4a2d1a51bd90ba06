"""`rampup.launch` on this machine: what comes back, what is refused, and a run like any other."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rampup.rundir.files import RunDir

HEAD = """
import functools, json, os, sys, time
import rampup

def train(x=1, lr=0.1, time=None):
    return {"x": x, "lr": lr, "time": time, "rank": os.environ["RANK"], "of": os.environ["WORLD_SIZE"]}
"""


def python(cli: Any, text: str, check: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    cli.script(HEAD + text, "main.py")
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=cli.cwd,
        env={**cli.env, **options},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == check, done.stdout + done.stderr
    return done


def newest(cli: Any) -> RunDir:
    return RunDir(max(cli.runs.glob("2*"), key=lambda path: path.stat().st_mtime))


def test_a_launched_function_is_a_run_like_any_other(cli: Any) -> None:
    done = python(cli, "print(rampup.launch(train, 5, np=2, lr=0.5, name='first'))")
    assert "{'x': 5, 'lr': 0.5, 'time': None, 'rank': '0', 'of': '2'}" in done.stdout
    (row,) = cli.json("list")
    assert (row["name"], row["state"]) == ("first", "completed")
    shown = cli("show", row["id"]).stdout
    assert "command: rampup.launch(train, ...)" in shown and "2 ranks" in shown
    run = newest(cli)
    attempt = run.attempt(1)
    for file in (run.call_file, attempt.result_file):
        assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(attempt.result_file.read_text())["value"]["x"] == 5
    assert not attempt.result_pickle_file.exists(), "plain values need no pickle"


def test_functions_of_modules_partials_and_methods_travel(cli: Any) -> None:
    package = cli.cwd / "pkg" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text(
        "from pkg.inner.beside import FACTOR\n"
        "def scale(x, time=1):\n    return x * FACTOR * time\n"
        "class Scaler:\n"
        "    def __init__(self, by): self.by = by\n"
        "    def scale(self, x): return x * self.by\n"
        "    def __call__(self, x): return x + self.by\n"
    )
    (package / "beside.py").write_text("FACTOR = 10\n")
    done = python(
        cli,
        """
from pkg.inner.work import scale, Scaler
print([
    rampup.launch(scale, 2),
    rampup.launch(functools.partial(scale, time=3), 2),
    rampup.launch(Scaler(7).scale, 2),
    rampup.launch(Scaler(7), 2),
])
""",
    )
    assert "[20, 60, 14, 9]" in done.stdout
    found = [json.loads(path.read_text()) for path in cli.runs.glob("2*/config.json")]
    kinds = {each["function"]["name"]: each["function"]["by"] for each in found}
    assert kinds["pkg.inner.work.scale"] == "path"
    assert all((Path(run) / "code/pkg/inner/work.py").exists() for run in cli.runs.glob("2*"))


REFUSALS = {
    "rampup.launch(train, time='1:00:00')": (
        "time='1:00:00' is an option of rampup.launch and a parameter of train",
        "hint: for the function: rampup.launch(functools.partial(train, time='1:00:00'), ...)",
    ),
    "rampup.launch(train, gpu_per_node=2)": (
        "got an unexpected keyword argument 'gpu_per_node'",
        "hint: did you mean gpus_per_node?",
    ),
    "rampup.launch(train, np=3, nodes=2)": ("can't be shared evenly", "np=2, or np=4"),
    "rampup.launch(train, np=True)": ("np=True must be a whole number above 0", "np=2"),
    "rampup.launch(train, np=4, tasks_per_node=2)": ("np=4 is not nodes=1 times", "leave out"),
    "async def study(): return 1\nrampup.launch(study)": (
        "study is an async function: a call of it only makes a coroutine",
        "hint: launch a function that calls asyncio.run() on it",
    ),
    "def study(): yield 1\nrampup.launch(study)": (
        "study is a generator function: a call of it runs none of its lines",
        "hint: launch a function that collects what it yields",
    ),
    "rampup.launch('train', np=2)": ("needs a function, not 'train'", "rampup.launch(train"),
    "rampup.launch(train, nodes=2)": ("--nodes 2: this machine is one node", "hint: "),
    "rampup.launch(train, on='nowhere')": ("unknown cluster 'nowhere'", "known: "),
    "lock = __import__('threading').Lock()\nrampup.launch(lambda: lock)": (
        "variable `lock`, which lambda() uses, can't be sent to the ranks: cannot pickle",
        "hint: create it inside the function",
    ),
    "deep = []\nfor _ in range(100000): deep = [deep]\nrampup.launch(train, deep)": (
        "argument `x` can't be sent to the ranks: it is nested too deeply",
        "hint: ",
    ),
    "os.environ['RAMPUP_RUN_DIR'] = '/runs/20260101-000000-a-bcdefg'\nrampup.launch(train)": (
        "called by a rank of run bcdefg",
        "hint: ",
    ),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_what_is_refused_before_anything_is_started(cli: Any, text: str) -> None:
    done = python(cli, text, check=1)
    for words in REFUSALS[text]:
        assert words in done.stderr
    assert not cli.runs.exists() or not list(cli.runs.iterdir())


def test_the_environment_must_have_the_same_python_and_cloudpickle(
    cli: Any, tmp_path: Path
) -> None:
    """A Python that says that it is another one: found out before the run is made."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "activate").write_text("")
    program = venv / "bin" / "python"
    program.write_text("#!/bin/sh\necho '3.9 1.0.0 0.1.0'\n")
    program.chmod(0o755)
    done = python(cli, f"rampup.launch(train, env={str(venv)!r})", check=1)
    assert "Python 3.9" in done.stderr and "hint: " in done.stderr
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    program.write_text(f"#!/bin/sh\necho '{mine} 1.0.0 0.1.0'\n")
    done = python(cli, f"rampup.launch(train, env={str(venv)!r})", check=1)
    assert "cloudpickle 1.0.0" in done.stderr and "hint: " in done.stderr
    assert not cli.runs.exists() or not list(cli.runs.iterdir())


RESULTS = """
import numpy, math
class Odd:
    def __eq__(self, other): return type(other).__name__ == "Odd"
VALUES = [
    None, 2**70, [1, (2, "ä\\ud800")], {"$a": 1, 2: (3,)}, {"loss": [0.1, math.inf]},
    numpy.arange(6.0).reshape(2, 3), {"a": numpy.float32(1.5), "b": [numpy.arange(2)]}, Odd(), {1, 2},
]
def give(index): return VALUES[index]
def same(a, b):
    if isinstance(a, dict): return type(b) is dict and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list): return type(b) is list and all(map(same, a, b))
    return type(a) is type(b) and bool(numpy.all(a == b))
print([same(VALUES[index], rampup.launch(give, index)) for index in range(len(VALUES))])
"""


def test_results_come_back_as_they_were(cli: Any) -> None:
    done = python(cli, RESULTS)
    assert f"{[True] * 9}" in done.stdout, done.stdout
    pickled = list(cli.runs.glob("2*/attempts/1/result.pkl"))
    assert len(pickled) == 2, "only what JSON and arrays can't hold"


def test_a_result_that_can_not_travel_is_named_without_a_traceback(cli: Any) -> None:
    text = "def give(): return {'a': [1, __import__('threading').Lock()]}\nrampup.launch(give)"
    done = python(cli, text, check=1)
    said = "rank 0: CannotTravel: the function returned a dict, and `result['a'][1]` in it can't be"
    assert said in done.stderr and "hint: return numbers" in done.stderr
    assert "in write_result" not in done.stderr, "no frames of rampup's own"


def test_a_result_for_which_there_is_no_room_names_its_file(cli: Any) -> None:
    text = """
def give():
    import numpy, resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    return numpy.zeros(100_000)
rampup.launch(give)
"""
    done = python(cli, text, check=1)
    assert (
        "StorageError: can't write" in done.stderr and "result.json: File too large" in done.stderr
    )
    assert "hint: check free space" in done.stderr


LEADS_TO_A_PICKLE = """
job = rampup.launch(lambda: {1, 2}, wait=False)
assert job.result() == {1, 2}
print(job.id)
"""


def test_a_pickle_is_loaded_only_when_nobody_else_could_have_written_it(cli: Any) -> None:
    python(cli, LEADS_TO_A_PICKLE)
    run = newest(cli)
    pickle = run.attempt(1).result_pickle_file
    content = pickle.read_bytes()
    attach = f"print(rampup.attach({run.id!r}).result())"
    assert "{1, 2}" in python(cli, attach).stdout

    def refused(words: str, **env: str) -> None:
        done = python(cli, attach, check=1, **env)
        assert words in done.stderr and "hint: " in done.stderr, done.stderr

    pickle.chmod(0o644)
    refused("its mode is 0644")
    pickle.chmod(0o600)
    moved = pickle.with_name("elsewhere")
    pickle.rename(moved)
    pickle.symlink_to(moved)
    refused("can't read")
    pickle.unlink()
    os.link(moved, pickle)
    refused("2 names")
    moved.unlink()
    pickle.write_bytes(content.replace(b"K\x02", b"K\x03"))
    refused("its signature is not yours")
    pickle.write_bytes(content)
    refused("results.key", XDG_STATE_HOME=str(cli.cwd / "another"))
    assert "{1, 2}" in python(cli, attach).stdout, "untouched again"
    if os.geteuid() == 0:
        os.chown(pickle, 65534, 65534)
        refused("belongs to user 65534")
        os.chown(run.path, 65534, 65534)
        refused("belongs to user 65534, not to you")


def test_the_result_of_another_run_is_not_taken(cli: Any) -> None:
    """A signature is valid for one attempt of one run."""
    python(cli, LEADS_TO_A_PICKLE)
    first = newest(cli).attempt(1)
    text, content = first.result_file.read_bytes(), first.result_pickle_file.read_bytes()
    time.sleep(1.1)  # `newest` goes by time
    python(cli, "rampup.launch(lambda: {3})")
    second = newest(cli)
    assert second.path != first.path.parents[1]
    second.attempt(1).result_file.write_bytes(text)
    second.attempt(1).result_pickle_file.write_bytes(content)
    done = python(cli, f"rampup.attach({second.id!r}).result()", check=1)
    assert "its signature is not yours" in done.stderr


TOUCH = """
class Evil:
    def __reduce__(self): return (open, ("touched", "w"))
"""


def test_readers_never_unpickle(cli: Any) -> None:
    python(
        cli, f"{TOUCH}\ndef give(): return Evil()\nrampup.launch(give, wait=False)\ntime.sleep(4)"
    )
    run = newest(cli)
    assert run.attempt(1).result_pickle_file.exists()
    for words in (("show", run.id), ("list",), ("why", run.id), ("report", run.id)):
        cli(*words)
    assert not (cli.cwd / "touched").exists()
    python(cli, f"{TOUCH}\nrampup.attach({run.id!r}).result()")
    assert (cli.cwd / "touched").exists(), "the test shows that it would have been seen"


def test_a_job_is_left_alone_and_attached_to_later(cli: Any) -> None:
    wait = "def slow():\n    time.sleep(1)\n    return 'done'\n"
    done = python(
        cli, f"{wait}job = rampup.launch(slow, np=2, wait=False)\nprint(job.id, job.done())"
    )
    run, ended = done.stdout.split()[-2:]
    assert ended == "False"
    text = f"""
job = rampup.attach({run!r})
try:
    job.result(timeout_s=0)
except Exception as error:
    print(type(error).__name__)
print(job.result(), job.state, job.dir.name)
"""
    done = python(cli, text)
    assert "NotFinished\ndone completed 2" in done.stdout


def test_an_ordinary_run_has_no_result(cli: Any) -> None:
    run = cli.run_command("true")["id"]
    done = python(cli, f"rampup.attach({run!r})", check=1)
    assert "was not started by rampup.launch" in done.stderr


def test_ctrl_c_cancels_a_run_here(cli: Any) -> None:
    text = "def endless():\n    open('begun', 'w')\n    time.sleep(300)\nrampup.launch(endless, np=2)\n"
    cli.script(HEAD + text, "main.py")
    started = subprocess.Popen(
        [sys.executable, "main.py"],
        cwd=cli.cwd,
        env=cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (cli.cwd / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert "stopping" in said and said.rstrip().endswith("KeyboardInterrupt")
    (row,) = cli.json("list")
    assert row["state"] == "cancelled"


RESUMES = """
def count(last):
    run = rampup.init()
    state = run.resume() or {"seen": []}
    for step in range(run.step + 1, last + 1):
        state["seen"].append(step)
        run.log(step=step, loss=1.0 / step)
        run.save(state, step)
        if step == 3 and not run.step:
            run._saving.finish()
            os.kill(os.getpid(), 9)
    run.finish()
    return state["seen"]
"""


def test_resume_continues_a_launched_function(cli: Any) -> None:
    done = python(cli, f"{RESUMES}rampup.launch(count, 6)", check=1)
    assert "RunFailed" in done.stderr and "SIGKILL" in done.stderr
    run = newest(cli)
    cli("resume", run.id)
    done = python(cli, f"print(rampup.attach({run.id!r}).result())")
    assert "[1, 2, 3, 4, 5, 6]" in done.stdout


def test_a_job_is_resumed_from_python(cli: Any) -> None:
    done = python(cli, f"{RESUMES}rampup.launch(count, 6)", check=1)
    run = newest(cli).id
    done = python(
        cli, f"job = rampup.attach({run!r})\nprint(job.resume().result())\njob.resume()", 1
    )
    assert "[1, 2, 3, 4, 5, 6]" in done.stdout
    assert "has completed" in done.stderr and "hint: " in done.stderr


REPL = b"""
import rampup
def train(x):
    return 1 / x

rampup.launch(train, 4, np=2)
rampup.launch(train, 0)
"""


def test_a_function_that_was_typed_at_the_prompt(cli: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-i"],
        cwd=cli.cwd,
        env=cli.env,
        input=REPL,
        capture_output=True,
        timeout=60,
    )
    assert b"0.25" in done.stdout
    assert b"rank 0: ZeroDivisionError: division by zero (<stdin>, line 2)" in done.stderr


CELL = """
import linecache
name, source = "/tmp/ipykernel_7/123.py", "def fail():\\n    raise ValueError('bad lr')\\n"
linecache.cache[name] = (len(source), None, source.splitlines(True), name)
exec(compile(source, name, "exec"))
rampup.launch(fail)
"""


def test_an_error_in_a_cell_has_its_line_also_in_the_log(cli: Any) -> None:
    """A cell has no file; IPython keeps its lines."""
    done = python(cli, CELL, check=1)
    assert "rank 0: ValueError: bad lr (line 2 of a notebook cell)" in done.stderr
    assert "    raise ValueError('bad lr')" in newest(cli).attempt(1).rank_log(0).read_text()


def test_an_error_after_init_is_not_recorded_as_a_good_end(cli: Any) -> None:
    text = "def fail():\n    run = rampup.init()\n    run.log(loss=1.0)\n    raise ValueError('bad lr')\n"
    done = python(cli, f"{text}rampup.launch(fail)", check=1)
    assert "ValueError: bad lr (main.py, line" in done.stderr
    assert "raise ValueError('bad lr')" in done.stderr, "the traceback of the rank shows its line"
    run = newest(cli)
    assert run.attempt(1).event("end") is None
    why = cli("why", run.id).stdout
    assert re.search(r"ValueError: bad lr, at main\.py:\d+\n", why)
    assert re.search(r"hint: correct main\.py:\d+, then call rampup\.launch again\n", why)
    cli.script("pass", "main.py")
    done = cli("resume", run.id, "--code", "current", check=100)
    assert "note: the function stays as it was launched" in done.stderr
    assert "ValueError: bad lr" in done.stdout + done.stderr


def test_ranks_join_by_torch_distributed(cli: Any) -> None:
    text = """
def add():
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item()
print(rampup.launch(add, np=2))
"""
    assert "3.0" in python(cli, text).stdout


def test_ranks_join_by_tf_distribute(cli: Any) -> None:
    """It takes a quarter of a minute: two ranks import TensorFlow."""
    pytest.importorskip("tensorflow")
    text = """
def add():
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(
        "sum", tf.constant(1.0 + int(os.environ["RANK"]))))
    return [strategy.num_replicas_in_sync, float(total)]
print("joined", rampup.launch(add, np=2))
"""
    done = python(cli, text, TF_CPP_MIN_LOG_LEVEL="2")
    assert "joined [2, 3.0]" in done.stdout


def test_sys_exit_without_an_error_returns_none(cli: Any) -> None:
    assert "[None]" in python(cli, "print([rampup.launch(lambda: sys.exit())])").stdout


def test_without_cloudpickle_a_function_of_a_module_still_travels(cli: Any) -> None:
    (cli.cwd / "work.py").write_text("def double(x):\n    return 2 * x\n")
    text = """
import importlib.abc
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "cloudpickle": raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
import importlib.util, work
usual = importlib.util.find_spec
from rampup.functions import call
call.find_spec = lambda name: None if name == "cloudpickle" else usual(name)
print(rampup.launch(work.double, 4))
rampup.launch(lambda: 1)
"""
    done = python(cli, text, check=1)
    assert "8" in done.stdout
    assert "cloudpickle is not installed" in done.stderr and "rampup[launch]" in done.stderr
