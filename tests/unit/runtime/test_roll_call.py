"""Whatever connects while the ranks meet, only ranks of this run count: attacks on real rank
processes, on loopback, each with a few connections and for a second or two."""

import contextlib
import hashlib
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rampup import rank
from rampup.rundir import files as rundir
from rampup.rundir.files import RunDir
from rampup.rundir.records import write_json

SENT_MB = 60
"""What an endless sender may send: far more than a rank may hold of it."""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "20260101-000000-test-aaaaaa")
    config = {"argv": ["true"], "cwd": str(tmp_path), "resources": {"tasks_per_node": 2}}
    with rundir.create_run(made.path, {"id": made.id}) as hidden:
        write_json(hidden.config_file, config)
    made.claim_attempt()
    return made


def start(run: RunDir, number: int, *options: str, here: int = 2) -> "subprocess.Popen[str]":
    python = [sys.executable, "-I", "-S", rank.__file__, str(run.path), "--attempt=1"]
    words = ["--meet-within=15", f"--rank={number}", f"--local-rank={number}", "--world-size=2"]
    words += [f"--local-world-size={here}", f"--node=node{number}", *options]
    return subprocess.Popen([*python, *words], stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def started(run: RunDir, number: int, *options: str) -> "Iterator[subprocess.Popen[str]]":
    process = start(run, number, *options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def door(run: RunDir) -> tuple[str, int]:
    return "127.0.0.1", rank.first_port(f"{run.path}/1", 0) + rank.PORTS_IN_BLOCK - 1


def knock(run: RunDir) -> socket.socket:
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(door(run), timeout=5)
        except OSError:
            assert time.monotonic() < deadline, "rank 0 does not listen"
            time.sleep(0.01)


def claim(run: RunDir, **facts: object) -> bytes:
    """What a rank said of itself before there was a key."""
    config_hash = hashlib.sha256(run.config_file.read_bytes()).hexdigest()
    whole = {"run": f"{run.path.name}/1", "rank": 1, "node": "evil", "hash": config_hash, "size": 2}
    left = {name: value for name, value in {**whole, **facts}.items() if value is not None}
    return (json.dumps(left) + "\n").encode()


def say(*lines: bytes) -> Callable[[RunDir], list[socket.socket]]:
    def attack(run: RunDir) -> list[socket.socket]:
        links = []
        for line in lines:
            links.append(knock(run))
            links[-1].sendall(line)
        return links

    return attack


def spoof(rank_number: int, **facts: object) -> Callable[[RunDir], list[socket.socket]]:
    return lambda run: say(claim(run, rank=rank_number, **facts))(run)


def forge(run: RunDir) -> list[socket.socket]:
    """A rank of today with a wrong key."""
    link = knock(run)
    nonce = link.recv(200).decode().strip()
    facts = {**json.loads(claim(run)), "nonce": "0"}
    link.sendall(rank.write_signed(b"x" * 64, "join", nonce, facts))
    return [link]


def repeat(run: RunDir) -> list[socket.socket]:
    """What a true rank has said on another connection, word for word."""
    first, second = knock(run), knock(run)
    nonce = first.recv(200).decode().strip()
    facts = {**json.loads(claim(run)), "nonce": "0"}
    key = run.key_file.read_bytes().strip()
    second.sendall(rank.write_signed(key, "join", nonce, facts))
    return [first, second]


def crawl(run: RunDir) -> list[socket.socket]:
    """A caller that is never done."""
    link = knock(run)

    def drip() -> None:
        with contextlib.suppress(OSError):
            while True:
                link.sendall(b"x")
                time.sleep(0.1)

    threading.Thread(target=drip, daemon=True).start()
    return [link]


def scan(run: RunDir) -> list[socket.socket]:
    """More callers at once than there are ranks; half of them go away at once."""
    links = [knock(run) for _ in range(100)]
    for link in links[::2]:
        link.close()
    return links[1::2]


ATTACKS = {
    "another rank 1": spoof(1, hash="0"),
    "another rank 0": spoof(0, hash="0"),
    "the right hash": spoof(1),
    "no node": spoof(1, node=None),
    "a rank too many": spoof(2, size=3),
    "no rank at all": say(b"GET / HTTP/1.0\r\n\r\n", b"\x00\xff\n", b"[" * 3000 + b"\n", b"\n"),
    "a wrong key": forge,
    "a line of another connection": repeat,
    "a slow sender": crawl,
    "a port scan": scan,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_what_is_not_a_rank_of_this_run_changes_nothing(
    run: RunDir, attack: Callable[[RunDir], list[socket.socket]]
) -> None:
    with started(run, 0) as first:
        links = attack(run)
        with started(run, 1) as second:
            said = [process.communicate(timeout=20)[1] for process in (first, second)]
            assert [first.returncode, second.returncode] == [0, 0], said
    for link in links:
        link.close()


def test_an_endless_line_is_cut(run: RunDir) -> None:
    with started(run, 0) as first:
        sent = 0
        with knock(run) as link, contextlib.suppress(OSError):
            while sent < SENT_MB * 1_000_000:
                sent += link.send(b"x" * 65_536)
        assert sent < SENT_MB * 1_000_000, "it listened to the end"
        peak_kb = next(
            int(line.split()[1])
            for line in Path(f"/proc/{first.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        assert peak_kb < 40_000
        with started(run, 1) as second:
            assert (second.wait(20), first.wait(20)) == (0, 0)


def test_few_open_files_are_enough(run: RunDir) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))

    words = [sys.executable, "-I", "-S", rank.__file__, str(run.path), "--attempt=1"]
    words += ["--rank=0", "--world-size=2", "--local-world-size=2", "--meet-within=15"]
    first = subprocess.Popen(words, preexec_fn=limit)
    links = [knock(run) for _ in range(40)]
    with started(run, 1) as second:
        assert (second.wait(20), first.wait(20)) == (0, 0)
    for link in links:
        link.close()


def test_a_rank_that_hangs_up_may_come_again(run: RunDir) -> None:
    key = run.key_file.read_bytes().strip()
    with started(run, 0) as first, knock(run) as link:
        nonce = link.recv(200).decode().strip()
        facts = {**json.loads(claim(run)), "nonce": "0"}
        link.sendall(rank.write_signed(key, "join", nonce, facts))
        deadline = time.monotonic() + 5
        while not run.attempt(1).path.joinpath("joined").exists():
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    # both ranks were here, so rank 0 has become the program
    assert run.attempt(1).rank_log(0).exists()


def test_a_rank_does_not_believe_another_rank_0(run: RunDir) -> None:
    """It gets the answer that all is well from a program that does not know the key."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(door(run))
        server.listen()
        server.settimeout(10)
        with started(run, 1, "--meet-within=1") as process:
            caller, _ = server.accept()
            with caller:
                caller.settimeout(10)
                good = json.dumps({"addresses": ["127.0.0.1", "10.6.6.6"]})
                with contextlib.suppress(OSError):
                    caller.sendall(f"{good}\n".encode())
                    caller.recv(4096)
                    caller.sendall(f"{good}\n".encode())
                said = process.communicate(timeout=20)[1]
    assert process.returncode == rank.NOT_READY and "can't reach rank 0" in said


@pytest.mark.parametrize(("here", "open_to"), [(2, "0100007F"), (1, "00000000")])
def test_only_ranks_of_several_nodes_are_open_to_other_nodes(
    run: RunDir, here: int, open_to: str
) -> None:
    words = (f"--local-world-size={here}", "--master-addr=localhost")
    with started(run, 0, *words):
        knock(run).close()
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{door(run)[1]:04X}"
    listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(port)]
    assert listening == [f"{open_to}:{port}"]


def test_the_own_name_of_a_host_may_lead_elsewhere(run: RunDir) -> None:
    """Debian gives a host's name the address 127.0.1.1."""
    ranks = [start(run, number, "--master-addr=127.0.1.1") for number in (0, 1)]
    assert [process.communicate(timeout=20)[1] for process in ranks] == ["", ""]
    ranks = [
        start(run, number, "--master-addr=127.0.1.1", "--local-world-size=1", "--port-retry=1")
        for number in (0, 1)
    ]
    assert [process.communicate(timeout=20)[1] for process in ranks] == ["", ""]


def test_a_missing_key_is_named(run: RunDir) -> None:
    run.key_file.unlink()
    process = start(run, 1)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == rank.NOT_READY
    assert f"node node1 can't read {run.key_file}" in said and "rampup resume" in said


def test_every_run_has_a_key_of_its_own(run: RunDir, tmp_path: Path) -> None:
    other = RunDir(tmp_path / "20260101-000000-test-bbbbbb")
    with rundir.create_run(other.path, {"id": other.id}):
        pass
    assert run.key_file.read_bytes() != other.key_file.read_bytes()
    assert len(run.key_file.read_bytes()) >= rank.SHORTEST_KEY
    assert run.key_file.name == rank.KEY_FILE
    assert run.key_file.stat().st_mode & 0o777 == 0o600
