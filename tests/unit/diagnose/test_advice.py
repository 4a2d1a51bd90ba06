"""Each rule of the report's notes: facts that trigger it, with the exact setting, and facts that
must not."""

from typing import Any

import pytest

from rampup.diagnose.advice import RULES, Facts, Undefined, advise

TRAIN: dict[str, Any] = {
    "lr": 0.1,
    "batch_size": 100,
    "epochs": 6,
    "eval_batch_size": 1000,
    "accumulate": 1,
    "log_every": 50,
    "readers": None,
}
TRAIN |= {"clip": None, "weight_decay": 0.0, "precision": "fp32"}
PHASES = {
    "start": 5.0,
    "data": 5.0,
    "compute": 75.0,
    "communication": 5.0,
    "evaluation": 5.0,
    "saving": 3.0,
    "other": 2.0,
}
DIVERGED = Undefined(7, since=7)
QUIET = Facts(
    wall_s=100.0,
    phases=PHASES,
    train=TRAIN,
    ranks=4,
    threads=2,
    cpus=8,
    cpu_percent=90.0,
    mem_used_mb=4000.0,
    mem_limit_mb=16_000.0,
    train_losses=(1.0, 0.8, 0.7, 0.6, 0.5, 0.49),
    val_losses=(1.0, 0.8, 0.7, 0.65, 0.649, 0.648),
)


def phases(**seconds: float) -> dict[str, float]:
    return {**PHASES, **seconds}


READING = {"bytes": 1e9, "seconds": 90.0, "readers": 1.0, "batch_bytes": 1e7}
STAGED = {**READING, "reads": 100.0, "hits": 40.0}
OVERFIT: dict[str, Any] = {
    "train_losses": (1.0, 0.5, 0.3, 0.2, 0.1),
    "val_losses": (1.0, 0.6, 0.7, 0.8, 0.9),
}
FALLING: dict[str, Any] = {"val_losses": (1.0, 0.8, 0.6, 0.4, 0.3, 0.2)}
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    # id, what triggers it, the setting that is advised, what must not
    (
        "ranks-apart",
        {"apart": ("the 4 ranks never talked to each other: each trained alone", "join them")},
        "join them",
        {"apart": None},
    ),
    (
        "loss-not-finite",
        {"undefined": {"train_loss": DIVERGED}},
        "lr=0.01 clip=1.0",
        {"undefined": {"val_accuracy": DIVERGED}},
    ),
    ("memory-close", {"mem_used_mb": 15_000.0}, "accumulate=2", {"mem_used_mb": 12_000.0}),
    (
        "validation-rises",
        OVERFIT,
        "epochs=2 or weight_decay=0.01",
        {**OVERFIT, "train_losses": (0.1, 0.2, 0.3, 0.4, 0.5)},
    ),
    ("still-improving", FALLING, "epochs=12", {**FALLING, "train": {**TRAIN, "epochs": 20}}),
    ("data-heavy", {"phases": phases(data=62.0)}, "batch_size=200", {"phases": phases(data=29.0)}),
    (
        "reading-heavy",
        {"phases": phases(data=15.0), "reading": READING},
        "readers=2",
        {"phases": phases(data=9.0), "reading": READING},
    ),
    (
        "staging-unneeded",
        {"phases": phases(data=4.0), "reading": STAGED, "train": {**TRAIN, "stage": "node"}},
        "stage=none",
        {"phases": phases(data=6.0), "reading": STAGED, "train": {**TRAIN, "stage": "node"}},
    ),
    (
        "communication-heavy",
        {"phases": phases(communication=40.0)},
        "batch_size=400",
        {"phases": phases(communication=29.0)},
    ),
    (
        "saving-heavy",
        {"phases": phases(saving=20.0)},
        "checkpoint.every=30min",
        {"phases": phases(saving=14.0)},
    ),
    (
        "start-heavy",
        {"phases": phases(start=50.0)},
        "--tasks-per-node 2",
        {"phases": phases(start=50.0), "wall_s": 20.0},
    ),
    (
        "evaluation-heavy",
        {"phases": phases(evaluation=40.0)},
        "eval_batch_size=4000",
        {"phases": phases(evaluation=29.0)},
    ),
    (
        "other-heavy",
        {"phases": phases(other=30.0), "train": {**TRAIN, "log_every": 1}},
        "log_every=50",
        {"phases": phases(other=19.0)},
    ),
    (
        "onednn-off",
        {"onednn": "0"},
        "unset TF_ENABLE_ONEDNN_OPTS",
        {"onednn": "0", "device": "GPU:0"},
    ),
    (
        "cpus-unused",
        {"ranks": 1, "threads": 1, "cpu_percent": 13.0},
        "--tasks-per-node 8",
        {"ranks": 1, "threads": 8, "cpu_percent": 90.0},
    ),
    ("cpus-wait", {"cpu_percent": 30.0}, "batch_size=200", {"cpu_percent": 30.0, "device": "cuda"}),
]


def ids(**changes: Any) -> list[str]:
    return [finding.id for finding in advise(QUIET._replace(**changes))]


def test_a_run_that_went_well_gets_no_notes() -> None:
    assert advise(QUIET) == []
    assert advise(Facts()) == []


@pytest.mark.parametrize(
    ("rule", "facts", "setting", "harmless"), CASES, ids=[case[0] for case in CASES]
)
def test_each_rule(
    rule: str, facts: dict[str, Any], setting: str, harmless: dict[str, Any]
) -> None:
    found = advise(QUIET._replace(**facts))
    assert [finding.id for finding in found] == [rule]
    assert setting in found[0].remedy and found[0].about and found[0].cause
    assert rule not in ids(**harmless)


def test_every_rule_has_a_case() -> None:
    assert [case[0].replace("-", "_") for case in CASES] == [rule.__name__ for rule in RULES]


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        ({"phases": phases(data=62.0), "train": {"num_workers": 0}}, "num_workers=1"),
        (
            {
                "phases": phases(data=62.0),
                "train": {"num_workers": "own"},
                "loader": {"remedy": "num_workers=3"},
            },
            "num_workers=3",
        ),
        ({"phases": phases(communication=62.0), "threads": 4}, "--tasks-per-node 2"),
        ({"phases": phases(communication=62.0), "train": {}}, "--tasks-per-node 2"),
        ({"phases": phases(start=62.0), "ranks": 1}, "epochs=12"),
        (
            {"undefined": {"loss": DIVERGED}, "train": {**TRAIN, "precision": "fp16"}},
            "precision=fp32",
        ),
        ({"undefined": {"loss": DIVERGED}, "train": {"lr": 1.0}}, "lr=0.1"),
        ({"mem_used_mb": 15_000.0, "resources": {"mem": "16G"}}, "--mem 23G"),
    ],
)
def test_the_advice_fits_what_the_run_has(facts: dict[str, Any], remedy: str) -> None:
    assert [finding.remedy for finding in advise(QUIET._replace(**facts))] == [remedy]


def test_a_recipe_without_the_setting_is_not_told_to_change_it() -> None:
    for _, facts, _, _ in CASES:
        for finding in advise(QUIET._replace(**{**facts, "train": {}})):
            assert "=" not in finding.remedy, finding


def test_the_settings_that_are_advised_exist() -> None:
    from rampup.config.setting_tables import CHECKPOINT
    from rampup.core.engines.torch import TORCH

    words = {word.partition("=")[0] for case in CASES for word in case[2].split() if "=" in word}
    assert words <= {*TORCH, *(f"checkpoint.{key}" for key in CHECKPOINT)}


def test_a_loss_that_was_finite_again_has_not_diverged() -> None:
    once, often = Undefined(150, None, 1, 300), Undefined(150, None, 3, 300)
    for where, words in (
        (once, "at step 150 (1 of 300 rows)"),
        (often, "in 3 of 300 rows, the first at step 150"),
    ):
        (found,) = advise(QUIET._replace(undefined={"loss": where}))
        assert found.about == f"loss was NaN or infinite {words}"
        assert (
            "diverged" not in found.cause and found.remedy == "clip=1.0" and found.level == "note"
        )
    (found,) = advise(
        QUIET._replace(undefined={"val_loss": once, "train_loss": Undefined(3, 200, 99, 300)})
    )
    assert (
        found.about == "train_loss became NaN or infinite at step 200" and found.level == "problem"
    )


@pytest.mark.parametrize(
    ("train", "reading", "remedy"),
    [
        ({"read_ahead": 15}, {}, "read_ahead=40"),
        ({"read_ahead": 256}, {}, "readers=2"),
        ({"stage": "none"}, {"readers": 2.0}, "stage=node"),
        ({"stage": "none", "epochs": 1}, {"readers": 2.0}, "--cpus-per-task 4"),
        ({"stage": "node"}, {"readers": 2.0}, "decode=true"),
        ({"stage": "node", "decode": True}, {"readers": 2.0}, "--cpus-per-task 4"),
    ],
)
def test_waiting_for_samples_names_the_setting(
    train: dict[str, Any], reading: dict[str, float], remedy: str
) -> None:
    facts = QUIET._replace(
        phases=phases(data=40.0), train={**TRAIN, **train}, reading={**READING, **reading}
    )
    (found,) = advise(facts)
    assert (found.id, found.about) == (
        "reading-heavy",
        "40% of the time went into waiting for data",
    )
    assert remedy in found.remedy


def test_nothing_is_said_against_staging_that_may_have_helped() -> None:
    train = {**TRAIN, "stage": "node"}
    assert ids(phases=phases(data=1.0), reading={**STAGED, "hits": 60.0}, train=train) == []
