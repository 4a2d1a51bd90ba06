"""The complete state of a training with Keras: taken between two steps, restored on a resume.

Weights, optimizer and running sums are the same on every rank and come from the first; random
numbers and the statistics of batch normalisation differ, and are gathered from all. The generators
of layers (Dropout) are variables and belong to it; operations of `tf.random` without a generator
keep a count that can't be read, so what must be repeatable should use `tf.random.stateless_*` or a
layer. It never writes a file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.engines import parts
from rampup.engines.keras.model import CompiledModel
from rampup.engines.keras.setup import seed_everything, tf
from rampup.engines.keras.step import RunningLoss
from rampup.engines.keras.world import World
from rampup.runtime.checkpoints.saving import Snapshot
from rampup.runtime.checkpoints.state_files import encode_state, load_state
from rampup.runtime.job import Best

Words = NDArray[np.int32]
"""Values of any type, as words that ranks can send each other."""


class State:
    """The state of one rank.

    `seed` is the run's: a rank that can't continue with its own random numbers starts new ones.
    """

    def __init__(self, compiled: CompiledModel, loss: RunningLoss, world: World, seed: int) -> None:
        self._loss, self._world, self._seed = loss, world, seed
        variables = compiled.model.variables
        self._shared = {
            "model": [each for each in variables if not differs_between_replicas(each)],
            "optimizer": list(compiled.optimizer.variables),
        }
        if compiled.extra:
            self._shared["task"] = compiled.extra
        self._statistics = [each for each in variables if differs_between_replicas(each)]
        self.generators = list(_generators(compiled.model))

    def take(
        self, step: int, best: Best | None, facts: dict[str, Any], is_best: bool = False
    ) -> Snapshot:
        """Copy the state. All ranks call it at the same step; only rank 0 gets files to write."""
        replicas = range(self._world.local_replicas)
        own = [random_state(), *(pack(self._values(replica)) for replica in replicas)]
        ranks = self._world.gather(np.concatenate(own))
        if self._world.rank != 0:
            return Snapshot(step, {}, {})
        state: dict[str, Any] = {
            "step": step,
            "best": parts.best_to_record(best),
            "loss": self._loss.state(),
            "ranks": ranks,
        }
        for part, variables in self._shared.items():
            state[part] = [each.numpy() for each in variables]
        return Snapshot(step, encode_state(state), {**facts, "best": state["best"]})

    def restore(self, folder: Path) -> tuple[int, Best | None]:
        """Load a state; returns its step and the best until then."""
        try:
            state = load_state(folder)
            for part, variables in self._shared.items():
                for variable, value in zip(variables, state[part], strict=True):
                    self._assign(variable, [value] * self._world.local_replicas)
            self._loss.load(state["loss"])
            self._restore_rank(state["ranks"], state["step"])
        except (KeyError, ValueError, OSError) as error:
            raise parts.does_not_fit(folder, error) from error
        return state["step"], parts.best_from_record(state["best"])

    def _restore_rank(self, ranks: list[Words], step: int) -> None:
        world, like = self._world, self._values(0)
        size, start = len(pack(like)), len(random_state())
        of_replicas = []
        for rank in ranks if size else ():
            for begin in range(start, len(rank), size):
                of_replicas.append(unpack(rank[begin : begin + size], like))
        exact = len(ranks) == world.size and all(
            len(rank) == start + size * world.local_replicas for rank in ranks
        )
        if exact:
            first = world.rank * world.local_replicas
            mine = of_replicas[first : first + world.local_replicas]
            set_random_state(ranks[world.rank][:start])
        else:
            mean = [np.mean(values, axis=0) for values in zip(*of_replicas, strict=True)]
            mine = [mean] * world.local_replicas
            seed_everything(parts.rank_seed(self._seed, world.rank) + step)
        kept = self._statistics + (self.generators if exact else [])
        for index, variable in enumerate(kept if size else []):
            self._assign(variable, [values[index] for values in mine])

    def _values(self, replica: int) -> list[Any]:
        """Return the values that only this replica has."""
        local = self._world.strategy.experimental_local_results
        return [local(each)[replica].numpy() for each in (*self._statistics, *self.generators)]

    def _assign(self, variable: Any, values: list[Any]) -> None:
        """Give each replica its own value."""
        copies = self._world.strategy.experimental_local_results(variable)
        if len(copies) == 1:  # not distributed, even where there are several replicas
            values = values[:1]
        for copy, value in zip(copies, values, strict=True):
            if tuple(copy.shape) != np.shape(value):
                then, now = np.shape(value), tuple(copy.shape)
                raise ValueError(f"{variable.name} had the shape {then}, and has {now} now")
            copy.assign(tf.cast(value, copy.dtype))


def differs_between_replicas(variable: Any) -> bool:
    """Return whether each replica has its own values, as the statistics of batch normalisation."""
    return bool(variable.synchronization == tf.VariableSynchronization.ON_READ)


def _generators(model: Any) -> Iterator[Any]:
    """Yield the states of the random generators of all layers."""
    for module in (model, *model.submodules):
        for value in vars(module).values():
            found = getattr(value, "_generator", value)
            if isinstance(found, tf.random.Generator):
                yield found.state


def random_state() -> Words:
    """Return the state of Python's and numpy's generators."""
    return np.concatenate([part.view(np.int32) for part in parts.host_random_state()])


def set_random_state(state: Words) -> None:
    keys, words = state[:624].view(np.uint32), state[624:1249].view(np.uint32)
    parts.set_host_random_state(keys, words, state[1249:].copy().view(np.float64))


def pack(values: list[Any]) -> Words:
    """Return all values as one row of words, padded with zeros."""
    rows = [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values]
    data = np.concatenate([np.empty(0, np.uint8), *rows])
    return np.pad(data, (0, -len(data) % 4)).view(np.int32)


def unpack(words: Words, like: list[Any]) -> list[Any]:
    """Return what `pack` was given, in the shapes and types of `like`."""
    data, found, begin = words.copy().view(np.uint8), [], 0
    for value in like:
        end = begin + value.nbytes
        found.append(data[begin:end].copy().view(value.dtype).reshape(value.shape))
        begin = end
    return found
