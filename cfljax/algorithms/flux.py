"""FLUX: clients are clustered once, by moments of their features and of each class's.

Fenoglio, Li, Barbiero, Lane, Langheinrich, Gjoreski. "FLUX: Efficient Descriptor-Driven
Clustered Federated Learning under Arbitrary Distribution Shifts". NeurIPS 2025,
arXiv:2511.22305. Of its text the abstract could be opened, and a reader's note on the
whole; the steps below are those of the authors' released code, `flux/server.py`,
`flux/centralized_fl.py` and `ModelEvaluator` of `public/models.py`. After some rounds
of FedAvg (1) every client describes its samples by means and deviations of features,
(2) the server brings these to one scale and (3) merges clients up to a radius that it
finds itself; then (4) FedAvg within each cluster. (5) Newcomers, whose labels nobody
knows, take the model of the cluster whose features are like theirs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_at_most, check_threat
from cfljax.base.constructor import constructor
from cfljax.base.decompositions import singular_vectors
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import repeat, rows, select, take
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.clustering.distances import euclidean
from cfljax.clustering.linkage import cut_distances, squared_distances
from cfljax.federated.answers import predict_own_model
from cfljax.federated.backend import rounded_apart
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.prototypes import first_prototypes, layers_of
from cfljax.federated.rounds import assigned_round, global_start
from cfljax.federated.traffic import single, traffic
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    message_bytes,
    newcomers_local_state,
)

_NUM_POINTS = 200  # Drawn for the projection.


class Projection(NamedTuple):
    """Principal components of points drawn from the unit cube of the features.

    components: of length 1, largest variance first.
    centre: mean of the points, projected.
    lowest: least coordinate of a point from that mean, of all components.
    highest: likewise the largest.
    """

    components: Float[Array, "components features"]
    centre: Float[Array, " components"]
    lowest: Float[Array, ""]
    highest: Float[Array, ""]


class Sight(NamedTuple):
    """What newcomers are compared by; without meaning before the clustering.

    model: that features were seen with, leaves without a leading axis.
    origin: what the projected features are told from.
    low: least mean and least deviation of a client's features.
    width: from these to the largest ones; 1 where all are equal.
    centroids: of each client's cluster, the mean of its members' means and deviations
      in units of the width.
    """

    model: PyTree
    origin: Float[Array, " components"]
    low: Float[Array, "2"]
    width: Float[Array, "2"]
    centroids: Float[Array, "clients 2 components"]


class State(NamedTuple):
    """All that the next round needs, and what newcomers are compared by.

    models: leaves `[clients, ...]`, the model of each client's cluster.
    members: who is in whose cluster; everybody in everybody's before the clustering,
      afterwards nobody in that of a client without samples or finite features.
    projection: of features, the same for all clients.
    sight: what newcomers are compared by.
    found: clusters; 1 before the clustering.
    round: rounds that are over.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    members: Bool[Array, "clients clients"]
    projection: Projection
    sight: Sight
    found: Int[Array, ""]
    round: Int[Array, ""]
    local_state: LocalState | None = None

    __repr__ = summary

    @property
    def clusters(self) -> Int[Array, " clients"]:
        """Each client's, called by the lowest of its members, or `NO_CLUSTER`."""
        lowest = jnp.argmax(self.members, axis=1)
        return jnp.where(jnp.any(self.members, axis=1), lowest, NO_CLUSTER)


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: the client's cluster, called by the lowest of its members; `NO_CLUSTER`
      if it was not asked or has none.
    losses: under the model received, before training; NaN for a client that was not
      asked or has no cluster.
    found: clusters; 1 before the clustering.
    received: bytes from the server to each client: one model; in the round of the
      clustering to everybody with samples, asked or not, and the largest feature.
    sent: bytes from each client to the server: one model; in that round besides, from
      the same, its descriptor and its largest feature.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    found: Int[Array, ""]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def flux(
    task: Task,
    *,
    num_classes: int,
    step_size: StepSize,
    warm_up_rounds: int = 4,
    radius_scale: ScalarLike = 1.0,
    num_components: int | None = None,
    privacy_budget: ScalarLike | None = None,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """FedAvg, then FedAvg among clients whose features have like moments in each class.

    Features, `layers.embed` under the global model, are projected to the first
    principal components of points drawn uniformly up to 1.02 times the largest feature
    of any client. A client's descriptor has the means of its projected features, their
    deviations, and both of each class, -1 in place of those of a class with fewer than
    two samples. Each of these `2 (num_classes + 1)` blocks is brought to [0, 1] by its
    least and largest number over clients and components. Clients no further apart than
    a radius are in one cluster, and so are chains of such pairs: what DBSCAN finds
    with two points for a core, noise being clusters of one. The radius is
    `radius_scale` times that distance to a nearest neighbour at which the sorted ones
    bend upwards, see `elbow`.

    Args:
      task: the learning problem, with `layers`, whose targets are classes.
      num_classes: U, number of classes.
      step_size: may be traced.
      warm_up_rounds: of FedAvg before the clustering. The released code has 4 where a
        part of the clients takes part; else it waits until accuracy on held-out samples
        grows by less than .06 in a round.
      radius_scale: not negative, may be traced; 1 in the released settings.
      num_components: l, at most the features and 200; if None, `num_classes`, as in the
        released settings, or as many as there can be.
      privacy_budget: epsilon, positive, may be traced: Laplace noise is added to each
        number of a descriptor, of scale `range / (samples x epsilon)`, the range being
        that of all coordinates of the client's features and the points. No privacy is
        proved for it, see the card. The released code has 1 where it is asked for; no
        noise if None.
      num_steps: local steps in each round.
      weights: of the clients in a mean.
      participation: fraction of the clients drawn each round; the clustering is of all.
      update: how clients train.
      threat: what Byzantine clients do in training; their descriptors are honest. Its
        target is the cluster of the first client, 0.

    Raises:
      ValueError: where an argument is out of its range, or the task has no layers; in
        `init`, where the network has other outputs than `num_classes`, targets are no
        integers, or there are more components than features.

    A newcomer describes its features, without labels or noise, and takes the model of
    the cluster whose centroid is nearest; the first client's where it has none.

    Cost: a round is a forward pass for each participant and its local steps; that of
    the clustering besides a forward pass for each client, the distances of all pairs,
    and merges, cubic in the clients. Memory: a model of every client.
    """
    layers = layers_of(task)
    training = averaging(step_size, num_steps, weights, participation, update, threat)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        model, local_state = global_start(key, task, training, num_clients)
        means = first_prototypes(task, model, data, num_classes).means
        num_features = means.shape[1]
        most = min(num_features, _NUM_POINTS)
        number = num_components
        if number is None:  # Centred points have no more directions.
            number = min(num_classes, most, _NUM_POINTS - 1)
        what = "the network's features, or 200 if these are more"
        check_at_most(most, what, num_components=number)
        own = jax.random.fold_in(key, Stream.ALGORITHM)
        projection = projection_of(own, number, num_features, means.dtype)
        zeros = lambda *shape: jnp.zeros(shape, means.dtype)
        centroids = zeros(num_clients, 2, number)
        return State(
            models=repeat(model, num_clients),
            members=jnp.ones((num_clients, num_clients), bool),
            projection=projection,
            sight=Sight(model, zeros(number), zeros(2), zeros(2) + 1, centroids),
            found=jnp.ones((), jnp.int32),
            round=jnp.zeros((), jnp.int32),
            local_state=local_state,
        )

    def moments_of(
        model: PyTree, projection: Projection, data: ClientData, number: int
    ) -> "Moments":
        """Of all clients, with so many classes."""

        def one(shared: tuple[PyTree, Array], data: ClientData) -> Moments:
            model, components = shared
            features = layers.embed(model, data.inputs)
            return moments(features, components, data.targets, data.mask, number)

        shared = model, projection.components
        return training.update.over_clients(one)(shared, data)

    def cluster(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        """Steps 1 to 3, of everybody with the global model."""
        model = jax.tree.map(lambda leaf: leaf[0], state.models)
        told = moments_of(model, state.projection, data, num_classes)
        largest = 1.02 * jnp.max(jnp.where(told.usable, told.largest, -jnp.inf))
        largest = jnp.where(jnp.any(told.usable), largest, 0)
        origin = largest * state.projection.centre
        described = descriptors(told, origin)  # step 1
        if privacy_budget is not None:
            own = jax.random.fold_in(key, Stream.ALGORITHM)
            scale = sensitivities(told, state.projection, largest)
            scale = scale / jnp.asarray(privacy_budget, scale.dtype)
            described = described + laplace(own, scale, described.shape)
        low, width = scales(described, told.usable)  # step 2
        scaled = in_units(described, low, width)
        scaled = jnp.where(rows(told.usable, scaled), scaled, 0)
        clusters = group(scaled, told.usable, radius_scale)  # step 3
        same = clusters[:, None] == clusters[None, :]
        members = same & (clusters >= 0)[:, None]
        each = members.astype(scaled.dtype)
        sums = jnp.einsum("ij,jbc->ibc", each, scaled[:, :2], precision="highest")
        counts = jnp.maximum(jnp.sum(each, axis=1), 1)
        # Clients' means become products with some numbers of devices only.
        centroids = rounded_apart(sums / rows(counts, sums))
        sight = Sight(model, origin, low[:2], width[:2], centroids)
        found = jnp.max(clusters).astype(jnp.int32) + 1
        return state._replace(members=members, sight=sight, found=found)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        check_threat(threat, data.mask.shape[0], 1)
        now = state.round == warm_up_rounds
        keep = lambda key, state, data: state
        state = jax.lax.cond(now, cluster, keep, key, state, data)
        after, losses = assigned_round(key, task, state, data, training)  # step 4
        served = after.present & (state.clusters >= 0)
        one = message_bytes(training, state.models).one_model
        received, sent = traffic(single(one), served, after.assignment)
        itemsize = losses.dtype.itemsize
        number = state.projection.components.shape[0]
        described = 2 * (num_classes + 1) * number * itemsize
        real = jnp.any(data.mask, axis=1)
        asked = jnp.where(real & now, 1, 0).astype(jnp.int32)
        info = Info(
            assignment=after.assignment,
            losses=losses,
            found=state.found,
            received=received + asked * jnp.where(served, itemsize, one + itemsize),
            sent=sent + (described + itemsize) * asked,
        )
        has_cluster = state.clusters >= 0
        own = take(after.models, jnp.maximum(state.clusters, 0))
        state = state._replace(
            models=select(has_cluster, own, state.models),
            round=state.round + 1,
            local_state=after.local_state,
        )
        return state, info

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        del key
        newcomers, sight = data.mask.shape[0], state.sight
        told = moments_of(sight.model, state.projection, data, 0)
        scaled = in_units(descriptors(told, sight.origin), sight.low, sight.width)
        flat = lambda blocks: blocks.reshape(blocks.shape[0], -1)
        distances = euclidean(flat(scaled), flat(sight.centroids))
        near = told.usable[:, None] & jnp.any(state.members, axis=1)[None, :]
        nearest = jnp.argmin(jnp.where(near, distances, jnp.inf), axis=1)  # step 5
        models = take(state.models, nearest)
        return state._replace(
            models=models,
            members=jnp.eye(newcomers, dtype=bool),
            sight=sight._replace(centroids=sight.centroids[nearest]),
            local_state=newcomers_local_state(
                training, state.local_state, models, newcomers
            ),
        )

    return Algorithm(init, step, predict_own_model(task), join)


# Step 1: what clients tell of their samples.


class Moments(NamedTuple):
    """Of a client's projected features, of all samples first, then of each class.

    means: 0 of a class without samples.
    deviations: likewise.
    counts: samples.
    lowest: least coordinate of each component; infinite without samples.
    highest: likewise the largest.
    largest: feature, before the projection.
    usable: whether there are samples, and all means and deviations are finite.
    """

    means: Float[Array, "*clients groups components"]
    deviations: Float[Array, "*clients groups components"]
    counts: Int[Array, "*clients groups"]
    lowest: Float[Array, "*clients components"]
    highest: Float[Array, "*clients components"]
    largest: Float[Array, "*clients"]
    usable: Bool[Array, "*clients"]


def projection_of(
    key: PRNGKeyArray, number: int, num_features: int, dtype: jnp.dtype
) -> Projection:
    """First principal components of uniform points, as scikit-learn's `PCA` finds them,
    largest entry of each positive."""
    points = jax.random.uniform(key, (_NUM_POINTS, num_features), dtype)
    centre = jnp.mean(points, axis=0)
    components = singular_vectors(points - centre[None])[1][:number]
    largest = jnp.argmax(jnp.abs(components), axis=1)
    signs = jnp.sign(jnp.take_along_axis(components, largest[:, None], axis=1))
    components = components * signs
    project = lambda points: jnp.matmul(points, components.T, precision="highest")
    moved = project(points - centre[None])
    origin = project(centre[None])[0]
    return Projection(components, origin, jnp.min(moved), jnp.max(moved))


def moments(
    features: Float[Array, "samples features"],
    components: Float[Array, "components features"],
    labels: Int[Array, " samples"],
    mask: Bool[Array, " samples"],
    num_classes: int,
) -> Moments:
    """Moments of one client, whose origin is that of the features."""
    classes = jnp.arange(num_classes, dtype=labels.dtype)
    of_class = (labels[None] == classes[:, None]) & mask[None]
    groups = jnp.concatenate([mask[None], of_class])
    real = mask[:, None]
    points = jnp.matmul(features, components.T, precision="highest")
    points = jnp.where(real, points, 0)  # 0 x NaN is NaN, also on padding.
    counts = jnp.sum(groups, axis=1, dtype=jnp.int32)

    def of_group(group: Bool[Array, " samples"]) -> tuple[Array, Array]:
        number = jnp.maximum(jnp.sum(group, dtype=points.dtype), 1)
        mean = jnp.sum(jnp.where(group[:, None], points, 0), axis=0) / number
        away = jnp.where(group[:, None], points - mean[None], 0)
        return mean, jnp.sqrt(jnp.sum(jnp.square(away), axis=0) / number)

    means, deviations = jax.vmap(of_group)(groups)
    finite = jnp.all(jnp.isfinite(means)) & jnp.all(jnp.isfinite(deviations))
    return Moments(
        means=means,
        deviations=deviations,
        counts=counts,
        lowest=jnp.min(jnp.where(real, points, jnp.inf), axis=0),
        highest=jnp.max(jnp.where(real, points, -jnp.inf), axis=0),
        largest=jnp.max(jnp.where(real, features, -jnp.inf)),
        usable=jnp.any(mask) & finite,
    )


def descriptors(
    told: Moments, origin: Float[Array, " components"]
) -> Float[Array, "clients blocks components"]:
    """Means, deviations, means of the classes, deviations of the classes."""
    known = (told.counts[:, 1:] > 1)[:, :, None]
    means = told.means - origin[None, None]
    blocks = (
        means[:, :1],
        told.deviations[:, :1],
        jnp.where(known, means[:, 1:], -1),
        jnp.where(known, told.deviations[:, 1:], -1),
    )
    return jnp.concatenate(blocks, axis=1)


def sensitivities(
    told: Moments, projection: Projection, largest: Float[Array, ""]
) -> Float[Array, " clients"]:
    """Of each client the range of all coordinates, of its features and the points, over
    its samples; 1 where it is not usable."""
    origin = largest * projection.centre
    ends = largest * jnp.stack([projection.lowest, projection.highest])
    low = jnp.minimum(jnp.min(told.lowest - origin[None], axis=1), jnp.min(ends))
    high = jnp.maximum(jnp.max(told.highest - origin[None], axis=1), jnp.max(ends))
    width = high - low
    samples = told.counts[:, 0].astype(width.dtype)
    return jnp.where(told.usable, width / samples, 1)


def laplace(
    key: PRNGKeyArray, scale: Float[Array, " clients"], shape: tuple[int, ...]
) -> Float[Array, "clients blocks components"]:
    """Noise of a scale of each client, whoever else there is."""

    def one(client: Int[Array, ""], scale: Float[Array, ""]) -> Array:
        own = jax.random.fold_in(key, client)
        return scale * jax.random.laplace(own, shape[1:], scale.dtype)

    return jax.vmap(one)(jnp.arange(shape[0]), scale)


# Steps 2 and 3: clusters.


def scales(
    described: Float[Array, "clients blocks components"],
    usable: Bool[Array, " clients"],
) -> tuple[Float[Array, " blocks"], Float[Array, " blocks"]]:
    """Least number of each block, and how far the largest is from it; 0 and 1 where
    nobody is usable, and 1 where all are equal."""
    real = rows(usable, described)
    low = jnp.min(jnp.where(real, described, jnp.inf), axis=(0, 2))
    high = jnp.max(jnp.where(real, described, -jnp.inf), axis=(0, 2))
    width = jnp.where(high > low, high - low, 1)
    return jnp.where(jnp.any(usable), low, 0), width


def in_units(
    described: Float[Array, "clients blocks components"],
    low: Float[Array, " blocks"],
    width: Float[Array, " blocks"],
) -> Float[Array, "clients blocks components"]:
    """Each block from its least number on, in units of its width."""
    return (described - low[None, :, None]) / width[None, :, None]


def group(
    scaled: Float[Array, "clients blocks components"],
    usable: Bool[Array, " clients"],
    radius_scale: ScalarLike,
) -> Int[Array, " clients"]:
    """Clusters 0, 1, ... of the usable, numbered by their first members; `NO_CLUSTER`
    of the others."""
    distances = jnp.sqrt(squared_distances(scaled.reshape(scaled.shape[0], -1)))
    pairs = usable[:, None] & usable[None, :] & ~jnp.eye(len(usable), dtype=bool)
    nearest = jnp.min(jnp.where(pairs, distances, jnp.inf), axis=1)
    radius = elbow(nearest, usable) * jnp.asarray(radius_scale, nearest.dtype)
    # A core of two points is any pair within the radius: DBSCAN is single linkage.
    return cut_distances(distances, radius, linkage="single", present=usable)


def elbow(
    distances: Float[Array, " points"], present: Bool[Array, " points"]
) -> Float[Array, ""]:
    """The distance where the sorted ones bend upwards (Kneedle, Satopää et al., 2011,
    sensitivity 1), as `KneeLocator` of kneed 0.8.5 finds it of a convex, rising curve.

    From the largest on down, distances and ranks are brought to [0, 1]. How much
    further a distance has fallen than its rank has risen is a curve whose tops are
    candidates: the first one is taken behind which the curve falls by more than a rank
    before it rises again, or below 0 once it did. Where there is none, as of equal
    distances, the largest is taken, so that nobody is alone; the released code raises
    an error there. Where two distances are equal, whether the curve falls by more than
    a rank is decided exactly, not by rounding. 0 of fewer than two.

    Cost: sorting the points.
    """
    number = jnp.sum(present, dtype=distances.dtype)
    last = jnp.maximum(number - 1, 0)
    falling = -jnp.sort(jnp.where(present, -distances, jnp.inf))
    rank = jnp.arange(len(distances), dtype=distances.dtype)
    most, width = falling[0], jnp.max(jnp.where(rank < number, falling[0] - falling, 0))
    # In units of a rank, the curve is `fallen - rank`; its end is 0 without rounding.
    fallen = (most - falling) / jnp.where(width > 0, width, 1) * last
    fallen = jnp.where(rank < last, fallen, last)
    following = jnp.roll(fallen, -1)
    rises = following - fallen - 1
    before = jnp.roll(rises, 1)
    is_first, is_last = rank == 0, rank == last
    is_top = (is_first | (before >= 0)) & (is_last | (rises <= 0)) & (rank < number)
    is_low = (is_first | (before <= 0)) & (is_last | (rises >= 0)) & (rank < number)
    place = jnp.arange(len(distances))
    top = jax.lax.cummax(jnp.where(is_top, place, -1))
    low = jax.lax.cummax(jnp.where(is_low, place, -1))
    below_zero = following < rank + 1
    start = jnp.maximum(top, 0)
    below_rank = following - fallen[start] < rank - rank[start]
    bends = (rank < last) & (top >= 0) & jnp.where(low >= top, below_zero, below_rank)
    radius = jnp.where(width > 0, falling[start[jnp.argmax(bends)]], most)
    radius = jnp.where(jnp.any(bends), radius, most)
    return jnp.where(number > 1, radius, 0)
