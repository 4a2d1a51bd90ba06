"""GAPNet: attention over the nearest neighbours of each particle, and a place in a small space.

train.py builds it. A jet is a cloud of particles with eight features each. Two blocks of attention
look at the neighbours of each particle, the mean over all particles is the embedding of the jet,
and from the embedding alone the mass bin is predicted. With its defaults, 20 mass bins and three
clusters it has 186,210 trainable values, those of the cluster centres included.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras as keras

from rampup.keras import BatchNormalization
from rampup.recipe import Settings

FEATURES = 8
LOG_PT = 2
"""The feature that is 0 only for padding."""
FAR = 1000.0
"""How far away padding is moved, so that it is nobody's neighbour."""


class Unit(keras.layers.Layer):  # type: ignore[misc]
    """A 1x1 convolution with batch normalisation and ReLU.

    Its bias is part of the published network and has no effect, because the mean is subtracted
    next. Its gradient would be nothing but rounding, which Adam turns into steps of full size. So
    it is counted among the trainable values, is not added, and stays 0.
    """

    def __init__(self, width: int, decay: Any, bias: bool = True, **named: Any) -> None:
        super().__init__(**named)
        self.width, self.has_bias = width, bias
        self.norm = BatchNormalization(decay)

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(
            name="kernel", shape=[shape[-1], self.width], initializer="glorot_uniform"
        )
        if self.has_bias:
            self.bias = self.add_weight(name="bias", shape=[self.width], initializer="zeros")
        super().build(shape)

    def call(self, inputs: Any, near: Any = None, training: bool = False) -> Any:
        """With the numbers of neighbours, look at the difference to each of them.

        A convolution is linear: that of a difference is a difference, and there are fewer points
        than pairs of them.
        """
        found = tf.tensordot(inputs, self.kernel, 1)
        if near is not None:
            found = found[:, :, None] - gather(found, near)
        return tf.nn.relu(self.norm(found, training=training))


class Attention(keras.layers.Layer):  # type: ignore[misc]
    """One head: each particle looks at the differences to its neighbours.

    What a particle scores itself is part of the published network and has no effect: it is added to
    the scores of all its neighbours, none of which is below 0, so leaky ReLU and softmax return the
    same. As for the bias of a unit, its gradient would be nothing but rounding.
    """

    def __init__(self, width: int, decay: Any, **named: Any) -> None:
        super().__init__(**named)
        self.width = width
        self.own = Unit(width, decay, bias=False)
        self.edge = Unit(width, decay)
        self.own_score, self.edge_score = Unit(1, decay), Unit(1, decay)

    def build(self, shape: Any) -> None:
        self.bias = self.add_weight(name="bias", shape=[self.width], initializer="zeros")
        super().build(shape)

    def call(self, inputs: Any, neighbours: Any, training: bool = False) -> Any:
        """Return what each particle has learned from its neighbours, and the largest edges."""
        own = self.own(inputs, training=training)
        edges = self.edge(inputs, neighbours, training=training)
        own_score = tf.stop_gradient(self.own_score(own, training=training))
        scores = own_score[:, :, None] + self.edge_score(edges, training=training)
        weights = tf.nn.softmax(tf.nn.leaky_relu(scores), axis=2)
        found = tf.nn.relu(tf.reduce_sum(weights * edges, axis=2) + self.bias)
        return found, tf.reduce_max(edges, axis=2)


class GAPNet(keras.layers.Layer):  # type: ignore[misc]
    """From a cloud of particles to its embedding."""

    def __init__(self, settings: Settings, decay: Any, **named: Any) -> None:
        super().__init__(**named)
        self.k, self.decay = settings.k, decay
        first, second = settings.attention_widths
        narrow, middle, wide, wider = settings.widths
        self.first = [Attention(first, decay) for _ in range(settings.heads)]
        self.narrow, self.middle = Unit(narrow, decay), Unit(middle, decay)
        self.second = [Attention(second, decay) for _ in range(settings.heads)]
        self.wide, self.wider = Unit(wide, decay), Unit(wider, decay)
        self.embedding = Unit(settings.max_dim, decay)

    def call(self, particles: Any, training: bool = False) -> Any:
        is_padding = tf.cast(tf.equal(particles[..., LOG_PT], 0.0), particles.dtype)
        place = particles[..., :2] + FAR * is_padding[..., None]
        near = find_neighbours(place, self.k)
        found, edges = attend(self.first, particles, near, training)
        narrow = self.narrow(tf.concat([found, particles], -1), training=training)
        middle = self.middle(narrow, training=training)
        near = find_neighbours(middle, self.k)
        found, more_edges = attend(self.second, middle, near, training)
        wide = self.wide(tf.concat([found, particles], -1), training=training)
        wider = self.wider(wide, training=training)
        parts = [narrow, middle, wide, wider, edges, more_edges]
        return tf.reduce_mean(self.embedding(tf.concat(parts, -1), training=training), axis=1)


def attend(heads: list[Attention], inputs: Any, near: Any, training: bool) -> tuple[Any, Any]:
    found = [head(inputs, near, training=training) for head in heads]
    return tuple(tf.concat(part, -1) for part in zip(*found, strict=True))


def find_neighbours(places: Any, count: int) -> Any:
    """Return the numbers of the nearest points of each point; it is one of them itself."""
    places = tf.stop_gradient(places)
    squares = tf.reduce_sum(tf.square(places), -1)
    products = tf.matmul(places, places, transpose_b=True)
    distances = squares[:, :, None] + squares[:, None] - 2 * products
    return tf.math.top_k(-distances, count, sorted=False).indices


def gather(points: Any, numbers: Any) -> Any:
    """Return the points with these numbers, of each jet its own."""
    return tf.gather(points, numbers, batch_dims=1)


ITSELF = 1e9
"""Added to the distance of a centre from itself, which is not the smallest one."""
SMALLEST_UNIT = 1e-6
"""Before the switch all centres are in one place."""


class Centres(keras.layers.Layer):  # type: ignore[misc]
    """The centres of the clusters, and how far each jet is from them.

    `alpha`, `weight`, `unit`, `likely` and `likely_unit` stay what the schedule sets them to: the
    sharpness of the assignment, the weight of the clustering loss, which is 0 before the switch,
    and the squared distance in which both are counted; the centres among the class probabilities,
    and the unit there. `by_probabilities` says where the nearest centre is looked for. With
    `repels` the unit is the smallest squared distance of two centres as they are now: the loss
    falls when those two move apart, and does not when everything shrinks.
    """

    def __init__(
        self,
        clusters: int,
        by_probabilities: bool = False,
        repels: bool = False,
        **named: Any,
    ) -> None:
        super().__init__(**named)
        self.clusters, self.by_probabilities, self.repels = clusters, by_probabilities, repels

    def build(self, shapes: Any) -> None:
        embedding, scores = (shape[-1] for shape in shapes)
        self.places = self.add_weight(
            name="places", shape=[self.clusters, embedding], initializer="zeros"
        )
        self.alpha, self.weight = self._keep("alpha", 0.0), self._keep("weight", 0.0)
        self.unit, self.likely_unit = self._keep("unit", 1.0), self._keep("likely_unit", 1.0)
        self.likely = self._keep("likely", 0.0, [self.clusters, scores])
        super().build(shapes)

    def _keep(self, name: str, start: float, shape: Sequence[int] = ()) -> Any:
        initializer = keras.initializers.Constant(start)
        return self.add_weight(name=name, shape=shape, trainable=False, initializer=initializer)

    def call(self, inputs: Any) -> Any:
        """Return the clustering loss of each jet, and its squared distance from each centre.

        The inputs are embedding and scores.
        """
        embedding, scores = inputs
        distances = square_distances(embedding, self.places)
        unit = self._find_unit() if self.repels else self.unit
        if self.by_probabilities:
            apart = square_distances(tf.nn.softmax(scores), self.likely) / self.likely_unit
            shares = tf.stop_gradient(tf.nn.softmax(-self.alpha * apart, axis=1))
        else:
            # exp(-alpha (d - min d)), divided by the sum: a softmax, which can't overflow
            shares = tf.nn.softmax(-distances * (self.alpha / tf.stop_gradient(unit)), axis=1)
        mean = tf.reduce_sum(shares * distances, 1, keepdims=True)
        return tf.concat([mean * (self.weight / unit), distances], 1)

    def _find_unit(self) -> Any:
        others = square_distances(self.places, self.places)
        return tf.maximum(tf.reduce_min(others + ITSELF * tf.eye(self.clusters)), SMALLEST_UNIT)


def square_distances(points: Any, centres: Any) -> Any:
    """Return the squared distance of each point from each centre."""
    return tf.reduce_sum(tf.math.squared_difference(points[:, None], centres), -1)


class Outputs(NamedTuple):
    """What the network returns for each jet, side by side in one tensor."""

    scores: Any
    """Of the mass bins."""
    clustering: Any
    """The clustering loss, weight included."""
    distances: Any
    """The squared distance from each centre."""
    embedding: Any


def cut_outputs(found: Any, clusters: int, max_dim: int) -> Outputs:
    """Return the parts of what the network returns."""
    last, before = found.shape[-1] - max_dim, found.shape[-1] - max_dim - clusters
    return Outputs(
        found[:, : before - 1],
        found[:, before - 1],
        found[:, before:last],
        found[:, last:],
    )


def bn_decay(samples: int, halving: int) -> float:
    """Return the decay of the moving statistics after so many samples: it rises to 0.99."""
    return float(min(0.99, 1 - 0.5 * 0.5 ** (samples // halving)))


def build_network(settings: Settings, bins: int) -> keras.Model:
    decay = tf.Variable(bn_decay(0, 1), trainable=False, dtype=tf.float32, name="decay")
    particles = keras.Input((settings.points, FEATURES))
    embedding = GAPNet(settings, decay, name="gapnet")(particles)
    hidden = embedding
    for width in settings.dense_widths:
        hidden = Unit(width, decay)(hidden)
    scores = keras.layers.Dense(bins, name="scores")(hidden)
    by_probabilities = settings.assignment == "probabilities"
    repels = settings.alpha_unit == "current"
    centres = Centres(settings.clusters, by_probabilities, repels, name="centres")
    clusters = centres([embedding, scores])
    return keras.Model(particles, keras.layers.Concatenate()([scores, clusters, embedding]))


# losses -------------------------------------------------------------------------------------------

SMALLEST = 1e-9
"""Added to a probability before its logarithm is taken."""


def focal_loss(bins: Any, scores: Any) -> Any:
    """Return the loss of each jet: easy ones count little."""
    likely = tf.nn.softmax(scores)
    found = tf.gather(likely, tf.cast(bins, tf.int64), batch_dims=1) + SMALLEST
    return 10.0 * tf.pow(tf.maximum(1.0 - found, 0.0), 4.0) * -tf.math.log(found)
