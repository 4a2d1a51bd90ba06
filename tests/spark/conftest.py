"""A real Spark for the tests of this folder: one session with two executors, each a process of its
own, with pretend GPUs. Everything listens on loopback."""

import contextlib
import ipaddress
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DISCOVERY = """#!/bin/sh
echo '{"name": "gpu", "addresses": ["7"]}'
"""
QUICK_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A JVM that lives for seconds takes about half the CPU time without the second compiler."""
START_WITHIN_S = 180.0
"""A first task waits for Python workers, on a machine that may be busy."""
ENDED_WITHIN_S, GONE_WITHIN_S = 10.0, 15.0


def find_obstacle() -> str:
    """Return why there can be no Spark here."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "tests/spark is skipped: pyspark is not installed; pip install 'rampup[spark]'"
    if shutil.which("java") is None:
        return "tests/spark is skipped: there is no java; apt-get install default-jre-headless"
    return ""


@pytest.fixture(scope="session")
def java(request: pytest.FixtureRequest) -> None:
    notice = find_obstacle()
    if notice:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{notice}", file=sys.__stderr__, flush=True)
        pytest.skip(notice)


@pytest.fixture(scope="module")
def session(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session, and the environment that its executors have inherited."""
    folder = tmp_path_factory.mktemp("spark")
    script = folder / "discover.sh"
    script.write_text(DISCOVERY)
    script.chmod(0o755)
    own = {
        "RAMPUP_RUNS": str(folder / "runs"),
        "XDG_STATE_HOME": str(folder / "state"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
        **QUICK_JAVA,
    }
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("RAMPUP_", "OMP_")):
            del os.environ[name]
    os.environ.update(own)
    from pyspark.sql import SparkSession

    conf = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.worker.resource.gpu.amount": "1",
        "spark.worker.resource.gpu.discoveryScript": str(script),
        "spark.executor.resource.gpu.amount": "1",
        "spark.task.resource.gpu.amount": "1",
        "spark.excludeOnFailure.enabled": "false",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,512]").appName("rampup tests")
    for key, value in conf.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    yield made
    made.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def spark(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The session, for a test in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    return session


def processes_of(run_dir: Path) -> list[int]:
    """Return every process of the ranks of a run, children in sessions of their own too."""
    marks = (f"RAMPUP_RUN_DIR={run_dir}".encode(), f"{run_dir}/rank.py".encode())
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX" and any(mark in text for mark in marks):
            found.append(int(entry.name))
    return found


def descendants_of(pid: int) -> list[int]:
    """Return a process and all below it."""
    family = [pid]
    for each in family:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                family.extend(map(int, (task / "children").read_text().split()))
    return family


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def listening_of(pid: int) -> list[tuple[str, int]]:
    """Return the addresses at which a process and all below it listen."""
    mine = set()
    for each in descendants_of(pid):
        with contextlib.suppress(OSError):
            mine |= {os.readlink(path) for path in Path(f"/proc/{each}/fd").iterdir()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in mine:
                found.append(read_address(words[1]))
    return found


def read_address(text: str) -> tuple[str, int]:
    """Return the address that a line of /proc/net/tcp writes as words of four bytes."""
    digits, _, port = text.partition(":")
    words = [bytes.fromhex(digits[place : place + 8])[::-1] for place in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(words))), int(port, 16)


def wait_for(true: Callable[[], Any], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.05)
