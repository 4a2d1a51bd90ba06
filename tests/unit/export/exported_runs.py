"""Runs for the tests of `rampup export`, made by hand."""

import json
from pathlib import Path
from typing import Any

from rampup.export.tracker import Source, read_source
from rampup.rundir.files import RunDir

T0 = 1_794_804_968.0
ROWS = [
    {"step": 50, "epoch": 1, "train_loss": 0.5, "lr": 0.1, "t": T0 + 1.25},
    {
        "step": 100,
        "epoch": 1,
        "train_loss": 0.25,
        "val loss@2": 0.75,
        "samples_s": 5000.0,
        "lr": 0.1,
        "t": T0 + 2,
    },
    {"step": 150, "epoch": 2, "train_loss": None, "lr": 0.05, "note": "a, b", "t": T0 + 3},
]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def make(
    root: Path, run_id: str = "aaaaaa", rows: list[dict[str, Any]] | None = None, outcome: str = ""
) -> RunDir:
    run = RunDir(root / f"20261116-045608-mnist-{run_id}")
    attempt = run.attempt(1)
    attempt.path.mkdir(parents=True)
    run.run_file.write_text(json.dumps({"id": run_id, "name": "mnist", "created": T0}))
    train = {"lr": 0.1, "epochs": 2, "clip": None, "optimizer": "adam", "betas": [0.9, 0.99]}
    run.config_file.write_text(json.dumps({"train": train}))
    facts = {
        "launcher": "spawn",
        "started": T0,
        "ended": T0 + 9,
        "outcome": outcome or "completed",
        "exit_code": 0,
    }
    attempt.facts_file.write_text(json.dumps(facts))
    attempt.metrics_file.write_text(lines(ROWS if rows is None else rows))
    attempt.events_file.write_text(lines([{"what": "end", "t": T0 + 9}]))
    return run


def add_attempt(run: RunDir, resumed: int, rows: list[dict[str, Any]]) -> None:
    attempt = run.claim_attempt()
    attempt.facts_file.write_text(run.attempt(1).facts_file.read_text())
    attempt.events_file.write_text(lines([{"what": "resumed", "step": resumed, "t": T0 + 20}]))
    attempt.metrics_file.write_text(lines(rows))


def damaged(root: Path) -> Source:
    rows = [
        {"step": 1e300, "loss": 1.0, "t": T0},
        {"step": 1, "loss": 2.0, "t": -1},
        {"step": 2, "loss": 3.0, "t": 1e12},
    ]
    return read_source(make(root, rows=[*rows, {"step": 3, "loss": 4.0, "t": T0 + 1}]))


def renamed(run: RunDir, name: str) -> RunDir:
    return RunDir(run.path.rename(run.path.with_name(name)))
