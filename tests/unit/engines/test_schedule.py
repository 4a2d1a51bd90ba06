"""The learning rate of a step."""

import pytest

from rampup.core.engines.torch import TORCH
from rampup.core.settings import Settings
from rampup.engines.schedule import Schedule, build_schedule, read_drops
from rampup.errors import RampupError


def test_constant() -> None:
    assert [Schedule("constant", 10).factor(step) for step in (0, 5, 9)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", ["constant", "cosine", "linear", "step"])
def test_warmup_reaches_the_base_rate_exactly_at_its_end(kind: str) -> None:
    schedule = Schedule(kind, steps=100, warmup_steps=10, decay_steps=50)
    rising = [schedule.factor(step) for step in range(10)]
    assert rising == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert rising[-1] == 1.0
    assert schedule.factor(10) == 1.0


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_it_falls_towards_zero(kind: str) -> None:
    schedule = Schedule(kind, steps=100, warmup_steps=20)
    factors = [schedule.factor(step) for step in range(20, 100)]
    assert factors == sorted(factors, reverse=True)
    assert schedule.factor(60) == pytest.approx(0.5)
    assert 0 < factors[-1] < 0.02
    assert schedule.factor(100) == pytest.approx(0.0)


def test_step_drops_by_the_factor() -> None:
    schedule = Schedule("step", steps=90, decay_steps=30, decay_factor=0.5)
    assert [schedule.factor(step) for step in (0, 29, 30, 59, 60)] == [1.0, 1.0, 0.5, 0.5, 0.25]


def test_a_warmup_longer_than_the_run() -> None:
    assert Schedule("cosine", steps=5, warmup_steps=10).factor(4) == 0.5


@pytest.mark.parametrize(("warmup", "rise"), [(0, 25), (10, 10)])
def test_one_cycle_rises_to_the_full_rate_and_falls_to_nothing(warmup: int, rise: int) -> None:
    schedule = Schedule("onecycle", steps=100, warmup_steps=warmup)
    factors = [schedule.factor(step) for step in range(100)]
    assert factors[:rise] == pytest.approx([(step + 1) / rise for step in range(rise)])
    assert max(factors) == 1.0 == factors[rise - 1]
    assert factors[rise:] == sorted(factors[rise:], reverse=True)
    assert 0 < factors[-1] < 0.02 and schedule.factor(100) == schedule.factor(200) == 0.0


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_one_cycle_of_a_few_steps(steps: int) -> None:
    assert all(0 < Schedule("onecycle", steps=steps).factor(step) <= 1 for step in range(steps))


@pytest.mark.parametrize("kind", ["multistep", "cosine", "constant"])
def test_a_warmup_to_a_multiple_rises_from_the_base_rate(kind: str) -> None:
    schedule = Schedule(
        kind, steps=100, warmup_steps=4, warmup_factor=3.0, milestones=(10,), cosine_steps=50
    )
    assert [schedule.factor(step) for step in range(4)] == pytest.approx([1.5, 2.0, 2.5, 3.0])
    assert schedule.factor(4) == pytest.approx(3.0)


def test_milestones_count_from_the_end_of_the_warmup() -> None:
    schedule = Schedule("multistep", 100, warmup_steps=5, milestones=(20, 10), decay_factor=0.5)
    factors = [schedule.factor(step) for step in (4, 5, 14, 15, 24, 25, 99)]
    assert factors == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_cosine_falls_to_the_lowest_rate_and_stays() -> None:
    schedule = Schedule("cosine", 100, warmup_steps=10, cosine_steps=40, lowest=0.2)
    assert [schedule.factor(step) for step in (10, 30, 50, 51, 99)] == pytest.approx(
        [1.0, 0.6, 0.2, 0.2, 0.2]
    )


def rates_of_epochs(schedule: Schedule, epochs: int) -> list[float]:
    """Return the factor of each epoch, which must hold for all of its steps."""
    found = []
    for epoch in range(epochs):
        first, last = epoch * schedule.steps_per_epoch, (epoch + 1) * schedule.steps_per_epoch - 1
        assert schedule.factor(first) == schedule.factor(last)
        found.append(schedule.factor(first))
    return found


def test_warmup_by_epochs_rises_from_the_base_rate_to_the_peak() -> None:
    schedule = Schedule("epochs", 0, scale=16.0, steps_per_epoch=7, warmup_epochs=4)
    assert rates_of_epochs(schedule, 6) == [1.0, 4.75, 8.5, 12.25, 16.0, 16.0]


def test_a_drop_holds_as_soon_as_its_epochs_are_complete() -> None:
    """CosmoFlow's reference drops one epoch late: after 33 epochs where it says 32."""
    schedule = Schedule("epochs", 0, scale=2.0, steps_per_epoch=3, drops=((64, 0.125), (32, 0.25)))
    rates = rates_of_epochs(schedule, 66)
    assert rates[31:33] == [2.0, 0.5]
    assert rates[63:65] == [0.5, 0.25]


@pytest.mark.parametrize("kind", ["constant", "cosine", "step"])
def test_every_schedule_can_be_scaled(kind: str) -> None:
    plain, scaled = (Schedule(kind, 40, warmup_steps=5, scale=scale) for scale in (1.0, 4.0))
    for step in range(40):
        assert scaled.factor(step) == pytest.approx(4 * plain.factor(step))


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("linear", 16.0), ("sqrt", 4.0)])
def test_the_rate_grows_with_the_global_batch(scaling: str, factor: float) -> None:
    given = {
        **{name: setting.default for name, setting in TORCH.items()},
        "lr_scaling": scaling,
        "batch_size": 1024,
        "base_batch_size": 64,
    }
    assert build_schedule(Settings(given), 10).scale == factor


@pytest.mark.parametrize("drops", [[32], [[32]], [[32, "x"]], [[-1, 0.5]], ["32"]])
def test_drops_that_are_not_pairs_are_refused(drops: list[object]) -> None:
    with pytest.raises(RampupError, match="not an epoch and a factor"):
        read_drops(drops)


def test_steps_by_samples_drop_where_so_many_were_trained_on() -> None:
    """A batch is not the unit: 103 samples in batches of 16 are seven steps, the last of seven."""
    defaults = {name: setting.default for name, setting in TORCH.items()}
    given = {"schedule": "step", "decay_samples": 150, "decay_factor": 0.5, "lr": 1e-3}
    settings = Settings(defaults | given | {"batch_size": 16, "epochs": 9, "min_lr": 2e-4})
    schedule = build_schedule(settings, 7, samples=103)
    seen = [epoch * 103 + step * 16 for epoch in range(9) for step in range(7)]
    expected = [max(0.2, 0.5 ** (samples // 150)) for samples in seen]
    assert [schedule.factor(step) for step in range(63)] == pytest.approx(expected)
    assert expected[9] == 1.0 and expected[10] == 0.5
