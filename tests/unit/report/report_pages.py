"""Runs for the tests of the report, made by hand, and the page as a browser reads it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rampup.report import build, vega
from rampup.rundir.files import RunDir

T0 = 1_794_804_968.0
CONFIG: dict[str, Any] = {
    "kind": "engine",
    "train": {"epochs": 4, "batch_size": 100, "lr": 0.001, "monitor": "val_loss"},
    "resources": {"nodes": 1, "tasks_per_node": 1, "mem": None},
    "cluster": {"name": "local", "scheduler": "local"},
    "origins": {"train.lr": "command line", "train.epochs": "recipe.toml"},
}
PHASES = {
    "start": 5.0,
    "data": 62.0,
    "compute": 30.0,
    "communication": 1.0,
    "saving": 1.0,
    "other": 1.0,
    "wall": 100.0,
}


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def epochs(count: int = 4) -> list[dict[str, Any]]:
    rows = []
    for epoch in range(1, count + 1):
        measured = {
            "train_loss": 1 / epoch,
            "val_loss": 1.1 / epoch,
            "val_accuracy": 1 - 0.5 / epoch,
            "samples_s": 5e3,
        }
        rows.append({"step": 10 * epoch, "epoch": epoch, **measured, "lr": 0.001, "t": T0 + epoch})
    return rows


def make(
    root: Path, run_id: str = "aaaaaa", rows: list[dict[str, Any]] | None = None, **changes: Any
) -> RunDir:
    """A run as the launcher and rank 0 leave it."""
    run = RunDir(root / f"20261116-045608-mnist-{run_id}")
    attempt = run.attempt(1)
    attempt.path.mkdir(parents=True)
    facts = {
        "launcher": "spawn",
        "world_size": 1,
        "started": T0,
        "ended": T0 + 100,
        "exit_code": 0,
    } | {"outcome": "completed"}
    run.run_file.write_text(
        json.dumps({"id": run_id, "name": changes.get("name", "mnist"), "created": T0})
    )
    config = {**CONFIG, "train": {**CONFIG["train"], **changes.get("train", {})}}
    run.config_file.write_text(json.dumps(config))
    run.env_file.write_text(
        json.dumps({"python": "3.11.7", "cpus": 2, "packages": {"torch": "2.13"}, "variables": {}})
    )
    attempt.facts_file.write_text(json.dumps(facts | changes.get("facts", {})))
    attempt.metrics_file.write_text(lines(epochs() if rows is None else rows))
    start = {"what": "start", "threads": 2, "device": "cpu", "t": T0}
    attempt.events_file.write_text(lines([start, {"what": "end", "phases": PHASES, "t": T0 + 100}]))
    sample = {
        "cpu_percent": 90.0,
        "mem_used_mb": 1000,
        "mem_total_mb": 24_000,
        "rss_mb": 500,
        "cpu_s": 1.0,
    }
    attempt.system_file("vm").write_text(lines([{"t": T0 + 10 * i, **sample} for i in range(5)]))
    attempt.rank_log(0).write_text(changes.get("log", "epoch=4/4 the end\n"))
    return run


def use_short_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the real bundle takes seconds: one test does it."""
    monkeypatch.setattr(vega, "script_bundle", lambda: "/* bundle */")


class Page(HTMLParser):
    """The page as a browser reads it: its elements, its text, and the data of its charts."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.words = ""
        self.scripts: list[str] = []
        self.source = file.read_text(encoding="utf-8")
        self.feed(self.source)
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.words += data

    def titles(self) -> list[str]:
        return re.findall(r"<h3>(.*?)</h3>", self.source)


def report(*runs: RunDir) -> Page:
    out = runs[0].path.parent / "out.html"
    build.write_report(runs, out)
    return Page(out)


def resumed(run: RunDir, number: int, began: float, step: int, last: int, **facts: Any) -> None:
    """One more attempt, which goes on after `step`: a start of ten seconds, then a second for each
    step."""
    again = run.attempt(number)
    again.path.mkdir()
    t = T0 + began + 10
    again.facts_file.write_text(
        json.dumps({"launcher": "spawn", "world_size": 1, "started": T0 + began, **facts})
    )
    again.events_file.write_text(
        lines([{"what": "start", "t": t}, {"what": "resumed", "step": step, "t": t}])
    )
    row = {"step": last, "train_loss": 9.0, "samples_s": 1.0, "t": t + last - step}
    again.metrics_file.write_text(lines([row]))
    again.system_file("vm").write_text(lines([{"t": T0 + began + 5, "cpu_percent": 50.0}]))


def interrupted(root: Path, run_id: str = "aaaaaa", **changes: Any) -> RunDir:
    """Killed after step 40, back to 20, then a time limit; the third attempt completes it."""
    killed = {"outcome": "failed", "cause": "rank 0 was killed", "exit_code": 137}
    run = make(root, run_id, facts=killed, **changes)
    run.attempt(1).events_file.write_text(lines([{"what": "start", "t": T0 + 10}]))
    run.attempt(1).progress_file.write_text(json.dumps({"step": 40, "t": T0 + 90}))
    resumed(run, 2, 400, 20, 30, ended=T0 + 420, outcome="again", why="timeout")
    resumed(run, 3, 500, 30, 90, ended=T0 + 600, outcome="completed")
    phases = {"start": 10.0, "compute": 60.0, "wall": 100.0}
    with open(run.attempt(3).events_file, "a") as file:
        file.write(lines([{"what": "end", "phases": phases, "t": T0 + 600}]))
    return run
