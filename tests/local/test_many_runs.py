"""The control side with many runs: made by the generator of the benchmarks, listed, shown and
reported."""

import json
from pathlib import Path

from benchmarks.many_runs import id_of, steps, write_run


def test_generated_runs_are_taken_for_real_ones(cli) -> None:
    for number in range(30):
        write_run(cli.runs, number)
    rows = cli.json("list", "--all")
    assert [row["id"] for row in rows] == [id_of(number) for number in reversed(range(30))]
    states = [row["state"] for row in rows]
    assert (states.count("completed"), states.count("failed"), states.count("cancelled")) == (
        24,
        3,
        3,
    )
    assert {row["name"] for row in rows} == {"bench"} and rows[-1]["created"] == 1.7e9
    assert rows[0]["metrics"]["epoch"] == 10 and rows[0]["ranks"] == 2 and rows[0]["wall_s"] == 12.5
    assert len(cli.json("list")) == 20, "the newest"
    assert cli.json("show", id_of(5))["state"] == "completed"
    assert [row["id"] for row in cli.json("list", "--state", "failed")] == [
        id_of(20),
        id_of(10),
        id_of(0),
    ]


def test_a_run_without_any_file_is_still_listed(cli) -> None:
    (cli.runs / "20260131-235959-empty-abc123").mkdir(parents=True)
    (row,) = cli.json("list")
    assert (row["name"], row["state"], row["metrics"]) == ("empty", "failed", {})


def test_many_rows_are_reported(cli, tmp_path: Path) -> None:
    rows = steps(5000)
    rows[3333] = rows[3333].replace('"train_loss":0.000300', '"train_loss":77.5')
    write_run(cli.runs, 5, rows)
    written = cli.json("report", "--out", str(tmp_path / "report.html"))
    assert written["runs"][0]["missing"] == [] and written["bytes"] < 2_000_000
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])
    train = next(line for line in data["charts"][0]["series"] if line["kind"] == "train")
    assert 1000 < len(train["xs"]) <= 2000 and (train["xs"][0], train["xs"][-1]) == (1, 4999)
    assert train["ys"][train["xs"].index(3334)] == 77.5, "a spike of one step is still there"
