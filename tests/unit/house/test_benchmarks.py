"""What the benchmarks make of their numbers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import deepcam, first_step, run, watching
from benchmarks.deepcam_nchw import Contiguous
from benchmarks.measure import Line, faster, not_slower
from rampup.config.recipes import load
from rampup.core.settings import Settings
from rampup.recipes.deepcam.train import DeepCam

PAIRS = [(1.0, 4.0), (2.0, 6.0), (1.0, 9.0)]
"""Seconds, ours and theirs: 4, 3 and 9 times faster."""


def test_the_median_of_the_pairs_is_compared() -> None:
    line = faster("x", PAIRS, 4)
    assert (line.ours_s, line.theirs_s, line.ratio, line.spread, line.holds) == (
        1.0,
        6.0,
        4.0,
        "3.00-9.00",
        True,
    )
    assert not faster("x", PAIRS, 4.1).holds
    line = not_slower("x", PAIRS, 0.25)
    assert (line.ratio, line.spread, line.holds) == (0.25, "0.11-0.33", True)
    assert not not_slower("x", PAIRS, 0.2).holds


@pytest.fixture
def found() -> dict[str, Any]:
    """Of 1000 steps in two seconds, by stopwatches that take 100 ns inside and 200 ns in all."""
    spent = {
        "forward pass and loss": 1_000_100_000,
        "progress": 3_100_000,
        "epochs": 1_500_000_000,
        "nothing": 5,
    }
    spent |= {"clock of the phases": 0, "metric rows": 0}
    calls = {"forward pass and loss": 1000, "progress": 1000, "epochs": 2, "nothing": 7}
    calls |= {"clock of the phases": 0, "metric rows": 0}
    return {"spent_ns": spent, "calls": calls, "stopwatch_ns": [100, 200]} | {
        "threads": 0.004,
        "processes": 0.005,
        "wall": 2.0,
    }


def test_the_cost_of_watching_counts_all_threads_and_processes(found: dict[str, Any]) -> None:
    line = watching.cost(found)
    assert (
        line.ours_s == pytest.approx(0.003 + 0.004 + 0.005)
        and line.ratio == pytest.approx(0.006)
        and line.holds
    )
    assert not watching.cost(found | {"processes": 0.1}).holds


def test_the_profile_explains_the_whole_step(found: dict[str, Any]) -> None:
    parts = watching.profile(found)
    assert parts["forward pass and loss"] == pytest.approx(1000) and parts[
        "progress"
    ] == pytest.approx(3)
    assert parts["whole"] == pytest.approx(1500 - 0.4), "without the stopwatches"
    assert parts["the loop itself"] == pytest.approx(parts["whole"] - 1003)


def test_a_missed_bound_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: Any
) -> None:
    lines = [
        Line("one", 1.0, None, None, "", "<= 2 s", True),
        Line("two", 3.0, 1.0, 3.0, "", "<= 2x", False),
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "PARTS", {"these": lambda profiles: iter(lines)})
    assert run.main([]) == 1
    assert "**no**" in capsys.readouterr().out and (tmp_path / "bench.json").exists()
    del lines[1]
    assert run.main([]) == 0


PAGE = """# Performance

<!-- measured -->
Measured on something.

| line | ours | theirs | ratio | spread | bound | holds | measured |
| --- | --- | --- | --- | --- | --- | --- | --- |
| one | 9.000 s |  |  |  | <= 2 s | **no** | 2025-01-02 |
| other | 0.100 s |  |  | 1-2 | <= 1 s | yes | 2025-01-01 |

| one step | µs | share |
| --- | --- | --- |
| whole | 2.0 | 100.0 % |
<!-- /measured -->

The rest.
"""


def test_the_page_keeps_the_lines_that_were_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Also where bench.json is not there any more."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    page = tmp_path / run.DOCS
    page.write_text(PAGE, encoding="utf-8")
    lines = [Line("one", 1.0, None, None, "", "<= 2 s", True)]
    lines.append(Line("new", 3.0, 1.0, 3.0, "2-4", ">= 2x", True))
    monkeypatch.setattr(run, "PARTS", {"these": lambda profiles: iter(lines), "others": iter})
    monkeypatch.setattr(run, "machine", lambda: dict.fromkeys(MACHINE, "x") | {"date": "today"})
    assert run.main(["these", "--docs"]) == 0
    found = page.read_text(encoding="utf-8")
    rows = run.read_rows(found.split("\n\n")[2])
    assert list(rows) == ["one", "other", "new"]
    assert rows["one"] == ("one", "1.000 s", "", "", "", "<= 2 s", "yes", "today")
    assert rows["other"][-2:] == ("yes", "2025-01-01")
    assert rows["new"][1:4] == ("3.000 s", "1.000 s", "3.00")
    assert found.partition("| one step |")[2] == PAGE.partition("| one step |")[2]
    again = run.main(["these", "--docs"])
    assert again == 0 and page.read_text(encoding="utf-8") == found


MACHINE = ("cpu", "cores", "python", "torch")


def test_a_rank_tells_of_its_first_step_among_other_lines() -> None:
    assert first_step.told("a note\nstepped 1700000000.5 2.25\nepoch=1/1\n") == (1700000000.5, 2.25)


@pytest.mark.parametrize(("task", "is_last"), [(DeepCam, True), (Contiguous, False)])
def test_the_sides_of_deepcam_compute_in_layouts_of_their_own(
    task: type[DeepCam], is_last: bool, tmp_path: Path
) -> None:
    deepcam.make_recipe(tmp_path)
    recipe = load("deepcam" if is_last else str(tmp_path), Path())
    settings = Settings({name: setting.default for name, setting in recipe.settings.items()})
    assert settings.channels_last == is_last
    found = task(Settings({**settings, "width": 0.05}))
    layout = torch.channels_last if is_last else torch.contiguous_format
    model = found.model().to(memory_format=layout)  # type: ignore[call-overload]
    seen: list[bool] = []
    for part in model.modules():
        if isinstance(part, torch.nn.Conv2d) and part.kernel_size == (3, 3):
            part.register_forward_hook(
                lambda part, given, out: seen.append(out.is_contiguous(memory_format=layout))
            )
    maps = torch.rand(1, 48, 72, 16).movedim(-1, 1)  # as a reader fills them
    with torch.no_grad():
        found.scores(model, (maps, torch.zeros(1, 48, 72)))
    assert len(seen) > 50 and all(seen)
