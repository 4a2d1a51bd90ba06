"""Without TensorFlow, with an old one, or with Keras 3 switched on, a run is refused before
anything starts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Cli
from pages import ROOT

HIDES = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("tensorflow", "tf_keras") else found(name, *rest)
"""
"""A stand-in for an environment without TensorFlow, where there is one."""


def software(folder: Path, version: str) -> dict[str, str]:
    """Stand-ins that can be found and not used: nothing imports TensorFlow before a run is
    refused."""
    for module, dist in (
        ("tensorflow", "tensorflow"),
        ("tf_keras", "tf_keras"),
        ("sklearn", "scikit_learn"),
    ):
        (folder / module).mkdir(parents=True)
        (folder / module / "__init__.py").write_text(
            "raise RuntimeError('nobody may import this')\n"
        )
        info = folder / f"{dist}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder)}


def refused(cli: Cli, **env: str) -> str:
    done = cli("run", "ionosphere", check=3, **env)
    assert not cli.runs.exists() or not list(cli.runs.glob("2*")), "nothing was started"
    return done.stderr


def test_absent(cli: Cli) -> None:
    (cli.cwd / "sitecustomize.py").write_text(HIDES)
    said = refused(cli, PYTHONPATH=str(cli.cwd))
    assert "recipe ionosphere needs tensorflow, which is not installed" in said
    assert "hint: pip install 'rampup[keras]'" in said


def test_too_old(cli: Cli, tmp_path: Path) -> None:
    said = refused(cli, **software(tmp_path / "old", "2.10.1"))
    assert "the keras engine needs TensorFlow 2.15 or newer; this is 2.10" in said
    assert "hint: pip install 'rampup[keras]'" in said


def environment(folder: Path, version: str) -> str:
    """A stand-in for a venv with that TensorFlow."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "activate").write_text(f'export PATH="{folder}/bin:$PATH"\n')
    path = software(folder / "packages", version)["PYTHONPATH"]
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{path}:{ROOT}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(folder)


def test_too_old_in_the_environment_of_the_run(cli: Cli, tmp_path: Path) -> None:
    env = environment(tmp_path / "an env", "2.10.1")
    done = cli("run", "ionosphere", "--env", env, check=3)
    assert (
        f"{env}/bin/python: the keras engine needs TensorFlow 2.15 or newer; this is 2.10"
        in done.stderr
    )
    assert f"hint: '{env}/bin/python' -m pip install 'rampup[keras]'" in done.stderr
    assert not list(cli.runs.glob("*/run.json")), "nothing was started"


def test_what_is_seen_in_the_job_alone_is_told_by_each_rank_before_it_begins(
    cli: Cli, tmp_path: Path
) -> None:
    """As in a container: what is in it can't be asked before. A stand-in is found, and nothing of
    it is imported."""
    run = json.loads(
        cli(
            "run", "ionosphere", "--detach", "--json", **software(tmp_path / "new", "2.21.0")
        ).stdout
    )
    cli("wait", run["id"], check=100)  # the stand-in can't train
    old = {
        **cli.env,
        **software(tmp_path / "old", "2.10.1"),
        "RAMPUP_RUN_DIR": run["dir"],
        "RAMPUP_ATTEMPT": "1",
    }
    argv = [sys.executable, "-m", "rampup.worker", run["dir"]]
    done = subprocess.run(argv, env=old, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: the keras engine needs TensorFlow 2.15 or newer; this is 2.10\nhint: pip "
    )


@pytest.mark.parametrize("word", ["0", "False"])
def test_keras_3_is_switched_on(cli: Cli, tmp_path: Path, word: str) -> None:
    said = refused(cli, **software(tmp_path / "new", "2.21.0"), TF_USE_LEGACY_KERAS=word)
    assert f"TF_USE_LEGACY_KERAS={word} makes tf.keras Keras 3" in said
    assert "hint: unset TF_USE_LEGACY_KERAS" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ionosphere strategy=mirored", "allowed: auto, single, mirrored, multiworker, horovod"),
        (
            "ionosphere strategy=single --tasks-per-node 2",
            "strategy=single trains in one process, and this run has 2",
        ),
        ("ionosphere inter_thread=2", "did you mean inter_threads?"),
        ("ionosphere cpu_devices=0", "cpu_devices"),
        ("ionosphere monitor_mode=$(id)", "allowed"),
        ("ionosphere predict=1,2,3", "predict has 3 numbers, a row has 34"),
        (f"ionosphere predict={'1,' * 33}'x'", "predict: 'x' is not a number"),
        (f"ionosphere predict={'1,' * 33}nan", "predict: nan is not a number"),
        ("ionosphere hidden=[10,-8]", "hidden=[10, -8]: widths are whole numbers above 0"),
        ("ionosphere test_size=1.0", "test_size=1.0: it must be a fraction of the rows"),
        ("questions csv=$(id)'x\n.csv", r"csv=$(id)'x\x0a.csv: there is no such file"),
        ("questions csv=.", "csv=.: there is no such file"),
        ("questions embedding=glove.txt", "embedding=glove.txt: there is no such file or folder"),
        ("questions embedding=.", "embedding=. is not a SavedModel: it has no saved_model.pb"),
        ("questions rows=10", "rows=10 is too small"),
        ("questions validation=1.0", "validation=1.0: it must be a fraction of the questions"),
        ("questions vocabulary=2", "hint: vocabulary=3 is the least"),
    ],
)
def test_settings_that_can_not_be(cli: Cli, tmp_path: Path, words: str, message: str) -> None:
    done = cli("run", *words.split(" "), check=None, **software(tmp_path / "new", "2.21.0"))
    assert done.returncode in (2, 3) and message in done.stderr
    assert not cli.runs.exists() or not list(cli.runs.glob("2*")), "nothing was started"
