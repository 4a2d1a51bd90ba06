"""Ranks that MPI has started and that add up through Horovod, where a site has it:
`strategy=horovod`.

keras_world.py makes one of these. Horovod's own words for a rank, its number and its size, must be
those of the launcher: ranks that do not find each other would each train alone. It never averages:
the weights of a global batch add up to 1, whatever the number of ranks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.core.engines import keras as keras_version
from rampup.core.engines.base import find_version
from rampup.engines.keras.setup import tf, without_chatter
from rampup.engines.keras.world import World
from rampup.errors import RampupError
from rampup.runtime.context import RankContext


class Horovod(World):
    """Each rank has one device and a model of its own, equal to all others before the first step
    and after each."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self._hvd = _module()
        self._hvd.init()  # outside of all that keeps words back: MPI ends the process when it fails
        there, here = (self._hvd.rank(), self._hvd.size()), (self.rank, self.size)
        if there != here:
            raise RampupError(
                "horovod says rank {} of {}, the launcher says rank {} of {}".format(*there, *here),
                "--launcher mpirun or --launcher pmix, of the MPI that Horovod was built with",
            )

    @property
    def gradients(self) -> str:
        return f"Horovod {find_version('horovod')}"

    def add_up(self, flat: Any) -> Any:
        return self._hvd.allreduce(flat, op=self._hvd.Sum)

    def share(self, variables: Sequence[Any]) -> None:
        self._hvd.broadcast_variables(variables, root_rank=0)

    def tell_apart(self, generators: Sequence[Any]) -> None:
        # a counter of two words, and a key: each rank counts in a range of its own
        for state in generators:
            state.assign_add(tf.constant([0, self.rank, 0], state.dtype))

    def sum(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.add_up(tf.constant(numbers)).numpy()
        return found

    def gather(self, numbers: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        return list(self._hvd.allgather(tf.constant(numbers)).numpy().reshape(self.size, -1))


def _module() -> Any:
    keras_version.check_horovod()
    try:
        with without_chatter():
            import horovod.tensorflow
    except (ImportError, tf.errors.OpError) as error:
        # built for another framework, or for another TensorFlow
        raise RampupError(
            f"Horovod can't be used with this TensorFlow {tf.__version__}: {str(error).splitlines()[0]}",
            keras_version.BUILD_HOROVOD,
        ) from error
    return horovod.tensorflow
