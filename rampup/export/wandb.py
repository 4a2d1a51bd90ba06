"""Runs as offline runs of Weights & Biases, from the login node: `wandb sync DIR` sends them when
you want.

A `Tracker` of `rampup export`; nothing is sent from here. Offline, W&B makes a new folder for every
export, so we keep one per run and project: it has the id of the run, always holds the whole
history, and is replaced only when something has changed. What W&B noted in it (that it was synced)
stays as long as the run stays the same; syncing a newer one replaces the run's curves, for the id
is equal.
"""

import hashlib
import itertools
import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rampup.core.metrics import get_step, name_numbers
from rampup.errors import RampupError, Refused
from rampup.export.tracker import Sent, Source, Target, parse_time
from rampup.rundir.records import Record, read_json, write_json

PACKAGES = ("wandb",)
OPTIONS = ("out", "project")
CHANGED = "known, replaced"
PROJECT = "rampup"
MARK = "rampup.json"
"""In each folder that we have made: which run, for which project, and a digest of what was
exported."""
QUIET = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "WANDB_MODE": "offline"}


def destination(target: Target) -> str:
    """Return the folder; the default is where `wandb sync` looks by itself."""
    return str((target.out or Path("wandb")).absolute())


def next_command(where: str, sent: Sequence[Sent]) -> str:
    return f"wandb sync {shlex.join(each.where for each in sent)}"


def export(sources: Sequence[Source], target: Target) -> list[Sent]:
    folder, project = Path(destination(target)), target.project or PROJECT
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sent = [send(source, folder, project) for source in sources]
    except OSError as error:
        raise Refused(
            f"can't write into {folder}: {error.strerror}", "--out DIR, one that you can write"
        ) from None
    return sent


def send(source: Source, folder: Path, project: str) -> Sent:
    history = rows_by_step(source)
    digest = digest_of(source, project, history)
    mark = {"run": source.id, "project": project}
    found = [
        (path, read_json(path / MARK)) for path in sorted(folder.glob(f"offline-run-*-{source.id}"))
    ]
    mine = [path for path, said in found if {name: said.get(name) for name in mark} == mark]
    if mine and read_json(mine[-1] / MARK).get("digest") == digest:
        return Sent(source.id, str(mine[-1]), len(source.rows), 0, False)
    with tempfile.TemporaryDirectory(prefix=".rampup-", dir=folder) as beside:
        made = write(source, project, history, Path(beside))
        write_json(made / MARK, {**mark, "digest": digest})
        for old in mine:
            shutil.rmtree(old)
        final = free_name(folder / made.name)
        os.rename(made, final)
    points = sum(len(values.keys() - {"_timestamp"}) for values in history.values())
    return Sent(source.id, str(final), len(source.rows), points, not mine)


def free_name(path: Path) -> Path:
    """Return a name that is not taken. W&B's names are exact to the second: in the same one the run
    may have been exported for another project."""
    numbered = (
        path.with_name(path.name.replace("run-", f"run-{number}-", 1))
        for number in itertools.count(2)
    )
    return next(found for found in itertools.chain((path,), numbered) if not found.exists())


def rows_by_step(source: Source) -> dict[int, dict[str, float]]:
    """Return one row for each step, as W&B has them; its steps only grow from 0 on."""
    found: dict[int, dict[str, float]] = {}
    for row in source.rows:
        values, step = dict(name_numbers(row)), get_step(row)
        if step is not None and step >= 0:
            t = parse_time(row.get("t"))
            found.setdefault(step, {}).update(values, **({"_timestamp": t} if t else {}))
    return dict(sorted(found.items()))


def digest_of(source: Source, project: str, history: Record | dict[int, dict[str, float]]) -> str:
    identity = [source.name, source.state, source.created, source.settings, project]
    content = msgspec.json.encode([*identity, list(history.items())])
    return hashlib.sha256(content).hexdigest()


def write(source: Source, project: str, history: dict[int, dict[str, float]], root: Path) -> Path:
    """Write an offline run below `root`, whole and closed."""
    os.environ.update(QUIET)
    import wandb

    try:
        run = wandb.init(
            project=project,
            id=source.id,
            name=f"{source.name}-{source.id}",
            config=dict(source.settings),
            tags=["rampup", source.state],
            settings=wandb.Settings(**wandb_settings(source, root)),
        )
        for step, values in history.items():
            run.log(values, step=step)
        run.finish(exit_code=0 if source.state in ("completed", "running", "pending") else 1)
        wandb.teardown()
    except (wandb.Error, ValueError, TypeError) as error:
        # protobuf has its own words for what it does not take
        raise RampupError(
            f"W&B could not write run {source.id}: {error}", "try again with another --out DIR"
        ) from error
    (made,) = (root / "wandb").glob(f"offline-run-*-{source.id}")
    return made


def wandb_settings(source: Source, root: Path) -> dict[str, Any]:
    """Return settings that record nothing of this process: the run was another one's."""
    return {
        "mode": "offline",
        "root_dir": str(root),
        "silent": True,
        "console": "off",
        "disable_git": True,
        "disable_code": True,
        "disable_job_creation": True,
        "x_disable_stats": True,
        "x_disable_meta": True,
        "x_disable_machine_info": True,
        "x_save_requirements": False,
    }
