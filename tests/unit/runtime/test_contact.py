"""contact.py: what it sees of a program's sockets and memory, and what it makes of what all ranks
saw."""

import json
import mmap
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rampup import contact

HERE = ("127.0.0.1", 5000)
QUIET = {
    "node": "a",
    "looks": 3,
    "cpu_s": 10.0,
    "met": "",
    "blind": False,
    "doubt": "",
    "links": [],
    "listens": set(),
    "shared": set(),
}


def rank(**changes: Any) -> dict[str, Any]:
    return {**QUIET, **changes}


def link(here: str, port: int, there: str, other: int) -> tuple[contact.Address, contact.Address]:
    return (here, port), (there, other)


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ({}, {}, "apart"),
        ({"met": "port 12000"}, {}, "met"),
        ({"met": "MPI"}, {"blind": True}, "met"),
        ({"blind": True}, {}, "unknown"),
        ({"doubt": "/dev/infiniband/uverbs0"}, {}, "unknown"),
        ({"looks": 0}, {}, "unknown"),
        # both ends of one connection
        (
            {"links": [link("10.0.0.1", 40000, "10.0.0.2", 9000)]},
            {"links": [link("10.0.0.2", 9000, "10.0.0.1", 40000)], "node": "b"},
            "met",
        ),
        (
            {"links": [link("127.0.0.1", 40000, "127.0.0.1", 9000)]},
            {"links": [link("127.0.0.1", 9000, "127.0.0.1", 40000)]},
            "met",
        ),
        # the same numbers on two nodes, where each rank talks to a program of its own
        (
            {"links": [link("127.0.0.1", 40000, "127.0.0.1", 9000)]},
            {"links": [link("127.0.0.1", 9000, "127.0.0.1", 40000)], "node": "b"},
            "apart",
        ),
        # one end alone, of a port that the other has
        (
            {"links": [link("10.0.0.1", 40000, "10.0.0.2", 9000)]},
            {"listens": {9000}, "node": "b"},
            "unknown",
        ),
        # both with the same server
        (
            {"links": [link("10.0.0.1", 40000, "10.0.0.9", 6379)]},
            {"links": [link("10.0.0.2", 40001, "10.0.0.9", 6379)], "node": "b"},
            "unknown",
        ),
        # both download
        (
            {"links": [link("10.0.0.1", 40000, "93.184.216.34", 443)]},
            {"links": [link("10.0.0.2", 40001, "93.184.216.34", 443)], "node": "b"},
            "apart",
        ),
        ({"shared": {"00:1a:77"}}, {"shared": {"00:1a:77"}}, "met"),
        ({"shared": {"00:1a:77"}}, {"shared": {"00:1a:77"}, "node": "b"}, "apart"),
    ],
)
def test_two_ranks_are_judged_by_what_both_saw(
    one: dict[str, Any], other: dict[str, Any], verdict: str
) -> None:
    assert contact.judge([rank(**one), rank(**other)], 2) == verdict
    assert contact.judge([rank(**other), rank(**one)], 2) == verdict


def test_a_rank_that_wrote_nothing_leaves_it_open() -> None:
    assert contact.judge([rank()], 2) == contact.UNKNOWN


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"links": [[1]]}', "null"])
def test_a_damaged_record_is_none(text: str) -> None:
    assert contact.parse_record(text) is None


def test_addresses_are_read_as_the_kernel_writes_them() -> None:
    assert contact.read_address("0100007F:1F90") == ("127.0.0.1", 8080)
    mapped = "0000000000000000FFFF00000100007F:0050"
    assert contact.read_address(mapped) == ("127.0.0.1", 80)
    assert contact.read_address("00000000000000000000000001000000:0050") == ("::1", 80)


PROGRAM = """
import mmap, socket, sys
mine = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
server = socket.create_server(("127.0.0.1", 0))
itself = socket.create_connection(server.getsockname()), server.accept()
file = open(sys.argv[2], "r+b")
shared = mmap.mmap(file.fileno(), 0)
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_watch_sees_the_sockets_and_the_memory_of_a_process(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.write_bytes(b"x" * mmap.PAGESIZE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = [sys.executable, "-c", PROGRAM, str(port), str(memory)]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        own_port = int(child.stdout.readline())
        watch = contact.Watch(os.getpid(), str(tmp_path), 1, 2, "a", 12000, 16)
        watch.try_to_look()
        child.communicate("")
    found = contact.parse_record((tmp_path / "contact-1.json").read_text())
    assert found is not None and not found["blind"] and not found["doubt"]
    assert [there for _, there in found["links"] if there[1] == port] == [("127.0.0.1", port)]
    assert not [ends for ends in found["links"] if own_port in (ends[0][1], ends[1][1])]
    assert own_port in found["listens"]
    inode = os.stat(memory).st_ino
    assert any(name.endswith(f":{inode}") for name in found["shared"])


def test_a_port_of_the_attempt_is_a_meeting_even_after_it_was_closed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        watch = contact.Watch(os.getpid(), str(tmp_path), 0, 2, "a", port, 16)
        watch.try_to_look()
        assert json.loads((tmp_path / "contact-0.json").read_text())["met"] == ""
        caller = socket.create_connection(server.getsockname())
        server.accept()[0].close()
        caller.close()
    watch.try_to_look()
    assert json.loads((tmp_path / "contact-0.json").read_text())["met"] == f"port {port}"


def test_a_meeting_below_torchrun_that_was_not_seen_leaves_a_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agents of torchrun use the same port as the ranks, for as long as these run: what is open
    says nothing, and what was closed may have been a rank's."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "of a test")
    place = tmp_path / "contact-0.json"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        watch = contact.Watch(os.getpid(), str(tmp_path), 0, 2, "a", port, 16)
        with socket.create_connection(server.getsockname()), server.accept()[0]:
            watch.try_to_look()
            before = contact.parse_record(place.read_text())
            caller = socket.create_connection(server.getsockname())
            accepted = server.accept()[0]
            caller.close()
            accepted.close()
            watch.try_to_look()
            after = contact.parse_record(place.read_text())
    assert before is not None and after is not None
    assert contact.judge([before, rank(rank=1)], 2) == contact.APART
    assert (after["met"], after["doubt"]) == ("", "a connection to the agents of torchrun")
    assert contact.judge([after, rank(rank=1)], 2) == contact.UNKNOWN


def test_a_thread_that_ends_meanwhile_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    own, real = os.getpid(), os.listdir
    gone = str(2**22 + 1)
    listed = {f"/proc/{own}/task": [gone, str(own)]}
    monkeypatch.setattr(os, "listdir", lambda path: listed.get(str(path)) or real(path))
    with subprocess.Popen(["sleep", "60"]) as child:
        assert child.pid in contact.find_tree(own)
        child.kill()
    listed[f"/proc/{own}/task"] = [gone]
    assert contact.find_tree(own) == []


def test_what_can_t_be_seen_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> list[int]:
        raise PermissionError(f"no /proc/{pid}")

    monkeypatch.setattr(contact, "find_tree", refuse)
    watch = contact.Watch(os.getpid(), str(tmp_path), 0, 2, "a", 12000, 16)
    watch.try_to_look()
    found = contact.parse_record((tmp_path / "contact-0.json").read_text())
    assert found is not None and found["blind"]
