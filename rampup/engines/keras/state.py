"""The complete state of a training with Keras: taken at a step boundary, and put back by a later
attempt.

Weights, optimizer and running sums are the same on every rank and come from the first; random
numbers and the statistics of batch normalisation differ, and are gathered from all. It never
touches a file but to load one.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rampup.engines.keras import seed as keras_seed
from rampup.engines.keras.loss import RunningLoss
from rampup.engines.keras.model import Compiled
from rampup.engines.keras.setup import tf
from rampup.engines.keras.world import World
from rampup.errors import RampupError
from rampup.runtime.checkpoints.saving import Snapshot
from rampup.runtime.checkpoints.state_files import encode_state, load_state
from rampup.runtime.job import Best

Words = NDArray[np.int32]
"""Values of any type, as bytes that ranks can send each other."""


class State:
    """`seed` is the run's: a rank that can't go on with its own random numbers starts others from
    it."""

    def __init__(self, compiled: Compiled, loss: RunningLoss, world: World, seed: int) -> None:
        self._loss, self._world, self._seed = loss, world, seed
        variables = compiled.model.variables
        self._shared = {
            "model": [each for each in variables if not differs_between_replicas(each)],
            "optimizer": list(compiled.optimizer.variables),
        }
        self._statistics = [each for each in variables if differs_between_replicas(each)]
        self.generators = list(_generators(compiled.model))

    def take(
        self, step: int, best: Best | None, facts: dict[str, Any], is_best: bool = False
    ) -> Snapshot:
        """All ranks call it at the same step; only rank 0 gets something to write."""
        own = [
            keras_seed.state(),
            *(packed(self._values(index)) for index in range(self._world.local_replicas)),
        ]
        ranks = self._world.gather(np.concatenate(own))
        if self._world.rank != 0:
            return Snapshot(step, {}, {})
        told = {
            "step": step,
            "best": asdict(best) if best else None,
            "loss": self._loss.state(),
            "ranks": ranks,
        }
        told |= {
            part: [each.numpy() for each in variables] for part, variables in self._shared.items()
        }
        return Snapshot(step, encode_state(told), {**facts, "best": told["best"]})

    def put_back(self, folder: Path) -> tuple[int, Best | None]:
        """Load a state; returns its step and the best until then."""
        try:
            state = load_state(folder)
            for part, variables in self._shared.items():
                for variable, value in zip(variables, state[part], strict=True):
                    self._assign(variable, [value] * self._world.local_replicas)
            self._loss.load(state["loss"])
            self._put_back_own(state["ranks"], state["step"])
        except (KeyError, ValueError, OSError) as error:
            raise RampupError(
                f"{folder} does not fit the model or the optimizer of now: {str(error).splitlines()[0]}",
                "resume with the code and the settings that the run was started with",
            ) from error
        return state["step"], Best(**state["best"]) if state["best"] else None

    def _put_back_own(self, ranks: list[Words], step: int) -> None:
        world, like = self._world, self._values(0)
        size, start = len(packed(like)), len(keras_seed.state())
        of_replicas = [
            unpacked(rank[begin : begin + size], like)
            for rank in ranks
            for begin in (range(start, len(rank), size) if size else [])
        ]
        exact = len(ranks) == world.size and all(
            len(rank) == start + size * world.local_replicas for rank in ranks
        )
        if exact:
            first = world.rank * world.local_replicas
            mine = of_replicas[first : first + world.local_replicas]
            keras_seed.put_back(ranks[world.rank][:start])
        else:
            mean = [np.mean(values, axis=0) for values in zip(*of_replicas, strict=True)]
            mine = [mean] * world.local_replicas
            keras_seed.start(keras_seed.of_rank(self._seed, world.rank) + step)
        kept = self._statistics + (self.generators if exact else [])
        for index, variable in enumerate(kept if size else []):
            self._assign(variable, [values[index] for values in mine])

    def _values(self, replica: int) -> list[Any]:
        """What this replica alone has."""
        local = self._world.strategy.experimental_local_results
        return [local(each)[replica].numpy() for each in (*self._statistics, *self.generators)]

    def _assign(self, variable: Any, values: list[Any]) -> None:
        """Each replica's own."""
        copies = self._world.strategy.experimental_local_results(variable)
        if len(copies) == 1:  # not distributed, even where there are several replicas
            values = values[:1]
        for copy, value in zip(copies, values, strict=True):
            if tuple(copy.shape) != np.shape(value):
                raise ValueError(
                    f"{variable.name} had the shape {np.shape(value)}, and has {tuple(copy.shape)} now"
                )
            copy.assign(tf.cast(value, copy.dtype))


def differs_between_replicas(variable: Any) -> bool:
    """The statistics of batch normalisation: each replica has seen other samples."""
    return bool(variable.synchronization == tf.VariableSynchronization.ON_READ)


def _generators(model: Any) -> Iterator[Any]:
    """The states of the random numbers of all layers."""
    for module in (model, *model.submodules):
        for value in vars(module).values():
            found = getattr(value, "_generator", value)
            if isinstance(found, tf.random.Generator):
                yield found.state


def packed(values: list[Any]) -> Words:
    parts = [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values]
    data = np.concatenate([np.empty(0, np.uint8), *parts])
    return np.pad(data, (0, -len(data) % 4)).view(np.int32)


def unpacked(words: Words, like: list[Any]) -> list[Any]:
    data, found, begin = words.copy().view(np.uint8), [], 0
    for value in like:
        end = begin + value.nbytes
        found.append(data[begin:end].copy().view(value.dtype).reshape(value.shape))
        begin = end
    return found
