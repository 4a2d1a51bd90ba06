"""`clean` beside `resume`, at random moments."""

import pytest
from clean_rounds import Rounds, run_once


@pytest.mark.slow
def test_clean_beside_resume(cli) -> None:
    """50 rounds of a few seconds: the moments are random, and a fault was seen once in some
    rounds."""
    run = run_once(lambda *words: cli(*words, check=100), cli.cwd)

    def resume() -> bool:
        done = cli("resume", run.id, "--detach", check=None)
        assert done.returncode in (0, 3), done.stderr
        return done.returncode == 0

    Rounds(run, cli.env, resume).play(50)
