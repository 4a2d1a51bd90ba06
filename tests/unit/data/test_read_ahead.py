"""Batches that threads read ahead: in order, bounded in memory, never overwritten while in use, and
with errors that name the file."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rampup.data import read_ahead
from rampup.data.buffers import Pool
from rampup.data.read_ahead import ReadAhead, default_readers
from rampup.data.reader import Field, SampleReader
from rampup.errors import RampupError

WIDTH = 8
ROW = 4 * WIDTH + 64
"""Bytes of a sample: its numbers, and what aligns them."""


class Numbers(SampleReader):
    """Sample i is WIDTH times the number i."""

    fields = (Field((WIDTH,), np.float32), Field((), np.int64))

    def __init__(self, size: int = 100, pause_s: float = 0.0) -> None:
        self.size, self.pause_s, self.begun, self.gate = size, pause_s, 0, threading.Event()
        self.gate.set()

    def __len__(self) -> int:
        return self.size

    def read(self, indices: Any, out: Any) -> None:
        self.begun += 1
        assert self.gate.wait(20)
        time.sleep(self.pause_s)
        out[0][:] = indices[:, None]
        out[1][:] = indices


@pytest.fixture
def opened() -> Iterator[list[ReadAhead]]:
    found: list[ReadAhead] = []
    yield found
    for each in found:
        each.close()


def batches(size: int = 100, of: int = 10) -> list[Any]:
    order = np.random.default_rng(1).permutation(size)
    return [order[low : low + of] for low in range(0, size, of)]


@pytest.mark.parametrize("readers", [1, 3])
def test_batches_come_in_order_whatever_the_threads_do(
    opened: list[ReadAhead], readers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "PART_BYTES", 100)  # several threads for one batch
    ahead = ReadAhead(Numbers(), readers, 5000)
    opened.append(ahead)
    ahead.plan(iter(batches()))
    for indices in batches():
        values, ids = ahead.take(indices)
        assert ids.tolist() == indices.tolist()
        assert (values == indices[:, None]).all()
    assert ahead.bytes_read >= 100 * 4 * WIDTH


def test_it_reads_ahead_and_no_further_than_it_may(opened: list[ReadAhead]) -> None:
    reader = Numbers()
    size = Pool(reader.fields, 0).size(10)
    ahead = ReadAhead(reader, 1, 3 * size)
    opened.append(ahead)
    ahead.plan(batches())
    deadline = time.monotonic() + 20
    while reader.begun < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert reader.begun == 3, "three batches have room"
    ahead.take(batches()[0])
    while reader.begun < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reader.begun == 4, "and one more when one is taken"


def test_one_batch_is_read_ahead_even_if_it_is_larger_than_the_memory(
    opened: list[ReadAhead],
) -> None:
    ahead = ReadAhead(Numbers(), 2, 1)
    opened.append(ahead)
    ahead.plan(batches())
    assert [ahead.take(indices)[1].tolist() for indices in batches()] == [
        indices.tolist() for indices in batches()
    ]


def test_memory_is_used_again_but_never_while_a_view_of_it_is_in_use(
    opened: list[ReadAhead],
) -> None:
    ahead = ReadAhead(Numbers(), 1, 1500)
    opened.append(ahead)
    ahead.plan(batches())
    wanted = batches()
    kept = ahead.take(wanted[0])[0][3:5].T  # a view of a view
    places = set()
    for indices in wanted[1:]:
        found = ahead.take(indices)
        places.add(found[0].__array_interface__["data"][0])
        del found
    assert (kept == wanted[0][3:5]).all(), "nothing was written into what is kept"
    assert len(places) < len(wanted) - 1, "other memory was used again"


def test_a_new_plan_drops_the_old_one(opened: list[ReadAhead]) -> None:
    ahead = ReadAhead(Numbers(pause_s=0.01), 2, 5000)
    opened.append(ahead)
    ahead.plan(batches())
    ahead.take(batches()[0])
    others = [np.arange(low, low + 7) for low in range(0, 70, 7)]
    ahead.plan(others)
    for indices in others:
        assert ahead.take(indices)[1].tolist() == indices.tolist()


def test_what_is_not_planned_is_read_now(opened: list[ReadAhead]) -> None:
    ahead = ReadAhead(Numbers(), 1, 5000)
    opened.append(ahead)
    assert ahead.take(np.array([5, 3]))[1].tolist() == [5, 3]
    ahead.plan(batches())
    assert ahead.take(np.array([7, 7, 1]))[1].tolist() == [7, 7, 1]
    assert ahead.take(batches()[0])[1].tolist() == batches()[0].tolist()


# errors -------------------------------------------------------------------------------------------


class InFiles(Numbers):
    """One file for each sample, of which some are bad."""

    def __init__(self, folder: Path, count: int = 20) -> None:
        super().__init__(count)
        self._files = [folder / f"{number:03}.npy" for number in range(count)]
        for number, file in enumerate(self._files):
            np.save(file, np.full(WIDTH, number, np.float32))

    def files(self) -> list[Path]:
        return self._files

    def read(self, indices: Any, out: Any) -> None:
        for row, index in enumerate(indices):
            out[0][row] = np.load(self._files[index])
            out[1][row] = index


def failure(reader: SampleReader, opened: list[ReadAhead]) -> tuple[int, RampupError]:
    """In which batch the error came, and what it says."""
    ahead = ReadAhead(reader, 2, 10_000)
    opened.append(ahead)
    plan = [np.arange(low, low + 5) for low in range(0, 20, 5)]
    ahead.plan(plan)
    for number, indices in enumerate(plan):
        try:
            ahead.take(indices)
        except RampupError as error:
            return number, error
    raise AssertionError("nothing failed")


def test_a_vanished_file_is_named_when_its_batch_is_taken(
    tmp_path: Path, opened: list[ReadAhead]
) -> None:
    reader = InFiles(tmp_path)
    (tmp_path / "012.npy").unlink()
    number, error = failure(reader, opened)
    assert number == 2
    assert error.message == f"can't read {tmp_path}/012.npy: No such file or directory"
    assert "put it back" in error.hint


def test_a_truncated_file_is_named_too(tmp_path: Path, opened: list[ReadAhead]) -> None:
    reader = InFiles(tmp_path)
    (tmp_path / "007.npy").write_bytes((tmp_path / "007.npy").read_bytes()[:140])
    number, error = failure(reader, opened)
    assert number == 1
    assert error.message.startswith(f"InFiles can't read sample 7 ({tmp_path}/007.npy): ")
    assert "replace the file" in error.hint
    assert error.__cause__ is not None, "the traceback of the reader is kept"


class Treacherous(Numbers):
    """Fails, and so does what is asked about the failure."""

    def __init__(self, second: BaseException) -> None:
        super().__init__(20)
        self.second = second

    def files(self) -> list[Path]:
        raise self.second

    def read(self, indices: Any, out: Any) -> None:
        raise ValueError("bad") if len(indices) > 1 else self.second


@pytest.mark.parametrize("second", [OSError("gone"), KeyboardInterrupt(), SystemExit(3)])
def test_a_failure_that_nobody_can_describe_ends_the_wait_all_the_same(
    opened: list[ReadAhead], second: BaseException
) -> None:
    ahead = ReadAhead(Treacherous(second), 2, 10_000)
    opened.append(ahead)
    found: list[BaseException] = []

    def take() -> None:
        try:
            ahead.take(np.arange(5))
        except BaseException as error:
            found.append(error)

    ahead.plan([np.arange(5)])
    waiting = threading.Thread(target=take, daemon=True)
    waiting.start()
    waiting.join(20)
    (error,) = found
    assert isinstance(error, RampupError if isinstance(second, OSError) else ValueError)


def test_a_stop_is_served_while_a_reader_never_returns(
    opened: list[ReadAhead], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "STOP_PATIENCE_S", 0.1)
    monkeypatch.setattr(read_ahead, "LOOK_EVERY_S", 0.02)
    reader = Numbers()
    reader.gate.clear()
    ahead = ReadAhead(reader, 1, 5000)
    opened.append(ahead)
    ahead.plan(batches(), lambda: True)
    with pytest.raises(RampupError, match=r"asked to stop, but the samples .* have not been read"):
        ahead.take(batches()[0])
    reader.gate.set()


def test_threads_end_when_it_is_closed() -> None:
    ahead = ReadAhead(Numbers(), 3, 5000)
    ahead.plan(batches())
    ahead.take(batches()[0])
    ahead.close()
    deadline = time.monotonic() + 20
    while any(thread.is_alive() for thread in ahead._threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(thread.is_alive() for thread in ahead._threads)


@pytest.mark.parametrize(("cpus", "readers"), [(1, 1), (2, 1), (4, 2), (128, 8)])
def test_the_number_of_threads_follows_the_cpus(cpus: int, readers: int) -> None:
    assert default_readers(cpus) == readers
