"""torch's optimizers without torch._dynamo, which takes about as long to import as torch itself.

torch wraps some methods of an optimizer for torch.compile, and the first call of each imports the
compiler, whether it is used or not. What they wrap is the whole rule, so a class that has the inner
functions takes the same steps, bit for bit. `optimizer_of` in task.py asks for one.
"""

from functools import cache
from inspect import unwrap
from typing import Any

import torch
from torch.optim import Optimizer

WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step")


@cache
def lighten(stock: type[Optimizer]) -> type[Optimizer]:
    """Return the same rule without the compiler, or the stock class where torch wraps its methods
    otherwise.

    Hooks work as ever: torch puts them around the step of a class when its first object is made.
    """
    if not all(hasattr(getattr(stock, name), "__wrapped__") for name in WRAPPED):
        return stock
    inner = {name: unwrap(getattr(stock, name)) for name in WRAPPED}
    inner["step"] = torch.no_grad()(inner["step"])
    about = {"__module__": stock.__module__, "__doc__": stock.__doc__, "__reduce__": _as_stock}
    return type(stock.__name__, (stock,), {**about, **inner})


def _as_stock(optimizer: Optimizer) -> tuple[Any, ...]:
    """What a pickle or a copy holds is of torch's own class, which everybody finds by its name."""
    return object.__new__, (type(optimizer).__base__,), optimizer.__getstate__()
