"""Whether TensorFlow and tf_keras are here, in versions that the keras engine knows. Nothing is imported to find out.

Asked before a run is made, on the machine where it is submitted, and again by every rank, on the machine where it
trains. Multi-worker training does not work in Keras 3, so the engine trains with Keras 2, which is `tf_keras` now.
"""

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec

from rampup.errors import RampupError

OLDEST = (2, 15)
INSTALL = "pip install 'rampup[keras]'"
WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-intel", "tensorflow-aarch64")
"""Each of them brings the module tensorflow."""
LEGACY = "TF_USE_LEGACY_KERAS"
"""TensorFlow's own variable: with 1 in it, `tf.keras` is tf_keras."""


def check(environ: Mapping[str, str] = os.environ) -> None:
    """An error tells what is missing, too old or in the way."""
    for module in ("tensorflow", "tf_keras"):
        if find_spec(module) is None:
            raise RampupError(f"the keras engine needs {module}, which is not installed", INSTALL)
    found = version()
    if found is not None and found < OLDEST:
        oldest, here = (".".join(map(str, each)) for each in (OLDEST, found))
        raise RampupError(f"the keras engine needs TensorFlow {oldest} or newer, and here is {here}", INSTALL)
    if environ.get(LEGACY, "1").lower() not in ("1", "true"):
        message = f"{LEGACY}={environ[LEGACY]} makes tf.keras Keras 3, where training on several workers does not work"
        raise RampupError(message, f"unset {LEGACY}, or export {LEGACY}=1")


def version() -> tuple[int, ...] | None:
    """Major and minor of TensorFlow; None where it is not told."""
    from importlib import metadata  # slow to import, and only a run of this engine needs it

    for name in WHEELS:
        try:
            return tuple(int(part) for part in re.findall(r"\d+", metadata.version(name))[:2])
        except metadata.PackageNotFoundError:
            continue
    return None
