"""CIFAR-10: from each form in which it is handed on to the same files; and the real data."""

import hashlib
import io
import json
import os
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from rampup.core.png import write_png
from rampup.datasets import cifar, fetch, sets, sources
from rampup.datasets.idx import read_idx
from rampup.datasets.sets import CIFAR10, SETS, DataFile
from rampup.errors import RampupError

COUNT = 4
"""Images in a batch of these tests."""
CLOSED = "http://127.0.0.1:9/cifar.tar.gz"


class Small:
    """A CIFAR-10 of 24 images, in every form."""

    def __init__(self, folder: Path) -> None:
        random = np.random.default_rng(1)
        self.folder = folder
        self.pixels = random.integers(0, 256, (6, COUNT, 3, 32, 32), dtype=np.uint8)
        self.labels = random.integers(0, 10, (6, COUNT), dtype=np.uint8)

    def binary(self) -> dict[str, bytes]:
        found = {}
        for name, pixels, labels in zip(cifar.BATCHES, self.pixels, self.labels, strict=True):
            rows = [
                bytes([label]) + image.tobytes()
                for label, image in zip(labels, pixels, strict=True)
            ]
            found[f"{name}.bin"] = b"".join(rows)
        return found

    def pickles(self) -> dict[str, bytes]:
        pairs = zip(cifar.BATCHES, self.pixels, self.labels, strict=True)
        return {
            name: python_2_pickle(pixels.tobytes(), labels.tolist())
            for name, pixels, labels in pairs
        }

    def pictures(self) -> dict[str, bytes]:
        pairs = zip(cifar.BATCHES, self.pixels, strict=True)
        found = {
            f"{name}.png": write_png(it.transpose(0, 2, 3, 1).reshape(COUNT, 1024, 3))
            for name, it in pairs
        }
        train, test = self.labels[:5].flatten().tolist(), self.labels[5].tolist()
        return {
            **found,
            "train_lables.json": json.dumps(train).encode(),
            "test_lables.json": json.dumps(test).encode(),
        }

    def files(self) -> dict[str, bytes]:
        found = {}
        for name, part in (("train", slice(5)), ("test", slice(5, 6))):
            pixels, labels = self.pixels[part], self.labels[part]
            size = labels.size
            found[f"{name}-images-idx4-ubyte"] = (
                struct.pack(">HBB4I", 0, 8, 4, size, 3, 32, 32) + pixels.tobytes()
            )
            found[f"{name}-labels-idx1-ubyte"] = (
                struct.pack(">HBBI", 0, 8, 1, size) + labels.tobytes()
            )
        return found

    def put(self, parts: dict[str, bytes]) -> Path:
        place = self.folder / "cifar-10-batches"
        place.mkdir()
        for name, data in {**parts, "readme.html": b"hello"}.items():
            (place / name).write_bytes(data)
        return place

    def archive(self, parts: dict[str, bytes]) -> Path:
        path = self.folder / "cifar.tar.gz"
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            for name, data in reversed({**parts, "readme.html": b"hello"}.items()):
                member = tarfile.TarInfo(f"cifar-10-batches/{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return path


def python_2_pickle(
    pixels: bytes, labels: list[int], module: bytes = b"numpy.core.multiarray\n_reconstruct"
) -> bytes:
    """Byte by byte what Python 2 and numpy 1 wrote, as no Python of today does: text as bytes, and
    their names."""

    def words(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    kind = (
        b"cnumpy\ndtype\n("
        + words(b"u1")
        + b"K\0K\1tR(K\3"
        + words(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    )
    array = (
        b"c"
        + module
        + b"\n(cnumpy\nndarray\n(K\0t"
        + words(b"b")
        + b"tR(K\1(K\x04M\0\x0ct"
        + kind
        + b"\x89"
    )
    data = b"T" + struct.pack("<I", len(pixels)) + pixels
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return (
        b"\x80\x02}(" + words(b"data") + array + data + b"tb" + words(b"labels") + numbers + b"u."
    )


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """Its cache is empty, and there is no network and no npm."""
    made = Small(tmp_path)
    files = tuple(
        DataFile(name, len(data), hashlib.md5(data).hexdigest())
        for name, data in made.files().items()
    )
    monkeypatch.setitem(SETS, "cifar10", CIFAR10._replace(files=files, address=CLOSED))
    monkeypatch.setattr(cifar, "COUNT", COUNT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")
    return made


def fetched(given: Path | None) -> tuple[dict[str, bytes], list[str]]:
    said: list[str] = []
    found = fetch.fetch("cifar10", given, said.append, lambda done, total: None)
    assert found.source == str(given)
    sets.check_files("cifar10")
    return {path.name: path.read_bytes() for path in found.folder.iterdir()}, said


@pytest.mark.parametrize("form", ["binary", "pickles", "pictures", "files"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_form_gives_the_same_files(small: Small, form: str, packed: bool) -> None:
    parts = getattr(small, form)()
    found, said = fetched(small.archive(parts) if packed else small.put(parts))
    assert found == small.files() and said == []


def test_pickles_of_a_newer_python_too(small: Small) -> None:
    """Mirrors have written them again."""
    pairs = zip(cifar.BATCHES, small.pixels, small.labels, strict=True)
    again = {
        name: pickle.dumps(
            {b"data": pixels.reshape(COUNT, -1), b"labels": labels.tolist()}, protocol=3
        )
        for name, pixels, labels in pairs
    }
    assert fetched(small.put(again))[0] == small.files()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch escaped",)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        (
            "data_batch_2",
            lambda data: pickle.dumps(Evil()),
            "it names posix.system, which is not part of a batch",
        ),
        ("data_batch_2", lambda data: data[:500], "a batch is damaged"),
        ("data_batch_2", lambda data: pickle.dumps([1]), "a batch is damaged"),
        (
            "test_batch",
            lambda data: python_2_pickle(bytes(100), [1]),
            "has 100 bytes of pixels and 1 labels",
        ),
        ("test_batch", lambda data: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:], ""),
    ],
)
def test_a_batch_that_is_none_is_refused(
    small: Small, name: str, change: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small.folder)
    parts = small.pickles()
    parts[name] = change(parts[name])  # type: ignore[operator]
    said: list[str] = []
    with pytest.raises(RampupError) as caught:
        fetch.fetch("cifar10", small.put(parts), said.append, lambda done, total: None)
    assert why in said[0] and "cifar-10-python.tar.gz" in caught.value.hint
    assert not (small.folder / "escaped").exists()
    assert not (sets.cache_root() / "cifar10").exists()


def test_what_is_missing_is_told(small: Small) -> None:
    parts = small.binary()
    del parts["data_batch_3.bin"]
    said: list[str] = []
    with pytest.raises(RampupError):
        fetch.fetch("cifar10", small.put(parts), said.append, lambda done, total: None)
    assert "it has only data_batch_1.bin, data_batch_2.bin, data_batch_4.bin" in said[0]


def test_an_archive_from_an_address_is_read_as_it_comes(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = small.archive(small.binary()).read_bytes()

    class OneWay(io.RawIOBase):
        """What a server sends: nobody can go back in it."""

        at = 0

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            piece = archive[self.at : self.at + size]
            self.at += len(piece)
            return piece

    monkeypatch.setattr(sources, "_open_url", lambda address: OneWay())
    done: list[int] = []
    found = fetch.fetch(
        "cifar10", None, print, lambda written, total: done.append(written * 100 // total)
    )
    assert found.source == CLOSED and done[-1] >= 99 and max(done) <= 100
    assert {path.name: path.read_bytes() for path in found.folder.iterdir()} == small.files()


def test_the_real_data(cifar10: Path) -> None:
    """Through whatever source this machine has: the first labels, as many of each class, and the
    known mean."""
    labels, test_labels = (
        read_idx(cifar10 / f"{name}-labels-idx1-ubyte") for name in ("train", "test")
    )
    assert labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert test_labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert (
        np.bincount(labels).tolist() == [5000] * 10
        and np.bincount(test_labels).tolist() == [1000] * 10
    )
    images = read_idx(cifar10 / "train-images-idx4-ubyte")
    assert images.shape == (50000, 3, 32, 32)
    assert images[0, :, 0, 0].tolist() == [59, 62, 63]
    sums = images.sum((0, 2, 3), dtype=np.int64) / (50000 * 1024 * 255)
    assert sums == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
