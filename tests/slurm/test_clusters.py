"""Profiles on a real Slurm: every script of ours is accepted, a drafted one runs, a project's own
is found again."""

import json
import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from unit.job_scripts import PROFILE_CASES, render

from rampup.config import clusters as load

from .conftest import Sandbox

SITES = Path(__file__).with_name("sites.conf")


def test_every_script_of_every_profile_is_accepted(another: Sandbox, tmp_path: Path) -> None:
    another.up("--nodes", "1", "--slurm-conf", str(SITES))
    qos = sorted(
        {found.qos for file in load.HERE.glob("*.toml") if (found := load.read(file).cluster).qos}
    )
    another.run("sacctmgr", "-i", "add", "qos", *qos)
    another.run("sacctmgr", "-i", "add", "account", "my-project")
    user = another.run("id", "-un").strip()
    another.run(
        "sacctmgr", "-i", "add", "user", user, "account=my-project", f"qos=normal,{','.join(qos)}"
    )

    scripts = {name: render(spec) for name, spec in sorted(PROFILE_CASES.items())}
    assert len(scripts) > 40

    def trial(name: str) -> tuple[str, int, str]:
        here = f"--clusters={another.name}"  # the only one that is here
        file = tmp_path / f"{name}.sh"
        file.write_text(re.sub("--clusters=.*", here, scripts[name]))
        done = another.call("sbatch", "--test-only", str(file))
        return name, done.returncode, "" if done.returncode == 0 else done.stderr

    with ThreadPoolExecutor(4) as some:
        found = list(some.map(trial, scripts))
    assert [each for each in found if each[1] != 0] == []
    # the trial can fail: there is no such partition
    wrong = next(iter(scripts.values())).replace("--partition=", "--partition=no")
    (tmp_path / "wrong.sh").write_text(wrong)
    assert another.call("sbatch", "--test-only", str(tmp_path / "wrong.sh")).returncode != 0


def test_a_drafted_profile_runs_as_it_is(cli: Any, another: Sandbox, mnist: Path) -> None:
    another.up("--nodes", "2", "--gpus-per-node", "2", "--no-requeue", "--no-accounting")
    cli.env["XDG_CONFIG_HOME"] = another.env["XDG_CONFIG_HOME"]
    file = Path(
        cli(
            "cluster", "probe", "--save", "mine", SLURM_CONF=another.env["SLURM_CONF"]
        ).stdout.strip()
    )
    found = tomllib.loads(file.read_text())
    assert (found["partition"], found["debug_partition"]) == ("normal", "debug")
    assert (found["gpu_directive"], found["requeue"]) == ("gpus-per-node", True)
    run = cli.json("run", "mnist", "max_steps=3", "--on", "mine", "--nodes", "2", "--follow")
    assert run["state"] == "completed"
    granted = cli(
        "run",
        "--on",
        "auto",
        "--gpus-per-node",
        "2",
        "--follow",
        "--",
        "printenv",
        "CUDA_VISIBLE_DEVICES",
    )
    assert granted.returncode == 0
    log = Path(cli.json("show")["dir"]) / "attempts" / "1" / "rank-0.log"
    assert log.read_text() == "0,1\n"
    assert (
        "profile mine exists already" in cli("cluster", "probe", "--save", "mine", check=3).stderr
    )
    assert (
        cli(
            "cluster", "probe", "--save", "mine", "--force", SLURM_CONF=another.env["SLURM_CONF"]
        ).returncode
        == 0
    )


def of_a_project(cli: Any, sandbox: Sandbox, **keys: str) -> None:
    """A profile in the project alone: the sandbox's own under another name."""
    folder = cli.cwd / ".rampup" / "clusters"
    folder.mkdir(parents=True)
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    (folder / "ours.toml").write_text(lines + sandbox.profile.read_text())


def test_a_run_with_a_projects_profile_is_seen_and_stopped_from_elsewhere(
    cli: Any, sandbox: Sandbox, tmp_path: Path, eventually: Any
) -> None:
    of_a_project(cli, sandbox)
    run = cli("run", "--on", "ours", "--", "sleep", "60").stdout.strip()
    cli.cwd = tmp_path
    assert "unknown cluster 'ours'" in cli("doctor", "--on", "ours", check=3).stderr
    eventually(lambda: cli.json("show", run)["state"] == "running", what="told as running")
    cli("cancel", run)
    eventually(lambda: cli.json("show", run)["state"] == "cancelled", what="told as cancelled")
    assert cli.json("resume", run)["id"] == run
    eventually(
        lambda: cli.json("show", run)["state"] in ("pending", "running"), what="started again"
    )
    cli("cancel", run)


def test_one_of_several_clusters(cli: Any, sandbox: Sandbox, eventually: Any) -> None:
    """The accounting data base tells where the named one is: sbatch, squeue, sacct and scancel ask
    that one."""
    of_a_project(cli, sandbox, slurm_cluster=sandbox.name)
    run = cli(
        "run", "--on", "ours", "--", "sh", "-c", "echo ${SLURM_CLUSTERS:-none}"
    ).stdout.strip()
    cli("wait", run)
    shown = cli.json("show", run)
    assert f"\n#SBATCH --clusters={sandbox.name}\n" in (Path(shown["dir"]) / "job.sh").read_text()
    assert (Path(shown["dir"]) / "attempts" / "1" / "rank-0.log").read_text() == "none\n"
    file = cli.cwd / ".rampup" / "clusters" / "ours.toml"
    file.write_text(
        file.read_text().replace(f'slurm_cluster = "{sandbox.name}"', 'slurm_cluster = "nosuch"')
    )
    refused = cli("run", "--on", "ours", "--", "true", check=4)
    assert "nosuch" in refused.stderr
