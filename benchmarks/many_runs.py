"""Run directories by the thousand, as the launcher and rank 0 leave them: for what must stay quick
with many of them.

python -m benchmarks.many_runs FOLDER 10000        makes them in FOLDER/runs
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FIRST = 1.7e9
EPOCHS = 10
CONFIG: dict[str, Any] = {
    "kind": "engine",
    "recipe": "mnist",
    "engine": "torch",
    "train": {
        "epochs": EPOCHS,
        "batch_size": 100,
        "lr": 1e-3,
        "monitor": "val_accuracy",
        "hidden": [128, 256],
    },
    "resources": {"nodes": 1, "tasks_per_node": 2, "cpus_per_task": 1, "gpus_per_node": 0},
    "cluster": {"name": "local", "scheduler": "local"},
    "origins": {"train.lr": "command line", "train.epochs": "recipe.toml"},
}
PHASES = {
    "start": 2.0,
    "data": 0.5,
    "compute": 9.0,
    "communication": 0.5,
    "evaluation": 0.3,
    "saving": 0.2,
    "wall": 12.5,
}


@contextmanager
def many_runs(count: int) -> Iterator[dict[str, str]]:
    """An environment whose runs root holds that many ended runs."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            write_run(Path(folder) / "runs", number)
        yield {**os.environ, "RAMPUP_RUNS": f"{folder}/runs", "XDG_STATE_HOME": folder}


def id_of(number: int) -> str:
    return f"a{number:05d}"


def write_run(root: Path, number: int, rows: list[str] | None = None) -> Path:
    """One of ten has failed, and one of ten was cancelled."""
    created, outcome = FIRST + number, {0: "failed", 1: "cancelled"}.get(number % 10, "completed")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created))
    run = root / f"{stamp}-bench-{id_of(number)}"
    attempt = run / "attempts" / "1"
    attempt.mkdir(parents=True)
    write(
        run / "run.json",
        {"id": id_of(number), "name": "bench", "created": created, "user": "me", "host": "here"},
    )
    write(run / "config.json", CONFIG)
    write(
        run / "env.json",
        {"python": "3.11", "cpus": 2, "packages": {"torch": "2.13"}, "variables": {}},
    )
    write(
        run / "control.jsonl",
        {"t": created, "what": "submitted", "scheduler": "local", "host": "here", "pid": 1},
    )
    facts = {
        "launcher": "spawn",
        "world_size": 2,
        "outcome": outcome,
        "exit_code": 0 if outcome == "completed" else 1,
    }
    times = {"started": created, "ended": created + 12.5, "host": "here", "pid": 1, "cause": ""}
    write(attempt / "attempt.json", facts | times)
    end = {"what": "end", "t": created + 12.5, "phases": PHASES}
    (attempt / "events.jsonl").write_text(
        f'{{"what": "start", "t": {created}}}\n{json.dumps(end)}\n'
    )
    (attempt / "metrics.jsonl").write_text("\n".join(rows or epochs(created)) + "\n")
    sample = {
        "cpu_percent": 95.0,
        "mem_used_mb": 1500,
        "mem_total_mb": 16_000,
        "rss_mb": 700,
        "cpu_s": 12.0,
    }
    write(attempt / "system-here.jsonl", {"t": created + 10, **sample})
    (attempt / "rank-0.log").write_text("epoch=10/10 step=5500 train_loss=0.1 val_accuracy=0.97\n")
    return run


def epochs(created: float) -> list[str]:
    return [
        json.dumps(
            {"step": 550 * epoch, "epoch": epoch, "train_loss": 1 / epoch, "val_loss": 1.1 / epoch}
            | {"val_accuracy": 1 - 0.3 / epoch, "lr": 1e-3, "samples_s": 5e4, "t": created + epoch}
        )
        for epoch in range(1, EPOCHS + 1)
    ]


def steps(count: int) -> list[str]:
    """The rows of a long run that wrote one in every step; an epoch has a thousand."""
    found = []
    for step in range(1, count + 1):
        row = f'{{"step":{step},"epoch":{step // 1000 + 1},"train_loss":{1 / step:.6f},"lr":0.001,"t":{FIRST + step / 50}'
        found.append(
            row
            + (f',"val_loss":{1.1 / step:.6f},"samples_s":50000.0}}' if step % 1000 == 0 else "}")
        )
    return found


def write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value) + "\n")


if __name__ == "__main__":
    for number in range(int(sys.argv[2])):
        write_run(Path(sys.argv[1]) / "runs", number)
