"""Modules that know nothing of rampup, on one rank and on two: they run, stop at a signal, and go
on bit for bit."""

import os
from itertools import product
from pathlib import Path

import pytest

from .lightning_cases import COMMON, FOREIGN, MODULES, OTHERS, Case, equal, load, started

KILLS = (9, 16, 30)
SEEDS = (1, 2, 3)
ACCURACY = {"digits": ("digits", "epochs=8"), "mnist": ("mnist", "epochs=1", "batch_size=200")}
NORMED = (
    "cifar10",
    "arch=small",
    "width=4",
    "samples=100",
    "validation=40",
    "batch_size=20",
    "lr=0.05",
)
NORMED += ("epochs=2", "engine=lightning")
"""Each rank has batch statistics of its own."""
BOUNDARIES: dict[str, tuple[tuple[str, ...], int]] = {
    "after an epoch": ((), 20),
    "after a validation": (("trainer.val_check_interval=5",), 10),
    "between two": (("trainer.val_check_interval=7",), 9),
}
"""Settings, and the step after which it is stopped; an epoch has 20."""


def wanted(root: Path) -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name, words in MODULES.items():
        for world in (1, 2):
            whole, stopped = f"{name}-{world}", f"{name}-{world}-stopped"
            cases[whole] = Case(root / whole, (*words, *COMMON), (world,))
            cases[stopped] = Case(root / stopped, (*words, *COMMON), (world, world), asked_after=9)
    for name, words in OTHERS.items():
        end, world = ((), 2) if "digits" in name else (COMMON, 1)
        cases[name] = Case(root / name, (*words, *end), (world,))
    for name, (words, at) in BOUNDARIES.items():
        asked = (*MODULES["own"], *COMMON, *words)
        cases[name] = Case(root / name, asked, (1,))
        cases[f"{name}-stopped"] = Case(root / f"{name}-stopped", asked, (1, 1), asked_after=at)
    cases["normed"] = Case(root / "normed", NORMED, (2,))
    cases["normed-stopped"] = Case(root / "normed-stopped", NORMED, (2, 2), asked_after=7)
    cases["accumulated-stopped"] = Case(
        root / "a", (*OTHERS["accumulated"], *COMMON), (1, 1), asked_after=5
    )
    for seed, engine, (recipe, words) in product(SEEDS, ("torch", "lightning"), ACCURACY.items()):
        name = f"{recipe}-{engine}-{seed}"
        cases[name] = Case(root / name, (*words, f"seed={seed}", f"engine={engine}"), (1,))
    often = (*MODULES["own"], *COMMON, "checkpoint.every=3steps")
    for number in KILLS:
        cases[f"killed-{number}"] = Case(
            root / f"killed-{number}", often, (1, 1), killed_at_sync=number
        )
    return cases


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, mnist: Path, cifar10: Path) -> dict[str, Case]:
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "lightning-ranks"
    return started(root, wanted(root))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("name", MODULES)
def test_a_module_runs_unchanged(cases: dict[str, Case], name: str, world: int) -> None:
    case = cases[f"{name}-{world}"]
    assert case.codes == [0] * world, case.log()
    epochs = [row for row in case.last.metrics() if "samples_s" in row]
    assert [row["epoch"] for row in epochs] == [1, 2, 3]
    assert case.end["step"] == epochs[-1]["step"] > 0


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("name", MODULES)
def test_stopped_and_resumed_it_is_the_same_bit_for_bit(
    cases: dict[str, Case], name: str, world: int
) -> None:
    whole, case = cases[f"{name}-{world}"], cases[f"{name}-{world}-stopped"]
    assert case.codes == [0] * world, case.log()
    stopped = case.run.attempt(1).event("stopped")
    assert stopped and stopped["step"] < case.end["step"] == whole.end["step"]
    # rank 0 heard it, or only the other
    assert case.run.attempt(1).read_again() == ("timeout" if world == 1 else "preempt")
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert equal(case.state()[part], whole.state()[part]), part
    assert case.last.event("resumed")["exact"] is (name != "stream")


def test_rows_have_the_names_that_every_engine_has(cases: dict[str, Case]) -> None:
    rows = cases["own-2"].last.metrics()
    epochs = [row for row in rows if "samples_s" in row]
    assert {"epoch", "step", "train_loss", "lr", "val_loss", "val_acc", "samples_s", "t"} <= epochs[
        -1
    ].keys()
    assert not [name for row in rows for name in row if name.endswith(("_step", "_epoch"))]
    assert any("train_loss" in row and "samples_s" not in row for row in rows)
    assert cases["own-2"].end["best"]["metric"] == "val_acc"  # of its own ModelCheckpoint


def test_a_module_that_logs_nothing_has_a_loss_all_the_same(cases: dict[str, Case]) -> None:
    losses = [row["train_loss"] for row in cases["boring-1"].last.metrics() if "samples_s" in row]
    assert len(losses) == 3 and all(loss > 0 for loss in losses)
    assert "no validation" in cases["stream-1"].log()
    assert "no validation" not in cases["boring-1"].log()


def test_an_interrupted_epoch_has_the_loss_of_all_its_batches(cases: dict[str, Case]) -> None:
    """Rows are cut where an attempt resumed, so the story of both runs is one."""
    for name in ("boring-1", "demo-2"):
        assert cases[f"{name}-stopped"].rows() == cases[name].rows()


def test_batch_statistics_of_every_rank_are_put_back(cases: dict[str, Case]) -> None:
    whole, case = cases["normed"], cases["normed-stopped"]
    assert case.codes == [0, 0] and case.run.attempt(1).event("stopped")["step"] == 7, case.log()
    assert equal(case.state()["state_dict"], whole.state()["state_dict"])
    assert case.rows() == whole.rows()


@pytest.mark.parametrize("name", BOUNDARIES)
def test_stopped_beside_a_validation_all_is_the_same_and_its_rows_too(
    cases: dict[str, Case], name: str
) -> None:
    whole, case = cases[name], cases[f"{name}-stopped"]
    assert case.run.attempt(1).event("stopped")["step"] == BOUNDARIES[name][1], case.log()
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert equal(case.state()[part], whole.state()[part]), part
    # What a module logs as a mean of the epoch counts, in the one that was cut, the batches since.
    rows, expected = ([{**row, "train_loss": 0} for row in each.rows()] for each in (case, whole))
    assert rows == expected
    assert case.end["best"] == whole.end["best"] and whole.end["best"]["metric"] == "val_acc"


def test_the_best_is_looked_for_at_every_validation(cases: dict[str, Case]) -> None:
    """Also where an epoch does not end with one."""
    case = cases["between two"]
    found = [(row["val_acc"], row["step"]) for row in case.rows() if "val_acc" in row]
    assert [step for _, step in found] == [7, 14, 27, 34, 47, 54]
    assert (case.end["best"]["value"], case.end["best"]["step"]) == max(
        found, key=lambda pair: (pair[0], -pair[1])
    )


def test_the_modules_own_checkpoints_are_in_the_run_directory(cases: dict[str, Case]) -> None:
    files = sorted(
        path.name for path in (cases["own-2"].run.path / "lightning" / "checkpoints").iterdir()
    )
    assert "last.ckpt" in files and len(files) == 2
    assert not list(FOREIGN.glob("**/*.ckpt"))


def test_a_step_of_several_batches_is_never_cut(cases: dict[str, Case]) -> None:
    whole, case = cases["accumulated"], cases["accumulated-stopped"]
    assert case.run.attempt(1).event("stopped")["step"] == 5
    assert equal(case.state()["state_dict"], whole.state()["state_dict"])
    assert case.end["step"] == whole.end["step"]


def test_the_profile_is_a_file_of_the_attempt(cases: dict[str, Case]) -> None:
    profile = cases["profiled"].last.event("profile")
    text = (cases["profiled"].last.path / profile["file"]).read_text()
    assert "run_training_batch" in text


def test_a_trial_of_one_batch_keeps_nothing(cases: dict[str, Case]) -> None:
    assert (cases["tried"].end["step"], cases["tried"].end["checkpoint"]) == (1, None)
    assert not cases["tried"].run.checkpoints.exists()
    assert "val_loss" in cases["tried-own"].end["metrics"]


def test_a_recipe_is_the_same_on_both_engines(cases: dict[str, Case]) -> None:
    """The same global batches on two ranks; DDP and one flat buffer may add up in another order."""
    ours, theirs = (
        [row for row in cases[name].rows() if "val_loss" in row]
        for name in ("digits", "digits-torch")
    )
    assert len(ours) == len(theirs) == 2
    for row, other in zip(ours, theirs, strict=True):
        assert row.keys() == other.keys()
        assert all(row[name] == pytest.approx(other[name], rel=1e-3) for name in row)


@pytest.mark.parametrize("number", KILLS)
def test_a_kill_in_a_save_costs_at_most_what_came_after_the_one_before(
    cases: dict[str, Case], number: int
) -> None:
    """Also of the module's own ModelCheckpoint: what it had is whole, and the run ends as if
    nothing had been."""
    case = cases[f"killed-{number}"]
    assert case.run.attempt(1).event("end") is None, "it was killed"
    resumed = case.last.event("resumed")
    assert resumed and resumed["step"] >= 3, case.log()
    assert equal(case.state()["state_dict"], cases["own-1"].state()["state_dict"])
    # nothing half-written is left
    for path in (case.run.path / "lightning" / "checkpoints").iterdir():
        assert load(path)["state_dict"]


@pytest.mark.parametrize("recipe", ACCURACY)
def test_accuracy_over_seeds_does_not_depend_on_the_engine(
    cases: dict[str, Case], recipe: str
) -> None:
    found = {
        engine: [
            cases[f"{recipe}-{engine}-{seed}"].end["metrics"]["val_accuracy"] for seed in SEEDS
        ]
        for engine in ("torch", "lightning")
    }
    means = {engine: sum(values) / len(values) for engine, values in found.items()}
    assert means["torch"] > 0.9
    assert abs(means["torch"] - means["lightning"]) <= 0.005, found


def test_what_can_not_work_is_one_line_and_a_hint(cases: dict[str, Case]) -> None:
    log = cases["clipped"].log()
    assert cases["clipped"].codes == [1]
    assert (
        "error: Lightning: " in log
        and "manual optimization" in log
        and "hint: " in log
        and "Traceback" not in log
    )
