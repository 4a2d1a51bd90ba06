"""A batch that is larger than the data is noted."""

import pytest

from rampup.engines.parts import note_large_batch


def test_a_batch_larger_than_the_data(capfd: pytest.CaptureFixture[str]) -> None:
    note_large_batch(55_000, 55_000)
    assert capfd.readouterr().out == ""
    note_large_batch(1_000_000, 55_000)
    said = capfd.readouterr().out
    assert said.startswith("note: batch_size=1,000,000 is larger than the data (55,000 samples)")
