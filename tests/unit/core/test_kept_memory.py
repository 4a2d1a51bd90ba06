"""A rank on a CPU keeps the memory that it frees: a step that allocates what the last one did
touches no new page."""

import platform
import subprocess
import sys

import pytest

PAGES = """
import resource, sys
from rampup.core import hardware
kept = sys.argv[1] == "kept" and hardware.disable_malloc_trim()
assert kept == (sys.argv[1] == "kept")
for turn in range(6):
    if turn == 3:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    large = [bytearray(48 << 20), bytearray(8 << 20)]
    del large
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PAGES, how], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_what_is_freed_is_kept_for_the_next_step() -> None:
    assert new_pages("kept") < 100
    assert new_pages("as it is") > 10_000
