"""`show --checkpoints` tells what is there, and `clean` removes what is no longer needed."""

import os
from pathlib import Path

import pytest

from rampup.rundir.files import RunDir
from rampup.runtime.checkpoints.store import CheckpointStore


@pytest.fixture
def run(cli) -> RunDir:
    """A run that ended, with checkpoints 10, 20 (the best) and 30, and what a killed attempt
    leaves."""
    found = RunDir(cli.run_command("true")["dir"])
    store = CheckpointStore(found, 1)
    for step in (10, 20, 30):
        best = (
            {"metric": "val_accuracy", "value": 0.9, "epoch": 2, "step": 20} if step > 10 else None
        )
        store.save(step, {"state.pt": os.urandom(2_000_000)}, {"world_size": 2, "best": best})
    half = found.checkpoints / "step-40.tmp-1"
    half.mkdir()
    (half / "state.pt").write_bytes(bytes(1_000_000))
    return found


def damage(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(1_000_000)
        byte = file.read(1)
        file.seek(1_000_000)
        file.write(bytes([byte[0] ^ 1]))


def names(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.checkpoints.iterdir())


def test_show(cli, run: RunDir) -> None:
    done = cli("show", run.id, "--checkpoints")
    head, newest, middle, oldest = done.stdout.splitlines()
    assert head.split() == ["step", "written", "size", "attempt", "ranks", "best", "state"]
    assert (
        newest.split()[0] == "30"
        and "2.0 MB" in newest
        and "ago" in newest
        and "best" not in newest
    )
    assert middle.split()[0] == "20" and middle.endswith("best") and oldest.split()[0] == "10"
    assert f"next: rampup show {run.id} --checkpoints --verify" in done.stderr
    rows = cli.json("show", run.id, "--checkpoints")
    assert (rows[0]["bytes"], rows[0]["world_size"], rows[0]["sound"]) == (2_000_000, 2, None)


def test_verify(cli, run: RunDir) -> None:
    assert cli("show", run.id, "--checkpoints", "--verify").stdout.count("sound") == 3
    damage(run.checkpoint(30) / "state.pt")
    os.truncate(run.checkpoint(10) / "manifest.json", 20)
    done = cli("show", run.id, "--checkpoints", "--verify", check=1)
    lines = done.stdout.splitlines()
    assert lines[1].endswith("damaged: state.pt is not what was written")
    assert lines[2].endswith("sound") and lines[3].endswith("damaged: manifest.json can't be read")
    rows = cli.json("show", run.id, "--verify", check=1)
    assert [row["sound"] for row in rows] == [False, True, False]


def test_a_run_without_any(cli) -> None:
    run = cli.run_command("true")
    assert "has no checkpoint" in cli("show", run["id"], "--checkpoints").stdout
    assert cli.json("show", run["id"], "--checkpoints") == []
    assert "nothing to remove" in cli("clean", run["id"]).stderr


def test_clean_keeps_the_newest_and_the_best(cli, run: RunDir) -> None:
    before = names(run)
    told = cli("clean", run.id, "--dry-run").stderr
    assert f"{run.id}: would free 3.0 MB (step-10, step-40.tmp-1); kept step-30, step-20" in told
    assert names(run) == before
    assert f"{run.id}: freed 3.0 MB" in cli("clean", run.id).stderr
    assert names(run) == ["step-20", "step-30"]
    assert cli.json("clean", run.id) == [
        {"id": run.id, "removed": [], "kept": ["step-30", "step-20"], "freed_bytes": 0}
    ]


def test_clean_takes_the_newest_that_is_sound(cli, run: RunDir) -> None:
    damage(run.checkpoint(30) / "state.pt")
    cli("clean", run.id)
    assert names(run) == ["step-20"]


def test_clean_leaves_all_when_none_is_sound(cli, run: RunDir) -> None:
    for step in (10, 20, 30):
        damage(run.checkpoint(step) / "state.pt")
    cli("clean", run.id)
    assert names(run) == ["step-10", "step-20", "step-30"]
    assert "freed 6.0 MB" in cli("clean", run.id, "--all").stderr
    assert names(run) == []


def test_clean_has_no_default_and_leaves_running_runs_alone(cli, eventually) -> None:
    assert "Missing argument" in cli("clean", check=2).stderr
    cli("run", "--detach", "--", "sleep", "60")
    (run,) = cli.json("list")
    eventually(lambda: cli.json("list")[0]["state"] == "running")
    refused = cli("clean", run["id"], check=3)
    assert "is running: its checkpoints are left alone" in refused.stderr
    cli("cancel", run["id"])
