"""Whether TensorFlow, tf_keras and Horovod are here, in versions that the engine knows. Nothing is
imported for it.

Asked before a run is made, on the machine where it is submitted, and again by every rank, on the
machine where it trains. Multi-worker training does not work in Keras 3, so the engine trains with
Keras 2, which is `tf_keras` now.
"""

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec

from rampup.errors import RampupError

OLDEST = (2, 15)
INSTALL = "pip install 'rampup[keras]'"
WHEELS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-rocm",
    "tensorflow-intel",
    "tensorflow-aarch64",
)
"""Each of them brings the module tensorflow."""
LEGACY = "TF_USE_LEGACY_KERAS"
"""TensorFlow's own variable: with 1 in it, `tf.keras` is tf_keras."""
BUILD_HOROVOD = (
    "`make horovod-env` builds an environment with it, for --env .venv-horovod; docs/horovod.md"
)


def check(environ: Mapping[str, str] = os.environ) -> None:
    """An error tells what is missing, too old or in the way."""
    for module in ("tensorflow", "tf_keras"):
        if find_spec(module) is None:
            raise RampupError(f"the keras engine needs {module}, which is not installed", INSTALL)
    found = version()
    if found is not None and found < OLDEST:
        oldest, here = (".".join(map(str, each)) for each in (OLDEST, found))
        raise RampupError(
            f"the keras engine needs TensorFlow {oldest} or newer, and here is {here}", INSTALL
        )
    if environ.get(LEGACY, "1").lower() not in ("1", "true"):
        message = f"{LEGACY}={environ[LEGACY]} makes tf.keras Keras 3, where training on several workers does not work"
        raise RampupError(message, f"unset {LEGACY}, or export {LEGACY}=1")


def needs_horovod(train: Mapping[str, object], ranks: int) -> bool:
    """One rank alone has nothing to add up."""
    return train.get("strategy") == "horovod" and ranks > 1


def check_horovod() -> None:
    if find_spec("horovod") is None:
        raise RampupError("strategy=horovod needs horovod, which is not installed", BUILD_HOROVOD)


def version() -> tuple[int, ...] | None:
    """Major and minor of TensorFlow; None where it is not told."""
    told = next(filter(None, map(of, WHEELS)), None)
    return tuple(int(part) for part in re.findall(r"\d+", told)[:2]) if told else None


def of(distribution: str) -> str | None:
    """The version of an installed one."""
    from importlib import metadata  # slow to import, and only a run of this engine needs it

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
