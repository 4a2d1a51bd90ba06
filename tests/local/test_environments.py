"""`--env` and `--software` on this machine: what is refused before anything starts, what ranks get,
what is told."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from site_software import LMOD, Site, toml_of

from rampup.rundir.files import RunDir

TELL = """
import json, os, sys
names = ("WHOSE_PYTHON", "INSIDE_IMAGE", "VIRTUAL_ENV", "RANK", "LOADEDMODULES")
print(json.dumps({**{name: os.environ.get(name) for name in names}, "prefix": sys.prefix, "cwd": os.getcwd()}))
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def cli(cli: Any, tmp_path: Path) -> Any:
    """With a folder of programs that is first on PATH, and profiles of its own."""
    for name in [
        name
        for name in cli.env
        if name.startswith(("LMOD", "_ModuleTable", "MODULE", "CONDA", "VIRTUAL"))
    ]:
        del cli.env[name]
    cli.programs = tmp_path / "programs"
    cli.env["PATH"] = f"{cli.programs}:{cli.env['PATH']}"
    cli.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    return cli


def write_profile(cli: Any, **keys: Any) -> str:
    folder = Path(cli.env["XDG_CONFIG_HOME"]) / "rampup" / "clusters"
    folder.mkdir(parents=True)
    (folder / "here.toml").write_text(toml_of(keys))
    return "here"


def told(run: dict[str, Any], rank: int = 0, attempt: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        RunDir(run["dir"]).attempt(attempt).rank_log(rank).read_text().splitlines()[-1]
    )
    return found


# what runs ----------------------------------------------------------------------------------------


def test_a_command_in_a_venv_named_by_a_relative_path(cli, site: Site) -> None:
    venv = site.venv(rampup=False)
    relative = os.path.relpath(venv, cli.cwd)
    run = cli.run_command(
        "python", cli.script(TELL), options=("--env", relative, "--tasks-per-node", "2")
    )
    for rank in (0, 1):
        found = told(run, rank)
        assert (found["prefix"], found["VIRTUAL_ENV"], found["RANK"]) == (
            str(venv),
            str(venv),
            str(rank),
        )
    config = RunDir(run["dir"]).config
    assert config["resources"]["env"] == config["environment"]["env"] == str(venv)
    assert config["argv"][0] == "python"
    kept = json.loads(RunDir(run["dir"]).env_file.read_text())
    assert kept["executable"] == f"{venv}/bin/python" and "torch" not in kept["packages"]
    assert f"environment: {venv}" in cli("show", run["id"]).stdout


def test_a_recipe_in_a_venv(cli, site: Site) -> None:
    venv = site.venv()
    done = cli("run", "digits", "epochs=1", "--env", str(venv), "--json")
    run = RunDir(json.loads(done.stdout.splitlines()[-1])["dir"])
    assert run.config["argv"][:4] == [f"{venv}/bin/python", "-P", "-m", "rampup.worker"]
    assert json.loads(run.env_file.read_text())["packages"]["torch"]
    assert cli.json("show", run.id)["state"] == "completed"


@pytest.mark.skipif(not LMOD.exists(), reason="Lmod is not installed: apt-get install lmod")
def test_modules_where_a_profile_has_them(cli, site: Site) -> None:
    profile = {
        "scheduler": "local",
        "launcher": "spawn",
        "modules": ["gcc"],
        "default_software": "old",
        **site.profile,
    }
    name = write_profile(
        cli, **profile, software={"old": ["python/3.7.4"], "none-such": ["nosuch/1"]}
    )
    run = cli.run_command("python", cli.script(TELL), options=("--on", name))
    assert told(run)["WHOSE_PYTHON"] == "the module's"
    assert told(run)["LOADEDMODULES"] == "gcc/1.0:python/3.7.4"
    assert "modules: gcc/1.0 python/3.7.4" in cli("show", run["id"]).stdout
    bare = cli.run_command("python", cli.script(TELL), options=("--on", name, "--software", "none"))
    assert (told(bare)["WHOSE_PYTHON"], told(bare)["LOADEDMODULES"]) == (None, "gcc/1.0")
    failed = cli.run_command(
        "python", "script.py", options=("--on", name, "--software", "none-such"), check=100
    )
    found = cli.json("why", failed["id"])
    assert found["problem"] == "modules" and "module load nosuch/1 failed on " in found["cause"]
    assert "module avail nosuch/1" in found["remedy"]
    assert "cause: module load nosuch/1 failed on " in cli("show", failed["id"]).stdout
    note = cli(
        "run", "--on", name, "--dry-run", "--", "python", "script.py", VIRTUAL_ENV="/my/env"
    ).stderr
    assert "not from /my/env, which is active here; try: --env /my/env" in note


def test_a_container_gets_the_program_and_its_places(cli, site: Site) -> None:
    """With a stand-in for apptainer."""
    image = site.apptainer(cli.programs)
    run = cli.run_command(
        "python", cli.script(TELL), "a b", options=("--env", f"container:{image}")
    )
    assert (told(run)["INSIDE_IMAGE"], told(run)["WHOSE_PYTHON"]) == (str(image), "the image's")
    [words] = site.told()
    place, cwd = run["dir"], str(cli.cwd)
    assert words[:7] == ["exec", "--bind", place, "--bind", cwd, "--pwd", cwd]
    assert words[7:] == [str(image), "python", f"{place}/code/script.py", "a b"]
    recipe = cli("run", "digits", "epochs=1", "--env", f"container:{image}", "--json")
    place = json.loads(recipe.stdout.splitlines()[-1])["dir"]
    assert ["python", "-P", "-m", "rampup.worker", place] in [words[-5:] for words in site.told()]


def test_conda_and_an_environment_without_rampup(cli, site: Site) -> None:
    """With a stand-in for conda."""
    site.conda(cli.programs, "torch2", "bare")
    run = cli.run_command("python", cli.script(TELL), options=("--env", "conda:torch2"))
    assert told(run)["WHOSE_PYTHON"] == "conda torch2"
    bare = site.venv(rampup=False)
    (site.envs / "bare" / "bin" / "python").unlink()
    (site.envs / "bare" / "bin" / "python").symlink_to(bare / "bin" / "python")
    done = cli("run", "digits", "--env", "conda:bare", "--json", check=100)
    found = cli.json("why", json.loads(done.stdout.splitlines()[-1])["id"])
    assert found["problem"] == "other-python"
    assert found["remedy"] == "conda run -n bare python -m pip install rampup"


def test_resume_keeps_the_environment_or_takes_another(cli, site: Site) -> None:
    venv = site.venv(rampup=False)
    stops = cli.script(TELL + "sys.exit(3)\n")
    run = cli.run_command("python", stops, options=("--env", str(venv)), check=100)
    cli("resume", run["id"], check=100)
    assert told(run, attempt=2)["prefix"] == str(venv)
    cli("resume", run["id"], "--env", "none", check=100)
    assert told(run, attempt=3)["prefix"] == sys.prefix
    site.conda(cli.programs, "torch2")
    cli("resume", run["id"], "--env", "conda:torch2", check=100)
    assert told(run, attempt=4)["WHOSE_PYTHON"] == "conda torch2"
    cli("resume", run["id"], "--code", "current", check=100)
    assert told(run, attempt=5)["WHOSE_PYTHON"] == "conda torch2"
    subprocess.run(["rm", "-r", site.envs], check=True)
    cli("resume", run["id"], check=100)
    found = cli.json("why", run["id"])
    assert (
        found["problem"] == "environment"
        and "conda:torch2 can't be activated on " in found["cause"]
    )
    assert "--env" in found["remedy"]


def test_a_file_names_an_environment_beside_it(cli, site: Site) -> None:
    venv = site.venv("beside", rampup=False)
    (site.folder / "rampup.toml").write_text(
        f'command = ["python", "tell.py"]\n[resources]\nenv = "{venv.name}"\n'
    )
    (site.folder / "tell.py").write_text(TELL)
    done = cli("run", str(site.folder / "rampup.toml"), "--json")
    assert told(json.loads(done.stdout.splitlines()[-1]))["prefix"] == str(venv)


def test_a_dry_run_shows_the_lines(cli, site: Site) -> None:
    venv = site.venv(rampup=False)
    text = cli("run", "--env", str(venv), "--dry-run", "--", "true").stdout
    assert '. "$environment/bin/activate"' in text
    image = site.apptainer(cli.programs)
    found = cli.json("run", "digits", "--env", f"container:{image}", "--dry-run")
    assert found["program"][0] == "apptainer" and str(image) in found["program"]
    assert found["environment"]["env"] == f"container:{image}"


# what is refused ----------------------------------------------------------------------------------


def refused(cli: Any, *words: str) -> str:
    text = str(cli("run", *words, check=3).stderr)
    assert not cli.runs.exists(), "nothing was started"
    return text


def test_environments_that_are_not_there(cli, site: Site) -> None:
    (site.folder / "conda env" / "conda-meta").mkdir(parents=True)
    (site.folder / "half" / "bin").mkdir(parents=True)
    (site.folder / "half" / "bin" / "activate").touch()
    (site.folder / "t.sif").touch()
    for env, words, hint in (
        ("nosuch", f"there is no environment {cli.cwd}/nosuch", f"python -m venv {cli.cwd}/nosuch"),
        ("$(id)", f"there is no environment {cli.cwd}/$(id)", "python -m venv '"),
        (f"{site.folder}/half", "it has no bin/python", "python -m venv"),
        (f"{site.folder}/conda env", "is a conda environment, not a venv", "--env 'conda:"),
        (f"{site.folder}/t.sif", "is a file", "--env 'container:"),
        ("conda:", "needs the name of an environment", "conda env list"),
        ("conda:torch2", "there is no conda here", "--software"),
        ("conda:./x", "it has no conda-meta", "conda env list"),
        ("container:", "needs an image", "IMAGE.sif"),
        ("container:x.sif", f"there is no image {cli.cwd}/x.sif", f"ls {cli.cwd}"),
        (
            "container:docker://python",
            "images are run, not built",
            "apptainer pull image.sif docker://python",
        ),
        (f"container:{site.folder}/t.sif", "neither apptainer nor singularity", "--on CLUSTER"),
        ("two\nlines", "not a name of a module or an environment", "printable"),
    ):
        said = refused(cli, "--env", env, "--", "python", "-V")
        assert words in said and hint in said, (env, said)


def test_lists_that_are_not_there(cli) -> None:
    assert "cluster local has no list of modules 'pytorch'" in refused(
        cli, "--software", "pytorch", "--", "true"
    )
    name = write_profile(cli, scheduler="local", software={"pytorch": ["a"]})
    said = refused(cli, "--on", name, "--software", "pytroch", "--", "true")
    assert "no list of modules 'pytroch'" in said and "pytorch" in said


def test_a_venv_that_can_not_run_the_recipe(cli, site: Site) -> None:
    bare = site.venv(rampup=False)
    said = refused(cli, "polyfit", "--env", str(bare))
    assert (
        f"recipe polyfit needs rampup and torch, which the environment {bare} does not have" in said
    )
    assert "an env/bin/python' -m pip install 'rampup[torch]'" in said
    (bare / "bin" / "python").unlink()
    (bare / "bin" / "python").write_text("#!/bin/sh\necho no libpython >&2\nexit 127\n")
    (bare / "bin" / "python").chmod(0o755)
    said = refused(cli, "polyfit", "--env", str(bare))
    assert "bin/python can't be started here: no libpython" in said
