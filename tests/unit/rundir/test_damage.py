"""Run directories in any condition: torn, missing, foreign files. `list`, `show`, `report` and
`export` still work, with a documented exit code, and what is missing is named."""

import contextlib
import io
import json
import random
import shlex
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from rampup.cli.app import cli as app
from rampup.core.metrics import is_number
from rampup.errors import RampupError
from rampup.report import vega
from rampup.rundir.damage import find_damage
from rampup.rundir.files import RunDir
from rampup.rundir.history import read_attempts
from rampup.rundir.schema import ATTEMPT, CONFIG, drop_foreign

T0 = 1_794_804_968.0
OTHERS = ("[]", "7", '"text"', "null", "{}", "true", '[{"a": 1}]', "[" * 5000)
FOREIGN = (None, [], {}, "x", "", -1, 1.5, True, [1, 2], {"a": 1}, 10**30)


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def make(root: Path, launcher: str) -> RunDir:
    """A run that failed in its second attempt: it has every kind of file."""
    run = RunDir(root / "20261116-045608-mnist-aaaaaa")
    process = {"host": "vm", "boot": "b", "pid": 77, "pid_start": 5}
    where = (
        {"scheduler": "local", **process}
        if launcher == "spawn"
        else {"scheduler": "slurm", "cluster": "x", "job": "9"}
    )
    config = {
        "name": "mnist",
        "kind": "engine",
        "engine": "torch",
        "folder": "/tmp",
        "cwd": "/tmp",
        "command": [],
    }
    config |= {
        "train": {"lr": 0.1, "epochs": 2, "monitor": "val_loss"},
        "origins": {"train.lr": "command line"},
    }
    config |= {
        "resources": {"nodes": 1, "tasks_per_node": 2, "mem": "4G"},
        "time_s": 3600.0,
        "smoke": False,
    }
    config |= {
        "cluster": {"name": "x", "scheduler": where["scheduler"]},
        "checkpoint": {"every": "auto"},
    }
    run.path.mkdir(parents=True)
    run.run_file.write_text(
        json.dumps({"id": "aaaaaa", "name": "mnist", "created": T0, "user": "u", "host": "vm"})
    )
    run.config_file.write_text(json.dumps(config))
    run.env_file.write_text(
        json.dumps(
            {"python": "3.11", "cpus": 2, "packages": {"torch": "2"}, "variables": {"A": "b"}}
        )
    )
    run.control_file.write_text(lines({"t": T0, "what": "submitted", **where}))
    for count in (1, 2):
        attempt = run.claim_attempt()
        facts = {
            "launcher": launcher,
            "world_size": 2,
            "started": T0,
            "ended": T0 + 60,
            "exit_code": 1,
            **process,
        }
        facts |= {
            "outcome": "failed",
            "cpu_s": 9.0,
            "max_rss_mb": 100.0,
            "failed_rank": None,
            "cause": "",
            "wall_s": 60,
        }
        attempt.facts_file.write_text(
            json.dumps(facts | ({"job": "9"} if launcher == "srun" else {}))
        )
        rows = [
            {
                "step": step * count,
                "epoch": 1,
                "train_loss": 1.0,
                "val_loss": 2.0,
                "samples_s": 1.0,
                "t": T0,
            }
            for step in (5, 10)
        ]
        attempt.metrics_file.write_text(lines(*rows))
        start = {"what": "start", "threads": 1, "device": "cpu", "t": T0 + 3}
        attempt.events_file.write_text(
            lines(
                start,
                {"what": "resumed", "step": 5, "t": T0},
                {"what": "phases", "phases": {"start": 3.0, "data": 40.0, "wall": 60.0}, "t": T0},
            )
        )
        sample = {
            "cpus": 2,
            "cpu_percent": 9.0,
            "mem_used_mb": 1,
            "mem_total_mb": 9,
            "rss_mb": 1,
            "gpus": [{"gpu": 0, "util_percent": 5}],
        }
        attempt.system_file("vm").write_text(lines({"t": T0, **sample}, {"t": T0 + 9, **sample}))
        error = {
            "t": T0,
            "rank": 1,
            "type": "ValueError",
            "message": "no",
            "hint": "",
            "traceback": "Traceback\nno",
        }
        attempt.error_file(1).write_text(json.dumps(error))
        attempt.rank_log(0).write_text("epoch=1\n")
        attempt.rank_log(1).write_text("Traceback\n")
        attempt.job_log.write_text("begun\n")
        attempt.progress_file.write_text(json.dumps({"step": 5, "steps": 10, "epoch": 1, "t": T0}))
    run.slurm_log("9").write_text(
        "rampup: attempt 2 begins\nsrun: error: n1: task 1: Exited with exit code 1\n"
    )
    return run


def cut(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def remove(path: Path, chance: random.Random) -> None:
    path.unlink()


def fill(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(chance.choice((0, 1, 50, 5000))))


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(3):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(bytes(data))


def replace(path: Path, chance: random.Random) -> None:
    path.write_text(chance.choice(OTHERS) + "\n")


def swap(path: Path, chance: random.Random) -> None:
    """One value, anywhere in the file, becomes one of another type, or is lost."""
    found = (
        [json.loads(line) for line in path.read_text().splitlines()]
        if path.suffix == ".jsonl"
        else None
    )
    whole = json.loads(path.read_text()) if found is None else found[chance.randrange(len(found))]
    place = whole
    name = chance.choice(list(place))
    while isinstance(place[name], dict) and place[name] and chance.random() < 0.5:
        place, name = place[name], chance.choice(list(place[name]))
    if chance.random() < 0.2:
        del place[name]
    else:
        place[name] = chance.choice(FOREIGN)
    path.write_text(json.dumps(whole) if found is None else lines(*found))


def become_a_folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


HARMS: list[Callable[[Path, random.Random], None]] = [
    cut,
    remove,
    fill,
    flip,
    replace,
    swap,
    become_a_folder,
]
JSON_HARMS = 10
"""Values have many places and many types: files of them are damaged more often."""


def call(*words: str) -> tuple[int, str, str]:
    """The command line without a process of its own: an exception that is no RampupError would be a
    traceback."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = app.main(list(words), standalone_mode=False)
        except (RampupError, click.ClickException) as error:
            code = error.exit_code
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(vega, "script_bundle", lambda: "")
    # nothing of a run is in it but names
    monkeypatch.setattr(vega, "specification", lambda chart: {})
    monkeypatch.setenv("RAMPUP_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # no Slurm answers here: where its programs are installed, thousands of them would say so
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def files_of(run: RunDir) -> list[str]:
    return sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file())


@pytest.mark.parametrize("launcher", ["spawn", "srun"])
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_every_file_in_any_condition(root: Path, launcher: str, harm: Callable[..., None]) -> None:
    whole = make(root.with_name("whole"), launcher)
    for name in files_of(whole):
        is_json = name.endswith((".json", ".jsonl"))
        if harm is swap and not is_json:
            continue
        for seed in range(JSON_HARMS if harm is swap else 2):
            chance = random.Random(zlib.crc32(f"{name} {seed}".encode()))
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(whole.path, root / whole.path.name)
            run = RunDir(root / whole.path.name)
            harm(run.path / name, chance)
            check(run, name)


def check(run: RunDir, name: str) -> None:
    state = run.path / name
    what = state.read_text(errors="replace")[:800] if state.is_file() else "gone or a folder"
    try:
        code, out, _ = call("list", "--json")
        assert code == 0 and [row["id"] for row in json.loads(out)] == ["aaaaaa"]
        assert call("list")[0] == 0
        for words in (("show",), ("show", "--json"), ("show", "--history")):
            assert call(words[0], str(run.path), *words[1:])[0] == 0
        code, out, _ = call("report", str(run.path), "--out", "page.html", "--json")
        assert code == 0 and Path("page.html").stat().st_size > 5000
        assert call("export", str(run.path), "--to", "csv")[0] == 0
        assert call("export", str(run.path), "--to", "tensorboard", "--out", "tb")[0] == 0
    except Exception as error:
        raise AssertionError(f"{name} was: {what!r}") from error


def test_all_at_once(root: Path) -> None:
    whole = make(root.with_name("whole"), "srun")
    for seed in range(20):
        chance = random.Random(seed)
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(whole.path, root / whole.path.name)
        run = RunDir(root / whole.path.name)
        for name in chance.sample(files_of(whole), 6):
            chance.choice(HARMS if name.endswith((".json", ".jsonl")) else HARMS[:5])(
                run.path / name, chance
            )
        check(run, f"seed {seed}")


def test_what_is_missing_is_named(root: Path) -> None:
    run = make(root, "spawn")
    assert find_damage(run) == []
    attempt = run.attempt(2)
    run.env_file.unlink()
    run.config_file.write_text('{"train"')
    run.run_file.write_text(json.dumps({"name": 7, "created": T0}))
    attempt.facts_file.write_text(
        json.dumps(attempt.facts | {"ended": "late", "outcome": "exploded"})
    )
    with open(attempt.metrics_file, "a") as file:
        file.write('{"step": 1')
    attempt.events_file.write_text('{"what": "resumed", "step": "five"}\n')
    attempt.error_file(1).write_text("")
    named = [
        "run.json: name: foreign and left out",
        "config.json: torn or foreign",
        "env.json: missing",
        "attempts/2/attempt.json: ended, outcome: foreign and left out",
        "attempts/2/error-1.json: torn or foreign",
        "attempts/2/events.jsonl: step: foreign and left out (line 1)",
        "attempts/2/metrics.jsonl: 1 line is torn or foreign and left out",
    ]
    assert sorted(find_damage(run)) == sorted(named)
    _, _, said = call("show", str(run.path))
    page = json.loads(call("report", str(run.path), "--out", "page.html", "--json")[1])["runs"][0][
        "missing"
    ]
    for words in named:
        assert f"note: {words}\n" in said and words in page


def test_foreign_rows_of_metrics_are_named_with_their_lines(root: Path) -> None:
    run = make(root, "spawn")
    with open(run.attempt(1).metrics_file, "a") as file:
        file.write(
            '{"step": 1\n\n' + lines({"step": "x", "t": T0}, {"step": 11, "loss": "words", "t": T0})
        )
    with open(run.attempt(2).metrics_file, "a") as file:
        file.write(
            lines({"step": 21, "t": 1e12}, {"step": 22.0, "t": T0}, {"step": 1e300, "t": -1})
        )
    assert find_damage(run) == [
        "attempts/1/metrics.jsonl: 1 line is torn or foreign and left out",
        "attempts/1/metrics.jsonl: step: foreign and left out (line 5)",
        "attempts/2/metrics.jsonl: step, t: foreign and left out (2 lines, the first is 3)",
    ]


def test_a_time_that_can_not_be_is_no_time(root: Path) -> None:
    """Milliseconds, or a flipped bit: it would make a run of a minute one of many thousand
    years."""
    run = make(root, "spawn")
    attempt = run.attempt(2)
    attempt.facts_file.write_text(
        json.dumps({"started": T0, "launcher": "spawn", "host": "vm", "pid": 77})
    )
    with open(attempt.metrics_file, "a") as file:
        file.write(lines({"step": 30, "t": 1e12}))
    found = read_attempts(run)[-1]
    assert found.took_s == 0.0 and found.last_step == 30
    assert "277777777" not in call("list")[1] + call("show", str(run.path))[1]
    attempt.facts_file.write_text(
        json.dumps({"started": T0, "ended": T0 * 1000, "outcome": "failed"})
    )
    assert read_attempts(run)[-1].ended is None


def test_values_of_another_type_are_not_passed_on() -> None:
    facts = {
        "outcome": "completed",
        "started": 1.0,
        "ended": float("inf"),
        "world_size": True,
        "new": object,
    }
    assert drop_foreign(facts, ATTEMPT) == {"outcome": "completed", "started": 1.0, "new": object}
    config = {"train": {"lr": 1}, "command": ["a", 1], "folder": None}
    assert drop_foreign(config, CONFIG) == {"train": {"lr": 1}, "folder": None}
    assert not any(is_number(value) for value in (None, True, "1", float("nan"), 10**30, [1]))
    assert is_number(0) and is_number(-1.5)


@pytest.mark.parametrize("out", [".", "", "whole/x", "x" * 300])
def test_a_report_where_no_file_can_be_is_refused(root: Path, out: str) -> None:
    Path("whole").touch()
    with pytest.raises(RampupError, match="can't write"):
        app.main(["report", str(make(root, "spawn").path), "--out", out], standalone_mode=False)
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "whole"]


def test_what_to_type_next_can_be_typed(root: Path) -> None:
    """The name of the report is a word of the shell."""
    out = "we ird'$x.html"
    _, _, said = call("report", str(make(root, "spawn").path), "--out", out)
    assert shlex.split(said.splitlines()[-1])[2:] == [out] and Path(out).exists()


def test_a_file_that_is_closed_to_this_user_is_not_called_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of a run whose results alone are shared; root can read them all the same."""
    run = RunDir(tmp_path)
    run.run_file.write_text('{"id": "x"}')
    run.config_file.write_text("")
    run.env_file.write_text("{}")
    monkeypatch.setattr("rampup.rundir.damage.os.access", lambda path, mode: False)
    assert "config.json: not readable by you" in find_damage(run)
