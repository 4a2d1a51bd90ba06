"""Runs that an older version has made are read, explained, exported and continued by this one.

The runs are in an archive (see tests/older_runs.py). All goes through the command line.
"""

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from older_runs import LONG_AGO_S, Older, answers, at_least, true_here, unpack

WHOLE = ("completed", "failed", "running", "own-recipe", "again-here", "study-0")
ON_SLURM = ("pending", "again-slurm", "again-polyfit")
HALF_MADE = ("making", "without-config", "without-run", "torn")
KINDS = (*WHOLE, *ON_SLURM, *HALF_MADE)
UNFOUND = ("making", "without-run")
"""Without run.json, or hidden because it is not whole: only readers accept those, by their path."""
SUM_OF_20_STEPS = 210
REWORDED = {
    "nothing went wrong: it did all its work": "nothing went wrong: the run completed",
    "it was asked to stop, and saved before it did": "stopped on request after saving a checkpoint",
    "is gone without a word:": "disappeared without recording an exit:",
    "knows nothing of the job any more, and it left no word of how it ended": (
        "no longer knows the job, and it recorded no exit"
    ),
    "which would tell how it ended": "which records how it ended",
    "it was cancelled by": "cancelled by",
    "left no word, and Slurm has none either": "recorded no exit, and Slurm has no record of it",
    "no word": "killed or lost",  # how an attempt ended
}
"""Sentences of the older version that mean the same in other words now."""
SLURM_IS_DOWN = """
ClusterName=oldsite
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=1
AuthType=auth/none
CredType=cred/none
MessageTimeout=1
NodeName=node1
PartitionName=normal Nodes=ALL
"""


def there(cli: Cli, *kinds: str, silent_s: float = LONG_AGO_S) -> Older:
    """Older runs where this command line looks for runs."""
    return unpack(true_here(cli.runs.parent), *kinds, silent_s=silent_s)


def id_of(run: Path) -> str:
    return run.name.rpartition("-")[2]


def checkpoint_of(run: Path) -> int:
    """The step of the newest one."""
    return max(int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*"))


def resumed(cli: Cli, run: Path, *words: str) -> Any:
    """What `rampup show` says of a run after it was resumed to its end."""
    cli("resume", str(run), "--json", *words)
    return cli.json("show", str(run))


def steps_of(cli: Cli, run: Path) -> list[int]:
    return [row["step"] for row in cli.json("show", str(run), "--history")]


def reworded(said: Any) -> Any:
    text = json.dumps(said)
    for then, now in REWORDED.items():
        text = text.replace(then, now)
    return json.loads(text)


# reading ------------------------------------------------------------------------------------------


def test_they_are_listed_with_their_states(cli: Cli) -> None:
    older = there(cli)
    found = {row["dir"]: row for row in cli.json("list", "--all")}
    listed = {kind: str(run) for kind, run in older.runs.items() if kind != "making"}
    assert set(found) == set(listed.values()), "all but the one that was never made to its end"
    for kind, place in listed.items():
        before = older.said[kind]["show"]["said"]
        assert found[place]["state"] == before["state"], kind
        assert found[place]["attempts"] == before["attempts"], kind
    table = cli("list", "--all").stdout
    assert all(id_of(Path(place)) in table for place in listed.values())


@pytest.mark.parametrize("kind", KINDS)
def test_this_version_says_of_them_what_the_older_one_said(cli: Cli, kind: str) -> None:
    """It may say more. The words of a hint may change, so of `why` only the finding is compared."""
    older = there(cli, kind)
    before = reworded(older.said[kind])
    now = answers(lambda *words: cli(*words, check=None), older.runs[kind])
    for verb, answer in before.items():
        assert now[verb]["code"] == answer["code"], verb
    assert at_least(before["show"]["said"], now["show"]["said"], "show") == []
    assert at_least(before["logs"]["said"], now["logs"]["said"], "logs") == []
    for key in ("id", "state", "problem", "known", "cause", "rank", "attempt", "damage"):
        assert now["why"]["said"][key] == before["why"]["said"][key], key


def test_people_are_told_what_happened(cli: Cli) -> None:
    older = there(cli, "failed", "running", "torn")
    for run in older.runs.values():
        assert f"{id_of(run)}  failed" in cli("show", str(run)).stdout.splitlines()[0]
    run = older.runs["failed"]
    said = cli("why", str(run)).stdout.splitlines()
    assert said[1].startswith("rank 1: ValueError: the tenth step is too much, at loop.py:")
    assert "ValueError" in cli("logs", str(run), "--rank", "1").stdout


def test_there_is_a_report_about_all_of_them(cli: Cli) -> None:
    older = there(cli)
    page = cli.cwd / "all.html"
    cli("report", *map(str, older.runs.values()), "--out", str(page))
    text = page.read_text()
    assert [kind for kind, run in older.runs.items() if id_of(run) not in text] == []


def test_their_metrics_are_exported(cli: Cli) -> None:
    older = there(cli)
    table = cli("export", "--to", "csv", *map(str, older.runs.values())).stdout.splitlines()
    for kind in ("completed", "failed", "running", "own-recipe", "study-0", "again-slurm"):
        run = older.runs[kind]
        rows = (run / "attempts" / "1" / "metrics.jsonl").read_text().splitlines()
        mine = [line for line in table if line.startswith(f"{id_of(run)},")]
        assert len(mine) == len(rows) > 0, kind


def test_clean_says_what_it_would_remove(cli: Cli) -> None:
    older = there(cli)
    wanted = [run for kind, run in older.runs.items() if kind not in UNFOUND]
    told = cli.json("clean", *map(str, wanted), "--dry-run")
    for run, row in zip(wanted, told, strict=True):
        there_are = {path.name for path in run.glob("checkpoints/step-*")}
        assert {*row["kept"], *row["removed"]} == there_are, run
        assert not there_are or f"step-{checkpoint_of(run)}" in row["kept"], run
    cli("show", str(older.runs["own-recipe"]), "--verify")  # ends with 1 when one is damaged


def test_a_study_is_known_again(cli: Cli) -> None:
    """If the name of a point changed with the version, the same sweep would start it again."""
    older = there(cli, "study-0", "study-1")
    assert [row["point"] for row in points(cli)] == [{"steps": 500}, {"steps": 1000}]
    said = cli("sweep", "--name", "older", "polyfit", "steps=500,1000").stderr
    assert "2 done" in said
    assert [row["attempts"] for row in cli.json("list")] == [1, 1]
    assert set(older.runs.values()) == {Path(row["dir"]) for row in cli.json("list")}


def points(cli: Cli) -> list[dict[str, Any]]:
    """The points of the study, the smallest first."""
    runs = [json.loads(path.read_text()) for path in cli.runs.glob("*/run.json")]
    assert len(cli.json("list", "--study", "older")) == len(runs)
    return sorted(runs, key=lambda run: int(run["point"]["steps"]))


# continuing ---------------------------------------------------------------------------------------


def test_one_that_has_completed_is_not_resumed(cli: Cli) -> None:
    run = there(cli, "completed").runs["completed"]
    assert "has completed" in cli("resume", str(run), check=3).stderr


@pytest.mark.parametrize(("kind", "steps"), [("running", 540), ("own-recipe", 90)])
def test_a_recipe_goes_on_from_its_checkpoint(cli: Cli, kind: str, steps: int) -> None:
    """One of ours that went on when its machine died, and one of a user's own that was stopped."""
    run = there(cli, kind).runs[kind]
    newest = checkpoint_of(run)
    found = resumed(cli, run)
    assert (found["state"], found["attempts"]) == ("completed", 2)
    assert [it["last_step"] for it in found["each_attempt"]][1] == steps
    assert found["each_attempt"][1]["first_step"] == newest > 0
    assert found["tries"] == found["each_attempt"], "the name of before, for one release"
    assert found["metrics"]["step"] == steps
    logged = steps_of(cli, run)
    assert logged == sorted(logged), "one story, over both attempts"
    assert f"step {newest}" in (run / "attempts" / "2" / "rank-0.log").read_text()


@pytest.mark.parametrize("kind", ["failed", "again-here", "torn"])
def test_a_loop_of_a_users_own_goes_on_from_its_checkpoint(cli: Cli, kind: str) -> None:
    run = there(cli, kind).runs[kind]
    found = resumed(cli, run)
    assert (found["state"], found["attempts"]) == ("completed", 2)
    assert found["metrics"]["total"] == SUM_OF_20_STEPS
    assert found["each_attempt"][1]["first_step"] == 10
    key = run / "ranks.key"
    assert key.stat().st_mode & 0o777 == 0o600, "its ranks of today need one"


def test_one_that_may_still_run_elsewhere_is_not_started_twice(cli: Cli) -> None:
    """Its host is not this one, and it has just written something."""
    run = there(cli, "running", silent_s=0).runs["running"]
    assert cli.json("show", str(run))["state"] == "running"
    assert (
        "is still running; it can be resumed after it ends"
        in cli("resume", str(run), check=3).stderr
    )
    assert "is running" in cli("clean", str(run), "--dry-run", check=3).stderr


def test_one_that_waits_for_a_slurm_that_is_silent_still_waits(cli: Cli) -> None:
    older = there(cli, "pending")
    conf = cli.runs.parent / "oldsite" / "slurm.conf"
    conf.parent.mkdir()
    conf.write_text(SLURM_IS_DOWN)
    run = older.runs["pending"]
    found = cli.json("show", str(run))
    assert found["state"] == "pending"
    assert "Slurm does not answer" in found["cause"]
    assert (
        "is still pending; it can be resumed after it ends"
        in cli("resume", str(run), check=3).stderr
    )


def test_one_whose_cluster_is_gone_can_run_here(cli: Cli) -> None:
    run = there(cli, "pending").runs["pending"]
    found = resumed(cli, run, "--on", "local")
    assert (found["state"], found["attempts"]) == ("completed", 1)
    assert found["metrics"]["total"] == SUM_OF_20_STEPS


def test_half_made_ones_are_not_started(cli: Cli) -> None:
    older = there(cli, *HALF_MADE)
    assert "config.json" in cli("resume", str(older.runs["without-config"]), check=3).stderr
    assert "run.json" in cli("resume", str(older.runs["without-run"]), check=102).stderr


# what outlives an update --------------------------------------------------------------------------


def test_a_launcher_that_outlived_the_update_starts_the_next_attempt(cli: Cli) -> None:
    """A local run asks to be started again, and its launcher began before the update.

    That launcher starts what the run directory holds, an older rank.py, which starts this version.
    """
    older = there(cli, "again-here")
    run = older.runs["again-here"]
    words = older.commands["guardian"]
    rank = words[words.index(str(run / "rank.py")) - 3 :]
    facts = json.loads((run / "attempts" / "1" / "attempt.json").read_text())
    assert facts.pop("outcome") == "again"
    began = {**facts, "started": facts["ended"] + 0.1}
    attempt = run / "attempts" / "2"
    attempt.mkdir()
    (attempt / "attempt.json").write_text(json.dumps({**began, "ended": None, "exit_code": None}))
    env = {**cli.env, "RAMPUP_SUPERVISED": "1"}
    done = subprocess.run(rank, cwd=cli.cwd, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr + (attempt / "rank-0.log").read_text()
    ended = {**began, "ended": began["started"] + 1, "exit_code": 0, "outcome": "completed"}
    (attempt / "attempt.json").write_text(json.dumps(ended))
    found = cli.json("show", str(run))
    assert (found["state"], found["attempts"]) == ("completed", 2)
    assert found["metrics"]["total"] == SUM_OF_20_STEPS
    assert found["each_attempt"][1]["first_step"] == 10


def test_what_older_settings_name_is_still_there(cli: Cli) -> None:
    """The ranks of a job in the queue become what its config.json names: a module or file of
    ours."""
    older = there(cli)
    package = true_here(cli.runs.parent)["@PACKAGE@"]
    configs = [run / "config.json" for run in older.runs.values()]
    named = [json.loads(file.read_text())["argv"] for file in configs if file.exists()]
    modules = {words[words.index("-m") + 1] for words in named if "-m" in words}
    files = {word for words in named for word in words if word.startswith(f"{package}/")}
    assert modules and files
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []
    assert [file for file in sorted(files) if not Path(file).is_file()] == []
