"""RR-Cluster: IFCA under client-level differential privacy, no cluster being too small.

Yang, Hu, Kim, Li. "Differentially Private Federated Clustering with Random
Rebalancing". 2025, arXiv:2508.06183. Of its text the abstract and the beginning of the
introduction could be opened, and no code was found. They say: in a cluster's private
mean the noise is averaged over its clients, whose number nobody controls; so clients
are reassigned at random until every cluster has a least number of them, which can be
added to many clustered methods. Everything else is this file's own: which clients go
where (`rebalance`), how far one client moves the models (`sensitivity`, proved there),
what is clipped, where noise is added, and how rounds are accounted for
(`privacy_spent`). So are the steps below: (1) sampled clients choose by losses, as in
IFCA; (2) the server rebalances; (3) each client trains the model that it was given and
(4) its update is clipped; (5) a model moves by its clients' mean update, and by noise.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_at_most
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.ranges import ranged
from cfljax.base.streams import Stream
from cfljax.base.tree import is_finite, rows, take
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Variables,
)
from cfljax.federated.answers import predict_best_model
from cfljax.federated.average import membership
from cfljax.federated.backend import everywhere
from cfljax.federated.evaluate import choose_cluster, loss_matrix
from cfljax.federated.local_update import (
    LocalUpdate,
    client_key,
    client_update,
    step_size_at,
)
from cfljax.federated.partial import leaves_of
from cfljax.federated.rounds import Info
from cfljax.federated.sums import sum_in_clusters
from cfljax.federated.traffic import traffic
from cfljax.federated.training import (
    LocalState,
    averaging,
    cohort,
    first_local_state,
    message_bytes,
    next_local_state,
    round_of,
    size_of_cohort,
    spread,
    start_models,
)

_MOST_NOISE, _LEAST_NOISE = 1e6, 1e-9  # Beyond, the accountant's numbers overflow.


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`, which is all that is released.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    local_state: LocalState | None = None

    __repr__ = summary


@constructor
def rr_cluster(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    min_cluster_size: int,
    clip_norm: ScalarLike,
    noise_multiplier: ScalarLike,
    num_steps: int = 1,
    participation: float = 1.0,
    update: LocalUpdate | None = None,
) -> Algorithm:
    """IFCA whose models are private releases about each client, see the file's header.

    The models of all rounds together are differentially private in the data of any one
    client, if the server is trusted, with the epsilon of `privacy_spent`. Nothing else
    is: neither `Info`, which has losses and clusters, nor which clients were drawn, nor
    keys.

    Args:
      task: the learning problem, which measures no statistics.
      num_clusters: K.
      step_size: may be traced.
      min_cluster_size: B, clients that train each model at least, at least 1.
      clip_norm: C, largest norm of a client's update, all leaves together; positive,
        may be traced. An update that is not finite counts as one of 0.
      noise_multiplier: standard deviation of the noise in units of how far one client
        moves all models, `2 C sqrt(K) / B`; not negative, may be traced. Without noise
        nothing is private.
      num_steps: local steps in each round.
      participation: fraction of the clients drawn each round.
      update: how clients train; they may keep no optimiser, since what it knows depends
        on models that other clients made them train.

    Raises:
      ValueError: where an argument is out of its range, clients would keep their
        optimisers, or the task measures statistics, whose variances noise could make
        negative; in `init`, where fewer than K B clients are drawn for a round.

    `Info.assignment` is the cluster that a client was given; `NO_CLUSTER` for one
    without a finite loss, which keeps a place there and adds an update of 0. A client
    without samples has none: which ones have samples is no secret. A newcomer takes the
    model that it loses least with.

    Cost of a round: a forward pass for each participant and model, and its local steps;
    the rebalancing goes through the participants one by one, at K numbers each.
    """
    training = averaging(step_size, num_steps, "clients", participation, update, None)
    update = training.update
    if update.keep_optimizer:
        raise ValueError(
            "`update` must not have `keep_optimizer`: what clients keep depends on "
            "other clients by ways that no noise covers."
        )
    if isinstance(leaves_of(task), Variables):
        raise ValueError(
            "`task` must measure no statistics, as batch normalisation does: with "
            "noise, a variance may be negative."
        )

    def check(data: ClientData) -> None:
        drawn = size_of_cohort(data.mask.shape[0], participation)
        what = "the clients drawn for a round"
        check_at_most(drawn, what, num_clusters=num_clusters)
        most, what = (
            drawn // num_clusters,
            f"a cluster's share of {drawn} clients drawn",
        )
        check_at_most(most, what, min_cluster_size=min_cluster_size)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models = start_models(task, key, num_clusters)
        return State(models, first_local_state(training, models, data.mask.shape[0]))

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        models, before = state.models, state.local_state
        num_clients = data.mask.shape[0]
        clients, present = cohort(key, data, participation)
        losses = loss_matrix(
            task, models, present, clients_per_chunk=update.clients_per_chunk
        )
        choices = choose_cluster(losses)  # step 1
        own = jax.random.fold_in(key, Stream.ALGORITHM)
        order_key, noise_key = jax.random.split(own)
        order = jax.random.permutation(order_key, clients.shape[0])
        balance = functools.partial(
            rebalance, num_clusters=num_clusters, min_cluster_size=min_cluster_size
        )
        has_samples = jnp.any(present.mask, axis=1)
        given = everywhere(balance)(choices, order, has_samples)  # step 2

        train = client_update(task, update, num_steps)

        def summand(
            shared: tuple, kept: tuple, client: Array, cluster: Array, data: ClientData
        ) -> tuple[tuple[Stacked, tuple], tuple]:
            key, step_size, models, norm = shared
            start = take(models, cluster)
            trained, _ = train(client_key(key, client), step_size, start, (), data)
            move = jax.tree.map(jnp.subtract, trained, start)  # step 3
            return (clipped(move, norm), ()), kept  # step 4

        now = step_size_at(update, training.step_size, round_of(before))
        norm = jnp.asarray(clip_norm, losses.dtype)
        (sums, _), _ = sum_in_clusters(
            summand,
            (key, now, models, norm),
            (),
            (clients, jnp.maximum(given, 0), present),
            assignment=given,
            weights=jnp.where(choices >= 0, 1, jnp.zeros((), losses.dtype)),
            num_clusters=num_clusters,
            **update.placement,
        )
        sizes = jnp.sum(membership(given, num_clusters), axis=0)
        # Never fewer than B, even where clients without samples were drawn.
        inverse = 1 / jnp.maximum(sizes, min_cluster_size).astype(losses.dtype)
        moved_by_one = sensitivity(norm, num_clusters, min_cluster_size)
        deviation = jnp.asarray(noise_multiplier, losses.dtype) * moved_by_one
        noise = normal_like(noise_key, models)
        models = jax.tree.map(
            lambda leaf, total, drawn: (
                leaf + total * rows(inverse, total) + deviation * drawn
            ),
            *(models, sums, noise),
        )  # step 5

        assignment = jnp.where(choices >= 0, given, NO_CLUSTER)
        assignment = spread(assignment, clients, num_clients, absent=NO_CLUSTER)
        took_part = jnp.zeros(num_clients, bool).at[clients].set(True)
        received, sent = traffic(message_bytes(training, models), took_part, assignment)
        losses = spread(losses, clients, num_clients, absent=jnp.nan)
        local_state = next_local_state(before, clients, ())
        return State(models, local_state), Info(assignment, losses, received, sent)

    predict = predict_best_model(task, update.clients_per_chunk)
    return Algorithm(init, step, predict, check=check)


# Step 2: clusters of a least size.


def rebalance(
    choices: Int[Array, " clients"],
    order: Int[Array, " clients"],
    is_there: Bool[Array, " clients"],
    *,
    num_clusters: int,
    min_cluster_size: int,
) -> Int[Array, " clients"]:
    """Clusters of at least so many clients, if there are enough, and most choices kept.

    In the given order each client gets the cluster of its choice, `NO_CLUSTER` choosing
    the first, unless the clients that are left, itself among them, are no more than the
    clusters together lack. From then on it gets its choice if that lacks clients, else
    the first cluster that does. A client that is not there counts for nothing.

    Returns:
      The cluster of each client, `NO_CLUSTER` for one that is not there.

    Cost: a step for each client, of a number for each cluster.
    """

    def place(
        before: tuple[Array, Array], client: Array
    ) -> tuple[tuple[Array, Array], Array]:
        lacks, left = before
        wanted = jnp.maximum(choices[client], 0)
        must_fill = left <= jnp.sum(lacks, dtype=lacks.dtype)
        stays = ~must_fill | (lacks[wanted] > 0)
        first = jnp.argmax(lacks > 0).astype(wanted.dtype)
        cluster = jnp.where(stays, wanted, first)
        one = is_there[client].astype(lacks.dtype)
        lacks = jnp.maximum(lacks.at[cluster].add(-one), 0)
        return (lacks, left - one), jnp.where(one > 0, cluster, NO_CLUSTER)

    lacks = jnp.full(num_clusters, min_cluster_size, choices.dtype)
    left = jnp.sum(is_there, dtype=choices.dtype)
    _, found = jax.lax.scan(place, (lacks, left), order)
    return jnp.zeros_like(choices).at[order].set(found)


# Steps 4 and 5: how far one client moves the models, and the noise that hides it.


def sensitivity(
    clip_norm: ScalarLike, num_clusters: int, min_cluster_size: int
) -> ScalarLike:
    """How far all models together move, at most, if one client i has other data.

    Claim: two such runs, of one order, differ in each cluster by one client that comes
    and one that leaves at most.

    Where a client goes depends on its choice, on what clusters lack and on how many are
    left, which are as many in both runs. So all before i are placed alike; and if i is,
    or if both runs lack the same in every cluster, all others as well. Else run X puts
    i in p and run Y in q: X has one client more in p, Y in q; and X lacks one less in
    p, Y in q, but where that is full in both. Who is placed alike can change this only
    by filling p or q in both, and not where both must fill up, as it goes to what lacks
    clients in both. The next client j that is not placed alike:

    (a) One run, X, must fill up and Y need not. Then X lacks one more than Y, in q, and
    p is full in both. The choice c of j is full in both, too, and keeps j in Y; X puts
    j in f, which lacks clients. Now both must fill up, and X lacks one less in f and Y
    in q, or both the same if f is q. In c, Y has one client more, or, if c is p, it has
    j where X has i. In f, X has one more, or, if f is q, j where Y has i.

    (b) Both must fill up. Then neither p nor q is full in both: if one were, the run
    that lacks more would have had to fill up before the other, and (a) came of it. A
    cluster that lacks clients in one run alone is p or q, and j is put in such a one,
    say in q by X. Now q is full in both, and X has j there where Y has its one more. Y
    puts j in g, which lacks clients there. If g is p, both lack the same from now on,
    and Y has j in p where X has its one more. Else both had the same clients in g, as
    where they had not, but for p and q, is full in both; so now X lacks one less in p,
    Y in g, and Y has one more in g, as it had in q before.

    Nobody is put in what is full where both must fill up. So (b) may happen again, but
    to no cluster twice, and that is the claim.

    Of n >= B vectors of norm at most C, the mean moves by at most 2 C / n if one is
    replaced and by 2 C / (n + 1) if one comes. A sum of fewer, divided by B, moves by
    no more than 2 C / B, either. If i is placed alike, its update alone is replaced. So
    each of the K models moves by at most 2 C / B, and all of them by sqrt(K) times
    that, which is reached: (b) may go through all clusters.
    """
    return 2 * clip_norm * math.sqrt(num_clusters) / min_cluster_size


def clipped(move: PyTree, norm: Float[Array, ""]) -> PyTree:
    """The move, shortened to the norm if it is longer, all leaves together; 0 if it, or
    the square of its length, is not finite."""
    length = optax.tree.norm(move)
    is_known = is_finite(move) & jnp.isfinite(length)
    factor = jnp.where(length > norm, norm / length, 1)
    return jax.tree.map(lambda leaf: jnp.where(is_known, factor * leaf, 0), move)


def normal_like(key: PRNGKeyArray, models: Stacked) -> Stacked:
    """Independent standard normal numbers in the shapes of the leaves."""
    leaves, form = jax.tree.flatten(models)
    draw = lambda i, leaf: jax.random.normal(
        jax.random.fold_in(key, i), leaf.shape, leaf.dtype
    )
    return form.unflatten([draw(i, leaf) for i, leaf in enumerate(leaves)])


# What rounds cost.


@ranged
def privacy_spent(
    *,
    noise_multiplier: float | int,
    num_rounds: int,
    num_clients: int,
    num_sampled: int,
    delta: float,
) -> float:
    """Epsilon of `rr_cluster`'s released models, of all rounds together.

    They are (epsilon, delta)-differentially private: whether any one of `num_clients`
    clients had its data or others. That is by Rényi differential privacy (Mironov,
    2017), of samples without replacement (Wang, Balle, Kasiviswanathan, 2019), as
    Google's dp-accounting computes it; or without regard to sampling, where that is
    less. It is an upper bound: of full rounds 6 to 14 % above the exact epsilon, where
    that was compared; of a single sampled round up to five times what it is at least.

    Args:
      noise_multiplier: that of `rr_cluster`: the standard deviation of the noise in
        units of what one client moves.
      num_rounds: T, of which all models may be seen.
      num_clients: of all.
      num_sampled: drawn for each round: `participation` of them, rounded, where nobody
        knows whom.
      delta: chance of worse; well below one in `num_clients`, or it says little.

    Returns:
      Epsilon, infinite without noise. It has no place for what was told besides: other
      runs on the same data, such as those that settings were chosen by.

    Raises:
      ValueError: where a number is out of its range.
      ImportError: without dp-accounting, which the extra `privacy` installs.
    """
    what = "the number of clients"
    check_at_most(num_clients, what, num_sampled=num_sampled)
    try:
        import dp_accounting
    except ImportError:
        raise ImportError(
            "`privacy_spent` needs dp-accounting; install the extra `privacy`, or it "
            "alone: `python -m pip install dp-accounting`."
        ) from None
    if noise_multiplier < _LEAST_NOISE:
        return math.inf
    noise = dp_accounting.GaussianDpEvent(min(noise_multiplier, _MOST_NOISE))
    sampled = dp_accounting.SampledWithoutReplacementDpEvent(
        num_clients, num_sampled, noise
    )

    def epsilon(event: dp_accounting.DpEvent) -> float:
        accountant = dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )
        accountant.compose(event, num_rounds)
        return float(accountant.get_epsilon(delta))

    return min(epsilon(sampled), epsilon(noise))
