"""What people look at besides the metrics, of a training with Lightning: a callback around
torch_insight.py.

A recipe shows what it shows under the torch engine. A module of the user's shows its layers, its
graph and its weights, and with `classes=` all about its classes. Rank 0 draws, at most every half
minute and once at the end.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from rampup.engines.lightning import graph as lightning_graph
from rampup.engines.lightning.classes import ClassPass, OwnClasses
from rampup.engines.lightning.plugins import Rare
from rampup.engines.lightning.recipe import RecipeModule
from rampup.engines.torch.insight import Insight
from rampup.engines.torch.state import untouched
from rampup.engines.torch.world import World
from rampup.runtime.job import Job
from rampup.runtime.storage import say


class Looks(Rare):
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
        """What was validated last, unless it was shown: at the end, and when all is stopped."""
        if self._insight is not None:
            self._insight.show()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        job = self._job
        if isinstance(pl_module, RecipeModule):
            self._insight = Insight(job, pl_module.task, pl_module.model, pl_module.evaluation)
        else:
            self._pass = ClassPass(trainer, self._world, self._classes, job.settings.seed)
            self._insight = Insight(
                job, OwnClasses(job.settings, self._classes), pl_module, self._pass
            )
            if self._classes and not trainer.enable_validation and self._world.rank == 0:
                say("note: classes can't be counted: there is no validation")
        # its forward() is called, and may count or draw
        with untouched(pl_module, self._world.device):
            self._insight.begin(lightning_graph.graph_of)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or self._insight is None:
            return
        if self._pass is not None and self._classes:
            known = trainer.callback_metrics  # what the module says of itself stands
            self._log(
                {name: value for name, value in self._pass.run().items() if name not in known}
            )
        self._insight.validated(trainer.global_step, trainer.current_epoch + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._insight is not None and not trainer.enable_validation:
            self._job.phases.mark("compute")
            self._insight.validated(trainer.global_step, trainer.current_epoch + 1)
            self._job.phases.mark("evaluation")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._job.phases.mark("compute")
        if (
            self._insight is not None
            and isinstance(pl_module, RecipeModule)
            and pl_module.ended_early
        ):
            self._insight.validated(trainer.global_step, trainer.current_epoch)
        self.show()
        self._job.phases.mark("evaluation")
