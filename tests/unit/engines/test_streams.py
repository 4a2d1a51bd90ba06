"""What every engine refuses of a reader, before anything is read."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from rampup.core.settings import Settings
from rampup.data.reader import Field, SampleReader
from rampup.engines.streams import open_readers
from rampup.errors import RampupError
from rampup.runtime.job import Job


class Nameless(SampleReader):
    def __init__(self, size: int = 3) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self, indices: Any, out: Any) -> None:
        raise AssertionError("nothing is read")


class Odd(Nameless):
    fields = ((3,),)  # type: ignore[assignment]


class Whole(Nameless):
    fields = (Field((3,), np.float32),)


@pytest.mark.parametrize(
    ("train", "validation", "message"),
    [
        (Nameless(), None, "Nameless does not say what a sample consists of"),
        (Whole(), Odd(), "Odd does not say what a sample consists of"),
        (Whole(0), Whole(), "Whole has no training samples"),
        (Whole(), Whole(0), "Whole has no validation samples"),
    ],
)
def test_a_reader_that_can_not_work_is_refused(
    train: SampleReader, validation: SampleReader | None, message: str
) -> None:
    written: list[str] = []
    events = SimpleNamespace(write=lambda what, **facts: written.append(what))
    job = SimpleNamespace(settings=Settings({"readers": 1}), leaving=[], events=events)
    with pytest.raises(RampupError, match=f"^{message}$") as caught:
        open_readers((train, validation), cast(Job, job), 1)
    assert caught.value.hint
    for leave in job.leaving:
        leave(True)
    assert written == ["data"] * len(job.leaving), "it is left in order all the same"
