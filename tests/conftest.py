"""What all tests share: the command line in a world of its own, and real MNIST."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

RAMPUP = (sys.executable, "-m", "rampup")


class Terminal:
    """What a terminal was sent: all of it, and line by line."""

    def __init__(self, text: str) -> None:
        self.text = text
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        self.drawn = [line for line in re.split(r"[\r\n]+", plain) if line]
        """Every line that was ever on the screen, also those that were drawn over."""
        self.lines = [line.rpartition("\r")[2] for line in plain.replace("\r\n", "\n").split("\n")]
        """The lines that stayed."""


class Cli:
    """The real command line in a directory and state of its own."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "work"
        self.runs = folder / "runs"
        self.cwd.mkdir()
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RAMPUP_", "OMP_"))
        }
        # as in an activated environment
        kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
        self.env = {
            **kept,
            "RAMPUP_RUNS": str(self.runs),
            "XDG_STATE_HOME": str(folder / "state"),
            "NO_COLOR": "1",
        }

    def __call__(
        self, *words: str, check: int | None = 0, timeout: float = 240, **env: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*RAMPUP, *words],
            cwd=self.cwd,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check is not None:
            assert done.returncode == check, (
                f"{words} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        assert "Traceback" not in done.stderr or check not in (2, 3), done.stderr
        return done

    def json(self, *words: str, check: int | None = 0, **env: str) -> Any:
        """The last line of stdout, and nothing else may stand there."""
        lines = self(*words, "--json", check=check, **env).stdout.splitlines()
        assert len(lines) == 1, lines
        return json.loads(lines[0])

    def run_command(
        self, *command: str, options: tuple[str, ...] = (), check: int = 0, **env: str
    ) -> Any:
        """`rampup run --json -- command`, as an object."""
        done = self("run", *options, "--json", "--", *command, check=check, **env)
        return json.loads(done.stdout.splitlines()[-1])

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*RAMPUP, *words],
            cwd=self.cwd,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def on_terminal(
        self, *words: str, columns: int = 80, check: int = 0, ctrl_c_after: str = "", **env: str
    ) -> "Terminal":
        """The same on a terminal of so many columns; Ctrl-C comes after some words were shown."""
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        started = subprocess.Popen(
            [*RAMPUP, *words],
            cwd=self.cwd,
            env={**self.env, "TERM": "xterm", **env},
            stdout=inner,
            stderr=inner,
        )
        os.close(inner)
        said = b""
        while True:
            try:
                said += os.read(outer, 65536)
            except OSError:  # how a terminal ends
                break
            if ctrl_c_after and ctrl_c_after in said.decode(errors="replace"):
                started.send_signal(signal.SIGINT)
                ctrl_c_after = ""
        os.close(outer)
        assert started.wait(timeout=60) == check, said.decode()
        return Terminal(said.decode())

    def script(self, text: str, name: str = "script.py") -> str:
        (self.cwd / name).write_text(textwrap.dedent(text))
        return name


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture(scope="session")
def mnist() -> Path:
    """Real MNIST in the user's own cache; fetched once, then verified."""
    subprocess.run([*RAMPUP, "fetch", "mnist"], check=True, timeout=300)
    from rampup.datasets.sets import folder

    return folder("mnist")


@pytest.fixture(scope="session")
def cifar10() -> Path:
    """Real CIFAR-10 in the user's own cache; fetched once, then verified."""
    subprocess.run([*RAMPUP, "fetch", "cifar10"], check=True, timeout=600)
    from rampup.datasets.sets import folder

    return folder("cifar10")


@pytest.fixture(scope="session")
def horovod_env() -> Path:
    """The real Horovod. Without it the tests are skipped; .ci/run builds it first."""
    found = Path(__file__).parents[1] / ".venv-horovod"
    if not (found / ".ready").exists():
        pytest.skip(
            "there is no .venv-horovod: `make horovod-env` builds it, once, in some minutes"
        )
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system, just large enough for a run to be started on it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=56m", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("mounting a small file system needs root; tests/multirank has RLIMIT_FSIZE")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait for something that another process does; fails when it never comes."""
    import time

    def wait(true: Callable[[], Any], seconds: float = 45, what: str = "") -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.05)

    return wait


class OneWorkerForSlurm(LoadScopeScheduling):
    """All tests on the real Slurm share one sandbox, and those on Spark one session, so one worker
    runs them; the others are dealt out one by one."""

    def _split_scope(self, nodeid: str) -> str:
        shared = [name for name in ("slurm", "spark") if nodeid.startswith(f"tests/{name}/")]
        return shared[0] if shared else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneWorkerForSlurm:
    return OneWorkerForSlurm(config, log)
