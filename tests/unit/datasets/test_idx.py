"""IDX files: every type code comes back as numpy wrote it, and a file that does not fit its header
is refused."""

import gzip
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from rampup.datasets.idx import DTYPES, read_header, read_idx
from rampup.errors import Refused

CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def write(path: Path, array: "numpy.ndarray[Any, Any]") -> Path:
    head = struct.pack(f">HBB{array.ndim}I", 0, CODES[array.dtype.name], array.ndim, *array.shape)
    path.write_bytes(head + array.astype(array.dtype.newbyteorder(">")).tobytes())
    return path


@pytest.mark.parametrize("dtype", CODES)
def test_values_come_back_in_native_order(tmp_path: Path, dtype: str) -> None:
    array = numpy.arange(-5, 19).astype(dtype).reshape(2, 3, 4)
    found = read_idx(write(tmp_path / "values", array))
    assert numpy.array_equal(found, array)
    assert found.dtype == numpy.dtype(dtype) and found.dtype.isnative
    found[0, 0, 0] = 7  # writable: torch warns about arrays that are not
    assert read_header(tmp_path / "values") == (CODES[dtype], (2, 3, 4))


def test_all_codes_of_the_format_are_known() -> None:
    assert set(DTYPES) == set(CODES.values())


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[:-1], "labels has 107 bytes, its header promises 108"),
    "too long": (lambda data: data + b"\0", "labels has 109 bytes, its header promises 108"),
    "cut in the header": (lambda data: data[:6], "ends inside its header"),
    "empty": (lambda data: b"", "not an IDX file"),
    "wrong magic": (lambda data: b"PNG" + data, "not an IDX file: it starts with 0x504e4700"),
    "unknown type": (lambda data: b"\0\0\x0a\x01" + data[4:], "not an IDX file"),
    "compressed": (gzip.compress, "still compressed"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("read", [read_header, read_idx])
def test_a_broken_file_is_refused(
    tmp_path: Path, case: str, read: Callable[[Path], object]
) -> None:
    damage, message = BROKEN[case]
    path = write(tmp_path / "labels", numpy.zeros(100, "uint8"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Refused, match=message):
        read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="absent: No such file"):
        read_header(tmp_path / "absent")


def test_the_header_needs_no_numpy(tmp_path: Path) -> None:
    path = write(tmp_path / "labels", numpy.zeros(100, "uint8"))
    code = "import sys; from rampup.datasets.idx import read_header; print(read_header(sys.argv[1]), 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
    )
    assert done.stdout == "(8, (100,)) False\n"
