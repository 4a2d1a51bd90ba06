"""The time of a run is measured where it is spent; what nobody claims is `other`."""

import time

import pytest

from rampup.runtime.telemetry.progress import PHASES, Phases


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_every_stretch_is_counted_once() -> None:
    clock = Clock()
    phases = Phases(time.time() - 2.0, clock)
    for phase, seconds in (("start", 1.0), ("data", 0.25), ("compute", 0.5), ("data", 0.25)):
        clock.now += seconds
        phases.mark(phase)
    clock.now += 0.125
    phases.skip()
    clock.now += 0.5
    phases.mark("compute")
    found = phases.summary()
    assert found["start"] == pytest.approx(3.0, abs=0.01), (
        "the attempt began two seconds before this process"
    )
    assert (found["data"], found["compute"], found["saving"]) == (0.5, 1.0, 0.0)
    assert found["other"] == pytest.approx(0.125)
    assert found["wall"] == pytest.approx(
        sum(found[phase] for phase in (*PHASES, "other")), abs=1e-3
    )
