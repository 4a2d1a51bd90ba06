"""Modules, venvs and containers of jobs on a real Slurm, with a real Lmod that the login shell of
the job brings.

apptainer is a stand-in (tests/site_software.py); the rest is real."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from site_software import Site, toml_of, write

from rampup.rundir.files import RunDir

from .conftest import Sandbox

pytestmark = pytest.mark.skipif(
    not Path("/etc/profile.d/lmod.sh").exists(),
    reason="Lmod is not installed: apt-get install lmod",
)
TELL = """
import json, os, sys
names = ("WHOSE_PYTHON", "INSIDE_IMAGE", "VIRTUAL_ENV", "HOME", "GREETING", "LOADEDMODULES", "RANK", "SLURMD_NODENAME")
print(json.dumps({**{name: os.environ.get(name) for name in names}, "prefix": sys.prefix}), flush=True)
"""
TWO_NODES = ("--nodes", "2")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def profile(sandbox: Sandbox, site: Site) -> str:
    """The sandbox's own, as a site with modules has it."""
    lists = {
        "old": ["python/3.7.4"],
        "bad": ["gcc/1.0", "nosuch/1.0"],
        "container": ["apptainer/1.0"],
    }
    site.apptainer(site.folder.parent / "programs")
    site.module(
        "apptainer/1.0", f"#%Module1.0\nprepend-path PATH {site.folder.parent / 'programs'}\n"
    )
    table = tomllib.loads(sandbox.profile.read_text())
    table |= {"modules": ["cuda"], "default_software": "old", "software": lists}
    table |= {
        "module_use": site.profile["module_use"],
        "home": [str(Path.home()), "/nosuch home/me"],
    }
    table["variables"] = {**table.get("variables", {}), "GREETING": 'it is "$HOME"'}
    sandbox.profile.with_name("with-modules.toml").write_text(toml_of(table))
    return "with-modules"


def follow(cli: Any, profile: str, *words: str, check: int = 0) -> RunDir:
    done = cli("run", "--on", profile, "--follow", "--json", *words, check=check)
    return RunDir(json.loads(done.stdout.splitlines()[-1])["dir"])


FAILS_WHEN_BOTH_HAVE_TOLD = """
import pathlib, time
here = "told-" + os.environ["RAMPUP_ATTEMPT"] + "-"
pathlib.Path(here + os.environ["RANK"]).touch()
while len(list(pathlib.Path().glob(here + "*"))) < 2:
    time.sleep(0.05)
sys.exit(3)
"""
"""The first that fails ends the others, which may not have said anything yet."""


def told(run: RunDir, rank: int, attempt: int = 1) -> dict[str, Any]:
    lines = run.attempt(attempt).rank_log(rank).read_text().splitlines()
    found: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return found


def test_a_command_has_the_sites_python_on_every_node(cli, profile: str) -> None:
    run = follow(cli, profile, *TWO_NODES, "--", "python", cli.script(TELL))
    for rank in (0, 1):
        found = told(run, rank)
        assert (found["WHOSE_PYTHON"], found["LOADEDMODULES"]) == (
            "the module's",
            "cuda/1.0:python/3.7.4",
        )
        assert (found["HOME"], found["GREETING"]) == ("/nosuch home/me", 'it is "$HOME"')
    assert told(run, 0)["SLURMD_NODENAME"] != told(run, 1)["SLURMD_NODENAME"]
    assert run.attempt(1).modules() == ["cuda/1.0", "python/3.7.4"]
    assert "modules: cuda/1.0 python/3.7.4" in cli("show", run.id).stdout


def test_a_venv_lies_on_top_and_resume_keeps_it(cli, profile: str, site: Site) -> None:
    venv = site.venv("my venv", rampup=False)
    stops = cli.script(f"{TELL}{FAILS_WHEN_BOTH_HAVE_TOLD}")
    run = follow(cli, profile, *TWO_NODES, "--env", str(venv), "--", "python", stops, check=100)
    cli("resume", run.id, "--follow", check=100)
    for attempt in (1, 2):
        found = told(run, 1, attempt)
        assert (found["prefix"], found["VIRTUAL_ENV"]) == (str(venv), str(venv))
        assert run.attempt(attempt).modules() == ["cuda/1.0", "python/3.7.4"]
    cli("resume", run.id, "--follow", "--software", "none", "--env", "none", check=100)
    found = told(run, 0, attempt=3)
    assert (found["prefix"], found["LOADEDMODULES"]) == (sys.prefix, "cuda/1.0")


def test_a_recipe_in_a_venv_on_two_nodes(cli, profile: str, site: Site) -> None:
    venv = site.venv("with rampup")
    run = follow(cli, profile, *TWO_NODES, "--env", str(venv), "digits", "epochs=1")
    assert run.attempt(1).modules() == ["cuda/1.0"], "the site's lists are for plain commands"
    assert run.config["argv"][0] == f"{venv}/bin/python"
    assert run.history()[-1]["val_accuracy"] > 0.3
    assert cli.json("show", run.id)["state"] == "completed"


def test_a_module_that_fails_ends_the_job_and_is_the_cause(cli, profile: str) -> None:
    run = follow(cli, profile, "--software", "bad", "--", "python", cli.script(TELL), check=100)
    cause = "module load nosuch/1.0 failed on node"
    assert f"cause: {cause}" in cli("show", run.id).stdout
    found = cli.json("why", run.id)
    assert (found["problem"], found["known"]) == ("modules", True)
    assert cause in found["cause"] and 'unknown: "nosuch/1.0"' in found["cause"]
    assert "module spider nosuch/1.0" in found["remedy"]
    assert found["evidence"][0]["file"].startswith("slurm-")
    assert not run.attempt(1).rank_log(0).exists(), "no rank has begun"


def test_an_environment_that_is_gone_when_the_job_begins(
    cli, sandbox: Sandbox, profile: str, site: Site
) -> None:
    venv = site.venv("soon gone", rampup=False)
    words = ("--on", profile, "--env", str(venv), "--slurm", "hold", "--json", "--", "true")
    run = RunDir(json.loads(cli("run", *words).stdout)["dir"])
    (venv / "bin" / "activate").unlink()
    sandbox.run("scontrol", "release", (run.recorded("submitted") or {})["job"])
    cli("wait", run.id, check=100)
    found = cli.json("why", run.id)
    assert found["problem"] == "environment" and "soon gone can't be read on node" in found["cause"]


@pytest.mark.parametrize("launcher", ["srun", "torchrun", "mpirun"])
def test_a_container_under_every_launcher(cli, profile: str, site: Site, launcher: str) -> None:
    image = site.images / "an image.sif"
    size = (*TWO_NODES, "--tasks-per-node", "2", "--launcher", launcher, "--software", "container")
    for old in site.images.glob("told.*"):
        old.unlink()
    run = follow(
        cli, profile, *size, "--env", f"container:{image}", "--", "python", cli.script(TELL)
    )
    found = [told(run, rank) for rank in range(4)]
    assert [row["RANK"] for row in found] == ["0", "1", "2", "3"]
    assert {(row["INSIDE_IMAGE"], row["WHOSE_PYTHON"]) for row in found} == {
        (str(image), "the image's")
    }
    assert len(site.told()) == (2 if launcher == "torchrun" else 4), (
        "torchrun's agent is inside, with its ranks"
    )


def test_a_python_that_needs_modules_is_replaced_for_the_small_part(
    cli, sandbox: Sandbox, profile: str
) -> None:
    """rank.py can do with any Python: here the one that submitted can't start in the job."""
    run = follow(cli, profile, "--", "true")
    broken = write(run.path / "python", "#!/bin/sh\nexit 127\n", 0o755)
    script = run.job_script.read_text()
    run.job_script.write_text(
        script.replace(f"\npython={sys.executable}\n", f"\npython={broken}\n")
    )
    assert script != run.job_script.read_text()
    sandbox.run("sbatch", str(run.job_script))
    sandbox.wait_for(
        lambda: run.attempt(2).facts.get("outcome") == "completed", "the second attempt"
    )
