"""rampup.init() in a user's own script: under rampup, outside it, and when things go wrong."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rampup.rundir.files import RunDir

ROOT = Path(__file__).parents[3]


class Script:
    """A user's script, outside rampup or with a run directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, RunDir(folder / "run")
        self.attempt = self.run.attempt(1)

    def __call__(
        self,
        text: str,
        inside: dict[str, Any] | None = None,
        limit: int = 0,
        attempt: int = 1,
        **env: str,
    ) -> Any:
        script = self.folder / "train.py"
        script.write_text("import rampup\n" + textwrap.dedent(text))
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith("RAMPUP_")
        }
        if inside is not None:
            self.attempt = self.run.attempt(attempt)
            self.attempt.path.mkdir(parents=True)
            self.run.config_file.write_text(json.dumps({"kind": "command", "train": inside}))
            env |= {"RAMPUP_RUN_DIR": str(self.run.path), "RAMPUP_ATTEMPT": str(attempt)}
        argv = [
            "bash",
            "-c",
            f'ulimit -f {limit or "unlimited"}; exec "$0" "$1"',
            sys.executable,
            str(script),
        ]
        all_env = {**clean, "PYTHONPATH": str(ROOT), **env}
        return subprocess.run(
            argv, env=all_env, capture_output=True, text=True, timeout=30, cwd="/"
        )


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_outside_it_is_a_world_of_one(script: Script) -> None:
    (script.folder / "rampup.toml").write_text("[train]\nlr = 0.5\n")
    done = script(
        """
        run = rampup.init(lr=0.1, steps=3)
        assert (run.rank, run.local_rank, run.world_size, run.dir) == (0, 0, 1, None)
        assert run.config.lr == run.config["lr"] == 0.5
        for step in range(1, run.config.steps + 1):
            run.log(step=step, loss=1 / step)
        run.finish()
        import sys
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        """
    )
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first.startswith("step=1 loss=1 ") and last == "step=3 loss=0.3333 eta_s=0", (
        "the first, one in a second, and the last"
    )
    assert sorted(path.name for path in script.folder.iterdir()) == ["rampup.toml", "train.py"]


def test_under_rampup_it_writes_the_run(script: Script) -> None:
    text = """
        class Scalar:
            def item(self): return 0.25
        with rampup.init(lr=0.1, momentum=0.9) as run:
            assert dict(run.config) == {"lr": 0.2, "momentum": 0.9, "steps": 2}
            run.log(step=1, loss=0.5)
            run.log(step=2, loss=Scalar())
        """
    done = script(text, inside={"lr": 0.2, "steps": 2})
    assert done.returncode == 0, done.stderr
    assert [(row["step"], row["loss"]) for row in script.attempt.metrics()] == [(1, 0.5), (2, 0.25)]
    end = script.attempt.event("end")
    assert end is not None and end["metrics"]["loss"] == 0.25 and end["best"] is None
    beat = json.loads(script.attempt.progress_file.read_text())
    assert (beat["step"], beat["steps"], beat["train_loss"]) == (2, 2, 0.25)


def test_a_forgotten_finish_loses_nothing(script: Script) -> None:
    script("rampup.init().log(step=1, loss=0.5)", inside={})
    assert len(script.attempt.metrics()) == 1 and script.attempt.event("end")


def test_other_ranks_write_nothing(script: Script) -> None:
    text = """
        run = rampup.init()
        run.log(step=1, loss=run.rank)
        assert (run.rank, run.world_size) == (1, 2)
        """
    done = script(text, inside={}, RANK="1", LOCAL_RANK="1", WORLD_SIZE="2")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert list(script.attempt.path.iterdir()) == []


def test_an_exception_is_kept_and_still_printed(script: Script) -> None:
    done = script(
        "run = rampup.init()\nrun.log(step=1, loss=2.0)\nraise KeyError('as planned')",
        inside={},
        RANK="0",
    )
    assert (
        done.returncode == 1
        and "KeyError: 'as planned'" in done.stderr
        and "Traceback" in done.stderr
    )
    (error,) = script.attempt.errors()
    assert (error["rank"], error["type"], error["hint"]) == (
        0,
        "KeyError",
        "",
    ) and "train.py" in error["traceback"]
    assert len(script.attempt.metrics()) == 1 and script.attempt.event("end") is None


@pytest.mark.parametrize("finish", ["run.finish()", ""])
def test_a_full_disk_ends_it_with_its_code(script: Script, finish: str) -> None:
    text = f"""
        run = rampup.init()
        for step in range(200): run.log(step=step, loss=0.5)
        {finish}
        """
    done = script(text, inside={}, limit=4)
    assert done.returncode == 74
    assert f"error: can't write {script.attempt.metrics_file}: File too large" in done.stderr
    assert "df -h" in done.stderr and "Traceback" not in done.stderr
    assert [row["step"] for row in script.attempt.metrics()] == list(
        range(len(script.attempt.metrics()))
    )
    assert len(script.attempt.metrics()) > 50


def test_a_broken_toml_beside_the_script(script: Script) -> None:
    (script.folder / "recipe.toml").write_text("[train\n")
    done = script("rampup.init()")
    assert done.returncode == 1 and "recipe.toml is not valid TOML" in done.stderr


def test_logging_after_the_end_is_refused(script: Script) -> None:
    done = script("run = rampup.init()\nrun.finish()\nrun.log(step=1, loss=1)", inside={})
    assert done.returncode == 1 and "run.log() called after run.finish()" in done.stderr


# settings -----------------------------------------------------------------------------------------

PARSING = """
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch-size", type=int, default=32)
sys.argv += ["--batch-size=64"]
run = rampup.init(parser.parse_args(), api_key="abc", max_tokens=7, path=__import__("pathlib").Path("/x"))
assert run.config.api_key == "abc"
print(run.config.lr, run.config.batch_size, run.config.steps)
"""


def test_the_settings_are_recorded_with_their_origin(script: Script) -> None:
    (script.folder / "rampup.toml").write_text("[train]\nbatch_size = 8\nsteps = 5\n")
    done = script(PARSING, inside={"lr": 0.2})
    assert (done.returncode, done.stdout) == (0, "0.2 64 5\n"), done.stderr
    config = script.run.used_config
    origins = {name: config["origins"][f"train.{name}"] for name in config["train"]}
    assert {name: (config["train"][name], origins[name]) for name in origins} == {
        "lr": (0.2, "command line"),
        "batch_size": (64, "command line"),
        "steps": (5, "rampup.toml"),
        "api_key": ("(not shown)", "rampup.init"),
        "max_tokens": (7, "rampup.init"),
        "path": ("/x", "rampup.init"),
    }
    files = [path for path in script.run.path.rglob("*") if path.is_file()]
    assert len(files) > 3 and not [path for path in files if b"abc" in path.read_bytes()]


def test_settings_may_be_a_dict_and_nothing_else_is_taken(script: Script) -> None:
    done = script("print(dict(rampup.init({'lr': 1, 'a': 2}, a=3).config))")
    assert done.stdout == "{'lr': 1, 'a': 3}\n"
    done = script("rampup.init('lr=1')", inside={})
    assert "rampup.init('lr=1'): settings are a dict or a Namespace" in done.stderr


def test_a_run_without_recorded_settings_reads_as_before(script: Script) -> None:
    script("rampup.init()", inside={"lr": 0.2})
    script.attempt.settings_file.unlink()
    assert script.run.used_config == script.run.config
    script.attempt.settings_file.write_text('{"train": 3')
    assert script.run.used_config == script.run.config


# rows ---------------------------------------------------------------------------------------------


def logged(script: Script) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in script.attempt.metrics()]


def test_a_row_is_a_dict_or_keywords_and_a_missing_step_is_counted(script: Script) -> None:
    text = """
        run = rampup.init()
        run.log({"loss": 0.5})
        run.log({"loss": 0.4}, step=3)
        run.log({"loss": 0.3})
        run.log(step=7, loss=0.2)
        run.log(8, loss=0.1)
        run.log({"step": 9, "self": 1, "name": True}, loss=0)
        """
    done = script(text, inside={})
    assert done.returncode == 0, done.stderr
    assert logged(script) == [(1, 0.5), (3, 0.4), (4, 0.3), (7, 0.2), (8, 0.1), (9, 0)]


def test_counting_continues_after_the_resumed_step(script: Script) -> None:
    text = """
        run = rampup.init()
        run.resume()
        run.log({"loss": 0.5})
        run.save({}, run.step + 1)
        """
    for attempt in (1, 2):
        assert script(text, inside={}, attempt=attempt).returncode == 0
    assert [row["step"] for row in script.run.history()] == [1, 2]


@pytest.mark.parametrize("inside", [{}, None], ids=["under rampup", "outside"])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("step=1.5, loss=1", "a step is a whole number, 0 or more, not 1.5"),
        ("step='one', loss=1", "a step is a whole number, 0 or more, not 'one'"),
        ("{'step': True}", "a step is a whole number, 0 or more, not True"),
        ("{'step': 2}, step=2", "the step is given twice"),
        ("{'loss': 'high'}", "loss must be one number, not 'high'"),
        ("step=1, loss=[1, 2]", "loss must be one number, not [1, 2]"),
        ("{3: 0.5}", "the name of a metric is text, not 3"),
        ("t=0.5", "`t` is the time of the row"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(
    script: Script, call: str, message: str, inside: dict[str, Any] | None
) -> None:
    done = script(f"rampup.init().log({call})", inside=inside)
    assert done.returncode == 1 and message in done.stderr
    assert done.stderr.count("hint: ") == 1
    assert script.attempt.metrics() == []


# checkpoints --------------------------------------------------------------------------------------

COUNTING = """
import os, signal, time
run = rampup.init()
state = run.resume() or {"total": 0}
for step in range(run.step + 1, 11):
    state["total"] += step
    run.log(step=step, total=state["total"])
    if step == int(os.environ.get("STOP_AT", 0)):
        time.sleep(0.3)  # what is being written now gets done
        os.kill(os.getpid(), getattr(signal, os.environ["HOW"]))
    if step % 3 == 0 or run.should_stop:
        run.save(state, step)
    if run.should_stop:
        break
print("total", state["total"])
"""


def kept(script: Script) -> list[str]:
    return sorted(path.name for path in script.run.checkpoints.iterdir())


def test_a_loop_that_is_asked_to_stop_goes_on_where_it_was(script: Script) -> None:
    done = script(COUNTING, inside={}, STOP_AT="5", HOW="SIGTERM")
    assert (done.returncode, done.stdout) == (
        0,
        "step=1 total=1\ntotal 15\nstep=5 total=15\n",
    ), done.stderr
    assert script.attempt.read_again() == "preempt" and kept(script) == ["step-3", "step-5"]
    stopped = script.attempt.event("stopped")
    assert (
        stopped is not None
        and stopped["checkpoints"]["count"] == 2
        and script.attempt.event("end") is None
    )
    done = script(COUNTING, inside={}, attempt=2)
    assert done.stdout.splitlines()[0] == "resumed at step 5" and "total 55\n" in done.stdout
    assert (
        kept(script) == ["step-6", "step-9"]
        and script.attempt.event("end")
        and script.attempt.read_again() == ""
    )
    assert [row["total"] for row in script.run.history()] == [1, 3, 6, 10, 15, 21, 28, 36, 45, 55]


def test_a_loop_that_is_killed_goes_on_from_its_last_checkpoint(script: Script) -> None:
    assert script(COUNTING, inside={}, STOP_AT="8", HOW="SIGKILL").returncode == -9
    os.truncate(script.run.checkpoint(6) / "state.json", 5)
    done = script(COUNTING, inside={}, attempt=2)
    assert (
        "step-6 is damaged: state.json is not what was written; trying the one before"
        in done.stdout
    )
    assert "resumed at step 3\n" in done.stdout and "total 55\n" in done.stdout
    assert [row["total"] for row in script.run.history()] == [1, 3, 6, 10, 15, 21, 28, 36, 45, 55]


def test_a_signal_ends_a_loop_that_does_not_look(script: Script) -> None:
    text = """
        import os, signal
        run = rampup.init()
        run.log(step=1, loss=0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        run.log(step=2, loss=0.5)
        """
    assert script(text, inside={}).returncode == 143
    assert [row["step"] for row in script.attempt.metrics()] == [
        1
    ] and script.attempt.read_again() == ""


def test_outside_nothing_is_saved(script: Script) -> None:
    done = script(COUNTING)
    assert done.returncode == 0 and "total 55" in done.stdout, done.stderr
    assert [path.name for path in script.folder.iterdir()] == ["train.py"]


def test_other_ranks_save_nothing_and_resume_the_same(script: Script) -> None:
    assert script(COUNTING, inside={}, RANK="1", WORLD_SIZE="2").returncode == 0
    assert not script.run.checkpoints.exists()
    script(COUNTING, inside={}, attempt=2)
    done = script(COUNTING, inside={}, attempt=3, RANK="1", WORLD_SIZE="2")
    assert (done.returncode, done.stdout) == (0, "total 55\n") and kept(script) == [
        "step-6",
        "step-9",
    ]


def test_a_full_disk_in_the_last_checkpoint(script: Script) -> None:
    text = """
        run = rampup.init()
        run.save({"x": 1}, 1)
        run.save({"x": "y" * 100_000}, 2)
        """
    done = script(text, inside={}, limit=20)
    assert (
        done.returncode == 74
        and f"can't write {script.run.checkpoint(2)}: File too large" in done.stderr
    )
    assert "error: the checkpoint of step 2 was not saved" in done.stdout and kept(script) == [
        "step-1"
    ]
    failed = script.attempt.event("save_failed")
    assert failed is not None and failed["step"] == 2


def test_a_ghost_ends_with_one_line(script: Script) -> None:
    text = """
        import os
        run = rampup.init()
        os.makedirs(f"{run.dir}/attempts/2")
        run.save({"x": 1}, 1)
        """
    done = script(text, inside={})
    assert done.stderr == "attempt 2 of this run has begun: attempt 1 stops writing\n"
    assert not script.run.checkpoints.exists() and script.attempt.errors() == []


def test_what_can_not_be_kept_is_named(script: Script) -> None:
    done = script("rampup.init().save({'a': [1, {'b': object()}]}, 1)", inside={})
    assert (
        done.returncode == 1 and "run.save can't keep state['a'][1]['b'], a object" in done.stderr
    )


def test_settings_that_the_loop_never_read_are_named(script: Script) -> None:
    (script.folder / "rampup.toml").write_text("[train]\nwidth = 8\ndepth = 2\n")
    text = """
        run = rampup.init(lr=0.1, momentum=0.9)
        run.config.lr, run.config["depth"]
        run.finish()
        """
    done = script(text, inside={"lr": 0.2, "epochs": 2})
    (note,) = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    assert note.startswith("note: your loop never read run.config for: width (rampup.toml), epochs")
    assert "lr" not in note and "depth" not in note and "momentum" not in note


def test_settings_that_are_copied_count_as_read(script: Script) -> None:
    assert "note" not in script("dict(rampup.init(lr=0.1).config)", inside={"lr": 0.2}).stdout
