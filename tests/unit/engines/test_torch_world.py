"""Which backend the ranks of a run talk through."""

import pytest
import torch

from rampup.core.engines.base import EngineInfo
from rampup.core.engines.keras import KerasInfo
from rampup.core.engines.torch import TorchInfo
from rampup.engines.torch.world import World, choose_backend
from rampup.errors import RampupError, Refused
from rampup.runtime.context import RankContext

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def test_auto_follows_the_device() -> None:
    assert choose_backend("auto", CPU) == "gloo"
    assert choose_backend("auto", GPU) == "nccl"
    assert choose_backend("gloo", GPU) == "gloo"


def test_mpi_is_taken_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_mpi_available", lambda: True)
    assert choose_backend("mpi", CPU) == "mpi"


def test_a_backend_that_can_not_work_is_refused() -> None:
    for wish, words in (("mpi", "built without MPI"), ("nccl", "computes on cpu")):
        with pytest.raises(RampupError, match=words) as caught:
            World(RankContext(world_size=2), CPU, wish)
        assert "backend=" in caught.value.hint
    assert World(RankContext(), CPU, "mpi").backend == "gloo", "one rank talks to nobody"


def test_before_submission_the_launcher_of_mpi_is_asked_for() -> None:
    info = TorchInfo()
    assert info.find_needs({"backend": "mpi"}, 2).mpi == "backend=mpi"
    assert info.find_needs({"backend": "mpi"}, 1).mpi == ""
    assert info.find_needs({"backend": "auto"}, 2).mpi == ""


@pytest.mark.parametrize("info", [TorchInfo(), KerasInfo()])
def test_decoded_samples_need_a_place(info: EngineInfo) -> None:
    with pytest.raises(Refused, match="decode=true keeps decoded samples nowhere") as caught:
        info.find_needs({"decode": True, "stage": "none"}, 1)
    assert caught.value.hint == "add stage=node"
    info.find_needs({"decode": True, "stage": "node"}, 1)


def test_groups_must_divide_the_ranks() -> None:
    info = TorchInfo()
    assert info.find_needs({"batchnorm_group_size": 2}, 4).fewer_ranks is None
    found = info.find_needs({"batchnorm_group_size": 4}, 6).fewer_ranks
    assert found == (
        "batchnorm_group_size=4 does not divide 6 ranks",
        "batchnorm_group_size=1 or 2 or 3 or 6",
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"betas": [0.9]},
        {"betas": [0.9, 1.0]},
        {"betas": ["a", 0.9]},
        {"milestones": [0.5]},
        {"milestones": [-1]},
        {"schedule": "multistep"},
    ],
)
def test_lists_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused, match=next(iter(wrong))):
        TorchInfo().find_needs(wrong, 1)
