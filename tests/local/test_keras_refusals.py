"""Without TensorFlow, with an old one, or with Keras 3 switched on, a run is refused before anything starts."""

from pathlib import Path

import pytest
from conftest import Cli

HIDES = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("tensorflow", "tf_keras") else found(name, *rest)
"""
"""A stand-in for an environment without TensorFlow, where there is one."""


def software(folder: Path, version: str) -> dict[str, str]:
    """Stand-ins that can be found and not used: nothing imports TensorFlow before a run is refused."""
    for module, dist in (("tensorflow", "tensorflow"), ("tf_keras", "tf_keras"), ("sklearn", "scikit_learn")):
        (folder / module).mkdir(parents=True)
        (folder / module / "__init__.py").write_text("raise RuntimeError('nobody may import this')\n")
        info = folder / f"{dist}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder)}


def refused(cli: Cli, **env: str) -> str:
    done = cli("run", "ionosphere", check=3, **env)
    assert not cli.runs.exists() or not list(cli.runs.iterdir()), "nothing was started"
    return done.stderr


def test_absent(cli: Cli) -> None:
    (cli.cwd / "sitecustomize.py").write_text(HIDES)
    said = refused(cli, PYTHONPATH=str(cli.cwd))
    assert "recipe ionosphere needs tensorflow, which is not installed" in said
    assert "hint: pip install 'rampup[keras]'" in said


def test_too_old(cli: Cli, tmp_path: Path) -> None:
    said = refused(cli, **software(tmp_path / "old", "2.10.1"))
    assert "the keras engine needs TensorFlow 2.15 or newer, and here is 2.10" in said
    assert "hint: pip install 'rampup[keras]'" in said


@pytest.mark.parametrize("word", ["0", "False"])
def test_keras_3_is_switched_on(cli: Cli, tmp_path: Path, word: str) -> None:
    said = refused(cli, **software(tmp_path / "new", "2.21.0"), TF_USE_LEGACY_KERAS=word)
    assert f"TF_USE_LEGACY_KERAS={word} makes tf.keras Keras 3" in said
    assert "hint: unset TF_USE_LEGACY_KERAS" in said


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("strategy=mirored", "allowed: auto, single, mirrored, multiworker"),
        ("inter_thread=2", "did you mean inter_threads?"),
        ("cpu_devices=0", "cpu_devices"),
        ("monitor_mode=$(id)", "allowed"),
    ],
)
def test_mistyped_settings(cli: Cli, tmp_path: Path, word: str, hint: str) -> None:
    assert hint in refused_setting(cli, word, software(tmp_path / "new", "2.21.0"))


def refused_setting(cli: Cli, word: str, env: dict[str, str]) -> str:
    done = cli("run", "ionosphere", word, check=None, **env)
    assert done.returncode in (2, 3)
    return done.stderr
