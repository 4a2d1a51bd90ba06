"""A real Slurm for the tests in this folder: one sandbox of 4 nodes with 4 pretend GPUs each, for
the whole session.

Without the Debian packages the tests are skipped, and the terminal says so. tests/conftest.py gives
all tests of this folder to one worker.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rampup.errors import Refused
from rampup.sandbox import daemons, leftovers
from rampup.sandbox.layout import Layout, Options
from rampup.sandbox.machine import check_packages

STALE_AFTER_S = 5.0
FOREIGN = ("SLURM", "SBATCH_", "SRUN_", "RAMPUP_", "OMP_", "XDG_")


class Sandbox:
    """`rampup sandbox` in directories of its own, and the faults that one can cause there."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.cwd = folder / "work"
        self.cwd.mkdir(parents=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
        directory = folder / "state" / "rampup" / "sandbox" / name
        self.env = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}",
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "RAMPUP_RUNS": str(folder / "runs"),
            "SLURM_CONF": str(directory / "slurm.conf"),
            "NO_COLOR": "1",
        }
        self.directory = directory
        self.profile = folder / "config" / "rampup" / "clusters" / f"{name}.toml"

    @property
    def layout(self) -> Layout:
        record = json.loads((self.directory / "sandbox.json").read_text())
        return Layout(self.name, self.directory, Path(record["short"]), self.profile)

    def run(self, *argv: str, check: int | None = 0) -> str:
        """What a command prints, in the sandbox's environment."""
        done = self.call(*argv)
        assert check is None or done.returncode == check, (
            f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    def call(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=self.cwd, env={**self.env, **env}, capture_output=True, text=True, timeout=120
        )

    def rampup(self, *words: str, check: int = 0, **env: Any) -> subprocess.CompletedProcess[str]:
        done = self.call(sys.executable, "-m", "rampup", *words, **env)
        assert done.returncode == check, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def up(self, *options: str, check: int = 0, **env: Any) -> subprocess.CompletedProcess[str]:
        return self.rampup("sandbox", "up", "--name", self.name, *options, check=check, **env)

    def down(self) -> subprocess.CompletedProcess[str]:
        return self.rampup("sandbox", "down", "--name", self.name)

    def status(self) -> Any:
        done = self.call(
            sys.executable, "-m", "rampup", "sandbox", "status", "--name", self.name, "--json"
        )
        return json.loads(done.stdout)

    def sbatch(self, text: str, *options: str) -> str:
        """Submit a bash script; the job's id. Its output goes to out.ID in `cwd`."""
        argv = ["sbatch", "--parsable", "--output=out.%j", "--open-mode=append", *options]
        done = subprocess.run(
            argv,
            input=f"#!/bin/bash\n{text}\n",
            cwd=self.cwd,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def output(self, job: str) -> str:
        path = self.cwd / f"out.{job}"
        return path.read_text() if path.exists() else ""

    def state(self, job: str) -> str:
        """As slurmctld has it; it forgets a job 300 s after its end."""
        text = self.run("scontrol", "show", "job", job)
        return text.partition("JobState=")[2].split()[0]

    def wait_for(self, true: Callable[[], Any], what: str, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                seen = self.run("sinfo", "-N", "-l", check=None) + self.run("squeue", check=None)
                pytest.fail(f"not within {seconds} s: {what}\n{seen}")
            time.sleep(0.1)

    # faults ---------------------------------------------------------------------------------------

    def processes(self, node: str | None = None) -> set[int]:
        return leftovers.find_processes(self.layout, node)

    def stop(self, daemon: str) -> None:
        """Kill a daemon: slurmctld, slurmdbd, munged, mariadbd."""
        leftovers.kill(self.layout.record()["daemons"][daemon]["pid"])

    def start(self, daemon: str) -> None:
        """Bring back a daemon or a node that was stopped."""
        daemons.start(self.layout, daemon)
        address = daemons.find_address(self.layout, daemon)
        self.wait_for(lambda: daemons.accepts_connections(address), f"{daemon} answers")

    def lose_node(self, node: str) -> None:
        """As when a machine dies: slurmd, job steps and tasks, all at once."""
        while found := self.processes(node):
            for pid in found:
                leftovers.kill(pid)


@pytest.fixture(scope="session")
def packages(request: pytest.FixtureRequest) -> None:
    try:
        check_packages(Options())
    except Refused as error:
        notice = f"tests/slurm is skipped: {error.message}; {error.hint}"
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{notice}", file=sys.__stderr__, flush=True)
        pytest.skip(notice)


@pytest.fixture(scope="session")
def sandbox(packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path_factory.mktemp("sandbox"), f"test{os.getpid()}")
    try:
        made.up("--nodes", "4", "--gpus-per-node", "4")
        yield made
    finally:
        made.down()


@pytest.fixture(autouse=True)
def no_stale_lock_of_pyenv() -> None:
    """Job scripts are login shells. Where those load pyenv, one that was killed while it refreshed
    its shims leaves a lock, and every job after it would wait for that for a minute."""
    lock = Path(os.environ.get("PYENV_ROOT", "/nowhere")) / "shims" / ".pyenv-shim"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - lock.stat().st_mtime > STALE_AFTER_S:
            lock.unlink()


@pytest.fixture
def another(packages: None, tmp_path: Path) -> Iterator[Sandbox]:
    """One that a test brings up by itself."""
    made = Sandbox(tmp_path / "another", f"another{os.getpid()}")
    yield made
    made.down()


@pytest.fixture
def cli(cli: Any, sandbox: Sandbox) -> Any:
    """The command line in a directory of its own, with the sandbox's profile: it says which
    Slurm."""
    cli.env["XDG_CONFIG_HOME"] = sandbox.env["XDG_CONFIG_HOME"]
    return cli


# What takes a minute by nature is started before all else, in a sandbox where no other test
# disturbs it.

LATE = "import os, time\nif os.environ['SLURM_PROCID'] == '3': time.sleep(300)\n"


@pytest.fixture(scope="session", autouse=True)
def slow_sandbox(packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path_factory.mktemp("slow"), f"slow{os.getpid()}")
    try:
        made.up("--nodes", "2")
        yield made
    finally:
        made.down()


@pytest.fixture(scope="session", autouse=True)
def endless_run(slow_sandbox: Sandbox) -> Path:
    """Slurm's shortest time limit is a minute."""
    return started(slow_sandbox, "--time", "1", command=("sleep", "300"))


@pytest.fixture(scope="session", autouse=True)
def run_with_a_missing_rank(slow_sandbox: Sandbox) -> Path:
    """Rank 3 sleeps before it could meet the others; they wait for 45 s."""
    words = ("--slurm", "hold", "--nodes", "2", "--tasks-per-node", "2")
    run = started(slow_sandbox, *words, command=("sleep", "1"))
    program = run / "rank.py"
    program.write_text(
        program.read_text().replace("import argparse\n", f"{LATE}import argparse\n", 1)
    )
    job = json.loads((run / "control.jsonl").read_text().splitlines()[-1])["job"]
    slow_sandbox.run("scontrol", "release", job)
    return run


LOOP = """
import time, rampup
run = rampup.init(n=1)
state = run.resume() or {"x": 0}
for step in range(run.step + 1, run.config.n + 1):
    time.sleep(0.25)
    run.log(step=step, loss=1.0 / step)
    stop = run.should_stop
    if stop or step % 20 == 0:
        run.save(state, step)
    if stop:
        break
"""


@pytest.fixture(scope="session", autouse=True)
def studies_over_time(slow_sandbox: Sandbox) -> Sandbox:
    """An array and a pack, each with one run that needs more than the time of its job."""
    (slow_sandbox.cwd / "loop.py").write_text(LOOP)
    words = ("sweep", "--on", slow_sandbox.name, "--time", "1")
    slow_sandbox.rampup(*words, "--name", "array", "n=1,210,2", "--", "python", "loop.py")
    slow_sandbox.rampup(
        *words, "--name", "pack", "--pack", "2", "n=1,200,2", "--", "python", "loop.py"
    )
    return slow_sandbox


PROGRAMS = Path(__file__).parents[1] / "foreign"
LIVES = {
    "resumes-itself": (
        ("--again", "--progress", "out/*.txt", "--on-resume", "--init_from=resume"),
        (sys.executable, str(PROGRAMS / "resumes_itself.py"), "4", "out/saved.txt"),
    ),
    "saves-on-term": (
        ("--stop-signal", "TERM", "--stop-lead", "50s"),
        (sys.executable, str(PROGRAMS / "saves_on_term.py"), "4", "term.txt"),
    ),
    "traps-usr2": (
        ("--stop-signal", "USR2", "--stop-lead", "50s"),
        ("bash", str(PROGRAMS / "traps_usr2.sh"), "4", "usr2.txt"),
    ),
}
"""Programs that know nothing of rampup and want to live again: the options, and the command."""


@pytest.fixture(scope="session", autouse=True)
def lives(slow_sandbox: Sandbox) -> dict[str, Path]:
    """Each needs three time limits to complete."""
    metric = ("--metric", r"loss=loss (\S+)")
    return {
        name: started(slow_sandbox, "--time", "1", *metric, *options, command=command)
        for name, (options, command) in LIVES.items()
    }


def started(sandbox: Sandbox, *words: str, command: tuple[str, ...]) -> Path:
    argv = ("run", "--on", sandbox.name, "--json", *words, "--", *command)
    return Path(json.loads(sandbox.rampup(*argv).stdout)["dir"])


@pytest.fixture
def slow_cli(cli: Any, slow_sandbox: Sandbox) -> Any:
    cli.env["XDG_CONFIG_HOME"] = slow_sandbox.env["XDG_CONFIG_HOME"]
    return cli
