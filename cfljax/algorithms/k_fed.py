"""k-FED: clients cluster their samples, the server clusters their centres, once.

Dennis, Li, Smith. "Heterogeneity for the Win: One-Shot Federated Clustering", ICML
2021. Algorithm 1: Awasthi and Sheffet's clustering on every client; Algorithm 2: the
server starts from one client's centres, adds the farthest of all until there are k, and
lets all centres join. Line numbers below are those of Algorithm 2.
"""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax.base.checks import check_at_most, check_member
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.clustering.distances import squared_euclidean
from cfljax.clustering.kmeans import lloyd, spectral_k_means
from cfljax.federated.answers import join_best_cluster, predict_own_cluster
from cfljax.federated.backend import everywhere, over_clients
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import Info, fixed_round
from cfljax.federated.training import (
    LocalState,
    Weights,
    averaging,
    first_local_state,
    start_models,
)

Points = Literal["inputs", "samples"]
Variant = Literal["paper", "reference"]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`.
    clusters: of each client, for good; `NO_CLUSTER` for one without samples.
    centre_bytes: what a client sent for the clustering, until it is reported.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    clusters: Int[Array, " clients"]
    centre_bytes: Int[Array, " clients"]
    local_state: LocalState | None = None

    __repr__ = summary


@constructor
def k_fed(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    num_local_clusters: int = 1,
    points: Points = "samples",
    variant: Variant = "paper",
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    num_restarts: int = 10,
    threat: Threat | None = None,
) -> Algorithm:
    """One-shot clustering of clients by where their samples lie, then FedAvg.

    k-FED clusters samples. Here, where every client belongs to one cluster, a client
    joins the cluster that holds most of its samples (the lowest of several), and each
    cluster trains its model by FedAvg.

    Args:
      task: what is trained after the clustering.
      num_clusters: k, from 1 to the number of centres that all clients send.
      step_size: of training; may be traced.
      num_local_clusters: k', what a client divides its samples into, at most as many
        as it may have. With 1 it sends their mean.
      points: what is clustered, as rows of numbers: "inputs", or "samples", inputs
        and targets together.
      variant: "paper" lets the centres join once (line 8); "reference" goes on with
        Lloyd's iterations until they rest, as the released code does.
      num_steps: local steps of a round.
      weights: of the clients in an average.
      participation: fraction of the clients drawn in each round of training; all
        take part in the clustering.
      update: how clients train.
      num_restarts: of the k-means on every client.
      threat: what Byzantine clients do in training; the clustering is honest.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where clients have
        fewer samples than `num_local_clusters`, or all of them together send fewer
        centres than `num_clusters`.

    In the first round `Info.sent` has also the bytes of a client's centres. A newcomer
    takes the cluster whose model it loses least with.

    Cost: `init` clusters every client's samples, one client after the other; a round
    is that of `federated.rounds.train_round`.
    """
    check_member(Points, points=points)
    check_member(Variant, variant=variant)
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    most_samples = everywhere(
        functools.partial(_most_samples, number=num_clusters, variant=variant)
    )

    def check(data: ClientData) -> None:
        clients, samples = data.mask.shape
        what = "the samples of a client"
        check_at_most(samples, what, num_local_clusters=num_local_clusters)
        what = "the centres that clients send"
        check_at_most(clients * num_local_clusters, what, num_clusters=num_clusters)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models_key, cluster_key = jax.random.split(key)
        rows = _rows(data, points)
        centres, held = _local_clusters(
            cluster_key, rows, num_local_clusters, num_restarts
        )
        clusters = most_samples(centres, held)
        models = start_models(task, models_key, num_clusters)
        width = num_local_clusters * rows.shape[2] * rows.dtype.itemsize
        sent = width * (clusters >= 0).astype(jnp.int32)
        local_state = first_local_state(training, models, data.mask.shape[0])
        return State(models, clusters, sent, local_state)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        after, info = fixed_round(key, task, state, data, training)
        info = info._replace(sent=info.sent + state.centre_bytes)
        reported = jnp.zeros_like(state.centre_bytes)
        return State(after.models, state.clusters, reported, after.local_state), info

    join = join_best_cluster(task, training.update.clients_per_chunk)
    return Algorithm(init, step, predict_own_cluster(task), join, check=check)


def _rows(data: ClientData, points: str) -> Float[Array, "clients samples features"]:
    """What is clustered; NaN for padding."""
    shape = data.mask.shape
    rows = data.inputs.reshape(shape + (-1,)).astype(jnp.result_type(float))
    if points == "samples":
        targets = data.targets.reshape(shape + (-1,)).astype(rows.dtype)
        rows = jnp.concatenate([rows, targets], axis=2)
    return jnp.where(data.mask[:, :, None], rows, jnp.nan)


def _local_clusters(
    key: PRNGKeyArray,
    rows: Float[Array, "clients samples features"],
    number: int,
    num_restarts: int,
) -> tuple[Float[Array, "clients local features"], Float[Array, "clients local"]]:
    """Centres of every client's samples, equal ones where these are fewer, and how many
    samples each has: 0 for those of a client without any (Algorithm 1)."""

    def one(key: PRNGKeyArray, client: Array, rows: Array) -> tuple[Array, Array]:
        own = jax.random.fold_in(key, client)
        found = spectral_k_means(own, rows, number, num_restarts=num_restarts)
        members = found.assignment[:, None] == jnp.arange(number)[None, :]
        return found.centres, jnp.sum(members, axis=0, dtype=rows.dtype)

    return over_clients(one)(key, jnp.arange(rows.shape[0]), rows)


def _most_samples(
    centres: Float[Array, "clients local features"],
    members: Float[Array, "clients local"],
    number: int,
    variant: str,
) -> Int[Array, " clients"]:
    """The cluster that holds most of each client's samples (Algorithm 2)."""
    clients, local, features = centres.shape
    flat, held = centres.reshape(-1, features), members.reshape(-1)
    used = held > 0
    flat = jnp.where(used[:, None], flat, 0)
    owner = jnp.argmax(jnp.any(members > 0, axis=1))  # line 2: some client's centres
    first = (jnp.arange(clients * local) // local == owner) & used
    start = _farthest_first(flat, used, first, number)  # lines 3-6
    rounds = 50 if variant == "reference" else 0
    final = lloyd(flat, used, start, num_iterations=rounds)
    joined = jnp.argmin(squared_euclidean(flat, final), axis=1)  # line 8
    ballots = jax.nn.one_hot(joined, number, dtype=held.dtype) * held[:, None]
    votes = jnp.sum(ballots.reshape(clients, local, number), axis=1)
    known = jnp.any(members > 0, axis=1)
    return jnp.where(known, jnp.argmax(votes, axis=1), NO_CLUSTER)


def _farthest_first(
    flat: Float[Array, "centres features"],
    used: Bool[Array, " centres"],
    first: Bool[Array, " centres"],
    number: int,
) -> Float[Array, "clusters features"]:
    """The first client's centres, at most `number`, then the farthest of all."""
    order = jnp.argsort(~first, stable=True)[:number]
    start = flat[order]
    taken = jnp.minimum(jnp.sum(first), number)
    slots = jnp.arange(number)

    def add(slot: Array, start: Array) -> Array:
        known = (slots < slot)[None, :]
        squares = jnp.where(known, squared_euclidean(flat, start), jnp.inf)
        nearest = jnp.where(used, jnp.min(squares, axis=1), -1)
        farthest = flat[jnp.argmax(nearest)]
        return jnp.where(slot >= taken, start.at[slot].set(farthest), start)

    return jax.lax.fori_loop(1, number, add, start)
