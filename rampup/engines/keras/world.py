"""The ranks and replicas that train together: one device, several of one machine, several workers.

A World has one replica for each device of each rank. Its `all_reduce` belongs inside of a training
step, the other methods between two steps. Several replicas communicate through tf.distribute, or
through Horovod where a site has it and the user asks for it. engine.py builds one with
`build_world`; nothing else of the engine knows which kind it is.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.core.engines import keras as keras_version
from rampup.core.engines.base import find_version
from rampup.engines import parts
from rampup.engines.keras.setup import coordination_service, tf, without_chatter
from rampup.errors import RampupError
from rampup.runtime.context import RankContext

LOST_PEER_SIGNS = (
    *("collective", "connection reset", "socket closed", "unavailable", "heartbeat", "peer"),
    "horovod has been shut down",
)
OWN_FAULTS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
)
"""Errors that are a rank's own fault whatever they say: a full memory may name a collective
operation, and a missing file a peer."""
REMOTE_SIGNS = ("collective ops is aborted", "from remote target")
"""Signs that such an error came from another rank after all."""
SEVERAL = ("multiworker", "horovod")
"""Strategies for more than one rank."""


class World:
    """One rank with one device: there is nothing to communicate."""

    def __init__(self, context: RankContext) -> None:
        self.rank, self.size = context.rank, context.world_size
        self.strategy: tf.distribute.Strategy = tf.distribute.get_strategy()
        self.local_replicas = 1

    @property
    def replicas(self) -> int:
        """Return the number of replicas of all ranks."""
        return self.size * self.local_replicas

    @property
    def gradients(self) -> str:
        """Return the name of what sums the gradients."""
        return type(self.strategy).__name__

    def all_reduce(self, flat: Any) -> Any:
        """Return the sum over all replicas; called inside of a replica."""
        return flat

    def broadcast(self, variables: Sequence[Any]) -> None:
        """Give every rank the values of rank 0. tf.distribute does it when it makes variables."""

    def decorrelate_rngs(self, generators: Sequence[Any]) -> None:
        """Let the random numbers of layers differ between ranks.

        tf.distribute does it when it makes generators.
        """

    def run(self, function: Callable[..., Any], *pieces: Any) -> list[Any]:
        """Call a function in each replica of this rank, with its own piece, in a tf.function.

        Returns what each replica has returned.
        """
        strategy = self.strategy
        if self.local_replicas == 1:
            found = strategy.run(function, args=pieces[0])
            return list(strategy.experimental_local_results(found))
        given = strategy.experimental_distribute_values_from_function(
            lambda context: pieces[context.replica_id_in_sync_group % self.local_replicas]
        )
        found = strategy.run(lambda each: function(*each), (given,))
        return list(strategy.experimental_local_results(found))

    def sum(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum over all ranks, on every rank."""
        return numbers

    def gather(self, numbers: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        """Return the numbers of all ranks in their order; all must have the same size."""
        return [numbers]

    def agree(self, number: int) -> int:
        """Return the number of rank 0 on every rank."""
        return round(float(self.sum(np.array([number if self.rank == 0 else 0], np.float64))[0]))

    def wait(self) -> None:
        """Return when all ranks have called it."""
        self.agree(0)

    def final_barrier(self) -> None:
        """Wait for the others at the very end of a training that went well."""

    def is_lost_peer(self, error: Exception) -> bool:
        """Return whether an operation failed because another rank is gone."""
        if self.size == 1 or not isinstance(error, tf.errors.OpError):
            return False
        signs = REMOTE_SIGNS if isinstance(error, OWN_FAULTS) else LOST_PEER_SIGNS
        return parts.mentions(error, signs)


class Distributed(World):
    """tf.distribute: MirroredStrategy on one machine, MultiWorkerMirroredStrategy over several
    ranks."""

    def __init__(self, context: RankContext, strategy: tf.distribute.Strategy) -> None:
        super().__init__(context)
        self.strategy = strategy
        self.local_replicas = strategy.num_replicas_in_sync // self.size
        self._total = tf.function(self._sum_of_all)
        self._all = tf.function(self._gather_all)
        if self.size > 1:
            self._check()

    def all_reduce(self, flat: Any) -> Any:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, flat)

    def sum(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.size == 1:
            return numbers
        found: NDArray[np.float64] = self._total(tf.constant(numbers)).numpy()
        return found

    def gather(self, numbers: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        if self.size == 1:
            return [numbers]
        found = self._all(tf.constant(numbers)).numpy().reshape(self.size, self.local_replicas, -1)
        return list(found[:, 0])

    def final_barrier(self) -> None:
        """Let all ranks end together.

        A rank that is done may still be sending, and TensorFlow does not wait for that.
        """
        if self.size == 1:
            return
        service, others = coordination_service(), range(1, self.size)
        if self.rank > 0:
            service.set_config_key_value(f"rampup/done/{self.rank}", "")
            service.get_config_key_value("rampup/done")
            # The first rank ends as soon as it receives this, and its answer may be lost with it:
            # all work is done by then.
            with contextlib.suppress(tf.errors.OpError):
                service.set_config_key_value(f"rampup/left/{self.rank}", "")
            return
        for rank in others:
            service.get_config_key_value(f"rampup/done/{rank}")
        service.set_config_key_value("rampup/done", "")
        for rank in others:  # the service lives in this process
            service.get_config_key_value(f"rampup/left/{rank}")

    def _sum_of_all(self, numbers: Any) -> Any:
        def of_replica(mine: Any) -> Any:
            # One replica of a rank brings the number and the others bring zeros: thirds of 1 need
            # not add up to 1 again.
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_first = number % self.local_replicas == 0
            return self.all_reduce(tf.where(is_first, mine, tf.zeros_like(mine)))

        return self._run_and_take_first(of_replica, numbers)

    def _gather_all(self, numbers: Any) -> Any:
        def of_replica(mine: Any) -> Any:
            return tf.distribute.get_replica_context().all_gather(tf.identity(mine), axis=0)

        return self._run_and_take_first(of_replica, numbers)

    def _run_and_take_first(self, function: Callable[[Any], Any], numbers: Any) -> Any:
        found = self.strategy.run(function, (numbers,))
        return self.strategy.experimental_local_results(found)[0]

    def _check(self) -> None:
        sums = self.sum(np.array([self.rank, 1.0])).tolist()
        parts.check_world(sums, self.size, "TF_CONFIG must name every worker once")


class Horovod(World):
    """Ranks that MPI has started and that communicate through Horovod: `strategy=horovod`.

    Each rank has one device and its own model, equal to all others before the first step and after
    each. Horovod's rank and size must be those of the launcher: ranks that do not find each other
    would each train alone. Nothing is averaged: the weights of a global batch add up to 1 on any
    number of ranks.
    """

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self._hvd = _import_horovod()
        self._hvd.init()  # not inside of without_chatter: MPI ends the process when it fails
        there, here = (self._hvd.rank(), self._hvd.size()), (self.rank, self.size)
        if there != here:
            raise RampupError(
                "horovod says rank {} of {}, the launcher says rank {} of {}".format(*there, *here),
                "--launcher mpirun or --launcher pmix, of the MPI that Horovod was built with",
            )

    @property
    def gradients(self) -> str:
        return f"Horovod {find_version('horovod')}"

    def all_reduce(self, flat: Any) -> Any:
        return self._hvd.allreduce(flat, op=self._hvd.Sum)

    def broadcast(self, variables: Sequence[Any]) -> None:
        self._hvd.broadcast_variables(variables, root_rank=0)

    def decorrelate_rngs(self, generators: Sequence[Any]) -> None:
        # a counter of two words, and a key: each rank counts in its own range
        for state in generators:
            state.assign_add(tf.constant([0, self.rank, 0], state.dtype))

    def sum(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.all_reduce(tf.constant(numbers)).numpy()
        return found

    def gather(self, numbers: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        return list(self._hvd.allgather(tf.constant(numbers)).numpy().reshape(self.size, -1))


def _import_horovod() -> Any:
    keras_version.check_horovod()
    try:
        with without_chatter():
            import horovod.tensorflow
    except (ImportError, tf.errors.OpError) as error:
        # built for another framework, or for another TensorFlow
        reason = str(error).splitlines()[0]
        raise RampupError(
            f"Horovod can't be used with this TensorFlow {tf.__version__}: {reason}",
            keras_version.BUILD_HOROVOD,
        ) from error
    return horovod.tensorflow


def build_world(wish: str, context: RankContext, devices: list[str]) -> World:
    """Start TensorFlow for `strategy=auto|single|mirrored|multiworker|horovod`."""
    # one worker may have several GPUs
    kind = _best_strategy(context, devices) if wish in ("auto", "multiworker") else wish
    if kind not in SEVERAL and context.world_size > 1:
        raise RampupError(
            f"strategy={kind} trains in one process, and this run has {context.world_size} ranks",
            "strategy=multiworker, or --nodes 1 --tasks-per-node 1",
        )
    if kind == "horovod" and len(devices) > 1:
        raise RampupError(
            "strategy=horovod trains on one device per rank, and "
            f"rank {context.rank} has {len(devices)}",
            "as many --tasks-per-node as --gpus-per-node; cpu_devices=1",
        )
    if kind == "horovod" and context.world_size > 1:
        return Horovod(context)
    with without_chatter():
        world = _distributed(kind, context, devices)
        tf.config.list_logical_devices()
    # TensorFlow's coordination of several workers takes over SIGTERM, and does not call the handler
    # that was there before.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return world


def _distributed(kind: str, context: RankContext, devices: list[str]) -> World:
    if kind == "mirrored":
        return Distributed(context, tf.distribute.MirroredStrategy(devices))
    if kind == "multiworker":
        return Distributed(context, _multiworker(context))
    return World(context)


def _best_strategy(context: RankContext, devices: list[str]) -> str:
    """Choose for the ranks and devices; never Horovod, because tf.distribute needs no package."""
    if context.world_size > 1:
        return "multiworker"
    return "mirrored" if len(devices) > 1 else "single"


def _multiworker(context: RankContext) -> tf.distribute.Strategy:
    if not os.environ.get("TF_CONFIG"):
        raise RampupError(
            "strategy=multiworker: TF_CONFIG is not set for "
            f"rank {context.rank} of {context.world_size}",
            "at most 14 ranks on a node can have it: use fewer --tasks-per-node",
        )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        hint = "every rank must reach the addresses in TF_CONFIG"
        raise parts.cannot_join(context.rank, context.world_size, error, hint) from error
