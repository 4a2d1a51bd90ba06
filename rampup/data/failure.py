"""What a reader that failed has to say: one line that names the sample and its file, and a hint.

read_ahead.py asks for it in the thread where the reader failed. The readers of rampup name the file
themselves, and such an error is left as it is. For all others the sample is found by reading one
after the other again.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.data.buffers import Arrays
from rampup.data.reader import SampleReader
from rampup.errors import RampupError


def describe_failure(
    error: BaseException, reader: SampleReader, indices: NDArray[np.int64], arrays: Arrays
) -> BaseException:
    """Return the error to raise for a `read` of these samples that has failed."""
    if isinstance(error, RampupError) or not isinstance(error, Exception):
        return error
    reader = getattr(reader, "source", reader)  # of decoded samples
    if len(indices) > 1:
        index, error = _find_failing(error, reader, indices, arrays)
    else:
        index = int(indices[0]) if len(indices) else -1
    if isinstance(error, RampupError):
        return error
    if isinstance(error, OSError) and error.filename and error.strerror:
        message = f"can't read {error.filename}: {error.strerror}"
        return _chain(RampupError(message, _hint(error)), error)
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    where = f"sample {index}{_file_of(reader, index)}"
    found = RampupError(f"{type(reader).__name__} can't read {where}: {reason}", _hint(error))
    return _chain(found, error)


def _find_failing(
    error: Exception, reader: SampleReader, indices: NDArray[np.int64], arrays: Arrays
) -> tuple[int, Exception]:
    """Return the first sample that can't be read alone, with its error."""
    for place, index in enumerate(indices.tolist()):
        one: Any = slice(place, place + 1)
        try:
            reader.read(indices[one], tuple(array[one] for array in arrays))
        except Exception as alone:
            return index, alone
    return int(indices[0]), error


def _file_of(reader: SampleReader, index: int) -> str:
    """Return the file of a sample, where each sample has one."""
    try:
        files = list(reader.files())
    except Exception:  # what it reads has failed: nothing that it says about it is needed
        return ""
    return f" ({files[index]})" if 0 <= index < len(files) == len(reader) else ""


def _hint(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "files must stay where they are while a run reads them; put it back and resume"
    if isinstance(error, PermissionError):
        return "check who may read it with: ls -l"
    return "replace the file, or leave it out, and resume the run"


def _chain(found: RampupError, cause: BaseException) -> RampupError:
    """Keep the cause for the traceback in the run directory."""
    found.__cause__ = cause
    return found
