"""Which loaders get workers, by the CPUs and the shared memory; what is said; and what workers draw
at random."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from rampup.engines.lightning import loaders as lightning_loaders
from rampup.engines.lightning.loaders import Loaders, WorkerSeeds, seed_workers


class Drawn(Dataset[Any]):
    """Every sample has numbers of all three sources."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(
            [index, random.random(), np.random.rand(), torch.rand(()).item()], dtype=torch.float64
        )


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(4))


IN_MEMORY = TensorDataset(torch.arange(8))


def loaders(
    wish: int | str, cpus: int = 4, device: str = "cpu", rank: int = 0
) -> tuple[Loaders, Any]:
    told: list[Any] = []
    seconds = dict.fromkeys(("data", "compute", "communication"), 0.0)
    job: Any = SimpleNamespace(
        context=SimpleNamespace(threads=cpus, local_world_size=1),
        settings=SimpleNamespace(seed=1),
        events=SimpleNamespace(write=lambda what, **facts: told.append({"what": what, **facts})),
        phases=SimpleNamespace(seconds=seconds),
    )
    world: Any = SimpleNamespace(rank=rank, size=2, device=SimpleNamespace(type=device))
    return Loaders(job, world, wish), SimpleNamespace(told=told, seconds=seconds)


def suited(wish: int | str, loader: DataLoader[Any], **where: Any) -> DataLoader[Any]:
    loaders(wish, **where)[0].configure([loader], training=True)
    return loader


@pytest.mark.parametrize(
    ("wish", "asked", "cpus", "found"),
    [
        ("own", 0, 4, 0),
        ("own", 2, 1, 2),
        ("auto", 0, 4, 3),
        ("auto", 0, 64, 4),
        ("auto", 0, 1, 0),
        ("auto", 2, 64, 2),
        ("auto", 8, 4, 3),
        (5, 0, 2, 5),
        (0, 2, 4, 0),
    ],
)
def test_how_many(wish: int | str, asked: int, cpus: int, found: int) -> None:
    loader: DataLoader[Any] = DataLoader(Drawn(), 2)
    # not by the constructor: torch itself warns of many, by the CPUs of this machine
    loader.num_workers = asked
    suited(wish, loader, cpus=cpus)
    assert loader.num_workers == found
    assert loader.persistent_workers is (wish != "own" and found > 0)
    assert loader.pin_memory is False


@pytest.mark.parametrize("data", [IN_MEMORY, Subset(Subset(IN_MEMORY, [0, 1, 2]), [0, 1])])
def test_data_in_memory_needs_none(data: Dataset[Any], capfd: pytest.CaptureFixture[str]) -> None:
    assert suited("auto", DataLoader(data)).num_workers == 0
    assert (
        "no workers, all in memory, 4 CPUs for each rank, num_workers=auto"
        in capfd.readouterr().out
    )


def test_a_stream_is_left_alone() -> None:
    """Each worker would read all of it."""
    for wish in ("auto", 3):
        assert suited(wish, DataLoader(Stream())).num_workers == 0


def test_memory_is_pinned_for_a_gpu_only() -> None:
    assert suited("auto", DataLoader(Drawn()), device="cuda").pin_memory is True
    assert suited("own", DataLoader(Drawn()), device="cuda").pin_memory is False


def test_loaders_that_were_changed_give_the_same_batches() -> None:
    for asked in (0, 2):
        usual = [batch[:, 0].tolist() for batch in DataLoader(Drawn(), 5, num_workers=asked)]
        for wish in (0, 2):
            changed = suited(
                wish, DataLoader(Drawn(), 5, num_workers=asked, timeout=30 if asked else 0)
            )
            assert [batch[:, 0].tolist() for batch in changed] == usual


def test_too_little_shared_memory(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    room = SimpleNamespace(f_bavail=64_000, f_frsize=1_000)  # 64 MB, as in a container
    monkeypatch.setattr(lightning_loaders, "os", SimpleNamespace(statvfs=lambda place: room))
    assert suited("auto", DataLoader(Drawn())).num_workers == 0
    assert "too little room in /dev/shm" in capfd.readouterr().out
    assert suited(2, DataLoader(Drawn())).num_workers == 2
    assert "2 may find too little room in /dev/shm: num_workers=0" in capfd.readouterr().out


def test_a_system_without_shared_memory_has_no_such_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lightning_loaders, "SHARED_MEMORY", Path("/there/is/none"))
    assert suited("auto", DataLoader(Drawn())).num_workers == 3


def test_what_would_fit_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    suited("own", DataLoader(Drawn()))
    line = "data loading: no workers, 4 CPUs for each rank, as the module sets it; num_workers=3 would fit\n"
    assert capfd.readouterr().out == line
    for loader in (DataLoader(IN_MEMORY), DataLoader(Stream()), DataLoader(Drawn(), num_workers=1)):
        suited("own", loader)
    suited("own", DataLoader(Drawn()), cpus=1)
    suited("own", DataLoader(Drawn()), rank=1)
    said = capfd.readouterr().out
    assert said.count("data loading:") == 4 and "would fit" not in said


def test_more_workers_than_cpus_are_pointed_out(capfd: pytest.CaptureFixture[str]) -> None:
    suited("own", DataLoader(Drawn(), num_workers=2), cpus=1)
    assert "2 have too few CPUs: num_workers=1" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("wish", "loader", "remedy"),
    [
        ("own", DataLoader(Drawn()), "num_workers=3"),
        ("auto", DataLoader(Drawn()), "--cpus-per-task 8 num_workers=7"),
        ("own", DataLoader(IN_MEMORY), "a larger batch"),
        ("own", DataLoader(Stream()), "its own part"),
    ],
)
def test_waiting_is_said_once_with_what_helps(
    wish: str, loader: DataLoader[Any], remedy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    made, seen = loaders(wish)
    made.configure([loader], training=True)
    (record,) = seen.told
    assert record["what"] == "loaders" and remedy in record["remedy"]
    capfd.readouterr()
    seen.seconds |= {"data": 15.0, "compute": 10.0}
    made.epoch_ended()
    assert capfd.readouterr().out == "", "too early to judge"
    seen.seconds |= {"data": 20.0, "compute": 20.0}
    made.epoch_ended()
    made.epoch_ended()
    said = capfd.readouterr().out
    assert (
        said.count("note: 50% of the training time goes into waiting for data; try ") == 1
        and remedy in said
    )


def test_training_that_does_not_wait_is_told_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    made, seen = loaders("own")
    made.configure([DataLoader(Drawn())], training=True)
    capfd.readouterr()
    seen.seconds |= {"data": 20.0, "compute": 60.0}
    made.epoch_ended()
    assert capfd.readouterr().out == ""


def passes(workers: int, count: int, persistent: bool = True) -> list[list[list[float]]]:
    loader = DataLoader(Drawn(), 3, num_workers=workers, persistent_workers=persistent)
    seed_workers(loader)
    seeds = loader.worker_init_fn
    assert isinstance(seeds, WorkerSeeds)
    found = []
    for epoch in range(count):
        seeds.begin(torch.zeros(4), epoch, 0)
        found.append([row for batch in loader for row in batch.tolist()])
    return found


def test_random_numbers_of_workers_follow_from_the_pass_and_the_batch() -> None:
    first, second = passes(1, 2)
    assert [first, second] == passes(2, 2) == passes(2, 2, persistent=False)
    numbers = [value for row in first + second for value in row[1:]]
    assert len(set(numbers)) == len(numbers), "every sample of every pass has its own"


def test_the_users_own_beginning_of_a_worker_is_kept() -> None:
    called = []
    seeds = WorkerSeeds(called.append, None)
    usual = torch.utils.data._utils.fetch._MapDatasetFetcher.fetch
    try:
        seeds(1)
    finally:
        # a worker ends with its process
        torch.utils.data._utils.fetch._MapDatasetFetcher.fetch = usual
    assert called == [1]


# a last batch of one sample -----------------------------------------------------------------------


def share(size: int, **given: Any) -> DataLoader[Any]:
    """A loader of one of two ranks, as Lightning makes it."""
    data = TensorDataset(torch.arange(size))
    return DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=0), **given)


@pytest.mark.parametrize(
    ("model", "loader", "batches", "found"),
    [
        (nn.BatchNorm1d(4), share(18, batch_size=4), 3, True),
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), share(17, batch_size=4), 3, True),
        (nn.BatchNorm1d(4), share(18, batch_size=4), 2, False),  # a limit comes before it
        (nn.BatchNorm1d(4), share(18, batch_size=4, drop_last=True), 2, False),
        (nn.BatchNorm1d(4), share(16, batch_size=4), 2, False),
        (nn.BatchNorm1d(4), share(18, batch_size=1), 9, False),  # the first step tells it
        (nn.BatchNorm1d(4).eval(), share(18, batch_size=4), 3, False),
        (nn.BatchNorm2d(4), share(18, batch_size=4), 3, False),
        (nn.BatchNorm1d(4), DataLoader(Stream(), batch_size=3), float("inf"), False),
    ],
)
def test_a_last_batch_of_one_sample_is_noted(
    capsys: pytest.CaptureFixture[str],
    model: nn.Module,
    loader: DataLoader[Any],
    batches: float,
    found: bool,
) -> None:
    made, _ = loaders("own")
    made.configure([loader], training=True)
    capsys.readouterr()
    made.note_lone_sample(model, batches)
    assert ("note: the last batch of an epoch has one sample" in capsys.readouterr().out) is found
