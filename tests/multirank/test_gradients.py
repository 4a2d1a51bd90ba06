"""The gradient layer on real ranks: the same step on any number of them, the same bits in every
run, one agreement."""

import json
import os
import struct
import subprocess
import sys
from typing import Any

import pytest

from .conftest import HERE

DEFAULTS: dict[str, Any] = {
    "way": "flat",
    "network": "plain",
    "samples": 12,
    "accumulate": 1,
    "clip": None,
} | {
    "chunk_bytes": 500,
    "wishes": {},
    "late": False,
    "renewed": None,
}
"""The layers have 64 to 1024 bytes: several chunks, some with two parameters."""
WISHES = {"1": [1, True, False], "3": [0, False, True]}
"""Rank 1 wishes to stop in the second step, rank 0 to save in the fourth."""
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied": {"network": "tied"},
    "idle": {"network": "idle"},
    "accumulated": {"accumulate": 3},
    "clipped": {"clip": 0.05},
    "tiny": {"samples": 2},
}
CASES: dict[str, dict[str, Any]] = {
    **{
        f"{kind}-{world}": more | {"world": world}
        for kind, more in KINDS.items()
        for world in (1, 2, 3, 4)
    },
    **{
        f"{kind}-{world}-late": more | {"world": world, "late": True}
        for kind, more in KINDS.items()
        for world in (2, 3)
    },
    **{f"plain-{world}-renewed": {"world": world, "renewed": 2} for world in (2, 3, 4)},
    "plain-2-whole": {"world": 2, "chunk_bytes": 10**6},
    **{
        f"wish-{way}-{world}": {"way": way, "world": world, "wishes": WISHES}
        for way in ("flat", "ddp")
        for world in (2, 3)
    },
    "wish-alone": {"world": 1, "wishes": {"2": [0, True, True]}},
    "again-2": {"world": 2, "network": "again"},
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What every rank of every case says."""
    file = tmp_path_factory.mktemp("gradients") / "cases.json"
    file.write_text(json.dumps({name: DEFAULTS | case for name, case in CASES.items()}))
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    argv = [sys.executable, str(HERE / "gradient_ranks.py"), str(file)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    for name, ranks in found.items():
        assert name == "again-2" or all("error" not in rank for rank in ranks), f"{name}: {ranks}"
    return found


def numbers(weights: dict[str, str]) -> list[float]:
    return [
        number
        for bits in weights.values()
        for (number,) in struct.iter_unpack("f", bytes.fromhex(bits))
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_any_number_of_ranks_takes_the_same_steps(told: Any, kind: str, world: int) -> None:
    alone, ranks = told[f"{kind}-1"][0], told[f"{kind}-{world}"]
    assert all(
        rank["weights"] == ranks[0]["weights"] and rank["loss"] == ranks[0]["loss"]
        for rank in ranks
    )
    assert ranks[0]["loss"] == pytest.approx(alone["loss"], abs=1e-6)
    # Adam divides by the size of the gradient: a gradient near zero takes a step of any size.
    assert numbers(ranks[0]["weights"]) == pytest.approx(numbers(alone["weights"]), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [2, 3])
def test_a_late_rank_changes_no_bit(told: Any, kind: str, world: int) -> None:
    assert told[f"{kind}-{world}-late"] == told[f"{kind}-{world}"]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_new_process_goes_on_with_the_same_bits(told: Any, world: int) -> None:
    assert told[f"plain-{world}-renewed"][0]["weights"] == told[f"plain-{world}"][0]["weights"]


def test_chunks_are_sent_during_the_backward_pass(told: Any) -> None:
    assert [rank["sent"] for rank in told["plain-3"]] == [[0, 2, 2, 2, 2]] * 3, (
        "the first step makes the buffer"
    )
    assert told["accumulated-2"][0]["sent"] == told["clipped-2"][0]["sent"] == [0, 2, 2, 2, 2]
    assert told["tiny-4"][3]["sent"] == [0] * 5, "a rank without samples has nothing to wait for"
    assert told["plain-2-whole"][0]["sent"] == [0] * 5


def test_two_ranks_get_the_same_bits_from_chunks_and_from_the_whole(told: Any) -> None:
    assert told["plain-2-whole"][0]["weights"] == told["plain-2"][0]["weights"]


def test_a_gradient_in_two_parts_is_refused(told: Any) -> None:
    for rank in told["again-2"]:
        assert "a parameter got its gradient in two parts" in rank["error"]


def test_a_parameter_without_gradient_is_left_alone(told: Any) -> None:
    untouched = told["idle-1"][0]["weights"]["third.weight"]
    assert all(
        told[f"idle-{world}"][0]["weights"]["third.weight"] == untouched for world in (2, 3, 4)
    )
    assert told["plain-1"][0]["weights"]["third.weight"] != untouched


@pytest.mark.parametrize("way", ["flat", "ddp"])
@pytest.mark.parametrize("world", [2, 3])
def test_the_wish_of_one_rank_reaches_all_in_the_same_step(told: Any, way: str, world: int) -> None:
    agreed = [[False, False], [True, False], [False, False], [False, True], [False, False]]
    assert [rank["agreed"] for rank in told[f"wish-{way}-{world}"]] == [agreed] * world


def test_a_wish_changes_no_bit(told: Any) -> None:
    for world in (2, 3):
        assert told[f"wish-flat-{world}"][0]["weights"] == told[f"plain-{world}"][0]["weights"]


def test_alone_a_wish_is_granted(told: Any) -> None:
    assert told["wish-alone"][0]["agreed"] == [[step == 2] * 2 for step in range(5)]
