"""Reading a checkpoint of Lightning: as plain data first, and as a pickle only if it is yours alone.

A pickle runs code when it is loaded. Lightning's own state is plain data and a few known classes,
but a module may save any object, for example as a hyper-parameter. Such a checkpoint is loaded only
from a file that nobody else can have written. SafeCheckpointIO calls this for every checkpoint.
"""

import argparse
import collections
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.trainer.states import RunningStage, TrainerFn, TrainerStatus

from rampup.errors import RampupError

try:
    from numpy._core import multiarray
except ImportError:  # numpy 1
    from numpy.core import multiarray  # type: ignore[no-redef]

SAFE: list[Any] = [
    (
        collections.OrderedDict,
        "lightning.fabric.utilities.data.AttributeDict",
    ),  # of hyper-parameters
    *(argparse.Namespace, collections.OrderedDict, collections.defaultdict, collections.deque),
    *(RunningStage, TrainerFn, TrainerStatus),
    *(set, frozenset, complex, slice, range),
    *(np.ndarray, np.dtype, multiarray.scalar, multiarray._reconstruct),
    *{type(np.dtype(kind)) for kind in "?bBhHiIlLqQefdFD"},
]
"""Classes without an effect of their own, which Lightning or a usual module puts in a checkpoint."""

Load = Callable[[bool], dict[str, Any]]
"""Loads a checkpoint; True: plain data alone."""


def load_checkpoint(path: Path, load: Load) -> dict[str, Any]:
    try:
        with torch.serialization.safe_globals(SAFE):
            return load(True)
    except pickle.UnpicklingError as error:
        fault = find_fault(path)
        if fault:
            what = str(error).split("GLOBAL ")[-1].split(" ")[0] if "GLOBAL " in str(error) else ""
            raise RampupError(
                f"{path} is not loaded: it holds Python objects{f' ({what})' if what else ''}, and {fault}",
                "loading them runs code that is in the file; if you trust it: "
                f"chown -R $USER {path.parent} && chmod -R go-w {path.parent}",
            ) from None
    return load(False)


def find_fault(path: Path) -> str:
    """Return who else may have written a checkpoint; empty if it is this user's alone."""
    for place in (path, path.parent):
        facts = place.stat()
        if facts.st_uid != os.geteuid():
            return f"{place} belongs to user {facts.st_uid}, not to you ({os.geteuid()})"
        # many systems give each user a group of the same number
        alone = facts.st_gid == facts.st_uid
        if facts.st_mode & stat.S_IWOTH or (facts.st_mode & stat.S_IWGRP and not alone):
            return f"others may write {place}: its mode is {stat.S_IMODE(facts.st_mode):04o}"
    return ""
