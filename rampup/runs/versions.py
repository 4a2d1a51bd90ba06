"""What a run was started with: versions, the machine, and the variables of a list, without
secrets."""

import functools
import json
import os
import platform
import subprocess
import sys
from typing import Any

from rampup.core.redact import redact_variables
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
VARIABLES = frozenset(
    (
        *("PATH", "LD_LIBRARY_PATH", "TMPDIR", "LANG", "USER", "HOME"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
        *("LOADEDMODULES", "MODULEPATH", "LMOD_VERSION", "LMOD_SYSTEM_NAME"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONNOUSERSITE", "PYTHONWARNINGS"),
        *("PYTHONOPTIMIZE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONMALLOC"),
        # the dozen of Slurm that explain a run; SLURM_JWT would be a login
        *("SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOB_NODELIST"),
        *("SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS", "SLURM_NNODES"),
        *("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_MPI_TYPE"),
        *("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC", "OMP_SCHEDULE"),
        *("KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_CPU_AFFINITY", "OPENBLAS_NUM_THREADS"),
        *("MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_HOME"),
        *("CUDA_MODULE_LOADING", "CUDA_CACHE_PATH", "CUBLAS_WORKSPACE_CONFIG"),
        *("NVIDIA_TF32_OVERRIDE", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_NET"),
        *("NCCL_NET_GDR_LEVEL", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_ALGO", "NCCL_PROTO"),
        *("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT"),
        *("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS", "TF_DETERMINISTIC_OPS"),
        *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_FORCE_GPU_ALLOW_GROWTH"),
        *("TF_GPU_THREAD_MODE", "TF_USE_LEGACY_KERAS", "XLA_FLAGS", "KERAS_BACKEND"),
        *("TORCH_HOME", "TORCH_DISTRIBUTED_DEBUG", "TORCH_CPP_LOG_LEVEL", "TORCH_LOGS"),
        *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT"),
        *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    )
)
"""The variables that are recorded, each because it explains how a run behaved; no other is."""
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
    return redact_variables(
        {name: os.environ[name] for name in sorted(VARIABLES & os.environ.keys())}
    )
