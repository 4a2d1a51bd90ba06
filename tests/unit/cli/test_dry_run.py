"""A dry run shows the settings and the script of every site, also where the site is out of reach."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rampup.cli import sweep
from rampup.cli.run import command
from rampup.config.clusters import LOCAL, names
from rampup.errors import Refused
from rampup.schedulers.slurm import job_script

SITES = [name for name in names() if name not in (LOCAL, "sandbox", "spark")]


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Slurm, and an empty folder on it."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("RAMPUP_RUNS", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def dry_run(*words: str) -> Result:
    argv = ["digits", "--dry-run", *words]
    return CliRunner().invoke(command, argv, standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize("site", SITES)
def test_the_script_of_every_site_from_a_laptop(laptop: Path, site: str) -> None:
    shown = dry_run("--on", site, "--nodes", "2")
    assert shown.return_value == 0
    assert "#SBATCH --nodes=2" in shown.stdout
    assert "train.lr" in shown.stdout
    assert "not checked: Slurm, shared storage, account" in shown.stderr
    assert list(laptop.iterdir()) == [], "nothing is made"


def test_the_script_is_rendered_once(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked and shown is what would be submitted."""
    rendered: list[str] = []
    render = job_script.render

    def count(*given: Any) -> str:
        rendered.append(render(*given))
        return rendered[-1]

    monkeypatch.setattr(job_script, "render", count)
    assert dry_run("--on", "archer2", "--nodes", "2").return_value == 0
    assert len(rendered) == 1


def test_the_plan_for_spark_where_there_is_no_java(laptop: Path) -> None:
    shown = dry_run("--on", "spark", "--tasks-per-node", "2")
    assert shown.return_value == 0
    assert "2 ranks, each runs:" in shown.stdout
    assert "not checked: Spark" in shown.stderr


def test_what_only_the_user_knows_is_a_placeholder(laptop: Path) -> None:
    shown = dry_run("--on", "kebnekaise")
    assert "#SBATCH --account=your-account" in shown.stdout
    assert "#SBATCH --time=0-01:00:00" in shown.stdout
    assert "placeholder" in shown.stdout
    assert "would be refused: kebnekaise requires --account" in shown.stderr
    given = dry_run("--on", "kebnekaise", "--account", "hpc2n-1", "--time", "20")
    assert "#SBATCH --account=hpc2n-1" in given.stdout
    assert "would be refused" not in given.stderr


def test_what_this_machine_lacks_is_named_and_not_refused(
    laptop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(laptop.parent / "cache"))
    argv = ["mnist", "--on", "slurm", "--dry-run", "--json"]
    plan = json.loads(CliRunner().invoke(command, argv, standalone_mode=False).stdout)
    assert "#SBATCH" in plan["script"]
    assert plan["unchecked"] == ["Slurm", "shared storage", "account"]
    assert any("rampup fetch mnist" in words for words in plan["refused"])


def test_a_program_that_only_the_site_has(laptop: Path) -> None:
    """Many laptops have a python3 and no python."""
    (laptop / "train.py").write_text("pass\n")
    argv = ["--on", "archer2", "--dry-run"]
    own = ("python", "train.py")
    shown = CliRunner().invoke(command, argv, obj=own, standalone_mode=False)
    assert shown.return_value == 0 and "#SBATCH --nodes=1" in shown.stdout
    assert "would be refused: no program 'python'" in shown.stderr
    own = ("python", "trian.py")
    with pytest.raises(Refused, match=r"script 'trian\.py' does not exist"):
        CliRunner().invoke(command, argv, obj=own, standalone_mode=False, catch_exceptions=False)


def test_the_script_of_a_sweep_from_a_laptop(laptop: Path) -> None:
    argv = ["digits", "lr=0.1,0.2", "--on", "kebnekaise", "--nodes", "2", "--dry-run"]
    shown = CliRunner().invoke(sweep.command, argv, standalone_mode=False, catch_exceptions=False)
    assert shown.return_value == 0
    assert "#SBATCH --nodes=2" in shown.stdout and "the first of 2 runs:" in shown.stdout
    assert shown.stdout.count("would be started") == 2
    assert "not checked: Slurm, shared storage, account" in shown.stderr
    plan = json.loads(
        CliRunner().invoke(sweep.command, [*argv, "--json"], standalone_mode=False).stdout
    )
    assert [row["point"] for row in plan["runs"]] == [{"lr": 0.1}, {"lr": 0.2}]
    assert "#SBATCH" in plan["script"] and list(laptop.iterdir()) == [], "nothing is made"


def test_a_request_that_is_wrong_everywhere_is_refused(laptop: Path) -> None:
    with pytest.raises(Refused, match="allows 1 to 128"):
        dry_run("--on", "archer2", "--tasks-per-node", "129")
