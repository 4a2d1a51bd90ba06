import pytest

from rampup.core.units import parse_time_limit_s
from rampup.errors import Refused


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("2-00", 172800),
        ("1-02:03", 93780),
        ("1-02:03:04", 93784),
    ],
)
def test_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert parse_time_limit_s(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-1", "1.5", "0", "1-", "UNLIMITED"])
def test_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_time_limit_s(text)
