"""A time limit may be written as people say it: 1h, 90m, 30min, 1h30m."""

import pytest

from rampup.core.units import parse_time_limit_s
from rampup.errors import Refused


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h", 3600),
        ("90m", 5400),
        ("30min", 1800),
        ("1h30m", 5400),
        ("1h 30min", 5400),
        ("2d", 172_800),
        ("45s", 45),
    ],
)
def test_a_span(text: str, seconds: int) -> None:
    assert parse_time_limit_s(text) == seconds


def test_slurm_forms_mean_the_same_as_before() -> None:
    found = [parse_time_limit_s(text) for text in ("10", "10:00", "1:30:00", "1-0", "1-02:03:04")]
    assert found == [600, 600, 5400, 86_400, 93_784]


@pytest.mark.parametrize("text", ["", "h", "0h", "0", "1x", "m30h1", "1h30"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_time_limit_s(text)


def test_a_hint_lists_the_forms() -> None:
    with pytest.raises(Refused) as refused:
        parse_time_limit_s("soon")
    assert "1h30m" in refused.value.hint and "MM:SS" in refused.value.hint
