"""Checkpoints are written beside the training; what goes wrong there is told, tried again once, and
then ends it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rampup.core.units import parse_interval
from rampup.errors import Superseded
from rampup.rundir.checkpoints import list_steps, verify_checkpoint
from rampup.rundir.files import RunDir
from rampup.runtime.checkpoints.cadence import Cadence
from rampup.runtime.checkpoints.saving import Cost, NoSaving, Saving, Snapshot
from rampup.runtime.checkpoints.store import CheckpointStore
from rampup.runtime.storage import StorageError
from rampup.runtime.telemetry.metrics import NoEvents


class Events(NoEvents):
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, what: str, **facts: Any) -> None:
        self.rows.append({"what": what, **facts})


class Scene:
    """A run with its writer, and a clock that stands still unless it is turned."""

    def __init__(self, folder: Path, every: str = "auto") -> None:
        self.run, self.events, self.now = RunDir(folder), Events(), 0.0
        self.run.attempt(1).path.mkdir(parents=True)
        self.before: Callable[[], None] = lambda: None
        self.cadence = Cadence(parse_interval(every), lambda: self.now)
        self.store = CheckpointStore(self.run, 1)
        self.saving = Saving(
            self.store,
            self.cadence,
            2,
            self.events,
            before_commit=lambda: self.before(),
            clock=lambda: self.now,
        )
        self.cadence.begin(10)

    def pass_time(self, seconds: float) -> bool:
        """Whether a checkpoint is due afterwards."""
        self.now += seconds
        return self.saving.wants_checkpoint()

    def save(self, step: int, best: int | None = None, last: bool = False) -> None:
        with self.saving.count_stall():
            self.saving.wait_until_ready()
        self.saving.write(snapshot(step), best, last)

    def hold(self, step: int) -> None:
        with self.saving.count_stall():
            self.saving.wait_until_ready(best=True)
        self.saving.hold_best(snapshot(step))

    def settle(self) -> list[int]:
        self.saving.end()
        return list_steps(self.run)

    def break_disk(self) -> None:
        def full() -> None:
            raise StorageError("can't write it: No space left on device", "df -h")

        self.before = full


def snapshot(step: int, content: Any = b"abc") -> Snapshot:
    return Snapshot(step, {"state": content}, {"world_size": 1})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_training_goes_on_while_it_is_written(scene: Scene) -> None:
    go_on = threading.Event()

    def slow(file: Any) -> None:
        assert go_on.wait(10)
        file.write(b"abc")

    assert not scene.pass_time(9.9) and scene.pass_time(0.2)
    scene.saving.wait_until_ready()
    scene.saving.write(snapshot(1, slow), None)
    assert not scene.pass_time(100), "nothing is due while one is being written"
    assert list_steps(scene.run) == [] and scene.saving.saved is None
    go_on.set()
    assert scene.settle() == [1] and scene.saving.saved == 1
    assert scene.pass_time(100)
    assert scene.saving.cost.count == 1 and scene.saving.cost.write_s > 0


def test_a_wish_stays_until_it_is_fulfilled(scene: Scene) -> None:
    assert scene.pass_time(11) and scene.pass_time(0.0) and scene.pass_time(0.001)
    scene.save(1)
    assert not scene.pass_time(0.001)


def test_the_next_one_waits_for_the_one_before(scene: Scene) -> None:
    order = []
    scene.before = lambda: order.append(threading.current_thread().name)
    for step in range(1, 6):
        scene.save(step)
    assert scene.settle() == [5, 4] and len(order) == 5


def test_the_last_one_is_waited_for(scene: Scene) -> None:
    scene.save(7, last=True)
    assert list_steps(scene.run) == [7]


def test_keeps_the_newest_and_the_best(scene: Scene) -> None:
    for step in (1, 2, 3, 4):
        scene.save(step, best=2)
    assert scene.settle() == [4, 3, 2]


# the best -----------------------------------------------------------------------------------------


def test_the_best_waits_until_it_can_be_afforded(scene: Scene) -> None:
    scene.hold(5)
    scene.pass_time(5)
    assert scene.settle() == [], "nobody knows yet what it costs"
    scene.save(8, best=5)
    assert scene.settle() == [8, 5]
    scene.hold(9)
    scene.cadence.record_cost(1.0)
    scene.pass_time(1)
    assert scene.settle() == [8, 5]
    scene.pass_time(1000)
    assert scene.settle() == [9, 8]


def test_the_best_is_written_before_the_next_one(scene: Scene) -> None:
    written: list[int] = []
    save = scene.store.save
    scene.store.save = lambda step, files, meta: (written.append(step), save(step, files, meta))[1]  # type: ignore[method-assign]
    scene.hold(5)
    scene.hold(6)
    scene.save(8, best=6)
    assert scene.settle() == [8, 6] and written == [6, 8]


def test_a_best_that_is_the_newest_is_written_once(scene: Scene) -> None:
    scene.hold(5)
    scene.save(8, best=8)
    scene.save(9, best=8)
    assert scene.settle() == [9, 8] and scene.saving.cost.count == 2


def test_the_memory_of_the_best_is_not_changed_while_it_is_read(scene: Scene) -> None:
    going, go_on = threading.Event(), threading.Event()

    def slow(file: Any) -> None:
        going.set()
        assert go_on.wait(10)
        file.write(b"abc")

    scene.saving.hold_best(snapshot(5, slow))
    scene.saving.write(snapshot(8), 5)
    assert going.wait(10)
    threading.Timer(0.2, go_on.set).start()
    scene.saving.wait_until_ready(best=True)
    assert go_on.is_set()


# failures -----------------------------------------------------------------------------------------


def test_one_failure_is_told_and_tried_again(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.save(1)
    scene.settle()
    scene.break_disk()
    scene.save(2)
    assert scene.settle() == [1] and verify_checkpoint(scene.run, 1)
    assert (
        capsys.readouterr().out.count(
            "error: the checkpoint of step 2 was not saved: can't write it: No space"
        )
        == 1
    )
    assert [(row["what"], row["step"]) for row in scene.events.rows] == [("save_failed", 2)]
    assert not scene.pass_time(5) and scene.pass_time(5.1), "the next chance comes soon"
    scene.before = lambda: None
    scene.save(3)
    assert scene.settle() == [3, 1]
    scene.break_disk()
    scene.save(4)
    assert scene.settle() == [3, 1]
    scene.pass_time(1)  # the second failure, but not in a row


def test_two_failures_in_a_row_end_the_run(scene: Scene) -> None:
    scene.break_disk()
    scene.save(1)
    scene.settle()
    scene.save(2)
    scene.settle()
    with pytest.raises(StorageError, match="No space left"):
        scene.pass_time(1)


def test_a_best_that_could_not_be_written_is_not_forgotten(scene: Scene) -> None:
    scene.hold(5)
    scene.break_disk()
    scene.save(8, best=5)
    assert scene.settle() == []
    scene.before = lambda: None
    scene.save(9, best=5)
    assert scene.settle() == [9, 5]


def test_a_best_that_failed_by_itself_is_not_tried_again_at_once(scene: Scene) -> None:
    scene.save(1)
    scene.settle()
    scene.hold(5)
    scene.break_disk()
    scene.pass_time(1000)
    assert scene.settle() == [1] and len(scene.events.rows) == 1
    scene.pass_time(5)
    assert scene.settle() == [1] and len(scene.events.rows) == 1
    scene.before = lambda: None
    assert scene.pass_time(6)
    scene.save(8, best=5)
    assert scene.settle() == [8, 5]


def test_a_failure_of_the_last_one_ends_the_run(scene: Scene) -> None:
    scene.break_disk()
    with pytest.raises(StorageError, match="No space left"):
        scene.save(1, last=True)


def test_a_mistake_in_the_state_ends_the_run_at_once(scene: Scene) -> None:
    def fails(file: Any) -> None:
        raise ValueError("can't pickle it")

    scene.saving.write(snapshot(1, fails), None)
    scene.settle()
    with pytest.raises(ValueError, match="pickle"):
        scene.pass_time(1)


def test_a_ghost_is_told_so(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.run.attempt(2).path.mkdir()
    scene.save(1)
    assert scene.settle() == []
    with pytest.raises(Superseded):
        scene.pass_time(1)
    assert capsys.readouterr().out == "" and scene.events.rows == []


# small things -------------------------------------------------------------------------------------


def test_the_cost_counts_the_stall(scene: Scene) -> None:
    with scene.saving.count_stall():
        scene.now += 3.0
    assert scene.saving.cost.stall_s == 3.0
    assert Cost(2, 3.0, 1.0).summarize(400.0) == {
        "count": 2,
        "stall_s": 3.0,
        "write_s": 1.0,
        "share": 0.01,
    }


def test_never_and_other_ranks_write_nothing(tmp_path: Path) -> None:
    never = Scene(tmp_path, "never")
    assert never.saving.never and not never.pass_time(1e6)
    other = NoSaving(Cadence(parse_interval("3steps")))
    other.cadence.begin(10)
    assert not other.wants_checkpoint() and other.cadence.due_at(3)
