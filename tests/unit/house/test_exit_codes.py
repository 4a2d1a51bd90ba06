"""Every exit code of the project is in one table; who can't import it repeats it rightly."""

from rampup import errors, rank
from rampup.core import software
from rampup.rundir.outcome import Outcome
from rampup.runtime.storage import StorageError


def test_rank_repeats_the_codes_of_the_table() -> None:
    found = (rank.NOT_READY, rank.PORT_TAKEN, rank.AGAIN, rank.NOT_EXECUTABLE, rank.NOT_FOUND)
    assert found == (
        errors.RANK_NOT_READY,
        errors.PORT_TAKEN,
        errors.START_AGAIN,
        errors.NOT_EXECUTABLE,
        errors.NOT_FOUND,
    )


def test_the_job_side_ends_with_the_codes_of_the_table() -> None:
    assert software.NOT_READY == errors.ENVIRONMENT_NOT_READY
    assert Outcome("timeout").code == errors.RUN_TIMED_OUT
    assert StorageError.exit_code == errors.STORAGE_FAILED


def test_every_code_is_explained() -> None:
    table = errors.__doc__ or ""
    rows = [line.split("  ")[0] for line in table.splitlines() if line[:1].isdigit()]
    listed = set(" ".join(rows).replace(",", " ").split())
    constants = {name: value for name, value in vars(errors).items() if name.isupper()}
    del constants["MOST_LISTED"]
    codes = {value for value in constants.values() if isinstance(value, int)}
    codes |= set(errors.OUTCOME_CODES.values())
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes |= {kind.exit_code for kind in kinds if issubclass(kind, errors.RampupError)}
    assert {str(code) for code in codes} - listed <= {"2", "3"}, "1 to 4 is one row"
