"""The keras engine: a lean loop over a Task in plain Keras 2. The worker calls `train` on every
rank.

Every global batch holds the same samples on any number of workers and devices, gradients are
summed, validation counts each sample once. The learning rate and the order of the data follow from
the step alone, so a later attempt goes on at any step. It never parses a scheduler's variables and
never opens a file: rows, lines, checkpoints go through the job.
"""

import os
import platform
from typing import Any

import numpy as np

from rampup import __version__
from rampup.core import hardware
from rampup.engines.base import Loop, check_monitor
from rampup.engines.keras import data as keras_data
from rampup.engines.keras import seed as keras_seed
from rampup.engines.keras import setup as keras_setup
from rampup.engines.keras.evaluation import Evaluation
from rampup.engines.keras.loss import RunningLoss
from rampup.engines.keras.model import Compiled
from rampup.engines.keras.setup import tf, tf_keras
from rampup.engines.keras.state import State
from rampup.engines.keras.step import Step
from rampup.engines.keras.task import Task
from rampup.engines.keras.world import World, world_of
from rampup.errors import RampupError
from rampup.runtime.job import Job, TrainingResult
from rampup.runtime.storage import say

AGREE_EVERY = 10
"""Steps between two looks at the wishes on a GPU, where a look waits for the steps before."""


def train(job: Job, task: Task) -> TrainingResult:
    """Train to the last epoch, to the target, or until asked to stop. The outcome is the same on
    every rank."""
    settings, context = job.settings, job.context
    devices = keras_setup.prepare(
        context,
        job.gpus_per_node,
        settings.inter_threads,
        settings.intra_threads,
        settings.cpu_devices,
    )
    world = world_of(settings.strategy, context, devices)
    try:
        training = Training(job, task, world, devices)
        outcome = training.run()
        if world.size > 1:
            keras_setup.mute()
            world.leave()
    except tf.errors.OpError as error:
        if world.is_lost_peer(error):
            message = f"rank {world.rank} lost contact with another rank"
            raise RampupError(message, "the rank that failed first tells the cause") from error
        raise
    except keras_setup.StagingError as error:
        # What is refused while TensorFlow makes a graph, it wraps as an error of its own.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, RampupError):
            cause = cause.__context__
        if cause is None:
            raise
        raise cause from None
    if world.rank == 0 and not outcome.stopped:
        for name, value in task.end(training.compiled.model).items():
            job.events.write("result", name=name, value=value)
            say(f"{name}: {value}")
    return outcome


class Training(Loop):
    """One rank's side of a run: parts built from the settings, and the step that turns them."""

    def __init__(self, job: Job, task: Task, world: World, devices: list[str]) -> None:
        settings, phases = job.settings, job.phases
        phases.mark("start")
        # a split drawn at random is the same on every rank, and after a resume
        keras_seed.start(settings.seed)
        self.data, validation = task.data()
        if len(self.data) == 0:
            raise RampupError(
                "there are no training samples", "check what loads the data: it returned none"
            )
        checksum = keras_data.check_same(self.data, validation, world)
        phases.mark("data")
        super().__init__(job, world, len(self.data))
        self.world: World = world
        self.devices = devices
        self.compiled = Compiled(task, world)
        self.loss: RunningLoss = RunningLoss()
        self.facts = {**self._facts(), "data": checksum}
        self.state = State(self.compiled, self.loss, world, settings.seed)
        world.tell_apart(self.state.generators)
        self.base_rate = self.compiled.base_rate
        phases.mark("start")
        self.evaluation = Evaluation(self.compiled, validation, settings, world)
        phases.mark("evaluation")
        check_monitor(settings.monitor, self.evaluation.metrics)
        self.look_every = 1 if devices[0].startswith("CPU") else AGREE_EVERY

    def begin(self) -> None:
        settings = self.settings
        batches = keras_data.training(
            self.data, settings.batch_size, settings.seed, self.step, self.last_step, self.world
        )
        self.update = Step(self.compiled, self.loss, self.world, settings.clip, batches)

    def begin_epoch(self, epoch: int) -> None:
        """The pipeline knows the order of every epoch."""

    def take_step(self, epoch: int, low: int, high: int) -> None:
        wish_stop, wish_save = bool(self.job.stop.reason), self.job.saving.wants_checkpoint()
        rate = (self.base_rate or 0.0) * self.schedule.factor(self.step)
        heard = self.update.take(high - low, rate, wish_stop, wish_save)
        self.loss.samples += high - low
        self.step += 1
        if self.world.size == 1:
            self.stop_agreed, self.save_agreed = wish_stop, wish_save
        elif self.step % self.look_every == 0:
            self.stop_agreed, self.save_agreed = (ranks > 0 for ranks in heard.numpy().tolist())
        else:
            self.stop_agreed = self.save_agreed = False
        self.job.phases.mark("compute")

    def evaluate(self) -> dict[str, float]:
        return self.evaluation.run()

    def end(self) -> None:
        """What is left of the model is its checkpoint."""

    def rate(self) -> float:
        return float(self.compiled.optimizer.learning_rate.numpy())

    def inexact(self) -> list[str]:
        return [] if self.devices[0].startswith("CPU") else ["sums on a GPU come in any order"]

    def _facts(self) -> dict[str, Any]:
        threads = tf.config.threading
        return {
            "world_size": self.world.size,
            "threads": threads.get_intra_op_parallelism_threads(),
            "inter_threads": threads.get_inter_op_parallelism_threads(),
            "onednn": os.environ["TF_ENABLE_ONEDNN_OPTS"],
            "device": ",".join(self.devices),
            "gradients": self.world.gradients,
            "cpu": hardware.cpu_model(),
            "versions": {
                "rampup": __version__,
                "tensorflow": str(tf.__version__),
                "tf_keras": str(tf_keras.__version__),
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }
