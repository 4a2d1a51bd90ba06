"""A run of somebody else, as the real command line meets it: it is read, never obeyed, never
followed. Root plays the reader, and user 65534 the other one."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hostile import directories

from rampup.core import processes
from rampup.rundir.files import RunDir

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
OTHER = 65534
RECORDER = '#!/bin/sh\necho "$0 $SLURM_CONF $*" >> {calls}\n'


def make_foreign(root: Path, number: int = 0, cluster: dict[str, Any] | None = None) -> RunDir:
    """A run of another user, as they may have left it in a runs root that both see."""
    run = RunDir(root / f"20261117-010101-nice-abc{number:03d}")
    run.path.mkdir(parents=True)
    directories.write_sound(run)
    if cluster is not None:
        config = json.loads(run.config_file.read_text())
        directories.write(run.config_file, [{**config, "cluster": cluster}])
        row = {"t": 1794000001.0, "what": "submitted", "scheduler": "slurm"}
        directories.write(run.control_file, [{**row, "cluster": cluster["name"], "job": "77"}])
        run.attempt(1).facts_file.unlink()
    give_away(run)
    return run


def give_away(run: RunDir) -> None:
    for folder, _, files in os.walk(run.path):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.lchown(path, OTHER, OTHER)


def record_calls(cli: Any, tmp_path: Path) -> Path:
    """Put programs of Slurm's names first on PATH that write down how they were called."""
    calls, programs = tmp_path / "calls", tmp_path / "programs"
    programs.mkdir()
    for name in ("squeue", "sacct", "scancel", "sbatch", "scontrol"):
        (programs / name).write_text(RECORDER.format(calls=calls))
        (programs / name).chmod(0o755)
    cli.env["PATH"] = f"{programs}:{cli.env['PATH']}"
    return calls


def test_no_slurm_is_asked_that_a_foreign_run_names(cli: Any, tmp_path: Path) -> None:
    """A slurm.conf names plug-ins, and squeue would run them."""
    calls = record_calls(cli, tmp_path)
    evil = tmp_path / "evil" / "slurm.conf"
    evil.parent.mkdir()
    evil.write_text(f"ClusterName=evil\nPluginDir={evil.parent}\n")
    os.chown(evil, OTHER, OTHER)
    cluster = {"name": "mycluster", "scheduler": "slurm", "launcher": "srun"}
    run = make_foreign(cli.runs, cluster={**cluster, "slurm_conf": str(evil)})
    (row,) = cli.json("list")
    assert (row["state"], row["job"]) == ("pending", "77")
    for verb in ("show", "why"):
        assert "cluster mycluster is not known here" in cli(verb, run.id).stdout
    cli("report", run.id, "--out", str(tmp_path / "page.html"))
    cli("logs", run.id)
    cli("cancel", run.id, check=3)
    cli("clean", run.id, check=3)
    cli("resume", run.id, check=3)
    assert not calls.exists(), calls.read_text()
    profile = tmp_path / "config" / "rampup" / "clusters" / "mycluster.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f'scheduler = "slurm"\nlauncher = "srun"\nslurm_conf = "{evil}"\n')
    cli("list", XDG_CONFIG_HOME=str(tmp_path / "config"), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert f"squeue {evil} " in calls.read_text(), "the reader's own profile is asked"


def test_only_the_owner_changes_a_run(cli: Any, tmp_path: Path) -> None:
    run = make_foreign(cli.runs)
    before = {path: path.lstat().st_mtime_ns for path in run.path.rglob("*")}
    for words in (
        ("clean", run.id),
        ("clean", run.id, "--all"),
        ("cancel", run.id),
        ("resume", run.id),
        ("report", run.id),
        ("export", run.id, "--to", "tensorboard"),
    ):
        said = cli(*words, check=3).stderr
        assert f"run {run.id} is not yours: it belongs to user " in said
        assert "trusted_roots = [" in said
    for words in (("list",), ("show", run.id), ("why", run.id), ("logs", run.id)):
        cli(*words)
    assert before == {path: path.lstat().st_mtime_ns for path in run.path.rglob("*")}
    config = tmp_path / "config" / "rampup" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'trusted_roots = ["{cli.runs}"]\n')
    said = cli("clean", run.id, XDG_CONFIG_HOME=str(tmp_path / "config")).stderr
    assert "freed 0.0 MB (step-5); kept step-10" in said


def test_cancel_ends_only_what_has_the_run(cli: Any) -> None:
    """An own run, perhaps unpacked from an archive of somebody else, names any process."""
    run = RunDir(cli.runs / "20261117-010101-nice-abc234")
    run.path.mkdir(parents=True)
    directories.write_sound(run)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        facts = {**processes.identify(sleeper.pid), "started": time.time(), "world_size": 1}
        directories.write(run.attempt(1).facts_file, [facts])
        said = cli("cancel", run.id, check=4).stderr
        assert f"process {sleeper.pid}" in said and "does not belong to it" in said
        assert sleeper.poll() is None
        sleeper.kill()


COLLEAGUE = """
import json, os, sys, time, unicodedata
sys.path.insert(0, sys.argv[1])
from hostile.terminal import call
slept = []
time.sleep = slept.append
verbs = json.loads(sys.argv[2])
for words in verbs:  # what is imported later could not be read
    call(*words)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
calls = [call(*words)._asdict() for words in verbs]
sys.stdout.write(json.dumps({"calls": calls, "slept": slept}))
"""


def test_a_colleague_without_rights_sees_that_a_run_is_not_readable(
    cli: Any, tmp_path: Path
) -> None:
    """The reader is user 65534 here, and the run is root's."""
    run = RunDir(cli.runs / "20261117-010101-nice-abc234")
    run.path.mkdir(parents=True)
    directories.write_sound(run)
    run.path.chmod(0o750)
    expected = {
        ("list",): "not readable",
        ("show", run.id): f"nice {run.id}: not readable: it belongs to user root",
        ("why", str(run.path)): "not readable: it belongs to user root",
        ("logs", run.id): "not readable: it belongs to user root",
        ("show", run.id, "--json"): '"state": "unreadable"',
    }
    for number, closed in enumerate(("attempts", "attempts/1", "attempts/1/attempt.json")):
        other = RunDir(cli.runs / f"20261117-01010{number + 2}-nice-abc23{number + 5}")
        other.path.mkdir()
        directories.write_sound(other)
        (other.path / closed).chmod(0o700 if "." not in closed else 0o600)
        expected["show", other.id] = f"nice {other.id}: not readable: it belongs to user root"
    unlisted = RunDir(cli.runs / "20261117-010105-nice-abc238")
    unlisted.path.mkdir()
    directories.write_sound(unlisted)
    facts = json.loads(unlisted.attempt(1).facts_file.read_text())
    facts = {**facts, "host": "elsewhere", "outcome": None}
    directories.write(unlisted.attempt(1).facts_file, [facts])
    unlisted.attempt(1).path.chmod(0o711)
    expected["show", unlisted.id] = "running"
    modes = {folder: folder.stat().st_mode for folder in (tmp_path, *tmp_path.parents)}
    for folder in modes:
        folder.chmod(0o755 if folder != Path("/tmp") else 0o1777)
    try:
        tests = str(Path(directories.__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-c", COLLEAGUE, tests, json.dumps(list(expected))],
            env=cli.env,
            capture_output=True,
            text=True,
        )
    finally:
        for folder, mode in modes.items():
            folder.chmod(mode & 0o7777)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["slept"] == [], "nobody waits for storage that may recover"
    for (words, shown), called in zip(expected.items(), told["calls"], strict=True):
        assert (called["code"], called["problem"]) == (0, ""), (words, called)
        assert shown in called["out"] and called["cpu_s"] < 2, (words, called)
