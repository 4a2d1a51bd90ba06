"""Whether somebody has reserved a GPU for this rank: a reserved one must not stand idle.
Framework-free."""

import os
from collections.abc import Mapping

NO_GPU = ("", "-1", "NoDevFiles", "none", "void")
"""What CUDA_VISIBLE_DEVICES says when there is none."""


def reserved(gpus_per_node: int, environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """What reserves a GPU, and how to do without; None when nothing does."""
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    if gpus_per_node > 0:
        return f"gpus_per_node={gpus_per_node}", "ask for no GPU: --gpus-per-node 0"
    if visible not in NO_GPU:
        return (
            f"CUDA_VISIBLE_DEVICES={visible}",
            "take no GPU: --devices '', or unset CUDA_VISIBLE_DEVICES",
        )
    return None
