"""Ranks that never met are named, and ranks that met are not: programs of many kinds, as they are.

They run with a clock of their own: a rank counts after a second of CPU, not after five, and a run is
named while it runs after some seconds, not after five minutes.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

FOREIGN = Path(__file__).parents[1] / "foreign"
MEET, APART = str(FOREIGN / "meet.py"), str(FOREIGN / "apart.py")
TWO = ("--tasks-per-node", "2")
CLOCK = {"RAMPUP_APART_AFTER_S": "1"}
NAMED = "the 2 ranks never talked to each other: each trained alone"
needs_mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun here")


def run(cli: Any, *words: str, **env: str) -> tuple[str, dict[str, Any]]:
    """What a run says at its end, and `show --json` of it."""
    done = cli("run", *words, **{**CLOCK, **env})
    return done.stderr, cli.json("show")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ddp", TWO),
        ("fabric", TWO),
        ("tensor_parallel", TWO),
        ("accelerate", TWO),
        ("tensorflow", TWO),
        ("own_port", TWO),
        ("prepares", TWO),
        ("files", (*TWO, "--independent")),
        ("one", ("--tasks-per-node", "1")),
        pytest.param("mpi", (*TWO, "--launcher", "mpirun"), marks=needs_mpi),
        pytest.param("mpi_memory", (*TWO, "--launcher", "mpirun"), marks=needs_mpi),
    ],
)
def test_ranks_that_meet_are_not_named(cli: Any, kind: str, options: tuple[str, ...]) -> None:
    said, shown = run(cli, *options, "--", "python", MEET, kind, "1.5")
    assert shown["state"] == "completed" and shown["apart"] == 0
    assert "talked" not in said
    found = [json.loads(path.read_text()) for path in cli.runs.glob("2*/attempts/1/contact-*.json")]
    if kind in ("files", "one"):
        assert not found, "nobody looked"
    else:
        assert len(found) == 2 and all(one["cpu_s"] > 1 for one in found if not one["met"])


def test_ranks_that_meet_late_are_not_named_before(cli: Any) -> None:
    words = (*TWO, "--", "python", MEET, "late", "1")
    said, shown = run(cli, *words, RAMPUP_APART_AFTER_S="10")  # a thirtieth of five minutes
    assert shown["apart"] == 0 and "talked" not in said


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("mnist", "the program must join its ranks"),
        ("loader", "the program must join its ranks"),
        ("imagenet", "or leave out --tasks-per-node 2"),
        ("fabric", "Fabric(devices=..., num_nodes=...)"),
        ("server", "--independent says that it is meant"),
        pytest.param("mpi", "ranks of MPI need --launcher mpirun", marks=needs_mpi),
    ],
)
def test_ranks_that_never_met_are_named(cli: Any, kind: str, remedy: str) -> None:
    said, shown = run(cli, *TWO, "--", "python", APART, kind, "2")
    assert f"note: {NAMED}" in said and remedy in said
    assert shown["apart"] == 2


def test_two_torchruns_are_named_everywhere(cli: Any, tmp_path: Path) -> None:
    """The ranks of each torchrun meet, and do the same work as those of the other."""
    torchrun = ("torchrun", "--standalone", "--nproc-per-node", "2", APART, "agent", "1")
    said, shown = run(cli, *TWO, "--", *torchrun)
    assert f"note: {NAMED}" in said
    assert "torchrun starts ranks itself: leave out --tasks-per-node 2" in said
    assert shown["apart"] == 2
    assert NAMED in cli("show").stderr
    why = cli.json("why")
    assert (why["problem"], why["cause"]) == ("ranks-apart", NAMED)
    assert why["remedy"].startswith("torchrun starts ranks itself")
    assert cli.json("list")[0]["apart"] == 2
    assert "completed, each rank alone" in cli("list").stdout
    cli("report", shown["id"], "--out", str(tmp_path / "page.html"))
    assert "the 2 ranks never talked to each other" in (tmp_path / "page.html").read_text()


def test_a_run_is_named_once_while_it_runs(cli: Any) -> None:
    run(cli, *TWO, "--", "python", APART, "server", "5")
    (log,) = cli.runs.glob("2*/attempts/1/rank-0.log")
    line = "note: the 2 ranks have never talked to each other: each trains alone"
    assert log.read_text().count(line) == 1
    assert log.read_text().splitlines()[-1] == "done", "while it ran"
