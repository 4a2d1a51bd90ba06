"""`rampup report`: what the page holds, for runs in any condition, and that nothing of a run can
act in a browser."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rampup.diagnose.advice import Undefined
from rampup.diagnose.why.explain import explain
from rampup.errors import Refused, UsageError
from rampup.report import build, vega
from rampup.report.data import advice_facts
from rampup.report.labels import label_runs
from rampup.report.page import read_part
from rampup.report.read import plain_lines, read_run
from rampup.report.tables import StudyTable, study_section
from rampup.rundir.files import RunDir
from unit.report.report_pages import (
    CONFIG,
    T0,
    epochs,
    lines,
    make,
    report,
    resumed,
    use_short_bundle,
)

REAL_BUNDLE = vega.script_bundle


@pytest.fixture(autouse=True)
def short_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    use_short_bundle(monkeypatch)


def test_one_run_is_told_whole(tmp_path: Path) -> None:
    page = report(make(tmp_path))
    assert page.titles()[:3] == ["loss", "accuracy", "samples per second"]
    for words in (
        "completed",
        "1 min 40 s",
        "best val_loss at epoch 4",
        "0.275",
        "command line",
        "torch",
        "the end",
    ):
        assert words in page.words, words
    assert "62% of the time went into data loading" in page.words and "batch_size=200" in page.words
    assert "Missing" not in page.words
    loss = page.data["charts"][0]["series"]
    assert [(line["kind"], line["xs"]) for line in loss] == [
        ("train", [10, 20, 30, 40]),
        ("val", [10, 20, 30, 40]),
    ]


def test_several_runs_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    runs = [
        make(tmp_path, f"aaaaa{letter}", train={"lr": lr})
        for letter, lr in zip("abc", (0.1, 0.2, 0.2), strict=True)
    ]
    page = report(*runs)
    labels = ["lr=0.1", "lr=0.2 (aaaaab)", "lr=0.2 (aaaaac)"]
    assert page.data["runs"] == labels
    assert [line["run"] for line in page.data["charts"][0]["series"]] == [
        label for label in labels for _ in "tv"
    ]
    cpu = next(
        chart
        for chart in page.data["charts"]
        if "busy" in str(chart["spec"]) or "minutes" in str(chart["spec"])
    )
    assert {line["run"] for line in cpu["series"]} == set(labels)


def test_speeds_of_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    rows = [
        [{**row, "samples_s": 5e3 * nodes, "epoch_s": 72.5 / nodes} for row in epochs()]
        for nodes in (1, 2)
    ]
    page = report(
        *(
            make(tmp_path, f"aaaaa{nodes}", rows[nodes - 1], train={"width": nodes})
            for nodes in (1, 2)
        )
    )
    assert "<th>took</th><th>samples/s</th><th>epoch takes</th><th>best</th>" in page.source
    for cells in ("<td>5,000</td><td>1 min 12 s</td>", "<td>10,000</td><td>36.2 s</td>"):
        assert cells in page.source
    assert page.titles()[2:4] == ["samples per second", "seconds per epoch"], "after the curves"
    silent = report(
        *(
            make(tmp_path, run_id, [{"step": 1, "loss": 1.0, "t": T0}])
            for run_id in ("bbbbb1", "bbbbb2")
        )
    )
    assert "<th>took</th></tr>" in silent.source, "what no run has is no column"


def test_a_failed_run_shows_its_cause_its_traceback_and_the_log_of_its_rank(tmp_path: Path) -> None:
    cause = "rank 1: ValueError: shapes do not match"
    run = make(
        tmp_path, facts={"outcome": "failed", "exit_code": 1, "cause": cause, "failed_rank": 1}
    )
    attempt = run.attempt(1)
    attempt.rank_log(1).write_text("from rank one\n")
    attempt.error_file(1).write_text(
        json.dumps(
            {
                "rank": 1,
                "type": "ValueError",
                "message": "shapes do not match",
                "traceback": "Traceback: line 7",
                "t": T0,
            }
        )
    )
    attempt.events_file.unlink()
    page = report(run)
    for words in ("failed", cause, "Traceback: line 7", "from rank one"):
        assert words in page.words, words


def test_a_failed_run_opens_with_what_why_says(tmp_path: Path) -> None:
    facts = {"outcome": "failed", "exit_code": 1, "cause": "rank 0 exited with code 1"}
    run = make(tmp_path, rows=[], facts={**facts, "failed_rank": 0})
    run.config_file.write_text(json.dumps({**CONFIG, "kind": "command"}))
    run.attempt(1).metrics_file.unlink()
    for file in (run.attempt(1).events_file, run.attempt(1).system_file("vm")):
        file.unlink()
    place = f'  File "{tmp_path}/exc.py", line 5, in <module>\n    x @ w\n'
    trace = f"Traceback (most recent call last):\n{place}RuntimeError: mat1 and mat2 (4x11)\n"
    run.attempt(1).rank_log(0).write_text(trace)
    page = report(run)
    head = page.words[: page.words.index("Settings")]
    why = explain(run)
    assert "RuntimeError: mat1 and mat2 (4x11)" in why.finding.cause
    for words in (why.finding.cause, f"hint: {why.finding.remedy}", "attempts/1/rank-0.log:4"):
        assert words in head, words
    assert "exited with code 1" not in head
    for empty in ("Curves", "Throughput", "Where the time went", "CPU and memory", "Missing"):
        assert empty not in page.words, empty


def test_a_run_without_metrics(tmp_path: Path) -> None:
    page = report(make(tmp_path, rows=[]))
    assert "metrics.jsonl: missing or empty" in page.words and "Curves" not in page.words


def test_no_number_of_a_study_is_broken() -> None:
    """Cells stay whole, the table scrolls; only the list of what differs is wrapped."""
    table = StudyTable("it", "about", ["id", "state", "lr"], [["aaaaaa", "completed", "0.01"]])
    assert "<div class='wide'><table class='points'>" in study_section(table)
    style = read_part("page.css")
    assert ".points td { white-space: nowrap; overflow-wrap: normal }" in style
    assert re.search(r"\.runs \.all \{[^}]*overflow-wrap: anywhere", style)


def test_the_job_stands_in_the_head(tmp_path: Path) -> None:
    assert "4711" in report(make(tmp_path, facts={"job": "4711"})).words


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>'\"&\u2028\x00]]>%body%"


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    rows = [*epochs(), {"step": 50, HOSTILE: 3, "t": T0}, {"step": 51, "word": HOSTILE, "t": T0}]
    facts = {"outcome": "failed", "cause": HOSTILE}
    run = make(
        tmp_path,
        rows=rows,
        name=HOSTILE,
        train={HOSTILE: HOSTILE, "lr": 1},
        facts=facts,
        log=HOSTILE,
    )
    other = make(tmp_path, "bbbbbb", train={HOSTILE: "x"})
    run.env_file.write_text(
        json.dumps({HOSTILE: HOSTILE, "variables": {HOSTILE: HOSTILE}, "packages": {HOSTILE: 1}})
    )
    run.attempt(1).error_file(0).write_text(json.dumps({"rank": 0, "traceback": HOSTILE}))
    run.attempt(1).system_file("a<img>").write_text(lines([{"t": T0, "cpu_percent": 1}]))
    resumed(run, 2, 400, 20, 30, ended=T0 + 420, outcome="failed", cause=HOSTILE)
    for page in (report(run), report(run, other)):
        assert (
            page.tags.count("script") == 3
            and "img" not in page.tags
            and "onerror" not in page.attributes
        )
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
    run.config_file.write_text(
        '{"train": [1], "resources": "x", "origins": 7, "cluster": null, "command": 3}'
    )
    attempt.facts_file.write_text(
        '{"outcome": {"a": 1}, "started": "x", "ended": "y", "world_size": "two"}'
    )
    attempt.metrics_file.write_text(
        '{"step":"a","loss":1}\n{"step":NaN,"loss":NaN}\n{"step":1e999,"loss":1e308}\n7\n'
    )
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


def test_a_value_that_is_no_number_is_noted(tmp_path: Path) -> None:
    data = read_run(make(tmp_path, rows=[*epochs(), {"step": 45, "train_loss": None, "t": T0}]))
    assert data.undefined == {"train_loss": Undefined(45, since=45, rows=1, of=5)}
    assert next(note.remedy for note in data.notes) == "lr=0.0001"


def test_labels_name_what_somebody_typed_first(tmp_path: Path) -> None:
    runs_read = [
        read_run(make(tmp_path, f"aaaaa{n}", train={"epochs": n, "lr": n / 10})) for n in (1, 2)
    ]
    assert label_runs(runs_read) == ["lr=0.1 epochs=1", "lr=0.2 epochs=2"]
    lost = make(tmp_path, "bbbbbb")
    lost.config_file.unlink()
    assert label_runs([*runs_read, read_run(lost)]) == [
        "lr=0.1 epochs=1",
        "lr=0.2 epochs=2",
        "mnist",
    ]


def test_labels_tell_apart_runs_of_one_name(tmp_path: Path) -> None:
    """Other recipes have other settings; those say nothing about these."""
    runs_read = [
        read_run(make(tmp_path, f"aaaaa{n}", name="digits", train={"epochs": n})) for n in (4, 5, 6)
    ]
    none = {f"a{n}": None for n in range(5)}
    runs_read += [
        read_run(make(tmp_path, f"bbbbb{n}", name="poly", train={"degree": n, **none}))
        for n in (2, 3)
    ]
    runs_read.append(read_run(make(tmp_path, "cccccc", name="alone", train={"lr": 7})))
    labels = label_runs(runs_read)
    assert labels == [
        *(f"digits epochs={n}" for n in (4, 5, 6)),
        "poly degree=2",
        "poly degree=3",
        "alone",
    ]


def test_labels_prefer_settings_that_tell_apart(tmp_path: Path) -> None:
    same = {"a": 1, "b": 1, "c": 1, "width": 1}
    runs = [
        same,
        {**same, "a": 2, "b": 2, "c": 2, "width": 2},
        {**same, "a": 2, "b": 2, "c": 2, "width": 3},
    ]
    runs_read = [read_run(make(tmp_path, f"aaaaa{n}", train=train)) for n, train in enumerate(runs)]
    assert label_runs(runs_read) == ["a=1 b=1 width=1", "a=2 b=2 width=2", "a=2 b=2 width=3"]


def test_a_setting_of_none_is_in_no_label(tmp_path: Path) -> None:
    runs_read = [
        read_run(make(tmp_path, f"aaaaa{n}", train={"clip": clip}))
        for n, clip in ((1, None), (2, 0.5))
    ]
    assert label_runs(runs_read) == ["mnist", "clip=0.5"]


def test_settings_of_checkpoints_are_shown_with_their_origin(tmp_path: Path) -> None:
    runs = [make(tmp_path, f"aaaaa{every}") for every in (1, 2)]
    for run, every in zip(runs, ("10min", "20min"), strict=True):
        origins = CONFIG["origins"] | {"checkpoint.every": "the command line"}
        run.config_file.write_text(
            json.dumps({**CONFIG, "checkpoint": {"every": every, "keep": 2}, "origins": origins})
        )
    words = report(runs[0]).source
    assert (
        "<td>every</td><td>10min</td><td>the command line</td>" in words
        and "<td>keep</td><td>2</td>" in words
    )
    assert report(*runs).data["runs"] == ["checkpoint.every=10min", "checkpoint.every=20min"]


def test_tables_in_values_are_written_out(tmp_path: Path) -> None:
    run = make(tmp_path, rows=[*epochs(), {"step": 50, "train_loss": {"a": 1}, "t": T0}])
    run.env_file.write_text(
        json.dumps({"code": {"commit": "", "branch": "main", "dirty": True}, "argv": ["a", 1]})
    )
    page = report(run)
    assert "branch=main, dirty=True" in page.words and "a, 1" in page.words
    assert "{'" not in page.words and "last train_loss" not in page.words
    assert "last val_loss" in page.words


def test_a_loop_of_ones_own_has_no_phases(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.config_file.write_text(json.dumps({**CONFIG, "kind": "command"}))
    run.attempt(1).events_file.write_text("")
    page = report(run)
    assert "Where the time went" not in page.words
    assert "rank 0 writes them" not in page.words


def test_a_cancelled_run_says_who_cancelled(tmp_path: Path) -> None:
    run = make(
        tmp_path, facts={"outcome": "cancelled", "exit_code": 143, "cause": "stopped by SIGTERM"}
    )
    run.control_file.write_text(lines([{"t": T0 + 50, "what": "cancelled", "by": "rampup cancel"}]))
    page = report(run)
    assert "cancelled by rampup cancel" in page.words and "SIGTERM" not in page.words


def test_logs_are_shown_as_a_terminal_would() -> None:
    assert plain_lines(
        ["\x1b[31mred\x1b[0m", "10%\r50%\r100%\r", "\x1b]0;title\x07x", "", " "]
    ) == ["red", "100%", "x"]


def test_the_page_needs_no_network_and_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vega, "script_bundle", REAL_BUNDLE)
    page = report(make(tmp_path))
    assert 500_000 < len(page.source) < 2_000_000 and "vegaEmbed" in page.scripts[1]
    assert not re.search(
        r"<(script|link|img|iframe)[^>]*(src|href)=", page.source[: page.source.index("page-data")]
    )
    assert "default-src 'none'" in page.source


def test_the_script_is_kept_and_made_again_when_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(vega, "make_bundle", lambda: made.append(1) or "let vega = 1;\r\n")
    assert [REAL_BUNDLE(), REAL_BUNDLE()] == ["let vega = 1;\r\n"] * 2 and len(made) == 1
    kept = vega.bundle_file()
    assert kept.parent == tmp_path / "cache" / "rampup" and os.listdir(kept.parent) == [kept.name]
    for damaged in (b"", kept.read_bytes()[:-1], b"\xff" * 99):
        kept.write_bytes(damaged)
        assert REAL_BUNDLE() == "let vega = 1;\r\n"
    assert len(made) == 4
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert REAL_BUNDLE() == "let vega = 1;\r\n", "no cache, no harm"


def test_phases_of_a_rank_that_failed(tmp_path: Path) -> None:
    run = make(tmp_path, facts={"outcome": "failed", "cause": "x"})
    left = {
        "what": "phases",
        "phases": {"start": 10.0, "data": 80.0, "other": 10.0, "wall": 100.0},
        "t": T0 + 100,
    }
    run.attempt(1).events_file.write_text(lines([{"what": "start", "t": T0 + 10}, left]))
    page = report(run)
    assert "data 80% · other 10% of 1 min 40 s, as measured by rank 0" in page.words
    assert "80% of the time went into data loading" in page.words and "Missing" not in page.words


def test_how_the_data_was_read(tmp_path: Path) -> None:
    run = make(tmp_path, train={"num_workers": "own"})
    loader = {
        "what": "loaders",
        "workers": 0,
        "pin_memory": False,
        "remedy": "num_workers=3",
        "t": T0 + 5,
    }
    run.attempt(1).events_file.write_text(run.attempt(1).events_file.read_text() + lines([loader]))
    page = report(run)
    assert "loader workers" in page.words and "num_workers=3" in page.words
    assert "loader pin_memory" in page.words and "loader persistent_workers" not in page.words


def test_phases_of_a_rank_that_was_killed(tmp_path: Path) -> None:
    run = make(tmp_path, facts={"outcome": "failed", "cause": "killed"})
    run.attempt(1).events_file.write_text(lines([{"what": "start", "t": T0 + 25}]))
    page = report(run)
    assert (
        "start 25% · not measured 75% of 1 min 40 s, estimated from the start of training"
        in page.words
    )
    (bars,) = (chart for chart in page.data["charts"] if chart["series"][0]["kind"] == "start")
    assert [(line["kind"], line["xs"]) for line in bars["series"]] == [
        ("start", [25]),
        ("not measured", [75]),
    ]
    about = {note.id for note in read_run(run).notes}
    assert about == {"still-improving"}, "nothing is advised about what nobody measured"


def test_cpus_are_those_of_the_nodes_not_of_the_login_node(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.config_file.write_text(
        json.dumps(CONFIG | {"cluster": {"name": "x", "scheduler": "slurm"}})
    )
    run.attempt(1).facts_file.write_text(
        json.dumps(read_run(run).attempt | {"launcher": "srun", "job": "1"})
    )
    assert advice_facts(read_run(run)).cpus is None, "env.json tells of another machine"
    row = {"cpus": 64, "cpu_percent": 3.0, "mem_used_mb": 1, "mem_total_mb": 99, "rss_mb": 1}
    run.attempt(1).system_file("vm").write_text(
        lines([{"t": T0 + 10 * i, **row} for i in range(5)])
    )
    assert advice_facts(read_run(run)).cpus == 64
    assert "--tasks-per-node 32, or --cpus-per-task 64" in [
        note.remedy for note in read_run(run).notes
    ]


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
    assert (
        told["report"] == str(run.path / "report.html") and told["runs"][0]["state"] == "completed"
    )
    assert "batch_size=200" in [note["remedy"] for note in told["runs"][0]["notes"]]
    assert set(run.path.rglob("*")) - before == {run.path / "report.html"}
    run.run_file.unlink()
    done = cli("report", str(run.path), str(make(cli.runs, "bbbbbb").path))
    assert (
        done.stdout.strip() == str(cli.cwd / "report.html") and "run.json: missing" in done.stderr
    )
    assert "no run" in cli("report", "./nowhere", check=102).stderr
