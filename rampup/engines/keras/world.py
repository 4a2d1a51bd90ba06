"""Who trains together, and how what they have is added up: one device, several of one machine,
several workers.

A World has replicas: one for each device of each rank. Its `add_up` belongs inside of a training
step, the rest between two steps. Several replicas go through tf.distribute here, and through
Horovod in keras_horovod.py.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.engines.keras.setup import coordination, tf, without_chatter
from rampup.errors import RampupError
from rampup.runtime.context import RankContext

SIGNS_OF_A_LOST_PEER = (
    *("collective", "connection reset", "socket closed", "unavailable", "heartbeat", "peer"),
    "horovod has been shut down",
)
OWN_FAULTS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
)
"""Whatever their words: a memory that is full may name a collective operation, and a missing file a
peer."""
OF_A_PEER = ("collective ops is aborted", "from remote target")
"""Unless it was told by another rank, as an error of the same kind."""
SEVERAL = ("multiworker", "horovod")
"""Strategies for more than one rank."""


class World:
    """One rank with one device: nothing has to be added up."""

    def __init__(self, context: RankContext) -> None:
        self.rank, self.size = context.rank, context.world_size
        self.strategy: tf.distribute.Strategy = tf.distribute.get_strategy()
        self.local_replicas = 1

    @property
    def replicas(self) -> int:
        """Of all ranks."""
        return self.size * self.local_replicas

    @property
    def gradients(self) -> str:
        """What adds them up."""
        return type(self.strategy).__name__

    def add_up(self, flat: Any) -> Any:
        """In a replica: the sum of what all replicas have."""
        return flat

    def share(self, variables: Sequence[Any]) -> None:
        """The first rank's values on every rank. tf.distribute has done it when the variables were
        made."""

    def tell_apart(self, generators: Sequence[Any]) -> None:
        """Let the random numbers of layers differ between ranks. tf.distribute has done it when
        they were made."""

    def run(self, function: Callable[..., Any], *pieces: Any) -> list[Any]:
        """Call it in each replica of this rank, with its own piece, inside of a tf.function; what
        each returned."""
        if self.local_replicas == 1:
            return list(
                self.strategy.experimental_local_results(
                    self.strategy.run(function, args=pieces[0])
                )
            )
        given = self.strategy.experimental_distribute_values_from_function(
            lambda context: pieces[context.replica_id_in_sync_group % self.local_replicas]
        )
        return list(
            self.strategy.experimental_local_results(
                self.strategy.run(lambda each: function(*each), (given,))
            )
        )

    def sum(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of all ranks, on every rank."""
        return numbers

    def gather(self, numbers: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        """What every rank has, in the order of the ranks; all must be of one size."""
        return [numbers]

    def agree(self, number: int) -> int:
        """What rank 0 says, on every rank."""
        return round(float(self.sum(np.array([number if self.rank == 0 else 0], np.float64))[0]))

    def wait(self) -> None:
        """Until all ranks are here."""
        self.agree(0)

    def leave(self) -> None:
        """The last thing that a rank calls, when all went well."""

    def is_lost_peer(self, error: Exception) -> bool:
        """Whether it failed because another rank is gone."""
        if self.size == 1 or not isinstance(error, tf.errors.OpError):
            return False
        words = str(error).lower()
        return any(
            it in words
            for it in (OF_A_PEER if isinstance(error, OWN_FAULTS) else SIGNS_OF_A_LOST_PEER)
        )


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

    def add_up(self, flat: Any) -> Any:
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

    def leave(self) -> None:
        """Together: a rank that is done may still be sending, and TensorFlow does not wait for that
        when it ends."""
        if self.size == 1:
            return
        service, others = coordination(), range(1, self.size)
        if self.rank > 0:
            service.set_config_key_value(f"rampup/done/{self.rank}", "")
            service.get_config_key_value("rampup/done")
            # The first rank ends as soon as it hears this, and its answer may be lost with it: all
            # is done by then.
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
            # One replica of a rank brings it and the others bring zeros: thirds of 1 need not add
            # up to 1 again.
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            return self.add_up(
                tf.where(number % self.local_replicas == 0, mine, tf.zeros_like(mine))
            )

        return self.strategy.experimental_local_results(self.strategy.run(of_replica, (numbers,)))[
            0
        ]

    def _gather_all(self, numbers: Any) -> Any:
        def of_replica(mine: Any) -> Any:
            return tf.distribute.get_replica_context().all_gather(tf.identity(mine), axis=0)

        return self.strategy.experimental_local_results(self.strategy.run(of_replica, (numbers,)))[
            0
        ]

    def _check(self) -> None:
        """A rank that trains alone, or twice, would go unseen for hours."""
        found = self.sum(np.array([self.rank, 1.0])).tolist()
        if found != [self.size * (self.size - 1) / 2, self.size]:
            raise RampupError(
                f"the ranks do not form one world of {self.size}: their numbers add up to {found[0]:.0f}",
                "TF_CONFIG must name every worker once",
            )


def world_of(wish: str, context: RankContext, devices: list[str]) -> World:
    """For `strategy=auto|single|mirrored|multiworker|horovod`. TensorFlow's own start is part of
    it."""
    # one worker may have several GPUs
    kind = _best(context, devices) if wish in ("auto", "multiworker") else wish
    if kind not in SEVERAL and context.world_size > 1:
        raise RampupError(
            f"strategy={kind} trains in one process, and this run has {context.world_size} ranks",
            "strategy=multiworker, or --nodes 1 --tasks-per-node 1",
        )
    if kind == "horovod" and len(devices) > 1:
        raise RampupError(
            f"strategy=horovod trains on one device per rank, and rank {context.rank} has {len(devices)}",
            "as many --tasks-per-node as --gpus-per-node; cpu_devices=1",
        )
    if kind == "horovod" and context.world_size > 1:
        from rampup.engines.keras.horovod import Horovod

        return Horovod(context)
    with without_chatter():
        world = _distributed(kind, context, devices)
        tf.config.list_logical_devices()
    # TensorFlow's coordination of several workers takes SIGTERM for itself, and tells nobody who
    # listened before.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return world


def _distributed(kind: str, context: RankContext, devices: list[str]) -> World:
    if kind == "mirrored":
        return Distributed(context, tf.distribute.MirroredStrategy(devices))
    if kind == "multiworker":
        return Distributed(context, _multiworker(context))
    return World(context)


def _best(context: RankContext, devices: list[str]) -> str:
    """Horovod is never chosen: what tf.distribute does needs no other package."""
    if context.world_size > 1:
        return "multiworker"
    return "mirrored" if len(devices) > 1 else "single"


def _multiworker(context: RankContext) -> tf.distribute.Strategy:
    if not os.environ.get("TF_CONFIG"):
        raise RampupError(
            f"strategy=multiworker: TF_CONFIG is not set for rank {context.rank} of {context.world_size}",
            "at most 14 ranks on a node can have it: use fewer --tasks-per-node",
        )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise RampupError(
            f"rank {context.rank} of {context.world_size} can't join the others: {str(error).splitlines()[0]}",
            "every rank must reach the addresses in TF_CONFIG",
        ) from error
