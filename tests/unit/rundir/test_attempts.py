"""Attempts as one story: how far each came, what was redone, what it cost; what `list` and the
history make of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from rampup.rundir.files import RunDir
from rampup.rundir.history import effective_ratio, read_attempts
from rampup.runs.summary import total_wall_s

T0 = 1_794_804_968.0
Rows = list[dict[str, Any]]


def write(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Made:
    """A run whose steps take a second each, after a start of ten."""

    def __init__(self, root: Path) -> None:
        self.run = RunDir(root / "20261116-045608-mnist-aaaaaa")
        self.run.path.mkdir(parents=True)
        write(self.run.run_file, [{"id": "aaaaaa", "name": "mnist", "created": T0}])

    def attempt(
        self, began: float, first: int, last: int, resumed: bool = True, **facts: Any
    ) -> None:
        """It goes on after step `first` and comes to `last`; its launcher says `facts` in the
        end."""
        attempt = self.run.claim_attempt()
        start = T0 + began + 10
        write(
            attempt.facts_file,
            [{"launcher": "spawn", "world_size": 2, "started": T0 + began, **facts}],
        )
        events: Rows = [{"what": "start", "t": start}]
        if attempt.number > 1 and resumed:
            events.append({"what": "resumed", "step": first, "exact": True, "t": start})
        write(attempt.events_file, events)
        rows = [
            {"step": step, "train_loss": 1.0, "t": start + step - first}
            for step in range(first + 1, last + 1)
        ]
        write(attempt.metrics_file, rows[: len(rows) // 10 * 10])  # they are flushed now and then
        write(attempt.progress_file, [{"step": last, "t": start + last - first}])

    def dead_start(self, began: float, **facts: Any) -> None:
        """Killed while it imported its libraries."""
        attempt = self.run.claim_attempt()
        write(attempt.facts_file, [{"launcher": "spawn", "started": T0 + began, **facts}])

    def told(self) -> list[tuple[int, int, int, float]]:
        return [
            (it.first_step, it.last_step, it.redone, it.lost_s) for it in read_attempts(self.run)
        ]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def ended(t: float, outcome: str, **more: Any) -> dict[str, Any]:
    return {"ended": T0 + t, "outcome": outcome, **more}


def test_one_attempt_loses_nothing(made: Made) -> None:
    made.attempt(0, 0, 90, **ended(100, "completed"))
    (only,) = found = read_attempts(made.run)
    assert (only.how, only.first_step, only.last_step, only.redone, only.exact) == (
        "completed",
        0,
        90,
        0,
        None,
    )
    assert (only.took_s, only.step_s) == (100, 1)
    assert effective_ratio(found) == 0.9, "ten of the hundred seconds went into starting"


def test_killed_between_two_checkpoints_and_resumed(made: Made) -> None:
    made.attempt(0, 0, 55, **ended(66, "failed", cause="rank 1 was killed"))
    made.attempt(100, 40, 100, **ended(170, "completed"))
    assert made.told() == [(0, 55, 15, 15), (40, 100, 0, 0)]
    found = read_attempts(made.run)
    assert [it.exact for it in found] == [None, True] and found[0].reason == "rank 1 was killed"
    assert effective_ratio(found) == 100 / 170, (
        "a hundred steps of a second, from the first start to the last end"
    )


@pytest.mark.parametrize(
    ("facts", "how", "reason"),
    [
        (ended(60, "again", why="timeout"), "again: timeout", "time limit"),
        (ended(60, "again", why="preempt"), "again: preempt", "preemption"),
        (ended(60, "again"), "again: asked", "it requested a restart"),
        (ended(60, "timeout"), "timeout", "time limit"),
        (ended(60, "failed"), "failed", "failed"),
        ({}, "killed or lost", "killed or lost"),
    ],
)
def test_requeued_after_the_step_that_it_had_saved(
    made: Made, facts: dict[str, Any], how: str, reason: str
) -> None:
    made.attempt(0, 0, 48, **facts)
    made.attempt(60, 50, 100, **ended(120, "completed"))
    first, second = read_attempts(made.run)
    assert (first.how, first.reason) == (how, reason)
    assert (first.last_step, first.redone) == (50, 0), "the heartbeat is older than the checkpoint"
    assert (second.first_step, second.last_step) == (50, 100)


def test_a_launcher_that_was_killed_says_no_end_but_the_last_word_is_known(made: Made) -> None:
    made.attempt(0, 0, 30)
    (only,) = found = read_attempts(made.run)
    assert (only.ended, only.took_s, effective_ratio(found)) == (None, 40, 0.75)
    assert total_wall_s(made.run) == 40


def test_an_attempt_that_died_while_starting_changes_nothing(made: Made) -> None:
    made.attempt(0, 0, 55, **ended(66, "failed"))
    before = made.run.history()
    made.dead_start(70, **ended(75, "failed"))
    made.dead_start(80)
    assert made.run.history() == before, "its rows are still the story"
    assert made.told() == [(0, 55, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)]
    made.attempt(100, 40, 90, **ended(160, "completed"))
    assert [it.trained for it in read_attempts(made.run)] == [True, False, False, True]
    assert made.told() == [(0, 55, 15, 15), (0, 0, 0, 0), (0, 0, 0, 0), (40, 90, 0, 0)]
    assert [row["step"] for row in made.run.history()] == list(range(1, 91))


def test_going_back_behind_an_attempt_undoes_all_of_it_and_more(made: Made) -> None:
    """The newest checkpoints were damaged."""
    made.attempt(0, 0, 50, **ended(60, "failed"))
    made.attempt(60, 45, 80, **ended(105, "failed"))
    made.attempt(110, 30, 100, **ended(190, "completed"))
    assert made.told() == [(0, 50, 20, 20), (45, 80, 35, 35), (30, 100, 0, 0)]
    done = sum(it.last_step - it.first_step for it in read_attempts(made.run))
    assert done - sum(it.redone for it in read_attempts(made.run)) == 100, (
        "what is left is each step once"
    )


def test_beginning_anew_does_all_again(made: Made) -> None:
    made.attempt(0, 0, 50, **ended(60, "failed"))
    made.attempt(60, 0, 100, resumed=False, **ended(170, "completed"))
    assert made.told() == [(0, 50, 50, 50), (0, 100, 0, 0)]
    assert effective_ratio(read_attempts(made.run)) == 100 / 170


def test_a_loop_of_ones_own_says_neither_when_it_starts_nor_whether_it_is_exact(made: Made) -> None:
    made.attempt(0, 0, 50, **ended(65, "failed"))
    made.attempt(70, 40, 60, **ended(100, "completed"))
    made.run.attempt(1).events_file.unlink()
    write(made.run.attempt(2).events_file, [{"what": "resumed", "step": 40, "t": T0 + 80}])
    first, second = read_attempts(made.run)
    assert (first.redone, second.exact) == (10, None)
    assert first.lost_s == pytest.approx(10, rel=0.03), "by its rows"


def test_torn_and_foreign_files_cost_what_was_in_them(made: Made) -> None:
    made.attempt(0, 0, 55, **ended(66, "failed"))
    made.attempt(100, 40, 100, **ended(170, "completed"))
    first, second = made.run.attempt(1), made.run.attempt(2)
    first.facts_file.write_text('{"started": 17')
    first.progress_file.write_text('{"step": 5')
    with open(first.metrics_file, "a") as file:
        file.write('{"step": NaN, "t": 1e999}\n{"step": "many"}\n{"step": 7')
    second.progress_file.write_text("[1]")
    found = read_attempts(made.run)
    assert [(it.how, it.first_step, it.last_step, it.redone) for it in found] == [
        ("killed or lost", 0, 50, 10),
        ("completed", 40, 100, 0),
    ]
    assert found[0].began > T0 and found[0].ended is None
    for path in made.run.path.rglob("*.json*"):
        path.write_bytes(b"\xff\x00[")
    assert made.told() == [(0, 0, 0, 0), (0, 0, 0, 0)]
    assert effective_ratio(read_attempts(made.run)) is None and total_wall_s(made.run) is None


def test_a_command_that_counts_no_steps_has_no_ratio(made: Made) -> None:
    made.dead_start(0, **ended(30, "again"))
    made.dead_start(30, **ended(60, "completed"))
    found = read_attempts(made.run)
    assert effective_ratio(found) is None and [it.took_s for it in found] == [30, 30]
    assert effective_ratio([]) is None


def test_list_tells_all_attempts(cli: Any) -> None:
    made = Made(cli.runs)
    made.attempt(0, 0, 55, **ended(66, "failed"))
    (row,) = cli.json("list")
    assert (row["state"], row["attempts"], row["wall_s"]) == ("failed", 1, 66)
    assert "attempt" not in cli("list").stdout, "nothing to say of the only one"
    made.attempt(100, 40, 100)
    made.dead_start(200, **ended(210, "failed"))
    (row,) = cli.json("list")
    assert (row["state"], row["attempts"], row["wall_s"]) == ("failed", 3, 66 + 70 + 10)
    assert row["metrics"]["step"] == 100, "of the last attempt that got to a step"
    shown = cli("list").stdout
    assert "failed, attempt 3" in shown and "2 min 26 s" in shown
    assert [it["id"] for it in cli.json("list", "--state", "failed")] == ["aaaaaa"]
