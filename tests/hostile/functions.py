"""Twelve functions that are hard to send to other processes, or that end badly there.

`python functions.py CASE OPTIONS` launches one, with options of `rampup.launch` as JSON, and prints
what came of it as JSON: a result, or an error with its rank, type and line. `cases.py` says what must
come of each, wherever it runs.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import rampup

FLOOD_LINES = 100_000
BIG = 500 * 1000 * 1000 // 8


def rank() -> int:
    return int(os.environ["RANK"])


def make_closure(factor: int) -> Any:
    def multiply(number: int) -> int:
        return factor * number + rank()

    return multiply


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def move(point: Point) -> Point:
    return Point(point.x + 1)


def count(batches: Any) -> int:
    return len(list(batches))


def add_up(numbers: Any) -> Any:
    return [numbers.shape, float(numbers[0]), float(numbers[-1])]


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1) + 1  # the line of the error


class OddError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def fail_oddly() -> None:
    if rank() == 1:
        raise OddError("it has a lock")  # the line of the error
    time.sleep(60)


def flood() -> int:
    for number in range(FLOOD_LINES):
        print("line", number)
    return FLOOD_LINES


def leave() -> None:
    sys.exit(3)  # the line of the error


def die() -> None:
    if rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def build_model() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Linear(2, 3)


def edit_module(options: dict[str, Any]) -> Any:
    """The ranks run what was there at the call, whatever the file says since."""
    module = Path(__file__).with_name("edited.py")
    module.write_text("def version():\n    return 'as submitted'\n")
    import edited  # type: ignore[import-not-found]

    job = rampup.launch(edited.version, **options, wait=False)
    module.write_text("def version():\n    return 'edited'\n")
    return job.result()


def launch(case: str, options: dict[str, Any]) -> Any:
    if case == "closure":
        return rampup.launch(make_closure(21), 2, **options)
    if case == "lambda":
        return rampup.launch(lambda number: [number, {"half": number / 2}], 41, **options)
    if case == "class in main":
        point = rampup.launch(move, Point(1), **options)
        return [isinstance(point, Point), point.x]
    if case == "generator":
        return rampup.launch(count, (number for number in range(3)), **options)
    if case == "big array":
        import numpy

        return rampup.launch(add_up, numpy.arange(BIG, dtype="float64"), **options)
    if case == "edited module":
        return edit_module(options)
    if case == "torch module":
        import torch

        torch.manual_seed(0)
        found, same = rampup.launch(build_model, **options), torch.nn.Linear(2, 3)
        return [type(found).__name__, bool(torch.equal(found.weight, same.weight))]
    plain = {
        "deep recursion": recurse,
        "odd exception": fail_oddly,
        "print flood": flood,
        "sys.exit": leave,
        "kill -9": die,
    }
    return rampup.launch(plain[case], **options)


def main(case: str, options: str) -> None:
    try:
        outcome: dict[str, Any] = {"result": launch(case, json.loads(options))}
    except rampup.RunFailed as error:
        outcome = {"failed": str(error), "rank": error.rank, "type": error.type}
        if error.line is not None:
            line = Path(error.file).read_text().splitlines()[error.line - 1]
            outcome["at_the_line"] = line.endswith("# the line of the error")
    except Exception as error:
        outcome = {"error": str(error), "notes": getattr(error, "__notes__", [])}
    print()
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
