"""`rampup report`: what the page holds, for runs in any condition, and that nothing of a run can act in a browser."""

import json
import os
import re
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rampup.diagnose.advice import Undefined
from rampup.errors import Refused, UsageError
from rampup.report import build, bundle, charts, restarts, sections
from rampup.report.collect import collect, plain_lines
from rampup.report.facts import facts_of
from rampup.rundir import RunDir

T0 = 1_794_804_968.0
CONFIG: dict[str, Any] = {
    "kind": "engine",
    "train": {"epochs": 4, "batch_size": 100, "lr": 0.001, "monitor": "val_loss"},
    "resources": {"nodes": 1, "tasks_per_node": 1, "mem": None},
    "cluster": {"name": "local", "scheduler": "local"},
    "origins": {"train.lr": "command line", "train.epochs": "recipe.toml"},
}
PHASES = {"start": 5.0, "data": 62.0, "compute": 30.0, "communication": 1.0, "saving": 1.0, "other": 1.0, "wall": 100.0}


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def epochs(count: int = 4) -> list[dict[str, Any]]:
    rows = []
    for epoch in range(1, count + 1):
        measured = {"train_loss": 1 / epoch, "val_loss": 1.1 / epoch, "val_accuracy": 1 - 0.5 / epoch, "samples_s": 5e3}
        rows.append({"step": 10 * epoch, "epoch": epoch, **measured, "lr": 0.001, "t": T0 + epoch})
    return rows


def make(root: Path, run_id: str = "aaaaaa", rows: list[dict[str, Any]] | None = None, **changes: Any) -> RunDir:
    """A run as the launcher and rank 0 leave it."""
    run = RunDir(root / f"20261116-045608-mnist-{run_id}")
    attempt = run.attempt(1)
    attempt.path.mkdir(parents=True)
    facts = {"launcher": "spawn", "world_size": 1, "started": T0, "ended": T0 + 100, "exit_code": 0} | {
        "outcome": "completed"
    }
    run.run_file.write_text(json.dumps({"id": run_id, "name": changes.get("name", "mnist"), "created": T0}))
    config = {**CONFIG, "train": {**CONFIG["train"], **changes.get("train", {})}}
    run.config_file.write_text(json.dumps(config))
    run.env_file.write_text(json.dumps({"python": "3.11.7", "cpus": 2, "packages": {"torch": "2.13"}, "variables": {}}))
    attempt.facts_file.write_text(json.dumps(facts | changes.get("facts", {})))
    attempt.metrics_file.write_text(lines(epochs() if rows is None else rows))
    start = {"what": "start", "threads": 2, "device": "cpu", "t": T0}
    attempt.events_file.write_text(lines([start, {"what": "end", "phases": PHASES, "t": T0 + 100}]))
    sample = {"cpu_percent": 90.0, "mem_used_mb": 1000, "mem_total_mb": 24_000, "rss_mb": 500, "cpu_s": 1.0}
    attempt.system_file("vm").write_text(lines([{"t": T0 + 10 * i, **sample} for i in range(5)]))
    attempt.rank_log(0).write_text(changes.get("log", "epoch=4/4 the end\n"))
    return run


REAL_BUNDLE = bundle.script_bundle


@pytest.fixture(autouse=True)
def short_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the real bundle takes seconds: one test does it."""
    monkeypatch.setattr(bundle, "script_bundle", lambda: "/* bundle */")


class Page(HTMLParser):
    """The page as a browser reads it: its elements, its text, and the data of its charts."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.words = ""
        self.scripts: list[str] = []
        self.source = file.read_text(encoding="utf-8")
        self.feed(self.source)
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.words += data

    def titles(self) -> list[str]:
        return re.findall(r"<h3>(.*?)</h3>", self.source)


def report(*runs: RunDir) -> Page:
    out = runs[0].path.parent / "out.html"
    build.write_report(runs, out)
    return Page(out)


def test_one_run_is_told_whole(tmp_path: Path) -> None:
    page = report(make(tmp_path))
    assert page.titles()[:3] == ["loss", "accuracy", "samples per second"]
    for words in ("completed", "1 min 40 s", "best val_loss at epoch 4", "0.275", "command line", "torch", "the end"):
        assert words in page.words, words
    assert "62% of the time went into data loading" in page.words and "batch_size=200" in page.words
    assert "Missing" not in page.words
    loss = page.data["charts"][0]["series"]
    assert [(line["kind"], line["xs"]) for line in loss] == [("train", [10, 20, 30, 40]), ("val", [10, 20, 30, 40])]


def test_several_runs_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    runs = [
        make(tmp_path, f"aaaaa{letter}", train={"lr": lr}) for letter, lr in zip("abc", (0.1, 0.2, 0.2), strict=True)
    ]
    page = report(*runs)
    labels = ["lr=0.1", "lr=0.2 (aaaaab)", "lr=0.2 (aaaaac)"]
    assert page.data["runs"] == labels
    assert [line["run"] for line in page.data["charts"][0]["series"]] == [label for label in labels for _ in "tv"]
    cpu = next(
        chart for chart in page.data["charts"] if "busy" in str(chart["spec"]) or "minutes" in str(chart["spec"])
    )
    assert {line["run"] for line in cpu["series"]} == set(labels)


def test_a_failed_run_shows_its_cause_its_traceback_and_the_log_of_its_rank(tmp_path: Path) -> None:
    cause = "rank 1: ValueError: shapes do not match"
    run = make(tmp_path, facts={"outcome": "failed", "exit_code": 1, "cause": cause, "failed_rank": 1})
    attempt = run.attempt(1)
    attempt.rank_log(1).write_text("from rank one\n")
    attempt.error_file(1).write_text(json.dumps({"rank": 1, "traceback": "Traceback: line 7", "t": T0}))
    attempt.events_file.unlink()
    page = report(run)
    for words in ("failed", cause, "Traceback: line 7", "from rank one", "The phases were not measured"):
        assert words in page.words, words


def test_a_run_without_metrics(tmp_path: Path) -> None:
    page = report(make(tmp_path, rows=[]))
    assert "No metrics were written" in page.words and "metrics.jsonl: missing or empty" in page.words


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>'\"&\u2028\x00]]>%body%"


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    rows = [*epochs(), {"step": 50, HOSTILE: 3, "t": T0}, {"step": 51, "word": HOSTILE, "t": T0}]
    facts = {"outcome": "failed", "cause": HOSTILE}
    run = make(tmp_path, rows=rows, name=HOSTILE, train={HOSTILE: HOSTILE, "lr": 1}, facts=facts, log=HOSTILE)
    other = make(tmp_path, "bbbbbb", train={HOSTILE: "x"})
    run.env_file.write_text(json.dumps({HOSTILE: HOSTILE, "variables": {HOSTILE: HOSTILE}, "packages": {HOSTILE: 1}}))
    run.attempt(1).error_file(0).write_text(json.dumps({"rank": 0, "traceback": HOSTILE}))
    run.attempt(1).system_file("a<img>").write_text(lines([{"t": T0, "cpu_percent": 1}]))
    resumed(run, 2, 400, 20, 30, ended=T0 + 420, outcome="failed", cause=HOSTILE)
    for page in (report(run), report(run, other)):
        assert page.tags.count("script") == 3 and "img" not in page.tags and "onerror" not in page.attributes
        assert "<script>alert" in page.words and "\x00" not in page.source
        assert page.source.count("</script") == 3


def test_torn_missing_and_foreign_files_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.run_file.write_text("[1, 2")
    run.env_file.unlink()
    with open(run.attempt(1).metrics_file, "ab") as file:
        file.write(b'\xff\xfe nonsense\n{"step": 9')
    page = report(run)
    assert "run.json: torn or foreign" in page.words and "env.json: missing" in page.words
    assert "attempts/1/metrics.jsonl: 2 lines are torn" in page.words
    assert len(page.data["charts"][0]["series"][0]["xs"]) == 4


def test_a_wreck_is_still_reported(tmp_path: Path) -> None:
    run = make(tmp_path)
    attempt = run.attempt(1)
    run.config_file.write_text('{"train": [1], "resources": "x", "origins": 7, "cluster": null, "command": 3}')
    attempt.facts_file.write_text('{"outcome": {"a": 1}, "started": "x", "ended": "y", "world_size": "two"}')
    attempt.metrics_file.write_text('{"step":"a","loss":1}\n{"step":NaN,"loss":NaN}\n{"step":1e999,"loss":1e308}\n7\n')
    attempt.events_file.write_text('{"what": ["end"]}\n{"what": "end", "phases": [1]}\n')
    attempt.system_file("vm").write_text(
        '{"t":"now"}\n{"t":1,"cpu_percent":"x","gpus":[1,{"gpu":null,"util_percent":5}]}'
    )
    page = report(run)
    for words in (
        "config.json: train, resources, origins, cluster, command: foreign and left out",
        "attempts/1/attempt.json: outcome, started, ended, world_size: foreign and left out",
        "attempts/1/events.jsonl: phases, what: foreign and left out",
        "attempts/1/metrics.jsonl: 1 line is torn or foreign and left out",
    ):
        assert words in page.words, words


def test_a_directory_without_anything(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "20261116-045608-lost-aaaaaa")
    run.path.mkdir()
    page = report(run)
    assert "run.json: missing" in page.words and "the run has not started" in page.words


def resumed(run: RunDir, number: int, began: float, step: int, last: int, **facts: Any) -> None:
    """One more attempt, which goes on after `step`: a start of ten seconds, then a second for each step."""
    again = run.attempt(number)
    again.path.mkdir()
    t = T0 + began + 10
    again.facts_file.write_text(json.dumps({"launcher": "spawn", "world_size": 1, "started": T0 + began, **facts}))
    again.events_file.write_text(lines([{"what": "start", "t": t}, {"what": "resumed", "step": step, "t": t}]))
    row = {"step": last, "train_loss": 9.0, "samples_s": 1.0, "t": t + last - step}
    again.metrics_file.write_text(lines([row]))
    again.system_file("vm").write_text(lines([{"t": T0 + began + 5, "cpu_percent": 50.0}]))


def interrupted(root: Path, run_id: str = "aaaaaa", **changes: Any) -> RunDir:
    """Killed after step 40, back to 20, then a time limit; the third attempt completes it."""
    killed = {"outcome": "failed", "cause": "rank 0 was killed", "exit_code": 137}
    run = make(root, run_id, facts=killed, **changes)
    run.attempt(1).events_file.write_text(lines([{"what": "start", "t": T0 + 10}]))
    run.attempt(1).progress_file.write_text(json.dumps({"step": 40, "t": T0 + 90}))
    resumed(run, 2, 400, 20, 30, ended=T0 + 420, outcome="again", why="timeout")
    resumed(run, 3, 500, 30, 90, ended=T0 + 600, outcome="completed")
    phases = {"start": 10.0, "compute": 60.0, "wall": 100.0}
    with open(run.attempt(3).events_file, "a") as file:
        file.write(lines([{"what": "end", "phases": phases, "t": T0 + 600}]))
    return run


def test_a_resumed_run_is_one_story(tmp_path: Path) -> None:
    page = report(interrupted(tmp_path))
    train = page.data["charts"][0]["series"][0]
    assert (train["xs"], train["ys"]) == ([10, 20, 30, 90], [1, 0.5, 9, 9])
    cpu = next(chart for chart in page.data["charts"] if "minutes" in str(chart["spec"]))
    assert cpu["series"][0]["ys"] == [90, 90, 90, 90, 90, None, 50, None, 50]


def marks_of(page: Page, which: str) -> list[tuple[float, str, str]]:
    chart = next(chart for chart in page.data["charts"] if which in str(chart["spec"].get("layer")))
    return [(mark["x"], mark["label"], mark["words"]) for mark in page.data["marks"][chart["marks"]]]


def test_restarts_are_marked_in_every_chart(tmp_path: Path) -> None:
    page = report(interrupted(tmp_path))
    words = [
        "attempt 2 from step 20, after: rank 0 was killed",
        "attempt 3 from step 30, after: time limit",
    ]
    for which in ("'loss'", "samples/s"):
        assert marks_of(page, which) == [(20, "2", words[0]), (30, "3", words[1])]
    assert marks_of(page, "minutes") == [(400 / 60, "2", words[0]), (500 / 60, "3", words[1])]
    assert "its number stands above" in page.words
    once = report(make(tmp_path, "bbbbbb"))
    assert "dashed line" not in once.words and once.data["marks"] == [[]]
    assert "marks" not in str(once.data["charts"][0]["spec"])


def test_the_section_on_attempts(tmp_path: Path) -> None:
    page = report(interrupted(tmp_path))
    table = page.source[page.source.index("<h2>Attempts</h2>") : page.source.index("<h2>Where the time went")]
    cells = re.findall(r"<td>(.*?)</td>", table)
    assert cells[:7] == ["1", "0", "40", "20", "1 min 40 s", "failed: rank 0 was killed", ""]
    assert cells[7:14] == ["2", "20", "30", "0", "20.0 s", "again: timeout", ""]
    assert cells[15:20] == ["30", "90", "0", "1 min 40 s", "completed"]
    # steps of 2 s (80 s for 40), 20 of them in vain; 10 and 90 s in the others; of 600 s
    assert "20 steps were redone, 40.0 s of work. Effective training time: 23%, the part of all time" in table
    assert "3 min 40 s" in page.words, "all three, without the time between them"
    only = report(make(tmp_path, "bbbbbb"))
    assert "Attempts" not in only.words and "ffective" not in only.words


def test_phases_are_those_of_all_attempts(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    assert collect(run).phases == {"start": 30, "compute": 60, "wall": 220, "not measured": 100}
    line = "start 14% · compute 27% · not measured 45% of 3 min 40 s over 3 attempts, as rank 0 measured it; where"
    assert line in report(run).words
    assert facts_of(collect(run)).phases["start"] == 10, "nobody is to blame for starting three times"
    assert not [words for words in collect(run).missing if "phases" in words], "the last attempt has written its own"


def test_several_runs_with_attempts(tmp_path: Path) -> None:
    runs = [interrupted(tmp_path, "aaaaaa", train={"lr": 1}), make(tmp_path, "bbbbbb", train={"lr": 2})]
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
    story = collect(run)
    found = restarts.step_marks([story], ["it"])
    assert [(mark.x, mark.label) for mark in found] == [(20, "2"), (30, ""), (90, ""), (91, ""), (3000, "8")]
    assert found[2].words.count("; attempt ") == 2
    resumed(run, 10, 2000, 3000, 5000)
    assert restarts.step_marks([collect(run)], ["it"])[-1].label == "8-10"
    assert "attempt 9 (it did not get to a step), after: " not in str(found), "there is no step to mark"
    assert len(restarts.time_marks([story], ["it"])) == 7


def test_many_attempts_stay_few_marks(tmp_path: Path) -> None:
    run = interrupted(tmp_path)
    for number in range(4, 400):
        resumed(run, number, 100.0 * number, number, number + 1)
    marks = restarts.step_marks([collect(run)], ["it"])
    assert len(marks) == restarts.MOST_MARKS and marks[-1].x == 399


def test_a_value_that_is_no_number_is_noted(tmp_path: Path) -> None:
    story = collect(make(tmp_path, rows=[*epochs(), {"step": 45, "train_loss": None, "t": T0}]))
    assert story.undefined == {"train_loss": Undefined(45, since=45, rows=1, of=5)}
    assert next(note.remedy for note in story.notes) == "lr=0.0001"


def series_of(page: Page, y_title: str) -> list[dict[str, Any]]:
    found = [chart["series"] for chart in page.data["charts"] if f"'title': '{y_title}'" in str(chart["spec"])]
    return found[0]  # type: ignore[no-any-return]


def test_one_value_that_is_no_number_interrupts_the_line_and_is_no_divergence(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": None if step == 150 else 1.0 / step, "t": T0} for step in range(1, 301)]
    page = report(make(tmp_path, rows=rows))
    (loss,) = series_of(page, "loss")
    assert loss["ys"][149] is None and loss["ys"].count(None) == 1 and len(loss["ys"]) == 300
    assert "loss is no finite number at step 150 (1 of 300 rows)" in page.words and "diverged" not in page.words
    assert "Look at the data of that step." in page.words and "<code>look" not in page.source.lower()
    for row in rows[199:]:
        row["loss"] = None
    page = report(make(tmp_path, "bbbbbb", rows=rows))
    assert "loss is no finite number from step 200 on: the training diverged. Try lr=0.0001" in page.words
    assert "<code>lr=0.0001</code>" in page.source


def test_a_loss_that_is_never_a_number_is_no_chart(tmp_path: Path) -> None:
    page = report(make(tmp_path, rows=[{"step": step, "loss": None, "acc": step, "t": T0} for step in range(9)]))
    assert "loss" not in page.titles() and "acc" in page.titles() and "from step 0 on" in page.words


def test_lines_of_a_thousand_gaps_stay_small(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": None if step % 2 else 1.0, "t": T0} for step in range(20_000)]
    (loss,) = series_of(report(make(tmp_path, rows=rows)), "loss")
    assert len(loss["xs"]) < 3000 and None in loss["ys"]


def test_a_bare_name_beside_the_same_with_train_is_a_line_of_its_own(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 5.0, "train_loss": 1.0, "val_loss": 2.0, "t": T0} for step in range(9)]
    both = make(tmp_path, rows=rows, train={"lr": 1})
    page = report(both)
    found = {line["kind"]: line["ys"][0] for line in series_of(page, "loss")}
    assert found == {"no prefix": 5, "train": 1, "val": 2}
    spec = str(page.data["charts"][0]["spec"])
    assert "['train', 'val', 'no prefix']" in spec, "the legend names it"
    bare = make(tmp_path, "bbbbbb", [{"step": 1, "loss": 3.0, "t": T0}], train={"lr": 2})
    kinds = [(line["run"], line["kind"]) for line in series_of(report(both, bare), "loss")]
    assert len(kinds) == len(set(kinds)) == 4 and ("lr=2", "no prefix") in kinds
    assert series_of(report(bare), "loss")[0]["kind"] == "train"


def test_twelve_runs_of_many_rows_stay_small_and_keep_their_spikes(tmp_path: Path) -> None:
    rows = [{"step": step, "train_loss": 1 / step, "val_loss": 2 / step, "t": T0} for step in range(1, 5001)]
    rows[3210]["train_loss"] = 77.0
    runs = [make(tmp_path, f"aaaaa{letter}", rows, log="x" * 9999 + "\n") for letter in "abcdefghjkmn"]
    page = report(*runs)
    assert len(page.source) + 900_000 < 2_000_000
    assert sum(len(line["xs"]) for chart in page.data["charts"] for line in chart["series"]) <= 30_000
    loss = page.data["charts"][0]["series"]
    assert len(loss) == 24 and all((77 in line["ys"]) == (line["kind"] == "train") for line in loss)


def test_a_hundred_thousand_rows_take_about_a_second(tmp_path: Path) -> None:
    """A tenth of what the benchmarks measure."""
    rows = [{"step": step, "train_loss": 1.0, "lr": 0.1, "t": T0 + step} for step in range(100_000)]
    run = make(tmp_path, rows=rows)
    began = time.process_time()
    page = report(run)
    assert time.process_time() - began < 3
    assert len(page.data["charts"][0]["series"][0]["xs"]) <= 2000


def test_too_many_metrics_are_named_not_drawn(tmp_path: Path) -> None:
    page = report(make(tmp_path, rows=[{"step": 1, "t": T0, **{f"m{n}": n for n in range(30)}}]))
    assert "Not drawn" in page.words and "m29" in page.words


def test_labels_name_what_somebody_typed_first(tmp_path: Path) -> None:
    stories = [collect(make(tmp_path, f"aaaaa{n}", train={"epochs": n, "lr": n / 10})) for n in (1, 2)]
    assert sections.labels_of(stories) == ["lr=0.1 epochs=1", "lr=0.2 epochs=2"]
    lost = make(tmp_path, "bbbbbb")
    lost.config_file.unlink()
    assert sections.labels_of([*stories, collect(lost)]) == ["lr=0.1 epochs=1", "lr=0.2 epochs=2", "mnist"]


def test_labels_tell_apart_runs_of_one_name(tmp_path: Path) -> None:
    """Other recipes have other settings; those say nothing about these."""
    stories = [collect(make(tmp_path, f"aaaaa{n}", name="digits", train={"epochs": n})) for n in (4, 5, 6)]
    none = {f"a{n}": None for n in range(5)}
    stories += [collect(make(tmp_path, f"bbbbb{n}", name="poly", train={"degree": n, **none})) for n in (2, 3)]
    stories.append(collect(make(tmp_path, "cccccc", name="alone", train={"lr": 7})))
    labels = sections.labels_of(stories)
    assert labels == [*(f"digits epochs={n}" for n in (4, 5, 6)), "poly degree=2", "poly degree=3", "alone"]


def test_labels_prefer_settings_that_tell_apart(tmp_path: Path) -> None:
    same = {"a": 1, "b": 1, "c": 1, "width": 1}
    runs = [same, {**same, "a": 2, "b": 2, "c": 2, "width": 2}, {**same, "a": 2, "b": 2, "c": 2, "width": 3}]
    stories = [collect(make(tmp_path, f"aaaaa{n}", train=train)) for n, train in enumerate(runs)]
    assert sections.labels_of(stories) == ["a=1 b=1 width=1", "a=2 b=2 width=2", "a=2 b=2 width=3"]


def test_a_setting_of_none_is_in_no_label(tmp_path: Path) -> None:
    stories = [collect(make(tmp_path, f"aaaaa{n}", train={"clip": clip})) for n, clip in ((1, None), (2, 0.5))]
    assert sections.labels_of(stories) == ["mnist", "clip=0.5"]


def test_fifty_runs_have_fifty_colours(tmp_path: Path) -> None:
    assert len({charts.colour_of(index) for index in range(build.MOST_RUNS)}) == build.MOST_RUNS
    assert [charts.colour_of(index) for index in range(12)] == list(charts.COLOURS)
    page = report(*(make(tmp_path, f"aaaa{n}", train={"lr": n}) for n in range(10, 24)))
    assert len(set(re.findall("background:(#......)", page.source))) == 14 and "shades of the first" in page.words
    assert page.source.count(charts.colour_of(13)) > 1, "in the legend and in the charts"


def test_settings_of_checkpoints_are_shown_with_their_origin(tmp_path: Path) -> None:
    runs = [make(tmp_path, f"aaaaa{every}") for every in (1, 2)]
    for run, every in zip(runs, ("10min", "20min"), strict=True):
        origins = CONFIG["origins"] | {"checkpoint.every": "the command line"}
        run.config_file.write_text(
            json.dumps({**CONFIG, "checkpoint": {"every": every, "keep": 2}, "origins": origins})
        )
    words = report(runs[0]).source
    assert "<td>every</td><td>10min</td><td>the command line</td>" in words and "<td>keep</td><td>2</td>" in words
    assert report(*runs).data["runs"] == ["checkpoint.every=10min", "checkpoint.every=20min"]


def test_tables_in_values_are_written_out(tmp_path: Path) -> None:
    run = make(tmp_path, rows=[*epochs(), {"step": 50, "train_loss": {"a": 1}, "t": T0}])
    run.env_file.write_text(json.dumps({"code": {"commit": "", "branch": "main", "dirty": True}, "argv": ["a", 1]}))
    page = report(run)
    assert "branch=main, dirty=True" in page.words and "a, 1" in page.words
    assert "{'" not in page.words and "last train_loss" not in page.words
    assert "last val_loss" in page.words


def test_a_loop_of_ones_own_has_no_phases(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.config_file.write_text(json.dumps({**CONFIG, "kind": "command"}))
    run.attempt(1).events_file.write_text("")
    page = report(run)
    assert "The phases of a loop of one's own are not measured." in page.words
    assert "rank 0 writes them" not in page.words


def test_a_cancelled_run_says_who_cancelled(tmp_path: Path) -> None:
    run = make(tmp_path, facts={"outcome": "cancelled", "exit_code": 143, "cause": "stopped by SIGTERM"})
    run.control_file.write_text(lines([{"t": T0 + 50, "what": "cancelled", "by": "rampup cancel"}]))
    page = report(run)
    assert "it was cancelled by rampup cancel" in page.words and "SIGTERM" not in page.words


def test_logs_are_shown_as_a_terminal_would() -> None:
    assert plain_lines(["\x1b[31mred\x1b[0m", "10%\r50%\r100%\r", "\x1b]0;title\x07x", "", " "]) == ["red", "100%", "x"]


def test_charts_for_papers(tmp_path: Path) -> None:
    rows = [{"step": 1, "a/b": 1, "a b": 2, "../x": 3, "t": T0}]
    written = build.write_report([make(tmp_path, rows=rows)], tmp_path / "out.html", tmp_path / "pictures")
    names = [path.name for path in written.pngs]
    assert names[:4] == ["a-b.png", "a-b~2.png", "x.png", "phases.png"] and sorted(names) == sorted(
        os.listdir(tmp_path / "pictures")
    )
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written.pngs)


def test_the_page_needs_no_network_and_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "script_bundle", REAL_BUNDLE)
    page = report(make(tmp_path))
    assert 500_000 < len(page.source) < 2_000_000 and "vegaEmbed" in page.scripts[1]
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", page.source[: page.source.index("page-data")])
    assert "default-src 'none'" in page.source


def test_every_chart_is_valid_vega_lite(tmp_path: Path) -> None:
    """altair checks what the report itself does not take the time to."""
    import altair

    runs = [make(tmp_path, f"aaaaa{letter}", train={"lr": lr}) for letter, lr in (("a", 1), ("b", 2))]
    runs.append(interrupted(tmp_path, "aaaaac"))
    for stories in ([collect(runs[0])], [collect(runs[2])], [collect(run) for run in runs]):
        drawn, _ = charts.charts_of(stories, sections.labels_of(stories))
        assert {chart.section for chart in drawn} == {"curves", "throughput", "phases", "machine"}
        for chart in drawn:
            for for_paper in (False, True):
                altair.Chart.from_dict(charts.specification(chart, for_paper))  # raises what is wrong


def test_the_script_is_kept_and_made_again_when_it_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bundle, "make", lambda: made.append(1) or "let vega = 1;\r\n")
    assert [REAL_BUNDLE(), REAL_BUNDLE()] == ["let vega = 1;\r\n"] * 2 and len(made) == 1
    kept = bundle.kept_file()
    assert kept.parent == tmp_path / "cache" / "rampup" and os.listdir(kept.parent) == [kept.name]
    for damaged in (b"", kept.read_bytes()[:-1], b"\xff" * 99):
        kept.write_bytes(damaged)
        assert REAL_BUNDLE() == "let vega = 1;\r\n"
    assert len(made) == 4
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert REAL_BUNDLE() == "let vega = 1;\r\n", "no cache, no harm"


def test_phases_of_a_rank_that_failed(tmp_path: Path) -> None:
    run = make(tmp_path, facts={"outcome": "failed", "cause": "x"})
    left = {"what": "phases", "phases": {"start": 10.0, "data": 80.0, "other": 10.0, "wall": 100.0}, "t": T0 + 100}
    run.attempt(1).events_file.write_text(lines([{"what": "start", "t": T0 + 10}, left]))
    page = report(run)
    assert "data 80% · other 10% of 1 min 40 s, as rank 0 measured it" in page.words
    assert "80% of the time went into data loading" in page.words and "Missing" not in page.words


def test_phases_of_a_rank_that_was_killed(tmp_path: Path) -> None:
    run = make(tmp_path, facts={"outcome": "failed", "cause": "killed"})
    run.attempt(1).events_file.write_text(lines([{"what": "start", "t": T0 + 25}]))
    page = report(run)
    assert "start 25% · not measured 75% of 1 min 40 s, by when its training began" in page.words
    assert "the phases: rank 0 writes them when it ends, and it could not" in page.words
    (bars,) = (chart for chart in page.data["charts"] if chart["series"][0]["kind"] == "start")
    assert [(line["kind"], line["xs"]) for line in bars["series"]] == [("start", [25]), ("not measured", [75])]
    about = {note.id for note in collect(run).notes}
    assert about == {"still-improving"}, "nothing is advised about what nobody measured"


def test_cpus_are_those_of_the_nodes_not_of_the_login_node(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.config_file.write_text(json.dumps(CONFIG | {"cluster": {"name": "x", "scheduler": "slurm"}}))
    run.attempt(1).facts_file.write_text(json.dumps(collect(run).attempt | {"launcher": "srun", "job": "1"}))
    assert facts_of(collect(run)).cpus is None, "env.json tells of another machine"
    row = {"cpus": 64, "cpu_percent": 3.0, "mem_used_mb": 1, "mem_total_mb": 99, "rss_mb": 1}
    run.attempt(1).system_file("vm").write_text(lines([{"t": T0 + 10 * i, **row} for i in range(5)]))
    assert facts_of(collect(run)).cpus == 64
    assert "--tasks-per-node 32, or --cpus-per-task 64" in [note.remedy for note in collect(run).notes]


def test_what_can_not_be_written_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path)
    for out in (tmp_path, tmp_path / "none" / "out.html"):
        with pytest.raises(Refused, match="can't write"):
            build.write_report([run], out)
    with pytest.raises(UsageError, match="51 runs"):
        build.write_report([run] * 51, tmp_path / "out.html")


def test_it_is_refused_without_altair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(Refused) as refused:
        build.write_report([make(tmp_path)], tmp_path / "out.html")
    assert refused.value.hint == "pip install 'rampup[report]'"


def test_the_verb(cli: Any) -> None:
    run = make(cli.runs)
    before = set(run.path.rglob("*"))
    told = cli.json("report", "aaaaaa")
    assert told["report"] == str(run.path / "report.html") and told["runs"][0]["state"] == "completed"
    assert "batch_size=200" in [note["remedy"] for note in told["runs"][0]["notes"]]
    assert set(run.path.rglob("*")) - before == {run.path / "report.html"}
    run.run_file.unlink()
    done = cli("report", str(run.path), str(make(cli.runs, "bbbbbb").path))
    assert done.stdout.strip() == str(cli.cwd / "report.html") and "run.json: missing" in done.stderr
    assert "no run" in cli("report", "./nowhere", check=102).stderr
