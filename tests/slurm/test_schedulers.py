"""Every scheduler keeps the same promises, by the same verbs: those of the package, and one that
exists only in tests/doors/directory_queue.py and is found by its entry point."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DOORS = Path(__file__).parents[1] / "doors"
sys.path.insert(0, str(DOORS))

from directory_queue import start_worker  # noqa: E402

LOOP = """
import time, rampup
run = rampup.init(n=400)
state = run.resume() or {"x": 0}
for step in range(run.step + 1, run.config.n + 1):
    time.sleep(0.05)
    run.log(step=step, loss=1.0 / step)
    if run.should_stop:
        run.save(state, step)
        break
"""


def install_plugins(folder: Path, **groups: str) -> None:
    """What pip would leave of a package that brings these entry points."""
    about = folder / "doors-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: doors\nVersion: 1.0\n")
    points = [f"[rampup.{group}]\n{value}\n" for group, value in groups.items()]
    (about / "entry_points.txt").write_text("\n".join(points))


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("queue") / "place"
    worker = start_worker(place)
    yield place
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


@pytest.fixture(params=["local", "directory", "slurm"])
def place(
    request: pytest.FixtureRequest, cli: Any, sandbox: Any, queue: Path, tmp_path: Path
) -> tuple[str, ...]:
    """The options that send a run to the scheduler."""
    if request.param == "slurm":
        return ("--on", sandbox.name)
    if request.param == "local":
        return ("--on", "local", "--detach")
    install_plugins(tmp_path / "plugins", schedulers="directory = directory_queue:SCHEDULER")
    profile = cli.cwd / ".rampup" / "clusters" / "queue.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text('scheduler = "directory"\nlauncher = "spawn"\n')
    cli.env["PYTHONPATH"] = f"{tmp_path / 'plugins'}:{DOORS}"
    cli.env["QUEUE_PLACE"] = str(queue)
    return ("--on", "queue")


def start(cli: Any, place: tuple[str, ...], *words: str, command: tuple[str, ...]) -> str:
    done = cli("run", *place, *words, "--json", "--", *command)
    return str(json.loads(done.stdout.splitlines()[-1])["id"])


def test_a_run_completes(cli: Any, place: tuple[str, ...]) -> None:
    run = start(cli, place, "--tasks-per-node", "2", command=("echo", "done"))
    assert cli.json("wait", run)["state"] == "completed"
    shown = cli.json("show", run)
    assert (shown["attempts"], shown["cause"]) == (1, None)
    assert cli("logs", run).stdout.count("done") == 1


def test_a_failure_has_a_cause(cli: Any, place: tuple[str, ...]) -> None:
    run = start(cli, place, command=(sys.executable, "-c", "raise SystemExit(3)"))
    cli("wait", run, check=100)
    shown = cli.json("show", run)
    assert (shown["state"], "code 3" in shown["cause"]) == ("failed", True)
    assert [row["state"] for row in cli.json("list")] == ["failed"]


def test_a_run_is_cancelled_and_resumed(
    cli: Any, place: tuple[str, ...], eventually: Callable[..., None]
) -> None:
    run = start(cli, place, command=(sys.executable, cli.script(LOOP)))
    eventually(lambda: cli.json("show", run)["metrics"].get("step"), what="it trains")
    assert cli.json("show", run)["state"] == "running"
    refused = cli("resume", run, check=3)
    assert "running" in refused.stderr
    cli("cancel", run)
    cli("wait", run, check=103)
    (directory,) = cli.runs.glob(f"*-{run}")
    script = next(directory.glob("code/**/script.py"))
    script.write_text(script.read_text().replace("n=400", "n=1"))
    cli("resume", run, *(("--detach",) if "--detach" in place else ()))
    assert cli.json("wait", run)["state"] == "completed"
    assert cli.json("show", run)["attempts"] == 2


def test_a_plan_shows_what_would_be_started(cli: Any, place: tuple[str, ...]) -> None:
    options = [word for word in place if word != "--detach"]
    plan = json.loads(cli("run", *options, "--dry-run", "--json", "--", "echo", "done").stdout)
    assert (plan["script"] is None) == (plan["launcher"] is not None)
    assert not cli.runs.exists()


def test_a_launcher_that_does_not_fit_is_refused(cli: Any, place: tuple[str, ...]) -> None:
    options = [word for word in place if word != "--detach"]
    refused = cli("run", *options, "--launcher", "nosuch", "--", "echo", check=3)
    assert "can't start ranks with launcher 'nosuch'" in refused.stderr


def test_a_launcher_of_another_package_starts_the_ranks(cli: Any, tmp_path: Path) -> None:
    install_plugins(
        tmp_path / "plugins",
        launchers="odd = odd_launcher:LAUNCHER",
        schedulers="here = odd_launcher:SCHEDULER",
    )
    profile = cli.cwd / ".rampup" / "clusters" / "odd.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text('scheduler = "here"\nlauncher = "odd"\n')
    cli.env["PYTHONPATH"] = f"{tmp_path / 'plugins'}:{DOORS}"
    words = ("run", "--on", "odd", "--tasks-per-node", "2", "--json", "--")
    done = json.loads(cli(*words, "sh", "-c", "echo rank $RANK $ODD").stdout.splitlines()[-1])
    assert done["state"] == "completed"
    attempt = json.loads(Path(done["dir"], "attempts/1/attempt.json").read_text())
    assert (attempt["scheduler"], attempt["launcher"]) == ("here", "odd")
    assert cli("logs", done["id"]).stdout.split() == ["rank", "0", "1"]
    assert cli("logs", done["id"], "--rank", "1").stdout.split() == ["rank", "1", "1"]
