"""`show --checkpoints` tells what is there; tests/local/test_clean.py removes it."""

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
    assert cli("show", run.id, "--checkpoints", "--verify").stdout.count("valid") == 3
    damage(run.checkpoint(30) / "state.pt")
    os.truncate(run.checkpoint(10) / "manifest.json", 20)
    done = cli("show", run.id, "--checkpoints", "--verify", check=1)
    lines = done.stdout.splitlines()
    assert lines[1].endswith("damaged: state.pt is not what was written")
    assert lines[2].endswith("valid") and lines[3].endswith("damaged: manifest.json can't be read")
    rows = cli.json("show", run.id, "--verify", check=1)
    assert [row["sound"] for row in rows] == [False, True, False]


def test_a_run_without_any(cli) -> None:
    run = cli.run_command("true")
    assert "has no checkpoint" in cli("show", run["id"], "--checkpoints").stdout
    assert cli.json("show", run["id"], "--checkpoints") == []
    assert "nothing to remove" in cli("clean", run["id"]).stderr


def test_show_knows_what_was_set_aside_and_copies(cli, run: RunDir) -> None:
    run.checkpoint(30).rename(run.checkpoints / "step-30.old-1")
    run.checkpoint(10).rename(run.checkpoints / "damaged-step-10")
    lines = cli("show", run.id, "--checkpoints", "--verify").stdout.splitlines()[1:]
    assert lines[0].split()[0] == "30" and lines[0].endswith("valid (as step-30.old-1)")
    assert lines[1].split()[0] == "20" and lines[1].endswith("best  valid")
    assert lines[2].split()[0] == "10" and lines[2].endswith("damaged, set aside")
    rows = cli.json("show", run.id, "--verify")
    assert [row["name"] for row in rows] == ["step-30.old-1", "step-20", "damaged-step-10"]
    assert [row["sound"] for row in rows] == [True, True, None]
