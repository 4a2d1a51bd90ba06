"""What a run was started with: versions, the machine, chosen variables. Secrets are left out by name."""

import os
import platform
import sys
from typing import Any

PACKAGES = ("rampup", "torch", "lightning", "tensorflow", "tf_keras", "horovod", "numpy", "scikit-learn")
PREFIXES = ("SLURM_", "OMP_", "MKL_", "CUDA_", "NCCL_", "GLOO_", "PYTHON", "CONDA_", "LMOD_", "TF_", "TORCH_")
NAMES = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LOADEDMODULES", "MODULEPATH", "TMPDIR", "LANG", "USER", "HOME")
SECRET = ("TOKEN", "SECRET", "PASS", "KEY", "CREDENTIAL", "AUTH")


def describe() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "packages": versions(),
        "variables": variables(),
    }


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def variables() -> dict[str, str]:
    chosen = {name: value for name, value in os.environ.items() if name in NAMES or name.startswith(PREFIXES)}
    return {name: "(not shown)" if _is_secret(name) else value for name, value in sorted(chosen.items())}


def _is_secret(name: str) -> bool:
    return any(word in name.upper() for word in SECRET)
