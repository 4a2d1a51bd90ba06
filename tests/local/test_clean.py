"""`clean` removes what is no longer needed, and nothing else: not beside an attempt that begins, not
what can't be read, not what is damaged, not what others have put there."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampup.core import processes
from rampup.errors import Refused
from rampup.rundir import checkpoints
from rampup.rundir.files import RunDir
from rampup.runs.checkpoints import clean
from rampup.runs.resume import resume_alone
from rampup.runtime.checkpoints.store import CheckpointStore

COUNTS = """
    import os
    import rampup

    run = rampup.init()
    state = run.resume() or {"step": 0}
    for step in range(state["step"] + 1, 8):
        run.log(step=step, loss=1.0)
        run.save({"step": step}, step)
        if step == 4 and os.environ["RAMPUP_ATTEMPT"] == "1":
            run.finish()
            raise SystemExit(1)
"""
"""It keeps the checkpoints of steps 3 and 4 and fails; the next attempt comes to step 7."""


@pytest.fixture
def run(cli) -> RunDir:
    """A run that ended after two attempts, with checkpoints 10, 20 (the best) and 30, and what
    killed attempts leave."""
    found = RunDir(cli.run_command("true")["dir"])
    store = CheckpointStore(found, 1)
    for step in (10, 20, 30):
        best = {"metric": "val_accuracy", "value": 0.9, "epoch": 2, "step": 20}
        meta = {"world_size": 2, "best": best if step > 10 else None}
        store.save(step, {"state.pt": os.urandom(2_000_000)}, meta)
    for attempt in (1, 2):
        half = found.checkpoints / f"step-40.tmp-{attempt}"
        half.mkdir()
        (half / "state.pt").write_bytes(bytes(1_000_000))
    shutil.copytree(found.attempt(1).path, found.attempt(2).path)
    return found


def damage(run: RunDir, *steps: int) -> None:
    for step in steps:
        with open(run.checkpoint(step) / "state.pt", "r+b") as file:
            byte = file.read(1)
            file.seek(0)
            file.write(bytes([byte[0] ^ 1]))


def names(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.checkpoints.iterdir())


def test_clean_keeps_the_newest_and_the_best(cli, run: RunDir) -> None:
    before = names(run)
    told = cli("clean", run.id, "--dry-run").stderr
    freed = "3.0 MB (step-10, step-40.tmp-1); kept step-30, step-20; left alone: step-40.tmp-2"
    assert f"{run.id}: would free {freed}" in told
    assert names(run) == before
    assert f"{run.id}: freed {freed}" in cli("clean", run.id).stderr
    assert names(run) == ["step-20", "step-30", "step-40.tmp-2"]
    (again,) = cli.json("clean", run.id)
    assert again["kept"] == ["step-30", "step-20"] and again["left"] == ["step-40.tmp-2"]
    assert (again["removed"], again["damaged"], again["freed_bytes"]) == ([], [], 0)


def test_clean_has_no_default_and_leaves_running_runs_alone(cli, eventually) -> None:
    assert "missing argument" in cli("clean", check=2).stderr
    cli("run", "--detach", "--", "sleep", "60")
    (run,) = cli.json("list")
    eventually(lambda: cli.json("list")[0]["state"] == "running")
    refused = cli("clean", run["id"], check=3)
    assert "is running: its checkpoints are left alone" in refused.stderr
    cli("cancel", run["id"])


# damaged ------------------------------------------------------------------------------------------


def test_what_is_damaged_is_set_aside_and_named(cli, run: RunDir) -> None:
    damage(run, 30)
    told = cli("clean", run.id).stderr
    assert "(step-10, step-40.tmp-1); kept step-20" in told
    assert f"{run.id}: step-30 is damaged; it was set aside as damaged-step-30" in told
    assert names(run) == ["damaged-step-30", "step-20", "step-40.tmp-2"]
    told = cli("clean", run.id).stderr
    assert "nothing to remove; kept step-20" in told
    assert "damaged: damaged-step-30; only --all removes what is damaged" in told
    assert "damaged-step-30" in cli("clean", run.id, "--all").stderr
    assert names(run) == []


def test_a_later_damaged_one_takes_the_place_of_the_one_before(cli, run: RunDir) -> None:
    shutil.copytree(run.checkpoint(10), run.checkpoints / "damaged-step-15")
    damage(run, 20, 30)
    (row,) = cli.json("clean", run.id)
    assert row["removed"] == ["damaged-step-15", "step-40.tmp-1"]
    assert row["damaged"] == ["damaged-step-30", "step-20"] and row["kept"] == ["step-10"]
    assert names(run) == ["damaged-step-30", "step-10", "step-20", "step-40.tmp-2"]
    (row,) = cli.json("clean", run.id)
    assert row["removed"] == [] and row["damaged"] == ["step-20", "damaged-step-30"]


def test_all_stay_when_none_is_sound(cli, run: RunDir) -> None:
    damage(run, 10, 20, 30)
    told = cli("clean", run.id).stderr
    assert "kept step-30, step-20, step-10" in told and "damaged: step-30, step-20" in told
    assert names(run) == ["step-10", "step-20", "step-30", "step-40.tmp-2"]
    assert "freed 7.0 MB" in cli("clean", run.id, "--all").stderr
    assert names(run) == []


# beside an attempt that begins ----------------------------------------------------------------------


def begin_attempt(run: RunDir, *steps: int) -> None:
    """Another attempt, as Slurm starts it after a requeue: without our lock."""
    run.attempt(3).path.mkdir()
    store = CheckpointStore(run, 3)
    for step in steps:
        store.save(step, {"state.pt": b"new"}, {"best": None})
    (run.checkpoints / "step-99.tmp-3").mkdir()


def before_call(monkeypatch: pytest.MonkeyPatch, name: str, do: Callable[[], None]) -> None:
    """Let something happen before the first call of a function of rundir/checkpoints.py."""
    original: Callable[..., Any] = getattr(checkpoints, name)
    once = [do]

    def call(*arguments: Any, **options: Any) -> Any:
        while once:
            once.pop()()
        return original(*arguments, **options)

    monkeypatch.setattr(checkpoints, name, call)


@pytest.mark.parametrize("step", [30, 31], ids=["the same step", "a newer step"])
@pytest.mark.parametrize(
    ("moment", "everything"),
    [
        *(("list_names", False), ("check_files", False), ("delete", False)),
        *(("list_names", True), ("delete", True)),
    ],
)
def test_an_attempt_that_begins_keeps_all_that_it_writes(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, moment: str, everything: bool, step: int
) -> None:
    before_call(monkeypatch, moment, lambda: begin_attempt(run, step))
    with pytest.raises(Refused, match=r"attempt 3 of run|is pending|is running"):
        clean(run, everything, dry_run=False)
    found = names(run)
    assert {"step-20", "step-30", f"step-{step}", "step-99.tmp-3"} <= set(found)
    assert checkpoints.verify_checkpoint(run, step).manifest["attempt"] == 3
    if moment != "delete":
        assert "step-10" in found


def test_a_checkpoint_that_was_replaced_meanwhile_stays(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace() -> None:
        run.checkpoint(10).rename(run.checkpoints / "step-10.old-1")
        shutil.copytree(run.checkpoints / "step-10.old-1", run.checkpoint(10))

    before_call(monkeypatch, "check_files", replace)
    with pytest.raises(Refused, match="step-10 was changed meanwhile by another process"):
        clean(run, everything=False, dry_run=False)
    assert "step-10" in names(run)


def test_nobody_can_resume_while_it_works(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def resume() -> None:
        with pytest.raises(Refused), resume_alone(run):
            pytest.fail("not alone")

    before_call(monkeypatch, "check_files", resume)
    assert [entry.name for entry in clean(run, False, False).removed] == [
        "step-10",
        "step-40.tmp-1",
    ]


# what can't be read ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def failing_open(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """The environment of a process for which opening a path fails, as on storage with a fault."""
    built = tmp_path_factory.mktemp("preload") / "failing_open.so"
    source = Path(__file__).parents[1] / "failing_open.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True)

    def environment(path: str, code: int, times: int | None = None) -> dict[str, str]:
        found = {"LD_PRELOAD": str(built), "FAIL_PATH": path, "FAIL_ERRNO": str(code)}
        return found if times is None else {**found, "FAIL_TIMES": str(times)}

    return environment


@pytest.mark.parametrize("file", ["manifest.json", "state.pt"])
def test_an_error_of_the_storage_is_not_damage(cli, run: RunDir, failing_open, file: str) -> None:
    before, path = names(run), f"step-30/{file}"
    refused = cli("clean", run.id, check=3, **failing_open(path, errno.EIO))
    assert f"step-30: {file}: Input/output error; nothing was removed" in refused.stderr
    assert "hint: try again" in refused.stderr
    assert names(run) == before
    shown = cli(
        *("show", run.id, "--checkpoints", "--verify"), check=1, **failing_open(path, errno.EIO)
    )
    assert f"unreadable: {file}: Input/output error" in shown.stdout


def test_an_error_that_goes_away_costs_a_moment(cli, run: RunDir, failing_open) -> None:
    told = cli("clean", run.id, **failing_open("step-30/state.pt", errno.ESTALE, times=1)).stderr
    assert "freed 3.0 MB (step-10, step-40.tmp-1); kept step-30, step-20" in told


def test_attempts_that_can_not_be_listed(cli, run: RunDir, failing_open) -> None:
    """A run without attempts would look the same, and clean would not see one that begins."""
    before = names(run)
    refused = cli("clean", run.id, check=None, **failing_open("/attempts", errno.EIO))
    assert refused.returncode != 0 and "Traceback" not in refused.stderr
    assert names(run) == before


@pytest.mark.parametrize("verb", ["clean", "resume"])
def test_records_that_can_not_be_read_are_not_taken_for_empty(cli, failing_open, verb: str) -> None:
    """The run is just being started again; without that record it looks as if it had ended."""
    run = RunDir(cli.run_command("false", check=100)["dir"])
    run.record("submitted", scheduler="local", after=1, **processes.identify(os.getpid()))
    assert "pending" in cli(verb, run.id, check=3).stderr
    refused = cli(verb, run.id, check=1, **failing_open("control.jsonl", errno.EIO))
    assert f"can't read {run.control_file}: Input/output error" in refused.stderr
    assert run.attempt_numbers() == [1]


def test_resume_does_not_pass_over_what_can_not_be_read(cli, failing_open) -> None:
    made = cli.run_command("python", cli.script(COUNTS), check=100)
    run = RunDir(made["dir"])
    assert names(run) == ["step-3", "step-4"]
    sick = failing_open("step-4/state.json", errno.EIO)
    failed = cli("resume", run.id, check=100, **sick)
    assert "step-4: state.json: Input/output error" in failed.stdout + failed.stderr
    assert f"rampup resume {run.id}; or continue from an older checkpoint: add --before 4" in (
        failed.stdout + failed.stderr
    )
    assert names(run) == ["step-3", "step-4"]
    refused = cli("resume", run.id, "--before", "3", check=3)
    assert f"run {run.id} has no checkpoint before step 3" in refused.stderr
    cli("resume", run.id, "--before", "4", **sick)
    assert names(run) == ["skipped-step-4", "step-6", "step-7"]
    steps = [row["step"] for row in cli.json("show", run.id, "--history")]
    assert steps == [1, 2, 3, 4, 5, 6, 7]
    shown = cli("show", run.id, "--checkpoints", "--verify").stdout
    assert shown.count("valid") == 2 and "skipped by resume --before" in shown
    assert "left alone: skipped-step-4" in cli("clean", run.id).stderr
    assert names(run) == ["skipped-step-4", "step-7"]


def test_what_was_skipped_comes_back_when_the_start_fails(cli) -> None:
    made = cli.run_command("python", cli.script(COUNTS), check=100)
    run = RunDir(made["dir"])
    (run.checkpoints / "skipped-step-3").mkdir()
    (run.checkpoints / "step-2").mkdir()
    refused = cli("resume", run.id, "--before", "3", check=3)
    assert "skipped-step-3 is there already" in refused.stderr
    assert names(run) == ["skipped-step-3", "step-2", "step-3", "step-4"]


# copies ---------------------------------------------------------------------------------------------


def test_the_only_copy_of_the_newest_step_is_kept(cli, run: RunDir) -> None:
    """As after a kill in the moment when a step is written a second time."""
    run.checkpoint(30).rename(run.checkpoints / "step-30.old-1")
    shutil.copytree(run.checkpoint(20), run.checkpoints / "step-20.old-1")
    (row,) = cli.json("clean", run.id)
    assert row["kept"] == ["step-30.old-1", "step-20"]
    assert row["removed"] == ["step-10", "step-20.old-1", "step-40.tmp-1"]
    assert names(run) == ["step-20", "step-30.old-1", "step-40.tmp-2"]
    shutil.copytree(run.attempt(2).path, run.attempt(3).path)
    store = CheckpointStore(run, 3)
    store.take_over()
    latest = store.latest()
    assert latest is not None and latest.name == "step-30"


# what others have put there ---------------------------------------------------------------------------


def test_only_our_names_are_removed(cli, run: RunDir, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("x")
    for name in ("trash-can", "my-step-1"):
        (run.checkpoints / name).mkdir()
    (run.checkpoints / "step-5").write_text("a plain file")
    (run.checkpoints / "step-6").symlink_to(precious)
    (run.checkpoints / "notes.txt").write_text("x")
    told = cli("clean", run.id, "--all").stderr
    assert "step-5, step-6" in told and "left alone: my-step-1, notes.txt, trash-can" in told
    assert names(run) == ["my-step-1", "notes.txt", "trash-can"]
    assert (precious / "thesis.tex").exists()


@pytest.mark.parametrize("options", [(), ("--all",)])
def test_a_link_to_something_else_is_not_followed(
    cli, run: RunDir, tmp_path: Path, options: tuple[str, ...]
) -> None:
    target = tmp_path / "somewhere"
    run.checkpoints.rename(target)
    (target / "thesis.tex").write_text("x")
    run.checkpoints.symlink_to(target)
    refused = cli("clean", run.id, *options, check=3)
    assert f"is a link to {target}, which is not only this run's" in refused.stderr
    assert "step-10" in names(run)
    (target / "thesis.tex").unlink()
    cli("clean", run.id, *options)
    assert "step-10" not in names(run) and run.checkpoints.is_symlink()


def test_a_link_to_another_run_is_not_followed(cli, run: RunDir) -> None:
    other = RunDir(cli.run_command("true")["dir"])
    other.checkpoints.symlink_to(run.checkpoints)
    assert "is a link to" in cli("clean", other.id, "--all", check=3).stderr
    assert "step-10" in names(run)
