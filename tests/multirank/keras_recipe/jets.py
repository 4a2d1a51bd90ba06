"""UCluster as a recipe that leaves its random starts, and is asked to stop in one of its steps."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from rampup.data.order import permutation
from rampup.engines.keras.recompute import BEFORE_THE_FIRST
from rampup.keras import Ranks
from rampup.recipes.ucluster.train import UCluster


class Watched(UCluster):
    """In each attempt but the last, after as many steps as `ends` names for it: SIGTERM.

    `fits-RANK.jsonl` gets a line for each epoch: the centres of this rank, whether they were fitted,
    and how far the statistics that the fit sees are from those of the weights as they are.
    """

    steps = 0

    def model(self) -> keras.Model:
        """With biases that let everything through. At 0 they stand where ReLU begins, with gradients
        of nothing but rounding, and rounding would decide which of them are trained."""
        model = super().model()
        gapnet = model.get_layer("gapnet")
        for attention in (*gapnet.first, *gapnet.second):
            attention.bias.assign(tf.fill(attention.bias.shape, 0.05))
        return model

    def before_step(self, model: keras.Model, samples: int) -> None:
        super().before_step(model, samples)
        self.steps += 1
        attempt, ends = int(os.environ["RAMPUP_ATTEMPT"]), self.settings.ends
        if attempt <= len(ends) and self.steps == ends[attempt - 1] and os.environ["RANK"] == "0":
            os.kill(os.getpid(), signal.SIGTERM)

    def after_epoch(self, model: keras.Model, epoch: int, ranks: Ranks) -> None:
        before, lag = model.get_layer("centres").places.numpy(), self.find_lag(model)
        super().after_epoch(model, epoch, ranks)
        after = model.get_layer("centres").places.numpy()
        found: dict[str, Any] = {"epoch": epoch, "places": after.tolist()}
        found["fitted"] = not np.array_equal(before, after)
        found["lag"] = lag
        rank = os.environ["RANK"]
        with open(Path(os.environ["RAMPUP_RUN_DIR"]) / f"fits-{rank}.jsonl", "a") as file:
            file.write(json.dumps(found) + "\n")

    def find_lag(self, model: keras.Model) -> float:
        """Return how far the first layer's mean is from that of the particles it would see now."""
        points, wanted = self.parts[0][0], self.settings.statistics_samples
        whole = wanted - wanted % self.settings.batch_size
        looked_at = points[permutation(self.settings.seed, BEFORE_THE_FIRST, len(points))[:whole]]
        own = model.get_layer("gapnet").first[0].own
        now = (looked_at @ own.kernel.numpy()).mean((0, 1))
        mean = own.norm.moving_mean
        # several ranks have one each, and reading it as one would be an exchange
        (mine,) = getattr(mean, "values", (mean,))
        return float(np.abs(now - mine.numpy()).max())


class Counting(Watched):
    """Counts in a variable that is not the model's, and fails to exchange anything but equal rows."""

    def extra_variables(self) -> list[Any]:
        self.count = tf.Variable(0, dtype=tf.int64, trainable=False)
        return [self.count]

    def after_epoch(self, model: keras.Model, epoch: int, ranks: Ranks) -> None:
        super().after_epoch(model, epoch, ranks)
        self.count.assign_add(1)
        rows = np.full((ranks.rank + 1, 2), ranks.rank, np.int16)
        assert ranks.gather(rows)[:, 0].tolist() == sorted(
            rank for rank in range(ranks.size) for _ in range(rank + 1)
        )
        assert ranks.sum(np.array([1.0, 2.0])).tolist() == [ranks.size, 2 * ranks.size]
        assert ranks.broadcast(np.array([ranks.rank, 7])).tolist() == [0, 7]
