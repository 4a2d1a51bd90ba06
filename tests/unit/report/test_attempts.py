"""The report of a run that took several attempts: one story, with a mark at each restart."""

import re
from pathlib import Path

import pytest

from rampup.report import charts
from rampup.report.data import advice_facts
from rampup.report.read import read_run
from unit.report.report_pages import T0, Page, interrupted, make, report, resumed, use_short_bundle


@pytest.fixture(autouse=True)
def short_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    use_short_bundle(monkeypatch)


def test_a_resumed_run_is_one_story(tmp_path: Path) -> None:
    page = report(interrupted(tmp_path))
    train = page.data["charts"][0]["series"][0]
    assert (train["xs"], train["ys"]) == ([10, 20, 30, 90], [1, 0.5, 9, 9])
    cpu = next(chart for chart in page.data["charts"] if "minutes" in str(chart["spec"]))
    assert cpu["series"][0]["ys"] == [90, 90, 90, 90, 90, None, 50, None, 50]


def marks_of(page: Page, which: str) -> list[tuple[float, str, str]]:
    chart = next(chart for chart in page.data["charts"] if which in str(chart["spec"].get("layer")))
    return [
        (mark["x"], mark["label"], mark["words"]) for mark in page.data["marks"][chart["marks"]]
    ]


def test_restarts_are_marked_in_every_chart(tmp_path: Path) -> None:
    page = report(interrupted(tmp_path))
    words = [
        "attempt 2 from step 20, after: rank 0 was killed",
        "attempt 3 from step 30, after: time limit",
    ]
    for which in ("'loss'", "samples/s"):
        assert marks_of(page, which) == [(20, "2", words[0]), (30, "3", words[1])]
    assert marks_of(page, "minutes") == [(400 / 60, "2", words[0]), (500 / 60, "3", words[1])]
    assert "its number is above it" in page.words
    once = report(make(tmp_path, "bbbbbb"))
    assert "dashed line" not in once.words and once.data["marks"] == [[]]
    assert "marks" not in str(once.data["charts"][0]["spec"])


def test_the_section_on_attempts(tmp_path: Path) -> None:
    page = report(interrupted(tmp_path))
    table = page.source[
        page.source.index("<h2>Attempts</h2>") : page.source.index("<h2>Where the time went")
    ]
    cells = re.findall(r"<td>(.*?)</td>", table)
    assert cells[:7] == ["1", "0", "40", "20", "1 min 40 s", "failed: rank 0 was killed", ""]
    assert cells[7:14] == ["2", "20", "30", "0", "20.0 s", "again: timeout", ""]
    assert cells[15:20] == ["30", "90", "0", "1 min 40 s", "completed"]
    # steps of 2 s (80 s for 40), 20 of them in vain; 10 and 90 s in the others; of 600 s
    assert (
        "20 steps were redone, 40.0 s of work. Effective training time: 23%, the share of the time"
        in table
    )
    assert "3 min 40 s" in page.words, "all three, without the time between them"
    only = report(make(tmp_path, "bbbbbb"))
    assert "Attempts" not in only.words and "ffective" not in only.words


def test_phases_are_those_of_all_attempts(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    assert read_run(run).phases == {"start": 30, "compute": 60, "wall": 220, "not measured": 100}
    line = "start 14% · compute 27% · not measured 45% of 3 min 40 s over 3 attempts, as measured by rank 0; for"
    assert line in report(run).words
    assert advice_facts(read_run(run)).phases["start"] == 10, (
        "nobody is to blame for starting three times"
    )
    assert not [words for words in read_run(run).missing if "phases" in words], (
        "the last attempt has written its own"
    )


def test_several_runs_with_attempts(tmp_path: Path) -> None:
    runs = [
        interrupted(tmp_path, "aaaaaa", train={"lr": 1}),
        make(tmp_path, "bbbbbb", train={"lr": 2}),
    ]
    page = report(*runs)
    assert "3 min 40 s in 3 attempts" in page.words and page.words.count("Attempts") == 1
    assert "attempt of the run of that colour" in page.words
    assert {mark["run"] for marks in page.data["marks"] for mark in marks} == {"lr=1"}


def test_marks_stand_only_where_the_run_has_a_line(tmp_path: Path) -> None:
    other = make(tmp_path, "bbbbbb", [{"step": 1, "reward": 3.0, "t": T0}], train={"lr": 2})
    page = report(interrupted(tmp_path, "aaaaaa", train={"lr": 1}), other)
    assert marks_of(page, "'loss'") and marks_of(page, "'reward'") == []


def test_marks_share_a_place_and_their_numbers_never_touch(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    for number, step in enumerate((90, 90, 90, 91, 3000), 4):
        resumed(run, number, 1000 + number, step, 5000)
    run.attempt(9).path.mkdir()  # it was killed at once
    data = read_run(run)
    found = charts.step_marks([data], ["it"])
    assert [(mark.x, mark.label) for mark in found] == [
        (20, "2"),
        (30, ""),
        (90, ""),
        (91, ""),
        (3000, "8"),
    ]
    assert found[2].words.count("; attempt ") == 2
    resumed(run, 10, 2000, 3000, 5000)
    assert charts.step_marks([read_run(run)], ["it"])[-1].label == "8-10"
    assert "attempt 9 (it reached no step), after: " not in str(found), "there is no step to mark"
    assert len(charts.time_marks([data], ["it"])) == 7


def test_many_attempts_stay_few_marks(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    for number in range(4, 400):
        resumed(run, number, 100.0 * number, number, number + 1)
    marks = charts.step_marks([read_run(run)], ["it"])
    assert len(marks) == charts.MOST_MARKS and marks[-1].x == 399


def test_the_dashed_line_is_explained_where_there_is_one(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.attempt(2).path.mkdir()  # it never trained
    assert "A dashed line" not in report(run).words
    assert "A dashed line" in report(interrupted(tmp_path, "bbbbbb")).words
