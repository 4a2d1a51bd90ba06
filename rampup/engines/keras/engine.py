"""The keras engine: a lean loop over a Task in plain Keras 2.

The worker calls `load_target` and `train` on every rank. Every global batch holds the same samples
on any number of workers and devices, gradients are summed, and validation counts each sample once.
The learning rate and the order of the data follow from the step alone, so a later attempt can
continue at any step. It never parses a scheduler's variables and never opens a file: rows, lines
and checkpoints go through the job.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from rampup.core.mlperf import Benchmark
from rampup.core.settings import Settings
from rampup.data.reader import SampleReader
from rampup.engines import parts
from rampup.engines.base import Loop
from rampup.engines.clusters import describe_clusters, draw_clusters
from rampup.engines.keras import data as keras_data
from rampup.engines.keras import setup as keras_setup
from rampup.engines.keras.evaluation import Evaluation
from rampup.engines.keras.model import CompiledModel
from rampup.engines.keras.normalisation import build_cut
from rampup.engines.keras.ranks import Ranks
from rampup.engines.keras.recompute import Recomputation
from rampup.engines.keras.setup import tf, tf_keras
from rampup.engines.keras.state import State
from rampup.engines.keras.step import RunningLoss, Step, StreamedStep
from rampup.engines.keras.target import Target
from rampup.engines.keras.task import Task
from rampup.engines.keras.world import World, build_world
from rampup.errors import RampupError
from rampup.rundir.records import Record
from rampup.runtime.job import Job, TrainingResult
from rampup.runtime.storage import say


def load_target(config: Record, settings: Settings) -> Task:
    """Import a recipe and build its task, or a user's own functions and make a task of them."""
    found = parts.load_entry(config)
    if isinstance(found, type):
        task: Task = found(settings)
        return task
    return Target(found, config, settings)


def train(job: Job, task: Task) -> TrainingResult:
    """Train to the last epoch, to the target, or until asked to stop.

    The outcome is the same on every rank.
    """
    settings, context = job.settings, job.context
    devices = keras_setup.prepare(
        context,
        job.gpus_per_node,
        settings.inter_threads,
        settings.intra_threads,
        settings.cpu_devices,
    )
    world = build_world(settings.strategy, context, devices)
    try:
        training = Training(job, task, world, devices)
        outcome = training.run()
        results: Mapping[str, Any] = {}
        if not outcome.stopped:
            results = task.results(training.compiled.model, training.ranks)
        if world.size > 1:
            keras_setup.mute()
            world.final_barrier()
    except tf.errors.OpError as error:
        if world.is_lost_peer(error):
            raise parts.lost_peer(world.rank) from error
        raise
    except keras_setup.StagingError as error:
        # TensorFlow wraps an error that was raised while it made a graph.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, RampupError):
            cause = cause.__context__
        if cause is None:
            raise
        raise cause from None
    if world.rank == 0 and not outcome.stopped:
        for name, value in {**results, **task.end(training.compiled.model)}.items():
            job.events.write("result", name=name, value=value)
            say(f"{name}: {value}")
    return outcome


class Training(Loop):
    """One rank's side of a run: the parts built from the settings, and the step that uses them."""

    def __init__(self, job: Job, task: Task, world: World, devices: list[str]) -> None:
        settings, phases = job.settings, job.phases
        phases.mark("start")
        # a split drawn at random is the same on every rank, and after a resume
        keras_setup.seed_everything(settings.seed)
        self.data, validation = open_data(job, task)
        if len(self.data) == 0:
            raise RampupError(
                "there are no training samples", "check what loads the data: it returned none"
            )
        checksum = keras_data.check_same(self.data, validation, world)
        phases.mark("data")
        super().__init__(job, world, len(self.data))
        self.task = task
        self.world: World = world
        self.devices = devices
        self.compiled = CompiledModel(task, world)
        self.loss: RunningLoss = RunningLoss()
        self.facts = {**self._facts(), "data": checksum}
        self.state = State(self.compiled, self.loss, world, settings.seed)
        self.ranks = Ranks(world, self.compiled.model, self.data, settings.eval_batch_size)
        self.statistics = Recomputation(self.compiled, self.data, settings, world)
        self.has_step_hook = type(task).before_step is not Task.before_step
        world.decorrelate_rngs(self.state.generators)
        self.base_rate = self.compiled.base_rate
        phases.mark("start")
        has_clusters = type(task).clustering is not Task.clustering
        self.evaluation = Evaluation(
            self.compiled,
            validation,
            settings,
            world,
            task.outputs,
            task.clustering if has_clusters else None,
        )
        phases.mark("evaluation")
        parts.check_monitor(settings.monitor, self.evaluation.metrics)
        self.on_cpu = devices[0].startswith("CPU")
        self.read_every = 1 if self.on_cpu else parts.AGREE_EVERY

    def begin(self) -> None:
        settings = self.settings
        cut = build_cut(self.compiled, self.data, settings, self.world, is_new=self.step == 0)
        batches = keras_data.training_batches(
            *(self.data, settings.batch_size, settings.seed, self.step, self.last_step),
            *(self.world, cut),
        )
        step = StreamedStep if hasattr(self.data, "training_batches") else Step
        self.update = step(self.compiled, self.loss, self.world, settings.clip, batches)

    def describe_benchmark(self) -> tuple[Benchmark, dict[str, object]] | None:
        benchmark = self.task.benchmark(self.compiled.optimizer, self.schedule.steps)
        if benchmark is None:
            return None
        ranks_per_node = self.job.context.local_world_size
        accelerators = 0 if self.on_cpu else ranks_per_node * self.world.local_replicas
        return benchmark, {
            "seed": self.settings.seed,
            "number_of_ranks": self.world.size,
            "number_of_nodes": -(-self.world.size // ranks_per_node),
            "accelerators_per_node": accelerators,
            "global_batch_size": self.settings.batch_size,
            "train_samples": self.samples,
            "eval_samples": self.evaluation.samples,
        }

    def begin_epoch(self, epoch: int) -> None:
        self.task.before_epoch(self.compiled.model, epoch)

    def take_step(self, epoch: int, low: int, high: int) -> None:
        stop_vote, save_vote = bool(self.job.stop.reason), self.job.saving.wants_checkpoint()
        rate = (self.base_rate or 0.0) * self.schedule.factor(self.step)
        if self.has_step_hook:
            self.task.before_step(self.compiled.model, (epoch - 1) * self.samples + low)
        self.update.fetch()
        self.job.phases.mark("data")
        votes = self.update.take(high - low, rate, stop_vote, save_vote)
        self.loss.samples += high - low
        self.step += 1
        if self.world.size == 1:
            self.stop_agreed, self.save_agreed = stop_vote, save_vote
        elif self.step % self.read_every == 0:
            self.stop_agreed, self.save_agreed = (ranks > 0 for ranks in votes.numpy().tolist())
        else:
            self.stop_agreed = self.save_agreed = False
        self.job.phases.mark("compute")

    def end_epoch(self, epoch: int) -> None:
        self.statistics.refresh(self.step)
        self.task.after_epoch(self.compiled.model, epoch, self.ranks)

    def evaluate(self) -> dict[str, float]:
        self.statistics.refresh(self.step)
        return self.evaluation.run()

    def show_row(self, epoch: int, row: dict[str, float]) -> None:
        super().show_row(epoch, row)
        shown = self.evaluation.record() | self._show_clusters(epoch)
        if shown:
            self.job.write_evaluation({"step": self.step, "epoch": epoch, **shown})

    def _show_clusters(self, epoch: int) -> dict[str, Any]:
        """Draw the clusters of the last validation for TensorBoard, and return what the report
        needs."""
        found = self.evaluation.clustering()
        if found is None:
            return {}
        draw_clusters(self.job.tensorboard, self.step, found)
        switches = [
            {"step": (first - 1) * self.steps_per_epoch, "label": label}
            for first, label in sorted(self.task.switches.items())
            if first <= epoch
        ]
        return {
            "clusters": describe_clusters(found, self.task.clustering_metric, self.steps_per_epoch),
            "switches": switches,
        }

    def end(self) -> None:
        """Do nothing: all that remains of the model is its checkpoint."""

    def learning_rate(self) -> float:
        return float(self.compiled.optimizer.learning_rate.numpy())

    def inexact_reasons(self) -> list[str]:
        return [] if self.on_cpu else [parts.GPU_SUMS]

    def _facts(self) -> dict[str, Any]:
        threads = tf.config.threading
        return parts.resume_facts(
            world_size=self.world.size,
            threads=threads.get_intra_op_parallelism_threads(),
            device=",".join(self.devices),
            gradients=self.world.gradients,
            packages={
                "tensorflow": str(tf.__version__),
                "tf_keras": str(tf_keras.__version__),
                "numpy": np.__version__,
            },
            more={
                "inter_threads": threads.get_inter_op_parallelism_threads(),
                "onednn": os.environ["TF_ENABLE_ONEDNN_OPTS"],
                "thread_settings": keras_setup.describe_threads(),
            },
        )


def open_data(job: Job, task: Task) -> tuple[Any, Any]:
    """Return training and validation data. What lies in files is read while the steps compute."""
    train, validation = task.data()
    if not isinstance(train, SampleReader) and not isinstance(validation, SampleReader):
        return train, validation
    from rampup.engines.keras.streams import open_streams  # not for data in memory

    return open_streams(train, validation, job, lambda: bool(job.stop.reason))
