"""Runs side by side: the columns that differ, and what a wrong name of a column gets."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rampup.cli import list as listing
from rampup.cli import sweep
from rampup.errors import Refused, UsageError
from rampup.study import columns
from unit.cli.finished_runs import make_run

ROW = {
    "id": "aaaaaa",
    "state": "completed",
    **dict.fromkeys(("lr", "train.lr", "nodes", "resources.nodes", "val_loss", "metrics.val_loss")),
    "cluster.name": "local",
}


def hint_of(name: str) -> str:
    with pytest.raises(Refused) as refused:
        columns.check([name], [ROW])
    return refused.value.hint


def test_a_wrong_column_gets_the_close_ones_or_groups() -> None:
    assert hint_of("lrr") == "close: lr"
    groups = "of the list: id, state; settings: lr; resources: nodes; "
    assert hint_of("zzzzzz") == f"{groups}cluster: cluster.name; metrics: val_loss"


@pytest.mark.parametrize("settings", [(), ("lr=0.1",), ("lr=0.1,0.1",)])
def test_a_sweep_that_varies_nothing_is_refused(settings: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="varies nothing"):
        CliRunner().invoke(
            sweep.command, ["digits", *settings], standalone_mode=False, catch_exceptions=False
        )


def add_point(root: Path, run_id: str, lr: float, epochs: int) -> None:
    run = make_run(root, run_id, config={"train": {"lr": lr, "epochs": epochs, "seed": 1}})
    identity = {**run.run, "study": "digits", "point": {"lr": lr}, "point_id": run_id}
    run.run_file.write_text(json.dumps(identity))


def show_study(**env: Any) -> tuple[list[str], str]:
    done = CliRunner().invoke(
        listing.command, ["--study", "digits"], standalone_mode=False, catch_exceptions=False
    )
    return done.stdout.splitlines()[0].split(), done.stderr


def test_what_differs_in_a_study_is_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    add_point(tmp_path, "aaaaaa", 0.1, 4)
    add_point(tmp_path, "bbbbbb", 0.2, 4)
    head, notes = show_study()
    assert head == ["id", "state", "lr", "took"] and "note" not in notes
    add_point(tmp_path, "cccccc", 0.3, 20)
    head, notes = show_study()
    assert head == ["id", "state", "lr", "epochs", "took"]
    assert "note: runs of this study also differ in epochs" in notes


def test_a_sweep_with_other_fixed_settings_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    add_point(tmp_path, "aaaaaa", 0.1, 4)
    argv = ["digits", "lr=0.2,0.3", "epochs=7", "--dry-run"]
    done = CliRunner().invoke(sweep.command, argv, standalone_mode=False, catch_exceptions=False)
    assert "epochs" in done.stderr and "--name NAME makes another study" in done.stderr
