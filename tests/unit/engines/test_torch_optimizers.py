"""Optimizers without torch's compiler take the steps of the stock ones, bit for bit."""

import copy
import io
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rampup.core.engines.torch import TORCH
from rampup.core.settings import Settings
from rampup.engines.torch.optimizers import WRAPPED, lighten
from rampup.engines.torch.task import RULES, optimizer_of

RULES_AND_WORDS: list[tuple[type[Optimizer], dict[str, Any]]] = [
    (SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    (SGD, {"momentum": 0.9, "weight_decay": 0.01, "nesterov": True, "fused": True}),
    (Adam, {"weight_decay": 0.01}),
    (Adam, {"weight_decay": 0.01, "fused": True}),
    (Adam, {"amsgrad": True, "foreach": True}),
    (AdamW, {"weight_decay": 0.1}),
    (AdamW, {"weight_decay": 0.1, "fused": True}),
    (RMSprop, {"weight_decay": 0.01}),
    (RMSprop, {"momentum": 0.9, "centered": True, "foreach": True}),
]
rules = pytest.mark.parametrize(("stock", "words"), RULES_AND_WORDS)


class Training:
    """A small network that learns something fixed."""

    def __init__(self, rule: type[Optimizer], words: dict[str, Any]) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3))
        groups = [
            {"params": self.model[0].parameters()},
            {"params": self.model[2].parameters(), "lr": 0.02},
        ]
        make: Any = rule
        self.optimizer: Optimizer = make(groups, lr=0.05, **words)

    def steps(self, count: int) -> None:
        data = torch.Generator().manual_seed(2)
        for _ in range(count):
            inputs, wanted = torch.randn(6, 7, generator=data), torch.randn(6, 3, generator=data)
            self.optimizer.zero_grad()
            (self.model(inputs) - wanted).square().mean().backward()
            self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """Through a file, as a checkpoint has it."""
        file = io.BytesIO()
        torch.save([self.model.state_dict(), self.optimizer.state_dict()], file)
        file.seek(0)
        model, optimizer = torch.load(file, weights_only=True)
        return {"model": model, "optimizer": optimizer}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def bits(value: Any) -> Any:
    """Of a state: equal only where every bit is."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {key: bits(each) for key, each in value.items()}
    return [bits(each) for each in value] if isinstance(value, list | tuple) else value


@rules
def test_the_same_bits_as_the_stock_one(stock: type[Optimizer], words: dict[str, Any]) -> None:
    ours, theirs = Training(lighten(stock), words), Training(stock, words)
    assert lighten(stock) is not stock and type(ours.optimizer) is lighten(stock)
    for _ in range(3):
        ours.steps(4)
        theirs.steps(4)
        assert bits(ours.state()) == bits(theirs.state())


@rules
@pytest.mark.parametrize("saved_by_stock", [True, False])
@pytest.mark.parametrize("loaded_by_stock", [True, False])
def test_a_state_of_either_goes_on_in_either(
    stock: type[Optimizer], words: dict[str, Any], saved_by_stock: bool, loaded_by_stock: bool
) -> None:
    whole = Training(stock, words)
    whole.steps(3)
    first = Training(stock if saved_by_stock else lighten(stock), words)
    first.steps(3)
    second = Training(stock if loaded_by_stock else lighten(stock), words)
    second.load(first.state())
    whole.steps(3)
    second.steps(3)
    assert bits(second.state()) == bits(whole.state())


def test_hooks_are_called_around_each_step() -> None:
    said: list[str] = []
    training = Training(lighten(Adam), {})
    training.optimizer.register_step_pre_hook(lambda *_: said.append("before"))
    training.optimizer.register_step_post_hook(lambda *_: said.append("after"))
    training.optimizer.register_state_dict_post_hook(lambda *_: said.append("state"))
    for_all = register_optimizer_step_pre_hook(lambda *_: said.append("all"))
    training.steps(2)
    for_all.remove()
    training.optimizer.state_dict()
    assert said == ["all", "before", "after"] * 2 + ["state"]


def test_a_closure_has_gradients_and_the_update_has_none() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer: Any = lighten(SGD)([weight], lr=0.1)  # type: ignore[call-arg]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    assert optimizer.step(closure).item() == 3.0
    assert weight.tolist() == pytest.approx([0.8] * 3) and weight.grad_fn is None
    assert torch.is_grad_enabled()


def test_scaler_and_schedule_work_with_it() -> None:
    ours, theirs = Training(lighten(Adam), {}), Training(Adam, {})
    for training in (ours, theirs):
        schedule = LambdaLR(training.optimizer, lambda step: 1 / (1 + step))
        scaler = GradScaler("cpu", init_scale=4.0)
        for _ in range(3):
            training.optimizer.zero_grad()
            loss = training.model(torch.ones(2, 7)).square().mean()
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.unscale_(training.optimizer)
            scaler.step(training.optimizer)
            scaler.update()
            schedule.step()
    assert bits(ours.state()) == bits(theirs.state())


def test_it_looks_like_the_stock_one_and_is_copied_as_that() -> None:
    training = Training(lighten(AdamW), {})
    training.steps(2)
    assert isinstance(training.optimizer, AdamW)
    assert repr(training.optimizer) == repr(Training(AdamW, {}).optimizer)
    pickles = [pickle.dumps(training.optimizer, protocol) for protocol in (2, 4)]
    for copied in (copy.deepcopy(training.optimizer), *map(pickle.loads, pickles)):
        assert type(copied) is AdamW
        assert bits(copied.state_dict()) == bits(training.optimizer.state_dict())


@pytest.mark.parametrize("name", WRAPPED)
def test_where_torch_wraps_otherwise_it_is_the_stock_one(name: str) -> None:
    bare = type("Bare", (SGD,), {name: lambda self: None})
    assert lighten(bare) is bare


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("changed", [{"compile": True}, {"engine": "lightning"}, {}])
def test_who_needs_the_compiler_has_the_stock_one(rule: str, changed: dict[str, Any]) -> None:
    values = {key: setting.default for key, setting in TORCH.items()}
    settings = Settings(values | {"optimizer": rule} | changed)
    expected = RULES[rule] if changed else lighten(RULES[rule])
    assert type(optimizer_of(settings, nn.Linear(2, 2))) is expected
    assert type(optimizer_of(settings, nn.Linear(2, 2, device="meta"))) is RULES[rule]


def test_no_compiler_is_imported() -> None:
    program = """
import sys, torch
from rampup.engines.torch.optimizers import lighten
for rule in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = lighten(rule)([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
