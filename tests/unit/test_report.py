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

from rampup.errors import Refused, UsageError
from rampup.report import build, charts, sections
from rampup.report.collect import collect, plain_lines
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


REAL_BUNDLE = charts.script_bundle


@pytest.fixture(autouse=True)
def short_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the real bundle takes seconds: one test does it."""
    monkeypatch.setattr(charts, "script_bundle", lambda: "/* bundle */")


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
    assert "Missing or unreadable" in page.words and "can't be told" in page.words
    assert "unknown" in page.words and "makes no sense" in page.words


def test_a_directory_without_anything(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "20261116-045608-lost-aaaaaa")
    run.path.mkdir()
    page = report(run)
    assert "run.json: missing" in page.words and "the run has not started" in page.words


def test_a_resumed_run_is_one_story(tmp_path: Path) -> None:
    run = make(tmp_path, rows=epochs(4))
    again = run.attempt(2)
    again.path.mkdir()
    again.metrics_file.write_text(lines([{"step": 30, "train_loss": 9.0, "samples_s": 1.0, "t": T0 + 500}]))
    again.events_file.write_text(lines([{"what": "resumed", "step": 20, "t": T0 + 400}]))
    again.system_file("vm").write_text(lines([{"t": T0 + 400, "cpu_percent": 50.0}]))
    page = report(run)
    train = page.data["charts"][0]["series"][0]
    assert (train["xs"], train["ys"]) == ([10, 20, 30], [1, 0.5, 9])
    cpu = next(chart for chart in page.data["charts"] if "minutes" in str(chart["spec"]))["series"][0]
    assert cpu["ys"] == [90, 90, 90, 90, 90, None, 50]


def test_a_value_that_is_no_number_is_noted(tmp_path: Path) -> None:
    story = collect(make(tmp_path, rows=[*epochs(), {"step": 45, "train_loss": None, "t": T0}]))
    assert story.undefined == {"train_loss": 45}
    assert next(note.remedy for note in story.notes) == "lr=0.0001"


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
    monkeypatch.setattr(charts, "script_bundle", REAL_BUNDLE)
    page = report(make(tmp_path))
    assert 500_000 < len(page.source) < 2_000_000 and "vegaEmbed" in page.scripts[1]
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", page.source[: page.source.index("page-data")])
    assert "default-src 'none'" in page.source


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
