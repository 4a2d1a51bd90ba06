"""`rampup drill` on this machine: kill -9 at any moment, other faults, and what it says of a run
that is not sound."""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from pages import ROOT

from rampup.sandbox.leftovers import all_pids, read_command, read_environment

HEAVY = {"torch": ROOT / "benchmarks" / "heavy", "keras": ROOT / "benchmarks" / "heavy_keras"}
KILLS = {("torch", 1): 7, ("torch", 2): 5, ("torch", 3): 3, ("keras", 1): 3, ("keras", 2): 2}
"""For each engine, with so many ranks."""
IN_SAVE = {"torch": 0.2, "keras": 0.1}
"""The share of the time in which a checkpoint is being written, at least; TensorFlow takes longer
to start."""
LOOP = """
    import os, random, time
    import rampup

    run = rampup.init(steps=45)
    state = run.resume() or {"total": 0.0}
    for step in range(run.step + 1, run.config.steps + 1):
        time.sleep(0.05)
        state["total"] += random.Random(step).random() TOUCH
        run.log(step=step, total=state["total"])
        run.save(state, step)
        if run.should_stop:
            break
    run.finish()
"""


def drill(cli: Cli, *words: str, command: tuple[str, ...] = (), check: int = 0) -> dict[str, Any]:
    done = cli(
        "drill", *words, "--json", *(("--", *command) if command else ()), check=check, timeout=300
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def loop(cli: Cli, touch: str = "") -> tuple[str, str]:
    return "python", cli.script(LOOP.replace("TOUCH", touch))


def still_running(cli: Cli) -> list[list[str]]:
    folder = str(cli.runs)
    commands = {pid: read_command(pid) for pid in all_pids()}
    ours = {
        pid
        for pid in commands
        if read_environment(pid).get("RAMPUP_RUN_DIR", "").startswith(folder)
    }
    return [
        words
        for pid, words in commands.items()
        if pid in ours or any(word.startswith(folder) for word in words)
    ]


@pytest.mark.parametrize(("engine", "world"), KILLS)
def test_kill_9_at_any_moment_loses_nothing(cli: Cli, engine: str, world: int) -> None:
    """From the start of the first process to the end, a good part of it in the middle of a save."""
    if engine == "keras" and find_spec("tf_keras") is None:
        pytest.skip("the keras engine needs tensorflow and tf_keras: pip install 'rampup[keras]'")
    names = ("rank-killed", "ranks-killed", "launcher-killed")
    kills = [word for name in names for word in ("--fault", name)]
    steps = 10 + 3 * world + (5 if engine == "keras" else 0)  # more ranks take longer to start
    words = (
        str(HEAVY[engine]),
        f"steps={steps}",
        "checkpoint.every=1steps",
        "--tasks-per-node",
        str(world),
        *kills,
    )
    found = drill(cli, *words, "--kills", str(KILLS[engine, world]), "--seed", str(world))
    trials = found["trials"]
    assert Counter(trial["fault"] for trial in trials) == Counter(
        (names * 3)[: KILLS[engine, world]]
    ), "in turn"
    assert found["in_save"] >= IN_SAVE[engine]
    for trial in trials:
        assert (trial["survived"], trial["equal"], trial["why"]) == (True, True, "")
        assert trial["helped"] >= 1, "it was interrupted"
        # a launcher may be killed before it has begun an attempt
        assert trial["attempts"] >= 2 or trial["fault"] == "launcher-killed", trial
        # one interval, and the step that is computed while its checkpoint is being written
        assert trial["redone"] <= 2, trial
    assert still_running(cli) == []
    assert list((cli.runs / "drills").iterdir()) == [], "what survived is removed"


def test_all_other_faults_on_a_loop_of_ones_own(cli: Cli) -> None:
    command = loop(cli)
    names = ["stop-and-resume", "cancel-and-resume", "time-limit", "torn-checkpoint"]
    names += ["full-disk"] if os.geteuid() == 0 else []
    words = [word for name in names for word in ("--fault", name)]
    found = drill(cli, *words, "--fault", "ghost", command=command)
    assert [trial["fault"] for trial in found["trials"]] == names, found["impossible"]
    for trial in found["trials"]:
        assert (trial["equal"], trial["attempts"], trial["helped"]) == (True, 2, 1), trial
    assert found["trials"][3]["redone"] >= 1, "the damaged checkpoint was not used"
    assert list(found["impossible"]) == ["ghost"] and "--on sandbox" in found["impossible"]["ghost"]
    assert "small-disk" not in Path("/proc/mounts").read_text()


def test_a_run_that_is_not_repeatable_is_told_and_kept(cli: Cli) -> None:
    command = loop(cli, touch='+ int(os.environ["RAMPUP_ATTEMPT"])')
    done = cli("drill", "--fault", "ranks-killed", "--", *command, check=1)
    row = next(line for line in done.stdout.splitlines() if line.startswith("ranks-killed"))
    assert "survived" in row and row.endswith("NO")
    kept = done.stderr.partition("the runs are kept in ")[2].split()[0]
    assert len(list(Path(kept).glob("*/run.json"))) == 2, (
        "the undisturbed run and the one that differs"
    )
    assert not cli("list", "--json").stdout.strip("[]\n"), "runs of drills are not the user's runs"


def test_a_run_that_fails_without_any_fault(cli: Cli) -> None:
    done = cli("drill", "--fault", "rank-killed", "--", "false", check=1)
    assert "without any fault the run is failed: rank 0 exited with code 1" in done.stderr


def test_what_only_the_run_itself_can_tell(cli: Cli) -> None:
    short = cli.script(
        "import rampup; run = rampup.init(); run.should_stop; run.log(step=1, loss=0.5)"
    )
    faults = ("--fault", "stop-and-resume", "--fault", "torn-checkpoint")
    impossible = drill(cli, *faults, command=("python", short))["impossible"]
    assert "too short" in impossible["stop-and-resume"]
    deaf = cli.script("import time, rampup; rampup.init().log(step=1, loss=0.5); time.sleep(3)")
    assert (
        "should_stop"
        in drill(cli, *faults[:2], command=("python", deaf))["impossible"]["stop-and-resume"]
    )
    assert "no checkpoints" in impossible["torn-checkpoint"]
    assert (
        "rampup.init()" in drill(cli, *faults, command=("true",))["impossible"]["torn-checkpoint"]
    )


def test_ctrl_c_leaves_nothing_running(cli: Cli, eventually: Callable[..., None]) -> None:
    command = loop(cli)
    process = cli.start("drill", "--fault", "ranks-killed", "--", *command)
    eventually(lambda: list(cli.runs.glob("drills/*/*/attempts/1/metrics.jsonl")), what="it trains")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=45)
    assert process.returncode == 130
    assert still_running(cli) == []


def test_a_dry_run_lists_the_faults(cli: Cli) -> None:
    listed = {row["fault"]: row["why_not"] for row in cli.json("drill", "digits", "--dry-run")}
    assert listed["rank-killed"] == "" and "--on sandbox" in listed["preempted"]
    assert not cli.runs.exists()


def test_an_unknown_fault_is_refused(cli: Cli) -> None:
    done = cli("drill", "digits", "--fault", "rank-kiled", check=3)
    assert "did you mean rank-killed?" in done.stderr
