"""docs/job-script.md tells the truth: the list is whole, what it quotes is there, and the tests
that it names exist."""

import re
from functools import cache
from pathlib import Path

import pytest

from unit.job_scripts import CASES, render

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "job-script.md").read_text()
ROW = re.compile(
    r"^\| (?P<number>F?\d+) \| (?P<rule>.+) \| (?P<where>.+) \| (?P<tests>.+) \|$", re.MULTILINE
)
QUOTE = re.compile(r"(?P<file>[\w/]+\.(?:py|sh)) `(?P<code>[^`]+)`")
ROWS = [
    {key: text.replace("\\|", "|") for key, text in row.groupdict().items()}
    for row in ROW.finditer(TEXT)
]


@cache
def names_of_tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    return found


@cache
def sources(file: str) -> list[str]:
    """The scripts that are rendered, or a file of the package."""
    if file == "job.sh":
        return [render(spec) for spec in CASES.values()]
    return [(ROOT / "rampup" / file).read_text()]


def test_every_rule_and_every_fault_is_listed_once() -> None:
    assert [row["number"] for row in ROWS] == [
        *map(str, range(1, 34)),
        *(f"F{number}" for number in range(1, 13)),
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["number"])
def test_a_row_is_true(row: dict[str, str]) -> None:
    quotes, named = list(QUOTE.finditer(row["where"])), re.findall(r"`(test_\w+)`", row["tests"])
    for quote in quotes:
        assert any(quote["code"] in text for text in sources(quote["file"])), quote[0]
    assert [name for name in named if name not in names_of_tests()] == []
    if quotes:
        assert named, "what is done has a test"
    else:
        assert row["where"].startswith(("Not yet:", "Not needed:")), "what is not done has a reason"


def test_the_script_that_is_shown_is_a_real_one() -> None:
    script = render(CASES["gpus-per-node"])
    blocks = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
    places = [script.find(block) for block in blocks]
    assert len(blocks) >= 8 and -1 not in places
    assert places == sorted(places)
