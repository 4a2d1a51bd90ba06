"""What the ranks of a user's own loop agree on, if the script has joined them with
torch.distributed.

Used by `rampup.init()`. No framework is imported: without one in the script, each rank knows only
itself.
"""

import sys
from typing import Any


def any_rank(flag: bool) -> bool:
    """Whether it is so on any rank; the same on all of them, if all ask."""
    torch = _joined()
    if torch is None:
        return flag
    told = torch.tensor([float(flag)], device=_device(torch))
    torch.distributed.all_reduce(told)
    return bool(told.item() > 0)


def of_first_rank(number: int) -> int:
    """What rank 0 says, on all ranks, if all ask."""
    torch = _joined()
    if torch is None:
        return number
    told = torch.tensor([number], dtype=torch.int64, device=_device(torch))
    torch.distributed.broadcast(told, 0)
    return int(told.item())


def _joined() -> Any:
    """torch, when the script has imported it and its ranks are in one group."""
    torch = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    return torch if group is not None and group.is_available() and group.is_initialized() else None


def _device(torch: Any) -> str:
    return "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
