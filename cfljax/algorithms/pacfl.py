"""PACFL: clients are clustered once, by angles between the subspaces of their data.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin. "Efficient Distribution Similarity
Identification in Clustered Federated Learning via Principal Angles Between Client Data
Subspaces". AAAI 2023. Before training (1) clients send a few singular vectors of each
class of theirs, (2) the server takes the smallest angle of every pair and (3) merges
clusters up to a threshold; then (4) FedAvg within each cluster, all from one start. The
clustering is never corrected. Steps below are these.
"""

import functools
import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import (
    at_most_clients,
    check_at_most,
    check_member,
    check_positive,
)
from cfljax.base.constructor import constructor
from cfljax.base.decompositions import eigenvectors, singular_vectors
from cfljax.base.describe import summary
from cfljax.base.tree import repeat
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.clustering.linkage import PairLinkage, agglomerate_distances, cut_distances
from cfljax.federated.answers import predict_own_cluster
from cfljax.federated.average import membership
from cfljax.federated.backend import Order, over_clients
from cfljax.federated.evaluate import choose_cluster
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import assigned_round, global_start
from cfljax.federated.traffic import single, traffic
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    message_bytes,
    newcomers_local_state,
    train_alone,
)


class Subspaces(NamedTuple):
    """What clients tell of their samples.

    vectors: `[clients, features, vectors]`, columns of length 1; 0 where there is none.
    kept: `[clients, vectors]`, which columns there are.
    """

    vectors: Float[Array, "clients features vectors"]
    kept: Bool[Array, "clients vectors"]


class State(NamedTuple):
    """All that the next round needs, and what newcomers are compared with.

    models: leaves `[clusters, ...]`.
    clusters: of each client, for good; `NO_CLUSTER` for one without samples, or whose
      samples are all 0 or not finite.
    subspaces: of the clients; `clients x features x vectors` numbers.
    start: the model that every cluster began with, leaves without that axis.
    found: clusters that were found before any were merged for want of models.
    round: rounds that are over.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    clusters: Int[Array, " clients"]
    subspaces: Subspaces
    start: PyTree
    found: Int[Array, ""]
    round: Int[Array, ""]
    local_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: the client's cluster, `NO_CLUSTER` if it was not asked, has none or its
      loss is not finite.
    losses: under the model received, before training; NaN for a client that was not
      asked or has no cluster.
    found: clusters that the threshold leaves apart. More than `max_clusters` means
      that there were too few models, and clusters were merged beyond the threshold.
    received: bytes from the server to each client: one model.
    sent: bytes from each client to the server; in the first round also its vectors
      (step 1), which every client with samples sends.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    found: Int[Array, ""]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


Angle = Literal["principal", "entry"]


@constructor
def pacfl(
    task: Task,
    *,
    step_size: StepSize,
    num_classes: int | None = None,
    num_vectors: int = 3,
    angle: Angle = "principal",
    threshold: ScalarLike | None = None,
    max_clusters: int | None = None,
    num_clusters: int | None = None,
    linkage: PairLinkage = "weighted",
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """FedAvg within clusters of clients whose samples span nearby subspaces.

    Args:
      task: the learning problem.
      step_size: local step size; may be traced.
      num_classes: of the targets; None for one subspace of all of a client's samples.
      num_vectors: p, singular vectors of each class, at least 1 and at most the samples
        of a client and the features of a sample; fewer of a class of lower rank, such
        as one with fewer samples.
      angle: "principal", the smallest principal angle, which the paper defines; or
        "entry", as in the authors' released code, the smallest angle between a vector
        of one client and a vector of the other. It hangs on the signs of singular
        vectors, which are arbitrary: there they are those of LAPACK, here an entry of
        largest size is positive, so that its figures need not be reached.
      threshold: beta, degrees, not negative; may be traced. Clusters are merged while
        the two nearest are no further apart. No value suits two data sets.
      max_clusters: models that there are for the clusters of a threshold, needed beside
        it. If it leaves more clusters than that, the nearest are merged on beyond it
        until they are so many: `Info.found` tells.
      num_clusters: number of clusters instead of a threshold, at most the clients'.
      linkage: distance of clusters; "weighted" (WPGMA) is what the released code calls
        average.
      num_steps: local steps in each round, at least 1.
      weights: of the clients in an average.
      participation: fraction of the clients drawn each round; the clustering is of all.
      update: how clients train.
      threat: what Byzantine clients do in training; their vectors are honest.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where data do not
        have so many clients, samples or features, or `num_classes` is given and the
        targets are no classes.

    A newcomer sends its vectors and answers with the model of the nearest cluster. With
    a threshold one that is further than that from all is a cluster of its own: it
    trains `start` alone for as long as in a round. Nearest is by the linkage, where
    "weighted" takes the plain mean: the weights of a merged cluster are not kept.

    Subspaces whose dimensions add up to more than the features have vectors in common,
    and a principal angle of 0: clusters are then those of rounding. Clients that differ
    in their labels only are alike. Inputs are not centred, so that a large mean makes
    the first vectors of all clients alike.

    Cost: `init` that of `client_subspaces` and `angles_between`, and merging, cubic in
    the clients. A round is a forward pass for each participant and its local steps.
    """
    number = _number_of_groups(threshold, max_clusters, num_clusters)
    check_member(Angle, angle=angle)
    check_member(PairLinkage, linkage=linkage)
    update = update or LocalUpdate()
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    subspaces_of = functools.partial(
        client_subspaces,
        num_vectors=num_vectors,
        num_classes=num_classes,
        **update.placement,
    )
    angles_of = functools.partial(angles_between, angle=angle, **update.placement)

    def check(data: ClientData) -> None:
        at_most_clients(num_clusters)(data)
        sizes = data.mask.shape[1], math.prod(data.inputs.shape[2:])
        what = "the samples of a client, or the features of one if these are fewer"
        check_at_most(min(sizes), what, num_vectors=num_vectors)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        model, local_state = global_start(key, task, training, data.mask.shape[0])
        subspaces = subspaces_of(data)  # step 1
        angles = angles_of(subspaces, subspaces)  # step 2
        present = jnp.any(subspaces.kept, axis=1)
        clusters, found = group_subspaces(  # step 3
            angles, present, number, threshold=threshold, linkage=linkage
        )
        none, models = jnp.zeros((), jnp.int32), repeat(model, number)
        return State(models, clusters, subspaces, model, found, none, local_state)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        after, losses = assigned_round(key, task, state, data, training)  # step 4
        served = after.present & (state.clusters >= 0)
        # The server knows the clusters: nobody sends an index.
        one = message_bytes(training, state.models).one_model
        received, sent = traffic(single(one), served, after.assignment)
        vectors, kept = state.subspaces
        width = vectors.shape[1] * vectors.dtype.itemsize
        first = jnp.where(state.round == 0, jnp.sum(kept, axis=1) * width, 0)
        sent = sent + first.astype(sent.dtype)  # Vectors of step 1.
        info = Info(after.assignment, losses, state.found, received, sent)
        state = state._replace(models=after.models, local_state=after.local_state)
        return state._replace(round=state.round + 1), info

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        """The server's models, and one for each newcomer that is alone."""
        newcomers, subspaces = data.mask.shape[0], subspaces_of(data)
        angles = angles_of(subspaces, state.subspaces)
        clusters, nearest = nearest_groups(
            angles, state.clusters, number, linkage=linkage
        )
        local_state = newcomers_local_state(
            training, state.local_state, state.models, newcomers
        )
        joined = state._replace(
            clusters=clusters, subspaces=subspaces, local_state=local_state
        )
        if threshold is None:
            return joined
        alone = (clusters >= 0) & (nearest > jnp.asarray(threshold, nearest.dtype))
        starts = repeat(state.start, newcomers)
        own_data = data._replace(mask=data.mask & alone[:, None])
        when = local_state and local_state._replace(moments=())
        trained, _ = train_alone(key, task, starts, own_data, training, when)
        both = lambda ours, own: jnp.concatenate([ours, own])
        own = number + jnp.arange(newcomers, dtype=clusters.dtype)
        return joined._replace(
            models=jax.tree.map(both, state.models, trained),
            clusters=jnp.where(alone, own, clusters),
        )

    return Algorithm(init, step, predict_own_cluster(task), join, check=check)


def _number_of_groups(
    threshold: ScalarLike | None, max_clusters: int | None, num_clusters: int | None
) -> int:
    """The number that is given; raises ValueError unless that is either `num_clusters`,
    or `max_clusters` beside a threshold."""
    if (threshold is None) == (num_clusters is None):
        raise ValueError(
            "one of `threshold` and `num_clusters` must be given, got "
            f"{threshold} and {num_clusters}."
        )
    if (threshold is None) != (max_clusters is None):
        raise ValueError(
            "`max_clusters` must be given beside `threshold`, and only there, got "
            f"{max_clusters} beside {threshold}."
        )
    number = max_clusters if num_clusters is None else num_clusters
    assert number is not None
    return number


# Step 1: what clients tell of their samples.


def client_subspaces(
    data: ClientData,
    *,
    num_vectors: int,
    num_classes: int | None = None,
    order: Order | None = None,
    clients_per_chunk: int | None = None,
) -> Subspaces:
    """`_principal_vectors` of every client, for each of its classes; for all of its
    samples if `num_classes` is None, whatever the targets.

    Those of one class are orthogonal, those of different classes are not; none of a
    class without samples. Inputs may have any shape; integers are made numbers of
    floating point. A decomposition of `[samples, features]` for each client and class
    it has, one class at a time, on an accelerator for a chunk of clients.
    """
    check_positive(num_vectors=num_vectors)
    if num_classes is not None:
        check_positive(num_classes=num_classes)
        whole = jnp.issubdtype(data.targets.dtype, jnp.integer)
        if not whole or data.targets.shape != data.mask.shape:
            raise ValueError(
                "`num_classes` needs targets that are one integer for each sample, got "
                f"{data.targets.dtype} of shape {data.targets.shape}; leave it out for "
                "one subspace of all samples."
            )

    def one(_: None, data: ClientData) -> Subspaces:
        inputs = data.inputs.reshape(data.inputs.shape[0], -1)
        if inputs.dtype not in (jnp.float32, jnp.float64):  # Others are not decomposed.
            inputs = inputs.astype(jnp.result_type(float))
        masks = data.mask[None]
        if num_classes is not None:
            classes = jnp.arange(num_classes, dtype=data.targets.dtype)
            masks = masks & (data.targets[None, :] == classes[:, None])
        number = min(num_vectors, *inputs.shape)
        none = jnp.zeros((inputs.shape[1], number), inputs.dtype)
        nothing = none, jnp.zeros(number, bool)

        def of_class(mask: Array) -> tuple[Array, Array]:
            found = lambda: _principal_vectors(inputs, mask, num_vectors)
            return jax.lax.cond(jnp.any(mask), found, lambda: nothing)

        vectors, kept = jax.lax.map(of_class, masks)
        vectors = jnp.moveaxis(vectors, 0, 1).reshape(inputs.shape[1], -1)
        return Subspaces(vectors, kept.reshape(-1))

    return over_clients(one, order, clients_per_chunk)(None, data)


def _principal_vectors(
    inputs: Float[Array, "samples features"],
    mask: Bool[Array, " samples"],
    num_vectors: int,
) -> tuple[Float[Array, "features vectors"], Bool[Array, " vectors"]]:
    """First left singular vectors of samples as columns, not centred, largest entry
    positive, and which there are: 0 beyond the rank or where not all is finite."""
    rows = jnp.where(mask[:, None], inputs, 0)
    sizes, directions = singular_vectors(rows)
    number = min(num_vectors, sizes.shape[0])
    vectors, sizes = directions[:number].T, sizes[:number]
    largest = jnp.argmax(jnp.abs(vectors), axis=0)
    signs = jnp.sign(jnp.take_along_axis(vectors, largest[None, :], axis=0))
    longer = jnp.maximum(jnp.sum(mask), rows.shape[1]).astype(sizes.dtype)
    kept = sizes > longer * jnp.finfo(sizes.dtype).eps * sizes[0]
    return jnp.where(kept[None, :], vectors * signs, 0), kept


# Step 2: angles.


_Row = Float[Array, " others"]

# An angle of a hundredth of a degree needs all digits of an inner product.
_EXACT = jax.lax.Precision.HIGHEST


def angles_between(
    left: Subspaces,
    right: Subspaces,
    *,
    angle: Angle = "principal",
    order: Order | None = None,
    clients_per_chunk: int | None = None,
) -> Float[Array, "left right"]:
    """Angle of every subspace on the left to every one on the right, in degrees; NaN
    where either has no vectors.

    "principal" is the smallest principal angle (Björck and Golub, 1973), from 0 to 90,
    whatever vectors span the subspaces; "entry" the smallest angle between a vector of
    one and a vector of the other, from 0 to 180, which hangs on the vectors and on
    their signs. Small angles are as precise as their sines, not as their cosines, which
    would leave those below .02 degrees to rounding in single precision. Where several
    principal angles of a pair are below that, anything between them is found.

    Cost: for each pair products of `features x vectors^2` and, for principal angles, an
    eigendecomposition of `[vectors, vectors]`.
    """
    check_member(Angle, angle=angle)
    rule = _entry_angles
    if angle == "principal":
        rule = _principal_angles
        left, right = (_orthonormal(s, order, clients_per_chunk) for s in (left, right))

    def row(right: Subspaces, vectors: Array, kept: Array) -> _Row:
        known = jnp.any(kept) & jnp.any(right.kept, axis=1)
        return jnp.where(known, jnp.rad2deg(rule(right, vectors, kept)), jnp.nan)

    return over_clients(row, order, clients_per_chunk)(right, *left)


def _orthonormal(
    subspaces: Subspaces, order: Order | None, clients_per_chunk: int | None
) -> Subspaces:
    """Orthogonal vectors of the same spans, as many as their ranks."""

    def one(_: None, vectors: Array) -> Subspaces:
        # Vectors as samples; the right singular vectors are what they span.
        every = jnp.ones(vectors.shape[1], bool)
        return Subspaces(*_principal_vectors(vectors.T, every, vectors.shape[1]))

    return over_clients(one, order, clients_per_chunk)(None, subspaces.vectors)


def _principal_angles(right: Subspaces, vectors: Array, kept: Array) -> _Row:
    """Smallest principal angle of one basis to each of the others, radians."""
    del kept  # Columns that there are not are 0.
    inner = jnp.einsum("fa,ofb->oab", vectors, right.vectors, precision=_EXACT)
    squares = jnp.einsum("oab,ocb->oac", inner, inner, precision=_EXACT)
    # Of the largest singular value.
    best = jax.vmap(eigenvectors)(squares)[1][:, :, -1]
    image = jnp.einsum("oab,oa->ob", inner, best, precision=_EXACT)
    nearest = jnp.einsum("ofb,ob->of", right.vectors, image, precision=_EXACT)
    point = jnp.einsum("fa,oa->of", vectors, best, precision=_EXACT)
    cosine = jnp.linalg.norm(image, axis=1)
    sine = jnp.linalg.norm(point - nearest, axis=1)
    # Of orthogonal subspaces `best` may be a column that there is not, whose sine is 0.
    small = cosine > math.sqrt(0.5)
    return jnp.where(small, jnp.arctan2(sine, cosine), jnp.arccos(cosine))


def _entry_angles(right: Subspaces, vectors: Array, kept: Array) -> _Row:
    """Smallest angle of one of the vectors to each of the others', radians."""
    inner = jnp.einsum("fa,ofb->oab", vectors, right.vectors, precision=_EXACT)
    pairs = kept[None, :, None] & right.kept[:, None, :]
    inner = jnp.where(pairs, inner, -jnp.inf)
    place = jnp.argmax(inner.reshape(inner.shape[0], -1), axis=1)
    first, second = jnp.divmod(place, inner.shape[2])
    one = vectors.T[first]
    other = jnp.take_along_axis(right.vectors, second[:, None, None], axis=2)[:, :, 0]
    length = lambda difference: jnp.linalg.norm(difference, axis=1)
    return 2 * jnp.arctan2(length(one - other), length(one + other))


# Step 3: clusters.


def group_subspaces(
    angles: Float[Array, "clients clients"],
    present: Bool[Array, " clients"],
    number: int,
    *,
    threshold: ScalarLike | None,
    linkage: PairLinkage,
) -> tuple[Int[Array, " clients"], Int[Array, ""]]:
    """Clusters of clients, merged from single ones while the two nearest are no further
    apart than the threshold; just `number` of them if it is None.

    `NO_CLUSTER` of one that is not present. And how many clusters there were at the
    threshold: where those are more than `number`, the nearest were merged on until they
    were so many. Cubic in the clients.
    """
    angles = (angles + angles.T) / 2  # They differ by rounding.
    clusters = agglomerate_distances(angles, number, linkage=linkage, present=present)
    clusters = clusters[-1]
    found = jnp.max(clusters) + 1
    if threshold is not None:
        height = jnp.asarray(threshold, angles.dtype)
        cut = cut_distances(angles, height, linkage=linkage, present=present)
        found = jnp.max(cut) + 1
        # No merge is nearer than those before it: the same merges, fewer or more.
        clusters = jnp.where(found > number, clusters, cut)
    return clusters, found


def nearest_groups(
    angles: Float[Array, "newcomers clients"],
    clusters: Int[Array, " clients"],
    number: int,
    *,
    linkage: PairLinkage,
) -> tuple[Int[Array, " newcomers"], Float[Array, " newcomers"]]:
    """The cluster next to each newcomer, `NO_CLUSTER` of one without vectors, and how
    far it is by the linkage; "weighted" has the plain mean over the members here."""
    members = membership(clusters, number)
    pairs, there = angles[:, :, None], members[None]
    if linkage == "single":
        distances = jnp.min(jnp.where(there, pairs, jnp.inf), axis=1)
    elif linkage == "complete":
        distances = jnp.max(jnp.where(there, pairs, -jnp.inf), axis=1)
    else:
        count = jnp.sum(members, axis=0, dtype=angles.dtype)
        distances = jnp.sum(jnp.where(there, pairs, 0), axis=1) / count[None, :]
    used = jnp.any(members, axis=0)[None, :] & jnp.isfinite(distances)
    distances = jnp.where(used, distances, jnp.inf)
    return choose_cluster(distances), jnp.min(distances, axis=1)
