"""The device that a rank computes on, and its precision.

The engines of torch and Lightning ask for both before they build anything. A GPU that is reserved
and would stand idle is refused, and so is a precision that this machine can only emulate.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch

from rampup.core.hardware import bf16_is_fast
from rampup.engines import parts
from rampup.errors import RampupError
from rampup.runtime.context import RankContext


def choose(
    wish: str, context: RankContext, gpus_per_node: int, environ: Mapping[str, str] = os.environ
) -> torch.device:
    """Return the device for `device=auto|cpu|cuda|mps`, or refuse what the machine can't give."""
    kind = _best() if wish == "auto" else wish
    if kind == "cpu":
        _refuse_idle_gpus(wish, gpus_per_node, environ)
        return torch.device("cpu")
    if kind == "mps":
        if not torch.backends.mps.is_available():
            raise RampupError(
                "device=mps: torch sees no Apple GPU here", "device=auto takes what there is"
            )
        return torch.device("mps")
    if not torch.cuda.is_available():
        raise RampupError("device=cuda: torch sees no GPU here", _why_no_cuda())
    visible = torch.cuda.device_count()
    return torch.device("cuda", context.local_rank if visible >= context.local_world_size else 0)


def check_precision(precision: str, device: torch.device) -> None:
    if device.type != "cpu" or precision == "fp32":
        return
    if precision == "fp16":
        raise RampupError("precision=fp16 does not train on a CPU", "precision=fp32")
    if not bf16_is_fast():
        raise RampupError(
            "precision=bf16: this CPU has neither AVX512-BF16 nor AMX and would be about 10 times "
            "slower than in fp32",
            "precision=fp32",
        )


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context of the forward pass; it does nothing for fp32."""
    kind = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return torch.autocast(device.type, dtype=kind or torch.bfloat16, enabled=kind is not None)


def move(batch: Any, device: torch.device, channels_last: bool) -> Any:
    """Return the batch on the device: a tensor, or a tuple, list or dict of tensors."""
    if isinstance(batch, torch.Tensor):
        images = channels_last and batch.dim() == 4
        layout = torch.channels_last if images else torch.preserve_format
        return batch.to(device, non_blocking=True, memory_format=layout)
    if isinstance(batch, dict):
        return {name: move(part, device, channels_last) for name, part in batch.items()}
    if isinstance(batch, tuple | list):
        return type(batch)([move(part, device, channels_last) for part in batch])
    return batch


def _best() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _refuse_idle_gpus(wish: str, gpus_per_node: int, environ: Mapping[str, str]) -> None:
    def hint(without: str) -> str:
        return without if wish == "cpu" else f"{_why_no_cuda()}; or {without}"

    parts.refuse_idle_gpus(gpus_per_node, f"but device={wish} means the CPU here", hint, environ)


def _why_no_cuda() -> str:
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is built without CUDA: install a build with it"
    return "check the driver with: nvidia-smi"
