"""What a function returned on rank 0, on its way back to the caller of `rampup.launch`.

Numbers, text, lists, tuples, dicts and arrays travel as JSON and npz, which can't run code. Anything
else is pickled and signed; only the user who launched the run can load it. `show`, `list` and
`report` never come here. The rank writes, the caller reads.
"""

import io
import json
import pickle
import sys
from typing import Any, BinaryIO

from rampup.errors import RampupError, Refused
from rampup.rundir import private
from rampup.rundir.attempt import AttemptDir
from rampup.rundir.pickles import describe_error, dumps, find_part

PLAIN = (type(None), bool, int, float, str)
MARK = "$"
"""Begins the one key of a table that stands for something else than a dict."""
PICKLE = "pickle"
MOST_BITS = 14_000
"""Python refuses to write longer integers as text, and to read them."""


class CannotTravel(RampupError):
    """A value that can't be written down for another process."""


class _NotPlain(Exception):
    """A value that needs a pickle."""


def write_result(attempt: AttemptDir, run_id: str, value: Any) -> None:
    """Write what the function returned, in the safest form that holds it."""
    arrays: list[Any] = []
    try:
        text = json.dumps({"value": _encode(value, arrays)})
    except (_NotPlain, RecursionError):
        text = json.dumps(_write_pickle(attempt, run_id, value))
    else:
        if arrays:
            private.write(attempt.result_arrays_file, lambda file: _save(file, arrays))
    private.write(attempt.result_file, lambda file: file.write(text.encode("utf-8") + b"\n"))


def read_result(attempt: AttemptDir, run_id: str) -> Any:
    """Return what the function returned. A pickle that is not this user's own is refused."""
    text = private.read(attempt.result_file)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise Refused(f"{attempt.result_file} is damaged", "start the run again")
    if "value" in record:
        arrays = []
        if _has_arrays(record["value"]):
            arrays = _load(private.read(attempt.result_arrays_file))
        return _decode(record["value"], arrays)
    content, key = private.read(attempt.result_pickle_file), private.read_key()
    where = attempt.result_pickle_file
    if key is None or not private.is_signed(
        key, _place(attempt, run_id), content, record.get("signature")
    ):
        why = "its signature is not yours" if key else f"there is no {private.key_file()} here"
        raise Refused(
            f"{where} is not loaded: a pickle can run code, and {why}",
            "read it where, and as the user who, launched the run",
        )
    return pickle.loads(content)


def _place(attempt: AttemptDir, run_id: str) -> str:
    return f"{run_id}/{attempt.number}"


# JSON and arrays ----------------------------------------------------------------------------------


def _encode(value: Any, arrays: list[Any]) -> Any:
    """Return the value as JSON holds it. Exact types only: a subclass has more to it."""
    if type(value) in PLAIN and not (type(value) is int and value.bit_length() > MOST_BITS):
        return value
    if type(value) is list:
        return [_encode(each, arrays) for each in value]
    if type(value) is tuple:
        return {"$tuple": [_encode(each, arrays) for each in value]}
    if type(value) is dict:
        names = [key for key in value if type(key) is str and not key.startswith(MARK)]
        if len(names) == len(value):
            return {key: _encode(each, arrays) for key, each in value.items()}
        pairs = [[_encode(key, arrays), _encode(each, arrays)] for key, each in value.items()]
        return {"$dict": pairs}
    numpy = sys.modules.get("numpy")  # without it nothing is an array
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        is_array = type(value) is numpy.ndarray
        if (is_array or isinstance(value, numpy.generic)) and value.dtype.kind in "biufcSU":
            arrays.append(value)
            return {"$array" if is_array else "$number": len(arrays) - 1}
    raise _NotPlain


def _decode(value: Any, arrays: list[Any]) -> Any:
    if isinstance(value, list):
        return [_decode(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if "$tuple" in value:
        return tuple(_decode(each, arrays) for each in value["$tuple"])
    if "$dict" in value:
        return {_decode(key, arrays): _decode(each, arrays) for key, each in value["$dict"]}
    if "$array" in value:
        return arrays[value["$array"]]
    if "$number" in value:
        return arrays[value["$number"]][()]
    return {key: _decode(each, arrays) for key, each in value.items()}


def is_plain(value: Any) -> bool:
    """Return whether JSON and arrays hold a value."""
    try:
        _encode(value, [])
    except (_NotPlain, RecursionError):
        return False
    return True


def _has_arrays(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_arrays(each) for each in value)
    if not isinstance(value, dict):
        return False
    return any(key in ("$array", "$number") or _has_arrays(it) for key, it in value.items())


def _save(file: BinaryIO, arrays: list[Any]) -> None:
    import numpy

    # allow_pickle is an argument only since numpy 2.1; the kinds of dtype above need none
    numpy.savez(file, *arrays)


def _load(content: bytes) -> list[Any]:
    import numpy

    with numpy.load(io.BytesIO(content), allow_pickle=False) as found:
        return [found[f"arr_{index}"] for index in range(len(found.files))]


# pickles ------------------------------------------------------------------------------------------


def _write_pickle(attempt: AttemptDir, run_id: str, value: Any) -> dict[str, str]:
    """Write a pickle, and return the record that signs it."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    key = private.read_key()
    if key is None:
        raise CannotTravel(
            f"the function returned a {kind}, which needs a signed pickle, and this node does not "
            f"see {private.key_file()}",
            "return numbers, text, lists, dicts or numpy arrays",
        )
    try:
        content = dumps(value)
    except Exception as error:
        part, why = find_part(value, describe_error(error))
        what = f"and `result{part}` in it" if part else "which"
        raise CannotTravel(
            f"the function returned a {kind}, {what} can't be sent back: {why}",
            "return numbers, text, lists, dicts or numpy arrays",
        ) from None
    private.write(attempt.result_pickle_file, lambda file: file.write(content))
    return {"format": PICKLE, "signature": private.sign(key, _place(attempt, run_id), content)}
