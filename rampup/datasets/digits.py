"""The rows of digits.csv.gz, which come with rampup: nothing to download, nothing big to import."""

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CSV = Path(__file__).with_name("digits.csv.gz")


def read_digits() -> "tuple[NDArray[np.uint8], NDArray[np.int64]]":
    """The images as 1797 rows of 64 pixels from 0 to 16, and the digit that each image shows."""
    import numpy as np  # the command line imports this module, and must stay light

    with gzip.open(CSV, "rt", encoding="ascii") as file:
        rows = np.loadtxt(file, dtype=np.uint8, delimiter=",")
    return rows[:, :-1], rows[:, -1].astype(np.int64)
