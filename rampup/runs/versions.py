"""What a run was started with: versions, the machine, chosen variables. Secrets are left out by
name."""

import functools
import json
import os
import platform
import subprocess
import sys
from typing import Any

from rampup.core.settings import HIDDEN, is_secret_variable
from rampup.core.software import kind_of

PACKAGES = (
    "rampup",
    "torch",
    "lightning",
    "tensorflow",
    "tf_keras",
    "horovod",
    "numpy",
    "scikit-learn",
)
PREFIXES = (
    "SLURM_",
    "OMP_",
    "MKL_",
    "CUDA_",
    "NCCL_",
    "GLOO_",
    "PYTHON",
    "CONDA_",
    "LMOD_",
    "TF_",
    "TORCH_",
)
NAMES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "LOADEDMODULES",
    "MODULEPATH",
    "TMPDIR",
    "LANG",
    "USER",
    "HOME",
)
ASK = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        continue
print(json.dumps({"python": platform.python_version(), "executable": sys.executable, "packages": found}))
"""
ASK_WITHIN_S = 30.0


def describe(env: str = "") -> dict[str, Any]:
    """`env` is what the run runs in, when that is not the Python of rampup."""
    return {
        **versions(env),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "variables": variables(),
    }


@functools.cache  # for the many runs of a study
def versions(env: str) -> dict[str, Any]:
    """Of Python and of packages: asked of a venv; of another environment nothing is known before
    the job."""
    kind, path = kind_of(env)
    if not kind:
        return {
            "python": platform.python_version(),
            "executable": sys.executable,
            "packages": own_packages(),
        }
    if kind != "venv":
        return {"python": None, "executable": None, "packages": {}}
    argv = [f"{path}/bin/python", "-c", ASK, *PACKAGES]
    try:
        asked = subprocess.run(
            argv, capture_output=True, text=True, timeout=ASK_WITHIN_S, cwd="/", check=True
        )
        return dict(json.loads(asked.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        # it needs modules to start, or is too old to tell
        return {"python": None, "executable": argv[0], "packages": {}}


def own_packages() -> dict[str, str]:
    """By the names of what pip leaves beside them, as NAME-VERSION.dist-info.

    importlib.metadata reads all of each, longer than all else takes that is written before a run.
    """
    versions: dict[str, str] = {}
    for place in sys.path:
        try:
            names = os.listdir(place or os.curdir)
        except OSError:  # a zip file, or nothing
            continue
        for stem, _, kind in (name.rpartition(".") for name in names):
            if kind in ("dist-info", "egg-info"):
                package, dash, version = stem.partition("-")
                if dash:  # the last part of an egg's is -py3.11
                    versions.setdefault(_plain(package), version.partition("-")[0])
    return {name: versions[_plain(name)] for name in PACKAGES if _plain(name) in versions}


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def variables() -> dict[str, str]:
    chosen = {
        name: value
        for name, value in os.environ.items()
        if name in NAMES or name.startswith(PREFIXES)
    }
    return {
        name: HIDDEN if is_secret_variable(name) else value
        for name, value in sorted(chosen.items())
    }
