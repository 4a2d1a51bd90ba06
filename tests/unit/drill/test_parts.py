"""The parts of a drill: when runs are equal, what can be caused where, how kills are dealt, what
the table says."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from rampup.cli.drill import rows_of
from rampup.config.resolve import Request, resolve
from rampup.core.spec import Cluster, RunSpec
from rampup.drill import drill, place, runner
from rampup.drill.comparison import compare_runs, have_same_content
from rampup.drill.faults.catalogue import list_faults
from rampup.drill.faults.here import damage
from rampup.drill.verdict import Result, Trial
from rampup.rundir.files import RunDir
from rampup.runtime.checkpoints.store import CheckpointStore
from rampup.sandbox.layout import Layout, Options

ROWS = [
    {"step": 1, "loss": 0.5, "samples_s": 10.0, "t": 1.0},
    {"step": 2, "loss": 0.25, "samples_s": 11.0, "t": 2.0},
]


def made(
    folder: Path, rows: list[dict[str, Any]] = ROWS, state: bytes = b"weights", step: int = 2
) -> RunDir:
    run = RunDir(folder)
    run.attempt(1).path.mkdir(parents=True)
    run.attempt(1).metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if state:
        CheckpointStore(run, 1).save(step, {"state.pt": state}, {})
    return run


# equal --------------------------------------------------------------------------------------------


def test_times_and_rates_make_no_difference(tmp_path: Path) -> None:
    later = [{**row, "samples_s": 3.0, "t": row["t"] + 9, "save_s": 0.1} for row in ROWS]
    assert compare_runs(made(tmp_path / "a"), made(tmp_path / "b", later)) == (True, "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": ROWS[:1]}, "it has 1 rows of metrics, not 2"),
        ({"rows": [ROWS[0], {**ROWS[1], "loss": 0.26}]}, "loss at step 2: 0.26, not 0.25"),
        ({"state": b"Weights"}, "step-2/state.pt differs"),
        ({"state": b""}, "only one of them has a checkpoint"),
        ({"step": 3}, "the last checkpoint is of step 3, not 2"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    assert compare_runs(made(tmp_path / "a"), made(tmp_path / "b", **change)) == (False, words)


def test_a_damaged_end_is_not_equal(tmp_path: Path) -> None:
    other = made(tmp_path / "b")
    damage(other.checkpoint(2) / "state.pt", 3, cut=False)
    equal, words = compare_runs(made(tmp_path / "a"), other)
    assert equal is False and "is damaged" in words


def test_nothing_to_compare(tmp_path: Path) -> None:
    assert compare_runs(made(tmp_path / "a", [], b""), made(tmp_path / "b", [], b"")).equal is None


def saved(path: Path, **change: Any) -> Path:
    torch.manual_seed(1)
    memory = torch.zeros(100)
    tensors = {"weight": memory[10:22].view(3, 4).copy_(torch.randn(3, 4)), "bias": torch.arange(4)}
    torch.save(
        {"step": 7, "model": tensors, "rates": (0.9, 0.99), "dtype": torch.float32} | change, path
    )
    return path


def test_equal_tensors_written_in_two_ways(tmp_path: Path) -> None:
    """After a resume, words that were one object are two; and what lies beside a tensor in memory
    is not the tensor."""
    one, two = saved(tmp_path / "one.pt"), tmp_path / "two.pt"
    again = torch.load(one, weights_only=True)
    again["model"]["weight"].untyped_storage()[0] = 255
    torch.save({"".join(["st", "ep"]): 7, **again}, two)
    assert one.read_bytes() != two.read_bytes()
    assert have_same_content(one, two)


@pytest.mark.parametrize(
    "change",
    [
        {"step": 8},
        {"model": {"weight": torch.ones(3, 4), "bias": torch.arange(4)}},
        {"rates": (0.9, 0.999)},
        {"dtype": torch.float64},
        {"more": 1},
    ],
)
def test_other_content_is_found(tmp_path: Path, change: dict[str, Any]) -> None:
    assert not have_same_content(saved(tmp_path / "one.pt"), saved(tmp_path / "two.pt", **change))


@pytest.mark.parametrize("cut", [True, False])
def test_damage_changes_one_place(tmp_path: Path, cut: bool) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(20)))
    damage(file, 7, cut)
    assert file.read_bytes() == (bytes(range(7)) if cut else bytes([*range(7), 6, *range(8, 20)]))


# possible -----------------------------------------------------------------------------------------


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    return resolve(Request(target="digits", options={"tasks_per_node": "2"}), tmp_path)


def on_sandbox(tmp_path: Path, **options: Any) -> place.Place:
    layout = Layout("box", tmp_path, tmp_path, tmp_path / "box.toml")
    layout.write_record(
        {"options": {name: options.get(name, getattr(Options(), name)) for name in OPTIONS}}
    )
    return place.Place("sandbox", Cluster(name="box", scheduler="slurm", launcher="srun"), layout)


OPTIONS = Options.__struct_fields__
ALL = {fault.name for fault in list_faults(place.Place("here", Cluster(name="local")))}


def possible(where: place.Place, spec: RunSpec) -> set[str]:
    return {name for name in ALL if not place.find_obstacle(name, where, spec)}


def test_every_fault_is_possible_somewhere(
    tmp_path: Path, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    two_nodes = replace(spec, resources=replace(spec.resources, nodes=2))
    assert possible(on_sandbox(tmp_path), two_nodes) == ALL - {"preempted-with-grace"}
    assert possible(on_sandbox(tmp_path, grace_time_s=10), two_nodes) == ALL - {"preempted"}


def test_what_is_possible_depends_on_the_place(
    tmp_path: Path, spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    slurm = {"preempted", "preempted-with-grace", "node-lost", "first-node-lost", "ghost"}
    assert possible(place.find_place(spec), spec) == ALL - slurm - {"full-disk"}
    small = on_sandbox(tmp_path, nodes=1)
    assert ALL - possible(small, spec) == {
        "preempted-with-grace",
        "node-lost",
        "ghost",
        "full-disk",
    }
    assert "bring the sandbox up with --nodes 2" in place.find_obstacle("ghost", small, spec)
    site = place.Place("cluster", Cluster(name="site", scheduler="slurm", launcher="srun"))
    users = {
        "ranks-killed",
        "stop-and-resume",
        "cancel-and-resume",
        "time-limit",
        "preempted",
        "torn-checkpoint",
    }
    assert possible(site, spec) == users
    never = replace(site, cluster=replace(site.cluster, requeue=False))
    assert possible(never, spec) == users - {"preempted"}


# dealt --------------------------------------------------------------------------------------------


def dealt(tmp_path: Path, spec: RunSpec, kills: int | None) -> list[tuple[str, float]]:
    held = drill.Drill(spec, tmp_path, 1, False, print)
    return [
        (fault.name, moment)
        for fault, moment in held._schedule(list_faults(place.find_place(spec)), kills)
    ]


def test_kills_come_in_turn_and_over_all_of_the_time(tmp_path: Path, spec: RunSpec) -> None:
    found = dealt(tmp_path, spec, 20)
    kills = ["rank-killed", "ranks-killed", "launcher-killed"]
    assert [name for name, _ in found[:20]] == (kills * 7)[:20]
    assert sorted(int(moment * 20) for _, moment in found[:20]) == list(range(20)), (
        "one in each twentieth"
    )
    assert [name for name, _ in found[20:]] == [name for name, _ in dealt(tmp_path, spec, None)[3:]]
    assert len(dealt(tmp_path, spec, None)) == len(ALL)


def test_a_run_that_writes_few_checkpoints_gets_more(spec: RunSpec) -> None:
    assert drill.add_checkpoints(spec, 900).checkpoint["every"] == "90steps"
    assert drill.add_checkpoints(spec, 4).checkpoint["every"] == "1steps"
    own = replace(spec, checkpoint={"every": "7steps"})
    assert drill.add_checkpoints(own, 900) == own


def test_the_time_of_a_start() -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 100))
    assert 98 < runner.seconds_until(soon) < 101
    assert runner.seconds_until("N/A") == 0


# told ---------------------------------------------------------------------------------------------


def result(*trials: Trial, **impossible: str) -> Result:
    return Result(
        wall_s=1.0,
        steps=10,
        in_save=0.2,
        every="1steps",
        trials=list(trials),
        impossible=impossible,
    )


def trial(survived: bool = True, equal: bool | None = True, **facts: Any) -> Trial:
    return Trial(fault="rank-killed", survived=survived, equal=equal, **facts)


def test_one_row_for_each_fault() -> None:
    kills = (trial(redone=1, lost_s=2.0, attempts=2), trial(redone=3, lost_s=-1.0, attempts=2))
    assert rows_of(result(*kills, ghost="no Slurm")) == [
        ("rank-killed", "survived 2 of 2", "2", "0", "3", "2.0", "yes"),
        ("ghost", "not possible here: no Slurm", "", "", "", "", ""),
    ]


@pytest.mark.parametrize(
    ("found", "verdict", "equal", "ok"),
    [
        (trial(), "survived", "yes", True),
        (trial(equal=False), "survived", "NO", False),
        (trial(equal=False, promised=False), "survived", "no, and not promised", True),
        (trial(equal=None), "survived", "not applicable", True),
        (trial(survived=False, equal=None), "LOST", "", False),
    ],
)
def test_verdicts(found: Trial, verdict: str, equal: str, ok: bool) -> None:
    row = rows_of(result(found))[0]
    assert (row[1], row[-1]) == (verdict, equal)
    assert result(found).ok is ok


def test_chance_is_repeatable(tmp_path: Path, spec: RunSpec) -> None:
    assert dealt(tmp_path, spec, 9) == dealt(tmp_path, spec, 9)
