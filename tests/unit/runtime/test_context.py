"""Who a rank is, from the environment alone."""

from pathlib import Path

import pytest

from rampup.core.settings import Settings
from rampup.errors import RampupError
from rampup.runtime.context import read_context


def test_outside_it_is_a_world_of_one() -> None:
    context = read_context({})
    assert (context.rank, context.world_size, context.local_world_size) == (0, 1, 1)
    assert context.run_dir is None and context.threads is None and context.node


def test_the_variables_of_a_rank() -> None:
    names = {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "OMP_NUM_THREADS": "3,1",
    }
    names |= {
        "RAMPUP_RUN_DIR": "/runs/a",
        "RAMPUP_ATTEMPT": "2",
        "RAMPUP_STARTED": "12.5",
        "RAMPUP_NODE": "n1",
    }
    context = read_context(names)
    assert (context.rank, context.local_rank, context.world_size, context.local_world_size) == (
        5,
        1,
        8,
        4,
    )
    assert (context.run_dir, context.attempt, context.started) == (Path("/runs/a"), 2, 12.5)
    assert (context.node, context.threads) == ("n1", 3)


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(RampupError, match="RANK='five'"):
        read_context({"RANK": "five"})


def test_settings_by_name_and_by_item() -> None:
    settings = Settings({"lr": 0.1, "hidden": [1, 2]})
    assert settings.lr == settings["lr"] == 0.1
    assert dict(settings) == {"lr": 0.1, "hidden": [1, 2]} and settings.get("no") is None
    with pytest.raises(AttributeError, match="no setting named hiden; did you mean hidden"):
        _ = settings.hiden
