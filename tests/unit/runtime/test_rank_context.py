"""The context that rank.py gives to a rank: ports and threads."""

import os

import pytest

from rampup import rank


def test_ports_are_below_what_the_kernel_hands_out() -> None:
    ports = [
        rank.first_port(f"/runs/{number}/1", retry) for number in range(3000) for retry in range(3)
    ]
    assert min(ports) >= 12000 and max(ports) + rank.PORTS_IN_BLOCK <= 30000
    assert all((port - rank.FIRST_PORT) % rank.PORTS_IN_BLOCK == 0 for port in ports)
    assert len(set(ports)) > 1000  # spread, not one for all


def test_a_retry_takes_another_block() -> None:
    assert len({rank.first_port("/runs/a/1", retry) for retry in range(3)}) == 3


@pytest.mark.parametrize(
    ("asked", "exported", "granted", "threads"),
    [(3, "5", 7, 3), (0, "5", 7, 5), (0, None, 7, 7), (0, "auto", 7, 7)],
)
def test_threads_are_what_was_asked_for_exported_or_granted(
    monkeypatch: pytest.MonkeyPatch, asked: int, exported: str | None, granted: int, threads: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if exported:
        monkeypatch.setenv("OMP_NUM_THREADS", exported)
    assert rank.count_threads(asked, granted, 1) == threads


def test_without_a_word_the_ranks_of_a_node_share_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert [rank.count_threads(0, 0, ranks) for ranks in (1, 3, 16)] == [8, 2, 1]
