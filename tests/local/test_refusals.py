"""What can't work is refused before anything runs: exit 2 or 3, one clear line, a hint, and no
half-made run."""

import os
from pathlib import Path

import pytest

CASES = {
    "unknown recipe": (("run", "mnits"), 3, "unknown recipe 'mnits'", "did you mean mnist"),
    "unknown key": (("run", "digits", "lrr=1"), 3, "unknown setting train.lrr", "did you mean lr"),
    "wrong type": (("run", "digits", "lr=fast"), 3, "train.lr = 'fast'", "a number"),
    "unknown cluster": (
        ("run", "digits", "--on", "locl"),
        3,
        "unknown cluster 'locl'",
        "did you mean local",
    ),
    "no ranks": (("run", "digits", "--tasks-per-node", "0"), 3, "tasks_per_node is 0", "1 to 64"),
    "too many ranks": (
        ("run", "digits", "--tasks-per-node", "1000"),
        3,
        "tasks_per_node is 1000",
        "1 to 64",
    ),
    "ranks that are no number": (
        ("run", "digits", "--tasks-per-node", "two"),
        3,
        "'two'",
        "a whole number",
    ),
    "more nodes than there are": (("run", "digits", "--nodes", "2"), 3, "one node", "sandbox up"),
    "a script that is not there": (("run", "--", "python", "absent.py"), 3, "absent.py", ""),
    "a program that is not there": (("run", "--", "absent-program"), 3, "absent-program", ""),
    "a file that is not there": (("run", "absent.toml"), 3, "absent.toml", ""),
    "no command after --": (("run", "--"), 2, "no command", "rampup run --"),
    "nothing to run": (("run",), 2, "nothing to run", "rampup recipe list"),
    "two targets": (("run", "digits", "mnist"), 2, "unexpected argument", "--"),
    "unknown option": (("run", "digits", "--task-per-node", "2"), 2, "--task", "--tasks-per-node"),
    "a bad time limit": (("run", "digits", "--time", "soon"), 3, "'soon'", "H:MM:SS"),
    "a reserved GPU that is not used": (
        ("run", "digits", "device=cpu", "--gpus-per-node", "1"),
        3,
        "GPU",
        "",
    ),
    "half precision on a CPU": (("run", "digits", "device=cpu", "precision=fp16"), 3, "fp16", ""),
    "half precision on a CPU, in other words": (
        (
            "run",
            "lightning.pytorch.demos.boring_classes:BoringModel",
            "device=cpu",
            "precision=16-mixed",
        ),
        3,
        "precision=16-mixed does not train on a CPU",
        "fp32",
    ),
    "more CPUs than there are": (
        ("run", "digits", "--cpus-per-task", "1000"),
        3,
        "cpus_per_task is 1000",
        "--cpus",
    ),
    "a GPU that is not there": (("run", "digits", "device=cuda"), 3, "no GPU", "device=auto"),
    "a launcher that does not fit": (
        ("run", "digits", "cluster.launcher=srun"),
        3,
        "'srun'",
        "spawn",
    ),
    "an environment of no name": (
        ("run", "digits", "--env", ""),
        2,
        "--env is empty",
        "leave it out",
    ),
    "no learning": (("run", "digits", "clip=0"), 3, "train.clip", "at least"),
    "an unknown run": (("show", "zzzzzz"), 102, "no run 'zzzzzz'", "rampup list"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(cli, case: str) -> None:
    words, code, message, hint = CASES[case]
    done = cli(*words, check=code)
    assert message in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not cli.runs.exists() or list(cli.runs.glob("2*")) == []


def test_missing_data_names_the_command_that_fetches_it(cli, tmp_path: Path) -> None:
    done = cli("run", "mnist", check=3, XDG_CACHE_HOME=str(tmp_path / "empty"))
    assert "rampup fetch mnist" in done.stderr


def test_truncated_data_is_refused(cli, tmp_path: Path, mnist: Path) -> None:
    copy = tmp_path / "cache" / "rampup" / "data" / "mnist"
    copy.mkdir(parents=True)
    for file in mnist.iterdir():
        (copy / file.name).symlink_to(file)
    images = copy / "train-images-idx3-ubyte"
    images.unlink()
    images.write_bytes((mnist / images.name).read_bytes()[:1000])
    done = cli("run", "mnist", check=3, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (
        images.name in done.stderr and "1000" in done.stderr and "rampup fetch mnist" in done.stderr
    )


def test_an_unwritable_runs_directory_is_refused(cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = cli("run", "digits", check=3, RAMPUP_RUNS=str(tmp_path / "file" / "runs"))
    assert "RAMPUP_RUNS" in done.stderr
    if os.getuid() == 0:
        done = cli("run", "--", "true", check=3, RAMPUP_RUNS="/proc/runs")
        assert "/proc" in done.stderr


def test_a_missing_framework_names_its_extra(cli, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "t.py").touch()
    (tmp_path / "mine" / "recipe.toml").write_text(
        'engine = "none"\nentry = "t.py"\nextra = "torch"\nrequires = ["nosuchmodule"]'
    )
    done = cli("run", str(tmp_path / "mine"), check=3)
    assert "nosuchmodule" in done.stderr and "rampup[torch]" in done.stderr


def test_the_traceback_is_there_for_who_asks(cli) -> None:
    assert "Traceback" in cli("run", "mnits", check=1, RAMPUP_DEBUG="1").stderr


def test_dry_run_writes_nothing_and_tells_origins(cli) -> None:
    plan = cli.json("run", "digits", "lr=0.5", "--time", "1:00:00", "--dry-run")
    origins = {row["key"]: (row["value"], row["origin"]) for row in plan["settings"]}
    assert origins["train.lr"] == (0.5, "command line")
    assert origins["train.epochs"][1] == "recipe.toml"
    assert origins["train.clip"] == (None, "default")
    assert (plan["node_hours"], plan["script"]) == (1, None)
    assert not cli.runs.exists()
