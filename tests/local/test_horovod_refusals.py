"""strategy=horovod without Horovod, or with ranks that MPI has not started, is refused before
anything starts."""

from pathlib import Path

import pytest
from conftest import Cli

pytest.importorskip("tf_keras", reason="the recipe that is refused needs tensorflow and tf_keras")
TWO = ("run", "ionosphere", "strategy=horovod", "--tasks-per-node", "2")


def stand_in(folder: Path) -> dict[str, str]:
    """A Horovod that can be found and not used: nothing may import it before a run is refused."""
    (folder / "horovod").mkdir(parents=True)
    (folder / "horovod" / "__init__.py").write_text(
        "raise RuntimeError('nobody may import this')\n"
    )
    return {"PYTHONPATH": str(folder)}


def refused(cli: Cli, *words: str, **env: str) -> str:
    done = cli(*words, check=3, **env)
    assert not cli.runs.exists() or not list(cli.runs.glob("2*")), "nothing was started"
    return done.stderr


def test_absent(cli: Cli) -> None:
    said = refused(cli, *TWO, "--launcher", "mpirun")
    assert "recipe ionosphere with strategy=horovod needs horovod, which is not installed" in said
    assert "hint: `make horovod-env` builds an environment with it" in said


def test_plain_ranks(cli: Cli, tmp_path: Path) -> None:
    said = refused(cli, *TWO, **stand_in(tmp_path / "found"))
    assert (
        "strategy=horovod needs ranks that MPI starts, and the launcher spawn does not use MPI"
        in said
    )
    assert "hint: --launcher mpirun" in said


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_plain_ranks_of_slurm(cli: Cli, tmp_path: Path, launcher: str) -> None:
    words = (
        "run",
        "ionosphere",
        "strategy=horovod",
        "--nodes",
        "2",
        "--on",
        "kebnekaise",
        "--launcher",
        launcher,
    )
    said = refused(cli, *words, **stand_in(tmp_path / "found"))
    assert (
        f"the launcher {launcher} does not use MPI" in said
        and "--launcher mpirun, or --launcher pmix" in said
    )


def test_one_rank_has_nothing_to_add_up(cli: Cli) -> None:
    cli("run", "ionosphere", "strategy=horovod", "--dry-run")
