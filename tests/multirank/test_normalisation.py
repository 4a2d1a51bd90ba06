"""Batch normalisation and a short last batch: no piece of one sample, on any number of ranks."""

import json
from itertools import chain
from typing import Any

import pytest
import torch

from rampup.data.order import permutation

from .conftest import Case, Start

NORMED: dict[str, Any] = {"entry": "train:Normed", "accumulate": 2, "epochs": 1}
# Adam would follow the rounding of a gradient that is 0: that of a bias before the layer
LARGE: dict[str, Any] = {**NORMED, "samples": 1300, "batch_size": 48, "optimizer": "sgd"}
"""27 batches of 48, and one of 4."""
SMALL: dict[str, Any] = {**NORMED, "samples": 124}
"""Four batches: 40, 40, 40 and 4."""
CUT: dict[str, Any] = {**SMALL, "entry": "train:Interrupted", "ends": [], "how": "stop"}
CUT |= {"epochs": 3, "world": 3}
LONE: dict[str, Any] = {**NORMED, "samples": 121, "world": 2}
CASES: dict[str, dict[str, Any]] = {
    **{f"torch-{world}": {**LARGE, "world": world} for world in (1, 2, 3)},
    "lightning-3": {**LARGE, "world": 3, "loop": "lightning"},
    "ddp-3": {**LARGE, "world": 3, "gradients": "ddp"},
    "odd-1": {**NORMED, "world": 1, "samples": 123},
    **{f"frozen-{world}": {**SMALL, "entry": "train:Frozen", "world": world} for world in (1, 2)},
    "spatial-2": {**SMALL, "entry": "train:Spatial", "world": 2},
    "whole-3": CUT,
    # before the short batch of the first epoch, and in the middle of the second
    "stopped-3": {**CUT, "attempts": (3, 3, 3), "ends": [5, 3]},
    "lone-2": LONE,
    "lone-lightning-2": {**LONE, "loop": "lightning"},
    "lone-trial-2": {**LONE, "max_steps": 3},
    "few-2": {**SMALL, "world": 2, "batch_size": 4},
}
REFUSED = {
    "lone": (
        "the last batch of an epoch has one sample (121 samples, batch_size=40), and "
        "layer 1 (BatchNorm1d) can't normalise over one sample",
        "batch_size=41, or train on 120 samples",
    ),
    "few": (
        "batch_size=4 on 2 ranks with accumulate=2 leaves one sample in a piece, and "
        "layer 1 (BatchNorm1d) can't normalise over one sample",
        "batch_size=8, or accumulate=1",
    ),
}
TRIED = [0, 1]
"""The samples that are sent through the loss before the first step."""


def is_refused(name: str) -> bool:
    return name.partition("-")[0] in REFUSED and "trial" not in name


@pytest.fixture(scope="module")
def cases(start: Start) -> dict[str, Case]:
    """About 20 s: some 40 real ranks, which share one import of torch and of lightning."""
    found = start(CASES)
    for name, case in found.items():
        logs = [case.log(rank) for rank in range(case.world)]
        assert set(case.codes) == {int(is_refused(name))}, f"{name}: {logs}"
    return found


def pieces_of(case: Case) -> list[list[list[int]]]:
    """The pieces of each rank in the only epoch, without what was tried before."""
    ranks = case.traced("ids")
    assert all(pieces[0] == TRIED for pieces in ranks)
    return [pieces[1:] for pieces in ranks]


@pytest.mark.parametrize("name", ["torch-1", "torch-2", "torch-3", "lightning-3", "odd-1"])
def test_no_piece_has_one_sample_and_the_batches_are_the_same(
    cases: dict[str, Case], name: str
) -> None:
    case = cases[name]
    # 4 samples are two pieces of 2 on one rank: nothing has to be tried
    ranks = case.traced("ids") if name == "torch-1" else pieces_of(case)
    samples, size = case.train["samples"], case.train["batch_size"]
    order = permutation(1, 1, samples).tolist()
    batch_of = {sample: index // size for index, sample in enumerate(order)}
    batches: dict[int, list[int]] = {}
    for piece in chain(*ranks):
        assert len(piece) > 1
        (number,) = {batch_of[sample] for sample in piece}
        batches.setdefault(number, []).extend(piece)
    assert list(chain(*(batches[number] for number in sorted(batches)))) == order


def furthest(one: Case, other: Case) -> float:
    mine, theirs = one.weights(), other.weights()
    assert mine.keys() == theirs.keys()
    return max(float((mine[name] - theirs[name]).abs().max()) for name in mine)


def test_every_way_to_sum_gradients_takes_the_same_steps(cases: dict[str, Case]) -> None:
    """Also where the last rank has no part in the last batch."""
    assert [len(pieces) for pieces in pieces_of(cases["torch-3"])] == [55, 55, 54]
    assert furthest(cases["torch-3"], cases["ddp-3"]) < 1e-6
    assert furthest(cases["torch-3"], cases["lightning-3"]) < 1e-6


def test_a_frozen_layer_changes_nothing_and_weights_agree(cases: dict[str, Case]) -> None:
    """What holds without statistics of the batch holds here: the same step on any ranks."""
    assert furthest(cases["frozen-1"], cases["frozen-2"]) < 1e-5
    assert 1 in map(len, cases["frozen-2"].traced("ids")[0]), "cut as ever"


def test_a_layer_over_positions_is_left_as_it_was(cases: dict[str, Case]) -> None:
    """One image has several values of each channel."""
    sizes = [len(piece) for piece in pieces_of(cases["spatial-2"])[0]]
    assert sizes == [10, 10] * 3 + [1, 1]
    assert int(cases["spatial-2"].weights()["1.num_batches_tracked"]) == 8, "nothing but training"


def test_resumed_beside_a_short_batch_it_is_equal_bit_for_bit(cases: dict[str, Case]) -> None:
    whole, parts = cases["whole-3"], cases["stopped-3"]
    assert [parts.run.attempt(number).resume_step() for number in (2, 3)] == [3, 5]
    assert parts.rows_without_times() == whole.rows_without_times()
    mine, theirs = whole.state(), parts.state()
    assert all(torch.equal(mine["model"][name], theirs["model"][name]) for name in mine["model"])
    for one, other in zip(mine["ranks"], theirs["ranks"], strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", [name for name in CASES if is_refused(name)])
def test_refused_before_the_first_step_on_all_ranks_alike(
    cases: dict[str, Case], name: str
) -> None:
    case = cases[name]
    for rank in range(case.world):
        found = json.loads(case.attempt.error_file(rank).read_text())
        assert (found["message"], found["hint"]) == REFUSED[name.partition("-")[0]]
    assert "Traceback" not in case.log(0)
    assert all(pieces == [TRIED] for pieces in case.traced("ids"))


def test_a_trial_that_ends_before_the_last_batch_is_not_refused(cases: dict[str, Case]) -> None:
    assert cases["lone-trial-2"].end["metrics"]["step"] == 3
