"""When checkpoints are due, by a clock that the test turns."""

from itertools import pairwise

import pytest

from rampup.core.spec import Every
from rampup.core.units import parse_interval
from rampup.errors import Refused
from rampup.runtime.checkpoints.cadence import LONGEST_S, SHORTEST_S, Cadence


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def train(
    cadence: Cadence, clock: Clock, seconds: float, cost_s: float, step_s: float = 0.1
) -> list[float]:
    """The moments at which one is saved, in a loop of equal steps."""
    cadence.begin(100)
    began, moments = clock.now, []
    while clock.now - began < seconds:
        clock.now += step_s
        if cadence.due_now():
            moments.append(clock.now - began)
            cadence.record_taken()
            clock.now += cost_s
            cadence.record_written(cost_s)
    return moments


@pytest.mark.parametrize("cost_s", [0.001, 0.05, 0.2, 2.0, 5.0])
def test_auto_costs_at_most_one_percent(clock: Clock, cost_s: float) -> None:
    moments = train(Cadence(Every("auto"), clock), clock, 20_000, cost_s)
    assert moments[0] == pytest.approx(SHORTEST_S, abs=0.2), "the first one tells what it costs"
    for count, moment in enumerate(moments[1:], start=2):
        assert count * cost_s <= 0.0101 * moment, f"{count} of them until {moment}"
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert min(gaps) >= SHORTEST_S - 0.2
    assert max(gaps[2:]) == pytest.approx(max(SHORTEST_S, 100 * cost_s), rel=0.02), (
        "and not less often than it may"
    )


def test_auto_never_waits_longer_than_half_an_hour(clock: Clock) -> None:
    moments = train(Cadence(Every("auto"), clock), clock, 20_000, 100.0, step_s=1.0)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert max(gaps) <= LONGEST_S + 101


def test_auto_tries_again_soon_after_a_failure(clock: Clock) -> None:
    cadence = Cadence(Every("auto"), clock)
    cadence.begin(100)
    clock.now += 10
    assert cadence.due_now()
    cadence.record_taken()
    cadence.record_failed(5.0)
    clock.now += 9
    assert not cadence.due_now()
    clock.now += 1
    assert cadence.due_now(), "although five seconds are more than one percent"
    cadence.record_taken()
    cadence.record_written(5.0)
    clock.now += 100
    assert not cadence.due_now()


def test_by_time(clock: Clock) -> None:
    moments = train(Cadence(parse_interval("2min"), clock), clock, 1000, cost_s=50.0, step_s=1.0)
    assert moments[:3] == [120, 240, 360], "whatever it costs"


@pytest.mark.parametrize(
    ("text", "due"), [("7steps", [7, 14, 21]), ("1epoch", [10, 20]), ("2epochs", [20])]
)
def test_by_steps(clock: Clock, text: str, due: list[int]) -> None:
    cadence = Cadence(parse_interval(text), clock)
    cadence.begin(steps_per_epoch=10)
    assert [step for step in range(1, 25) if cadence.due_at(step)] == due
    clock.now += 1e6
    assert not cadence.due_now()


def test_never(clock: Clock) -> None:
    cadence = Cadence(parse_interval("never"), clock)
    assert cadence.never and train(cadence, clock, 5000, 0.1) == []
    assert not any(cadence.due_at(step) for step in range(1, 200))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("auto", Every("auto")),
        ("never", Every("never")),
        ("100steps", Every("steps", 100)),
        ("1step", Every("steps", 1)),
        ("3 epochs", Every("epochs", 3)),
        ("30s", Every("seconds", 30)),
        ("15min", Every("seconds", 900)),
        ("2h", Every("seconds", 7200)),
    ],
)
def test_how_it_is_written(text: str, found: Every) -> None:
    assert parse_interval(text) == found


@pytest.mark.parametrize(
    "text", ["100", "0steps", "-1steps", "1.5h", "often", "15 minutes", "", "1day", "auto "]
)
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(Refused, match=r"checkpoint\.every") as caught:
        parse_interval(text)
    assert "100steps" in caught.value.hint or "never" in caught.value.hint
