"""What a run runs in: what is chosen, and what the lines of shell really do, with a real bash, Lmod
and venv."""

import contextlib
import json
import os
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from site_software import LMOD, Site

from rampup.core import software
from rampup.core.spec import RecipeInfo, RunSpec
from rampup.errors import RampupError, Refused
from rampup.rundir.files import AttemptDir
from rampup.runs import versions as environment
from rampup.runs.create import pin_python
from rampup.runs.plan import find_program
from rampup.runtime.environment import environment_of
from unit.job_scripts import RUN_DIR, make_spec, render

LISTS = {"software": {"pytorch": ["GCC", "PyTorch"], "tensorflow": ["TensorFlow/2.1"]}}
needs_lmod = pytest.mark.skipif(
    not LMOD.exists(), reason="Lmod is not installed: apt-get install lmod"
)


def engine(resources: dict[str, Any] | None = None, **profile: Any) -> RunSpec:
    recipe = RecipeInfo(
        name="mnist", about="", folder="/recipes/mnist", engine="torch", entry="train:Mnist"
    )
    return replace(make_spec(resources, **profile), kind="engine", recipe=recipe, command=())


# what is chosen -----------------------------------------------------------------------------------


def test_a_command_gets_the_sites_default_and_an_engine_the_sites_environment() -> None:
    profile = {
        **LISTS,
        "modules": ["CUDA"],
        "default_software": "pytorch",
        "environment": "/proj/rampup",
    }
    for spec, modules, env in (
        (make_spec(**profile), ["CUDA", "GCC", "PyTorch"], ""),
        (make_spec({"software": "tensorflow"}, **profile), ["CUDA", "TensorFlow/2.1"], ""),
        (make_spec({"software": "none", "env": "/mine"}, **profile), ["CUDA"], "/mine"),
        (engine(**profile), ["CUDA"], "/proj/rampup"),
        (
            engine({"software": "tensorflow", "env": "conda:t"}, **profile),
            ["CUDA", "TensorFlow/2.1"],
            "conda:t",
        ),
        (engine({"env": "none"}, **profile), ["CUDA"], ""),
        (engine(), [], ""),
    ):
        chosen = software.of(spec, RUN_DIR)
        assert (chosen.modules, chosen.env) == (modules, env)


def test_a_list_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refused, match="cluster site has no list of modules 'pytroch'") as caught:
        software.of(make_spec({"software": "pytroch"}, **LISTS), RUN_DIR)
    assert "pytorch" in caught.value.hint
    with pytest.raises(Refused, match="default_software in its profile"):
        software.of(make_spec(default_software="gone"), RUN_DIR)


@pytest.mark.parametrize("word", ["two\nlines", "bell\a", "\udcff"])
def test_names_that_no_file_of_text_can_hold_are_refused(word: str) -> None:
    for spec in (
        make_spec({"env": word}),
        make_spec(modules=[word]),
        make_spec(module_use=[word], modules=["a"]),
    ):
        with pytest.raises(Refused, match="not a name of a module"):
            software.of(spec, RUN_DIR)


def test_paths_are_absolute_and_names_stay() -> None:
    base = Path("/base")
    for given, meant in {
        "": "",
        "none": "none",
        "venv": "/base/venv",
        "../v 1": "/v 1",
        "/a/b": "/a/b",
        "~/v": f"{Path.home()}/v",
        "conda:torch2": "conda:torch2",
        "conda:./here": "conda:/base/here",
        "conda:": "conda:",
        "container:": "container:",
        "container:t.sif": "container:/base/t.sif",
        "container:docker://x": "container:docker://x",
    }.items():
        assert software.absolute(given, base) == meant
        assert software.absolute(meant, Path("/other")) == meant, "once absolute, it stays"


def test_whose_python() -> None:
    here = pin_python(("python", "fit.py"), make_spec(modules=["CUDA"]))
    assert here[0].startswith("/"), "modules for every run do not bring one"
    for spec in (
        make_spec({"software": "pytorch"}, **LISTS),
        make_spec({"env": "/v"}),
        make_spec({"env": "conda:a"}),
    ):
        assert pin_python(("python", "fit.py"), spec) == ("python", "fit.py")
        assert pin_python(("/usr/bin/python3", "x"), spec) == ("/usr/bin/python3", "x")
    assert find_program(engine(), RUN_DIR)[0] == sys.executable
    assert find_program(engine({"env": "/v w"}), RUN_DIR)[:4] == (
        "/v w/bin/python",
        "-P",
        "-m",
        "rampup.worker",
    )
    assert find_program(engine({"env": "conda:a"}), RUN_DIR)[0] == "python"
    assert find_program(engine({"env": "container:/i.sif"}), RUN_DIR)[0] == "python"


def test_a_container_is_given_its_places_and_the_gpus() -> None:
    asked = {"env": "container:/sw/t 1.sif", "gpus_per_node": 1}
    words = software.container_words(
        make_spec(asked, container_options=["--bind=/scratch"]), RUN_DIR
    )
    binds = ("--bind", str(RUN_DIR), "--bind", "/home/me", "--pwd", "/home/me", "/sw/t 1.sif")
    assert words == ("apptainer", "exec", "--bind=/scratch", "--nv", *binds)
    assert "--nv" not in software.container_words(make_spec({**asked, "gpus_per_node": 0}), RUN_DIR)
    assert "--nv" not in software.container_words(
        make_spec(asked, container_options=["--rocm"]), RUN_DIR
    )
    assert software.container_words(make_spec({"env": "/v"}), RUN_DIR) == ()


# the lines ----------------------------------------------------------------------------------------


def test_nothing_is_written_for_nothing() -> None:
    assert software.setup(software.of(make_spec(), RUN_DIR)) == ""
    profile = {**LISTS, "module_use": ["/sw"], "module_init": "/init"}
    assert software.setup(software.of(make_spec({"software": "none"}, **profile), RUN_DIR)) == ""
    assert "not_ready" not in render(make_spec()) and "module" not in render(
        make_spec(variables={"A": "b"})
    )


def test_the_order_in_a_job() -> None:
    text = render(
        make_spec(
            {"env": "/proj/v"},
            modules=["A/1"],
            module_use=["/sw"],
            variables={"X": "1"},
            home=["/home/", "/work/"],
            **LISTS,
        )
    )
    parts = (
        "set -uo",
        "export HOME=",
        "mkdir -p",
        "call_module purge",
        "module use /sw",
        "module load A/1",
    )
    parts += ('. "$environment/bin/activate"', "set +e -uo pipefail", "export X=1", "\n  srun ")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    kept = render(make_spec(modules=["A/1"], module_purge=False))
    assert "purge\n" not in kept and "call_module load A/1\n" in kept


@pytest.mark.parametrize(
    ("home", "words", "meant"),
    [
        ("/home/z/me", ["/home/", "/work/"], "/work/z/me"),
        ("/work/home/me", ["/home/", "/work/"], "/work/home/me"),
        ("/it's/$x/me", ["/it's/$x", "/w & `id`"], "/w & `id`/me"),
    ],
)
def test_home_moves_once(home: str, words: list[str], meant: str) -> None:
    line = software.home(words, "site")
    done = subprocess.run(
        ["bash", "-c", f'{line}{line}printf %s "$HOME"'],
        env={"HOME": home},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (meant, "")


@pytest.mark.parametrize(
    "words", [["/home"], ["/a", "/b", "/c"], ["home", "work"], ["/a", ""], ["/a\n", "/b"]]
)
def test_a_home_that_is_not_two_paths_is_refused(words: list[str]) -> None:
    with pytest.raises(Refused, match=r"home = .* in the profile site"):
        render(make_spec(home=words))


# what they do -------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptDir:
    place = tmp_path / "it's a run" / "attempts" / "1"
    place.mkdir(parents=True)
    return AttemptDir(place)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on PATH. A shell of the user's own may have loaded modules before."""
    for name in [
        name for name in os.environ if name.startswith(("LMOD", "_ModuleTable", "MODULE", "BASH"))
    ]:
        monkeypatch.delenv(name)
    place = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return place


def made(spec: RunSpec, attempt: AttemptDir) -> dict[str, str]:
    """The environment that the lines leave behind."""
    return environment_of(
        {"environment": to_builtins(software.of(spec, attempt.path.parent.parent))}, attempt
    )


def whose(env: dict[str, str]) -> str:
    code = "import os; print(os.environ.get('WHOSE_PYTHON'))"
    return subprocess.run(
        ["python", "-c", code], env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


@needs_lmod
def test_modules_are_loaded_in_order_and_what_was_before_is_gone(
    site: Site, attempt: AttemptDir, programs: Path
) -> None:
    spec = make_spec(
        {"software": "py"},
        modules=["gcc"],
        software={"py": ["cuda/1.0", "python/3.7.4"]},
        **site.profile,
    )
    env = made(spec, attempt)
    assert env["LOADED"] == "python:cuda:gcc", "each is put before the one before"
    assert (
        attempt.modules()
        == ["gcc/1.0", "cuda/1.0", "python/3.7.4"]
        == env["LOADEDMODULES"].split(":")
    )
    assert whose(env) == "the module's"
    assert [path.name for path in attempt.path.iterdir()] == ["modules.txt"]
    with pytest.MonkeyPatch.context() as loaded:
        for name, value in env.items():
            loaded.setenv(name, value)
        assert made(make_spec(modules=["cuda"], **site.profile), attempt)["LOADED"] == "cuda"
        kept = made(make_spec(modules=["gcc"], module_purge=False, **site.profile), attempt)
        assert "python/3.7.4" in kept["LOADEDMODULES"]


@needs_lmod
@pytest.mark.parametrize(
    ("modules", "words"),
    [
        (
            ["gcc", "nosuch/2.0"],
            'module load nosuch/2.0 failed on .*module.s. are unknown: "nosuch/2.0"$',
        ),
        (["broken"], "module load broken failed on .*the licence server does not answer"),
        (["$(touch x); `id`"], r"module load \$\(touch x\); `id` failed on "),
        (["it's"], "module load it's failed on "),
    ],
)
def test_a_module_that_fails_is_named(
    modules: list[str], words: str, site: Site, attempt: AttemptDir, programs: Path
) -> None:
    with pytest.raises(RampupError, match=words):
        made(make_spec(modules=modules, **site.profile), attempt)


def test_an_old_module_command_that_fails_with_0(
    site: Site, attempt: AttemptDir, programs: Path
) -> None:
    """A stand-in for Tcl modules before version 4: what fails says so and ends with 0."""
    init = site.folder / "init.sh"
    init.write_text(
        """module() {
          case "$1 $2" in
            "load good") export LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}good/1.0 ;;
            "load alias") export LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}other/1.0 ;;
            load*) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for '$2'" >&2 ;;
            purge*) unset LOADEDMODULES; return 1 ;;
          esac
        }"""
    )
    spec = make_spec(modules=["good", "alias", "good/1.0"], module_init=str(init))
    assert made(spec, attempt)["LOADEDMODULES"] == "good/1.0:other/1.0"
    with pytest.raises(
        RampupError, match=r"module load bad failed on .*:ERROR:105: Unable to locate"
    ):
        made(make_spec(modules=["good", "bad"], module_init=str(init)), attempt)


def test_no_module_command_at_all(attempt: AttemptDir, programs: Path) -> None:
    for init in (None, "/nosuch/init"):
        with pytest.raises(RampupError, match=r"there is no command module on .*module_init"):
            made(make_spec(modules=["gcc"], module_init=init), attempt)


@needs_lmod
def test_a_venv_lies_on_top_of_modules_and_variables_come_last(
    site: Site, attempt: AttemptDir, programs: Path
) -> None:
    venv = site.venv()
    value = "it's $HOME `id` \n & more"
    spec = make_spec(
        {"env": str(venv)}, modules=["python/3.7.4"], variables={"LOADED": value}, **site.profile
    )
    env = made(spec, attempt)
    assert env["VIRTUAL_ENV"] == str(venv) and env["PATH"].startswith(f"{venv}/bin:")
    assert env["LOADED"] == value
    done = subprocess.run(
        ["python", "-c", "import sys; print(sys.prefix)"], env=env, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(venv)


def test_a_venv_that_is_not_as_it_was(site: Site, attempt: AttemptDir, programs: Path) -> None:
    venv = site.venv(rampup=False)
    moved = venv.rename(venv.with_name("moved"))
    with pytest.raises(
        RampupError, match=r"environment .*moved can't be used on .*, python is then /"
    ):
        made(make_spec({"env": str(moved)}), attempt)
    (moved / "bin" / "activate").unlink()
    with pytest.raises(
        RampupError, match=r"environment .*moved can't be read on .*no bin/activate"
    ):
        made(make_spec({"env": str(moved)}), attempt)


def test_conda(
    site: Site, attempt: AttemptDir, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in; one of its scripts uses a variable that is not set."""
    with pytest.raises(RampupError, match="environment conda:torch2: there is no conda on "):
        made(make_spec({"env": "conda:torch2"}), attempt)
    site.conda(programs, "torch2", "it's two")
    for name in ("torch2", "it's two"):
        env = made(make_spec({"env": f"conda:{name}"}), attempt)
        assert (env["CONDA_DEFAULT_ENV"], whose(env)) == (name, f"conda {name}")
    with pytest.raises(
        RampupError, match=r"conda:nosuch can't be activated on .*: EnvironmentNameNotFound"
    ):
        made(make_spec({"env": "conda:nosuch"}), attempt)
    (programs / "conda").rename(programs / "elsewhere")
    monkeypatch.setenv("CONDA_EXE", str(programs / "elsewhere"))
    assert whose(made(make_spec({"env": "conda:torch2"}), attempt)) == "conda torch2"


def test_a_container(site: Site, attempt: AttemptDir, programs: Path) -> None:
    with pytest.raises(RampupError, match=r"environment container:/nosuch.sif is not there on "):
        made(make_spec({"env": "container:/nosuch.sif"}), attempt)
    with pytest.raises(RampupError, match="neither apptainer nor singularity on "):
        made(make_spec({"env": f"container:{site.folder}"}), attempt)
    image = site.apptainer(programs, program="singularity")
    env = made(make_spec({"env": f"container:{image}"}), attempt)
    assert env["RAMPUP_CONTAINER"] == str(programs / "singularity")


def test_a_shell_that_ends_without_a_word(attempt: AttemptDir, site: Site, programs: Path) -> None:
    venv = site.venv(rampup=False)
    with open(venv / "bin" / "activate", "a") as activate:
        activate.write("\nexit 3\n")
    with pytest.raises(RampupError, match="ended bash with 3"):
        made(make_spec({"env": str(venv)}), attempt)


def test_the_job_script_writes_the_cause_down(tmp_path: Path) -> None:
    """The real script up to the first rank, with quotes and a line break in the reason."""
    run_dir = tmp_path / "runs-abc234"
    run_dir.mkdir()
    (run_dir / "run.json").write_text("{}")
    init = tmp_path / "init.sh"
    init.write_text(
        'module() { [ "$1" != load ] || { printf \'no "%s"\\\\\\nhere\\n\\nmore\' "$2" >&2; return 1; }; }'
    )
    script = render(make_spec(modules=["GCC/8.3"], module_init=str(init)), run_dir, sys.executable)
    env = {
        **os.environ,
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node1",
        "SLURMD_NODENAME": "node1",
    }
    done = subprocess.run(["bash"], input=script, env=env, capture_output=True, text=True)
    assert done.returncode == software.NOT_READY
    assert (
        'rampup: error: module load GCC/8.3 failed on node1: no "GCC/8.3"\\ here\n' in done.stderr
    )
    facts = json.loads((run_dir / "attempts" / "1" / "attempt.json").read_text())
    assert (facts["outcome"], facts["exit_code"]) == ("failed", software.NOT_READY)
    assert facts["cause"] == "module load GCC/8.3 failed on node1: no  GCC/8.3   here"


def test_every_word_is_quoted() -> None:
    odd = "it's $(id)"
    spec = make_spec(
        {"env": f"/v/{odd}"}, modules=[odd], module_use=[f"/m/{odd}"], module_init=f"/i/{odd}"
    )
    for word in (odd, f"/m/{odd}", f"/i/{odd}", f"/v/{odd}"):
        assert shlex.quote(word) in render(spec)


def test_the_versions_that_a_run_records_are_those_that_pip_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for name in environment.PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    assert "torch" in found and environment.own_packages() == found
    for name in ("TF.Keras-2.0.dist-info", "horovod-0.28-py3.11.egg-info", "numpy.egg-info"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "absent"), str(tmp_path)])
    assert environment.own_packages() == {"tf_keras": "2.0", "horovod": "0.28"}
