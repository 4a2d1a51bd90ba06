"""Results in JSON and arrays, and what of them needs a pickle."""

import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest

from rampup.errors import Refused
from rampup.rundir import private, results
from rampup.rundir.files import AttemptDir, RunDir


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttemptDir:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = RunDir(tmp_path / "20260101-000000-a-bcdefg").attempt(1)
    found.path.mkdir(parents=True)
    return found


def there_and_back(attempt: AttemptDir, value: Any) -> Any:
    results.write_result(attempt, "bcdefg", value)
    return results.read_result(attempt, "bcdefg")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**80),
        0.1,
        math.inf,
        "ä\ud800",
        [],
        {},
        (),
        [1, [2, (3, {"$tuple": [4]})]],
        {1: "a", None: "b", (1, 2): [3]},
        {"$array": 0, "plain": 1},
    ],
)
def test_plain_values_are_json(attempt: AttemptDir, value: Any) -> None:
    found = there_and_back(attempt, value)
    assert found == value and type(found) is type(value)
    assert not attempt.result_pickle_file.exists() and not attempt.result_arrays_file.exists()


def test_arrays_are_npz_and_keep_their_type(attempt: AttemptDir) -> None:
    value = {"a": numpy.float32(1.5), "b": [numpy.arange(3, dtype="int16"), numpy.array("x")]}
    found = there_and_back(attempt, value)
    assert type(found["a"]) is numpy.float32 and found["a"] == 1.5
    assert found["b"][0].dtype == "int16" and found["b"][0].tolist() == [0, 1, 2]
    assert found["b"][1].shape == () and not attempt.result_pickle_file.exists()


class Number(int):
    """More than an int."""


@pytest.mark.parametrize("value", [{1}, Number(3), numpy.array([{1}]), [Number(3)]])
def test_anything_else_is_a_signed_pickle(attempt: AttemptDir, value: Any) -> None:
    private.make_key()
    found = there_and_back(attempt, value)
    assert type(found) is type(value) and numpy.all(found == value)
    assert attempt.result_pickle_file.stat().st_mode & 0o777 == 0o600
    record = json.loads(attempt.result_file.read_text())
    with pytest.raises(Refused, match="its signature is not yours"):
        results.read_result(attempt, "another")
    private.write(
        attempt.result_file,
        lambda file: file.write(json.dumps({**record, "signature": 1}).encode()),
    )
    with pytest.raises(Refused, match="its signature is not yours"):
        results.read_result(attempt, "bcdefg")


def test_a_number_that_python_writes_as_no_text_comes_back(attempt: AttemptDir) -> None:
    private.make_key()
    assert there_and_back(attempt, [2**20_000 + 1]) == [2**20_000 + 1]


def test_without_the_key_a_pickle_is_not_even_written(attempt: AttemptDir) -> None:
    with pytest.raises(results.CannotTravel, match=r"needs a signed pickle.*results\.key"):
        results.write_result(attempt, "bcdefg", {1})
    assert list(attempt.path.iterdir()) == []


def test_what_can_not_be_pickled_is_named(attempt: AttemptDir) -> None:
    private.make_key()
    with pytest.raises(results.CannotTravel, match="returned a generator, which can't be sent"):
        results.write_result(attempt, "bcdefg", (number for number in range(2)))
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(results.CannotTravel, match="returned a list"):
        results.write_result(attempt, "bcdefg", deep)
    lock = threading.Lock()
    with pytest.raises(results.CannotTravel, match=r"`result\['a'\]\[1\]` in it .*_thread.lock"):
        results.write_result(attempt, "bcdefg", {"a": [1, lock]})


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"format": "pickle"}'])
def test_a_damaged_result_is_refused(attempt: AttemptDir, text: str) -> None:
    private.make_key()
    private.write(attempt.result_file, lambda file: file.write(text.encode()))
    with pytest.raises(Refused):
        results.read_result(attempt, "bcdefg")


def test_two_processes_get_one_key(attempt: AttemptDir) -> None:
    private.make_key()
    key = private.read_key()
    private.make_key()
    assert private.read_key() == key and key is not None and len(key) == 32
    assert private.key_file().stat().st_mode & 0o777 == 0o600
    private.key_file().chmod(0o644)
    with pytest.raises(Refused, match="others can reach it"):
        private.read_key()


def test_a_key_that_is_of_no_use_is_refused_before_a_run(attempt: AttemptDir) -> None:
    private.make_key()
    private.key_file().chmod(0o644)
    with pytest.raises(Refused, match="others can reach it"):
        private.make_key()
    private.key_file().chmod(0o600)
    private.key_file().write_bytes(b"short")
    with pytest.raises(Refused, match="is damaged") as caught:
        private.make_key()
    assert caught.value.hint.startswith(f"rm {private.key_file()}")
