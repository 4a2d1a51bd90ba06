"""What people look at besides the metrics of a training with Lightning: a callback and the graph.

A recipe shows what it shows under the torch engine, by the same Insight. A user's module shows its
layers, its graph and its weights, and with `classes=` everything about its classes. Rank 0 draws,
at most every half minute and once at the end. It never changes the training: what a call of the
module changes is restored.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rampup.core.tfevents import Node
from rampup.engines.lightning.classes import ClassPass, ModuleClasses
from rampup.engines.lightning.plugins import NoBatchHooks
from rampup.engines.lightning.recipe import RecipeModule
from rampup.engines.torch import insight as torch_insight
from rampup.engines.torch.insight import LONGEST, Insight
from rampup.engines.torch.state import preserve
from rampup.engines.torch.world import World
from rampup.runtime.job import Job
from rampup.runtime.storage import say

QUESTIONS = ("__get__", "size", "dim", "__len__")
"""Questions about a tensor, which are not part of the graph."""


class InsightCallback(NoBatchHooks):
    """Shows the model when the training begins, and each validation."""

    def __init__(
        self,
        job: Job,
        world: World,
        classes: tuple[str, ...],
        log: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._job, self._world, self._classes, self._log = job, world, classes, log
        self._insight: Insight | None = None
        self._pass: ClassPass | None = None

    def show(self) -> None:
        """Show the last validation, unless that is done already; at the end or when stopped."""
        if self._insight is not None:
            self._insight.show()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        job = self._job
        if isinstance(pl_module, RecipeModule):
            self._insight = Insight(job, pl_module.task, pl_module.model, pl_module.evaluation)
        else:
            self._pass = ClassPass(trainer, self._world, self._classes, job.settings.seed)
            self._insight = Insight(
                job, ModuleClasses(job.settings, self._classes), pl_module, self._pass
            )
            if self._classes and not trainer.enable_validation and self._world.rank == 0:
                say("note: classes can't be counted: there is no validation")
        # its forward() is called, and may count or draw random numbers
        with preserve(pl_module, self._world.device):
            self._insight.begin(trace_graph)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or self._insight is None:
            return
        if self._pass is not None and self._classes:
            known = trainer.callback_metrics  # the module's own metrics take precedence
            found = self._pass.run()
            self._log({name: value for name, value in found.items() if name not in known})
        self._insight.update(trainer.global_step, trainer.current_epoch + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._insight is not None and not trainer.enable_validation:
            self._job.phases.mark("compute")
            self._insight.update(trainer.global_step, trainer.current_epoch + 1)
            self._job.phases.mark("evaluation")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._job.phases.mark("compute")
        ended_early = isinstance(pl_module, RecipeModule) and pl_module.ended_early
        if self._insight is not None and ended_early:
            self._insight.update(trainer.global_step, trainer.current_epoch)
        self.show()
        self._job.phases.mark("evaluation")


# the graph of a module ----------------------------------------------------------------------------


def trace_graph(module: nn.Module) -> list[Node]:
    """Return the graph of a module, or nothing if there is no way to find it.

    Tracing with symbols needs no data, but fails where the path depends on them; then a call with
    `example_input_array` shows the path that this example takes. A module without forward() shows
    the parts that it is made of.
    """
    if type(module).forward is LightningModule.forward:
        return [node for name, part in module.named_children() for node in _trace_part(name, part)]
    return torch_insight.trace_graph(module) or _record_call(module)


def _trace_part(name: str, part: nn.Module) -> list[Node]:
    if not any(True for _ in part.parameters()):  # a loss or a metric
        return []
    inner = torch_insight.trace_graph(part) if any(part.children()) else []
    if not inner:
        return [Node(name, type(part).__name__, [], str(part)[:LONGEST])]
    return [
        node._replace(name=f"{name}/{node.name}", inputs=[f"{name}/{each}" for each in node.inputs])
        for node in inner
    ]


def _record_call(module: nn.Module) -> list[Node]:
    example = getattr(module, "example_input_array", None)
    if example is None:
        return []
    recorder = Recorder(module)
    was_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad(), recorder:
            recorder.call(example)
    except Exception:  # the example is the user's own and may not fit
        return []
    finally:
        recorder.close()
        for part in was_training:
            part.training = True
    return recorder.nodes


class Recorder(TorchFunctionMode):
    """Records every layer and every other operation of a call, and which result goes into which."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self._module = module
        self._calls: Counter[str] = Counter()
        self._made_by: dict[int, str] = {}
        self._kept: list[Tensor] = []
        """Tensors kept alive, so that no later tensor gets the id of an earlier one."""
        self._inside = 0
        leaves = [
            (name, part)
            for name, part in module.named_modules()
            if name and not any(part.children())
        ]
        self._hooks = [hook for name, part in leaves for hook in self._watch(name, part)]

    def call(self, example: Any) -> None:
        """Call the module as Lightning does: a tuple is several arguments, a dict names them."""
        device = next(
            (parameter.device for parameter in self._module.parameters()), torch.device("cpu")
        )
        moved = move_data_to_device(example, device)
        for each in tensors_in(moved):
            self._add("input", "placeholder", [], each)
        if isinstance(moved, Mapping):
            self._module(**moved)
        else:
            self._module(*(moved if isinstance(moved, tuple) else (moved,)))

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if not self._inside and name not in QUESTIONS and any(True for _ in tensors_in(found)):
            self._add(name, name, [*args, *(kwargs or {}).values()], found)
        return found

    def _watch(self, name: str, part: nn.Module) -> Iterable[Any]:
        def enter(*_: Any) -> None:
            self._inside += 1

        def leave(_: nn.Module, inputs: Any, output: Any) -> None:
            self._inside -= 1
            self._add(
                name.replace(".", "/"), type(part).__name__, inputs, output, str(part)[:LONGEST]
            )

        yield part.register_forward_pre_hook(enter)
        yield part.register_forward_hook(leave)

    def _add(self, name: str, kind: str, inputs: Any, output: Any, note: str = "") -> None:
        self._calls[name] += 1
        unique = name if self._calls[name] == 1 else f"{name}_{self._calls[name]}"
        known = [
            self._made_by[id(each)] for each in tensors_in(inputs) if id(each) in self._made_by
        ]
        self.nodes.append(Node(unique, kind, list(dict.fromkeys(known)), note))
        for each in tensors_in(output):
            self._made_by[id(each)] = unique
            self._kept.append(each)


def tensors_in(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))
