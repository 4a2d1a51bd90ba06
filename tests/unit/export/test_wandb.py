"""Export to W&B, with its real package, offline; read back without rampup's own code."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rampup.export import wandb as to_wandb
from rampup.export.tracker import Target, read_source
from unit.export.exported_runs import T0, damaged, lines, make, renamed


def wandb_records(folder: Path) -> list[Any]:
    """The records of an offline run: a log in blocks of 32 KiB, as LevelDB writes it."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("run-*.wandb")
    data, at, whole, found = file.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        room = 32_768 - at % 32_768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole = (whole if kind in (3, 4) else b"") + data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            found.append(wandb_internal_pb2.Record.FromString(whole))
    return found


def wandb_history(folder: Path) -> list[dict[str, Any]]:
    rows = [it.history for it in wandb_records(folder) if it.WhichOneof("record_type") == "history"]
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item}
        | {"step": row.step.num}
        for row in rows
    ]


def test_wandb_has_one_folder_for_each_run(cli: Any) -> None:
    run = make(cli.runs)
    done = cli("export", "--to", "wandb", "--project", "digits")
    (folder,) = (cli.cwd / "wandb").iterdir()
    assert folder.name.startswith("offline-run-") and folder.name.endswith("-aaaaaa")
    assert (
        done.stdout == f"{folder}\n"
        and done.stderr.splitlines()[-1] == f"next: wandb sync {folder}"
    )
    history = wandb_history(folder)
    assert [
        (row["step"], row.get("train_loss", row.get("train_loss_epoch"))) for row in history[:2]
    ] == [
        (50, 0.5),
        (100, 0.25),
    ]
    assert (
        history[0]["_timestamp"] == T0 + 1.25
        and history[2]["train_loss"] != history[2]["train_loss"]
    )
    (told,) = [it.run for it in wandb_records(folder) if it.WhichOneof("record_type") == "run"]
    config = {item.key: json.loads(item.value_json) for item in told.config.update}
    assert (told.run_id, told.project, told.display_name) == ("aaaaaa", "digits", "mnist-aaaaaa")
    assert config["lr"] == 0.1 and config["betas"] == [0.9, 0.99]
    # again: not even touched, so what `wandb sync` notes there stays
    (folder / "run-aaaaaa.wandb.synced").touch()
    told = cli.json("export", "--to", "wandb", "--project", "digits")["runs"][0]
    assert told == {
        "id": "aaaaaa",
        "where": str(folder),
        "rows": 3,
        "written": 0,
        "created": False,
        "note": "",
    }
    assert (folder / "run-aaaaaa.wandb.synced").exists()
    # more rows: one folder still, with all of them
    with open(run.attempt(1).metrics_file, "a") as file:
        file.write(lines([{"step": 200, "lr": 0.01, "t": T0 + 4}]))
    done = cli("export", "--to", "wandb", "--project", "digits")
    assert "aaaaaa: known, replaced, 12 points written" in done.stderr
    (folder,) = (cli.cwd / "wandb").iterdir()
    assert [row["step"] for row in wandb_history(folder)] == [50, 100, 150, 200]
    assert not (folder / "run-aaaaaa.wandb.synced").exists()


def test_wandb_keeps_its_hands_off_the_network_and_what_is_not_ours(
    cli: Any, tmp_path: Path
) -> None:
    """In a world without any network it is the same; a folder of W&B itself stays."""
    make(cli.runs)
    theirs = cli.cwd / "out" / "offline-run-20260101_000000-aaaaaa"
    theirs.mkdir(parents=True)
    (theirs / "run-aaaaaa.wandb").touch()
    command = [sys.executable, "-m", "rampup", "export", "--to", "wandb", "--out", "out"]
    isolated = ["unshare", "--user", "--map-root-user", "--net", *command]
    done = subprocess.run(
        isolated, cwd=cli.cwd, env=cli.env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert len(list((cli.cwd / "out").iterdir())) == 2 and (theirs / "run-aaaaaa.wandb").exists()


def test_wandb_has_a_folder_for_each_project_and_damaged_rows_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within one second, in which W&B gives both the same name; and an id may end like
    another."""
    for name, value in to_wandb.QUIET.items():
        monkeypatch.setenv(name, value)
    source, other = damaged(tmp_path), read_source(renamed(make(tmp_path, "x-aaaaaa"), "other"))
    assert (source.id, other.id) == ("aaaaaa", "x-aaaaaa")
    kept = [
        to_wandb.export([run], Target(tmp_path / "out", None, project))[0]
        for run, project in ((other, "one"), (source, "one"), (source, "two"))
    ]
    assert [sent.created for sent in kept] == [True, True, True] and len(
        {sent.where for sent in kept}
    ) == 3
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert [(row["step"], row["loss"]) for row in wandb_history(Path(kept[1].where))] == [
        (1, 2.0),
        (2, 3.0),
        (3, 4.0),
    ]
    for run, project, before in ((source, "one", kept[1]), (source, "two", kept[2])):
        again = to_wandb.export([run], Target(tmp_path / "out", None, project))[0]
        assert (again.where, again.written, again.created) == (before.where, 0, False)
