"""What the ranks of a user's own loop agree on, if the script has joined them with
torch.distributed.

Used by `rampup.init()`. No framework is imported: without one in the script, each rank knows only
itself.
"""

import sys
from typing import Any


def any_rank(flag: bool) -> bool:
    """Return whether the flag is set on any rank; the same answer on all ranks, if all ask."""
    torch = _joined_torch()
    if torch is None:
        return flag
    shared = torch.tensor([float(flag)], device=_device(torch))
    torch.distributed.all_reduce(shared)
    return bool(shared.item() > 0)


def first_rank_value(number: int) -> int:
    """Return rank 0's number on all ranks, if all ask."""
    torch = _joined_torch()
    if torch is None:
        return number
    shared = torch.tensor([number], dtype=torch.int64, device=_device(torch))
    torch.distributed.broadcast(shared, 0)
    return int(shared.item())


def _joined_torch() -> Any:
    """Return torch, if the script has imported it and its ranks are in one group."""
    torch = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    return torch if group is not None and group.is_available() and group.is_initialized() else None


def _device(torch: Any) -> str:
    return "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
