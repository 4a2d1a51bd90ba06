"""The mean training loss since an epoch began and since the last row, added up where the steps are
computed."""

from typing import Any

from rampup.engines.keras.setup import tf


class RunningLoss:
    """Summed in float64 by the training step itself: only who reads it waits for a GPU."""

    def __init__(self) -> None:
        self.sum = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self.samples = self._row_samples = 0
        self._row_sum = 0.0

    def add(self, loss: Any, samples: Any) -> None:
        """In the training step. Who calls that counts `samples` up."""
        self.sum.assign_add(tf.cast(loss, tf.float64) * tf.cast(samples, tf.float64))

    def restart(self) -> None:
        self.load({"sum": 0.0, "samples": 0, "row_sum": 0.0, "row": 0})

    def state(self) -> dict[str, float]:
        """What a later attempt needs to go on in the middle of an epoch."""
        total = float(self.sum.numpy())
        return {
            "sum": total,
            "samples": self.samples,
            "row_sum": self._row_sum,
            "row": self._row_samples,
        }

    def load(self, state: dict[str, float]) -> None:
        self.sum.assign(state["sum"])
        self.samples, self._row_samples = int(state["samples"]), int(state["row"])
        self._row_sum = state["row_sum"]

    def of_epoch(self) -> float:
        return float(self.sum.numpy()) / max(1, self.samples)

    def since_row(self) -> float:
        """The mean since this was last asked."""
        total = float(self.sum.numpy())
        mean = (total - self._row_sum) / (self.samples - self._row_samples)
        self._row_sum, self._row_samples = total, self.samples
        return mean
