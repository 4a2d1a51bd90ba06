"""`rampup resume` on this machine: the same run goes on, with its own code, and never twice."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from conftest import Cli

from rampup.recipes import digits
from rampup.rundir.files import RunDir

Eventually = Callable[..., None]

COUNTS = """
    import os, time
    import rampup

    run = rampup.init(steps=40)
    state = run.resume() or {"step": 0, "total": 0}
    while state["step"] < run.config.steps:
        state = {"step": state["step"] + 1, "total": state["total"] + state["step"]}
        run.log(step=state["step"], total=state["total"])
        time.sleep(0.02)
        attempt = int(os.environ["RAMPUP_ATTEMPT"])
        while attempt <= HELD and state["step"] == 10 * attempt and not run.should_stop:
            time.sleep(0.02)  # it does not end before the test has asked it to
        if run.should_stop:
            break
        run.save(state, state["step"])
    run.save(state, state["step"])
    print("MARK", state["total"], flush=True)
"""


HELD_DIGITS = """
import os, time

from rampup.recipes.digits.train import Digits


class Held(Digits):
    def loss(self, *given):
        time.sleep(0.1 * (os.environ["RAMPUP_ATTEMPT"] == "1"))
        return super().loss(*given)
"""


def script(cli: Cli, mark: str = "first", held: int = 1) -> str:
    """A loop; its first attempts wait at a step until they are asked to stop."""
    return cli.script(COUNTS.replace("HELD", str(held)).replace("MARK", mark))


def held_digits(cli: Cli) -> str:
    """The recipe, its first attempt so slow that it does not end before the test has asked it
    to."""
    copytree(Path(digits.__file__).parent, cli.cwd / "held")
    recipe = cli.cwd / "held" / "recipe.toml"
    assert "train:Digits" in recipe.read_text()
    recipe.write_text(recipe.read_text().replace("train:Digits", "held:Held"))
    cli.script(HELD_DIGITS, "held/held.py")
    return "./held"


def detached(cli: Cli, eventually: Eventually, *words: str) -> Path:
    """A run that has saved something."""
    done = cli("run", "--detach", "--json", *words)
    run = Path(json.loads(done.stdout)["dir"])
    eventually(lambda: list((run / "checkpoints").glob("step-*")), 60, "a checkpoint")
    return run


def output_of(run: Path) -> str:
    return "".join(path.read_text() for path in sorted(run.glob("attempts/*/rank-0.log")))


def test_a_run_that_was_stopped_with_save_goes_on_where_it_was(
    cli: Cli, eventually: Eventually
) -> None:
    run = detached(cli, eventually, "--", "python", script(cli))
    said = cli("cancel", "--save", str(run))
    assert "cancelled: stopped gracefully" in said.stderr
    before = cli.json("show", str(run))
    assert (before["state"], before["attempts"]) == ("cancelled", 1)
    found = json.loads(cli("resume", str(run), "--json").stdout.splitlines()[-1])
    assert (found["state"], found["attempts"], found["metrics"]["total"]) == (
        "completed",
        2,
        sum(range(40)),
    )
    steps = [row["step"] for row in json.loads(cli("show", str(run), "--history", "--json").stdout)]
    assert steps == list(range(1, 41)), "each step once, over both attempts"
    refused = cli("resume", str(run), check=3)
    assert "has completed" in refused.stderr


def test_only_the_new_attempt_is_shown(cli: Cli) -> None:
    """The old one is the newest until the launcher has begun, and its lines are known."""
    cli.script("""
        import os

        print("line of attempt", os.environ["RAMPUP_ATTEMPT"], flush=True)
        raise SystemExit(os.environ["RAMPUP_ATTEMPT"] == "1")
    """)
    run = json.loads(
        cli("run", "--json", "--", "python", "script.py", check=100).stdout.splitlines()[-1]
    )
    assert cli("resume", run["id"]).stdout.splitlines()[0] == "line of attempt 2"


@pytest.mark.parametrize("victim", ["rank", "launcher"])
def test_a_run_that_was_killed_goes_on(cli: Cli, eventually: Eventually, victim: str) -> None:
    run = detached(cli, eventually, "--", "python", script(cli))
    facts = json.loads((run / "attempts" / "1" / "attempt.json").read_text())
    pid = facts["pid"] if victim == "launcher" else rank_of(facts["pid"])
    os.kill(pid, signal.SIGKILL)
    cli("wait", str(run), check=100)
    assert cli.json("resume", str(run))["metrics"]["total"] == sum(range(40))
    assert cli.json("show", str(run))["attempts"] == 2


def rank_of(supervisor: int) -> int:
    """The process that trains: the child of the guardian, which has the watcher for a sibling."""
    (rank,) = [rank for child in children_of(supervisor) for rank in children_of(child)]
    return rank


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_ctrl_c_lets_a_loop_that_listens_save(cli: Cli, eventually: Eventually) -> None:
    process = cli.start("run", "--", "python", script(cli))
    eventually(lambda: list(cli.runs.glob("*/checkpoints/step-*")), what="a checkpoint")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=45)
    assert process.returncode == 130
    run = next(cli.runs.glob("2*"))
    last = json.loads(cli("show", "--history", "--json").stdout)[-1]["step"]
    assert (run / "checkpoints" / f"step-{last}").is_dir(), (
        "saved at the very step where it stopped"
    )
    assert cli.json("resume", str(run))["metrics"]["total"] == sum(range(40))


def test_the_time_limit_lets_a_loop_that_listens_save(cli: Cli) -> None:
    done = cli("run", "--time", "0:00:08", "--", "python", script(cli), check=104)
    assert "time limit" in done.stderr
    run = next(cli.runs.glob("2*"))
    last = json.loads(cli("show", "--history", "--json").stdout)[-1]["step"]
    assert (run / "checkpoints" / f"step-{last}").is_dir()
    assert cli.json("resume", str(run), "--time", "1:00:00")["metrics"]["total"] == sum(range(40))


def test_a_run_is_never_started_twice(cli: Cli, eventually: Eventually) -> None:
    run = detached(cli, eventually, "--", "python", script(cli, held=2))
    refused = cli("resume", str(run), check=3)
    assert "is still running; it can be resumed after it ends" in refused.stderr
    assert f"rampup cancel --save {run.name.rpartition('-')[2]}" in refused.stderr
    cli("cancel", "--save", str(run))
    several = [cli.start("resume", str(run), "--detach") for _ in range(3)]
    ends = [process.communicate(timeout=60)[1] for process in several]
    assert sorted(process.returncode for process in several) == [0, 3, 3], ends
    assert cli.json("show", str(run))["attempts"] == 2
    cli("cancel", str(run))


def test_the_code_is_as_submitted_unless_asked(cli: Cli, eventually: Eventually) -> None:
    run = detached(cli, eventually, "--", "python", script(cli, mark="old", held=2))
    cli("cancel", "--save", str(run))
    script(cli, mark="new", held=0)
    cli("resume", str(run), "--detach")
    eventually(
        lambda: len(list(run.glob("attempts/*"))) == 2 and (run / "attempts/2/listens").exists()
    )
    cli("cancel", "--save", str(run))
    assert "old" in output_of(run) and "new" not in output_of(run)
    cli("resume", str(run), "--code", "current")
    assert f"new {sum(range(40))}" in output_of(run)
    assert "old" in (run / "code-before-3" / "script.py").read_text(), "what ran before is kept"
    records = [json.loads(line) for line in (run / "control.jsonl").read_text().splitlines()]
    assert [row["code"] for row in records if row["what"] == "resumed"] == ["submitted", "current"]


FAILS_ONCE = """\
#!/bin/bash
echo "script of attempt $RAMPUP_ATTEMPT"
[ "$RAMPUP_ATTEMPT" -gt 1 ]
"""


@pytest.mark.parametrize("before", [("bash", "once.sh"), ("./once.sh",)])
def test_a_script_that_is_gone_is_not_needed(cli: Cli, before: tuple[str, ...]) -> None:
    """The run has its own copy; only `--code current` wants the one in the user's folder."""
    (cli.cwd / "once.sh").write_text(FAILS_ONCE)
    (cli.cwd / "once.sh").chmod(0o755)
    run = RunDir(cli.run_command(*before, check=100)["dir"])
    (cli.cwd / "once.sh").unlink()
    refused = cli("resume", run.id, "--code", "current", check=3)
    assert "once.sh" in refused.stderr and "Traceback" not in refused.stderr
    planned = cli.json("resume", run.id, "--dry-run")
    assert planned["program"][-1] == str(run.code / "once.sh")
    cli("resume", run.id)
    assert "script of attempt 2" in output_of(run.path)


def test_a_python_that_is_gone_is_refused(cli: Cli) -> None:
    python = cli.cwd / "old" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    script = cli.script("raise SystemExit(3)")
    run = RunDir(cli.run_command("python", script, check=100, PATH=path)["dir"])
    python.unlink()
    refused = cli("resume", run.id, check=3)
    assert str(python) in refused.stderr and "--code current" in refused.stderr
    assert len(run.attempts()) == 1
    cli("resume", run.id, "--code", "current", check=100)
    assert len(run.attempts()) == 2


def test_a_command_that_does_not_listen_can_not_be_saved(cli: Cli, eventually: Eventually) -> None:
    run = Path(json.loads(cli("run", "--detach", "--json", "--", "sleep", "60").stdout)["dir"])
    eventually(lambda: (run / "attempts/1/attempt.json").exists())
    refused = cli("cancel", "--save", str(run), check=3)
    assert refused.stderr.count("can't save on request") == 1
    assert cli.json("show", str(run))["state"] == "running"
    id_ = run.name.rpartition("-")[2]
    assert f"hint: rampup cancel {id_}, then resume" in cli("resume", str(run), check=3).stderr
    cli("cancel", str(run))


def test_a_recipe_goes_on_with_other_ranks_and_says_that_it_is_not_exact(
    cli: Cli, eventually: Eventually
) -> None:
    words = (
        held_digits(cli),
        "epochs=30",
        "checkpoint.every=10steps",
        "--tasks-per-node",
        "2",
        "--cpus-per-task",
        "1",
    )
    run = detached(cli, eventually, *words)
    cli("cancel", "--save", str(run))
    found: dict[str, Any] = cli.json("resume", str(run), "--tasks-per-node", "1")
    assert (found["state"], found["attempts"]) == ("completed", 2)
    assert "not bit for bit: 2 ranks then, 1 now" in output_of(run)
    assert cli.json("show", str(run))["config"]["resources"]["tasks_per_node"] == 1


def test_a_loop_that_ends_with_85_is_stopped_by_cancel_with_save(
    cli: Cli, eventually: Eventually
) -> None:
    text = (
        COUNTS.replace("HELD", "1")
        .replace("MARK", "x")
        .replace("            break\n", LEAVES_WITH_85)
    )
    cli.script(text)
    run = detached(cli, eventually, "--", "python", "script.py")
    assert "cancelled" in cli("cancel", "--save", str(run)).stderr
    assert cli.json("show", str(run))["attempts"] == 1


LEAVES_WITH_85 = '            run.save(state, state["step"])\n            raise SystemExit(85)\n'


def test_arrays_are_saved_and_a_last_save_that_fails_is_no_success(cli: Cli) -> None:
    cli.script("""
        import numpy as np
        import rampup

        run = rampup.init(bad=0)
        state = run.resume() or {"w": np.zeros(3)}
        print("has", state["w"].tolist(), flush=True)
        run.save({"w": state["w"] + 1, "bad": object() if run.config.bad else 0}, run.step + 1)
        if run.step == 0:
            raise SystemExit(1)
    """)
    found = cli("run", "--json", "--", "python", "script.py", check=100)
    run = Path(json.loads(found.stdout)["dir"])
    cli("resume", str(run))
    assert "has [1.0, 1.0, 1.0]" in output_of(run)
    cli("run", "bad=1", "--", "python", "script.py", check=100)


@pytest.mark.parametrize("step", ["5.0", "-1", "None", "True", '"7"'])
def test_a_step_that_is_none_is_refused_when_it_is_saved(cli: Cli, step: str) -> None:
    cli.script(f"import rampup\nrampup.init().save({{'a': 1}}, {step})\n")
    done = cli("run", "--", "python", "script.py", check=100)
    assert "a step is a whole number" in done.stderr and "Traceback" not in done.stderr


def test_a_start_that_fails_leaves_the_run_as_it_was(cli: Cli, eventually: Eventually) -> None:
    run = detached(cli, eventually, "--", "python", script(cli, mark="old"))
    cli("cancel", "--save", str(run))
    script(cli, mark="new", held=0)
    before = {name: (run / name).read_bytes() for name in ("config.json", "code/script.py")}
    (run / "attempts").rename(run / "away")
    (run / "attempts").touch()  # no attempt can be claimed
    for _ in range(2):
        cli("resume", str(run), "--code", "current", "--detach", check=None)
    (run / "attempts").unlink()
    (run / "away").rename(run / "attempts")
    assert {name: (run / name).read_bytes() for name in before} == before
    cli("resume", str(run))
    assert "new" not in output_of(run)


def test_a_limit_of_steps_and_a_target_count_over_all_attempts(
    cli: Cli, eventually: Eventually
) -> None:
    words = (
        held_digits(cli),
        "epochs=100",
        "max_steps=500",
        "checkpoint.every=10steps",
        "--cpus-per-task",
        "1",
    )
    run = detached(cli, eventually, *words)
    cli("cancel", "--save", str(run))
    assert cli.json("resume", str(run))["metrics"]["step"] == 500
    done = cli.json("run", "digits", "epochs=10", "target=0.5", "--cpus-per-task", "1")
    facts = Path(done["dir"]) / "attempts" / "1" / "attempt.json"
    told = json.loads(facts.read_text())
    facts.write_text(
        json.dumps({key: value for key, value in told.items() if key not in ("outcome", "ended")})
    )
    assert cli.json("resume", done["id"])["metrics"]["step"] == done["metrics"]["step"], (
        "it was all done"
    )
