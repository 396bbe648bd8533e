"""HypCluster: clients join the hypothesis of least loss, each has a server optimiser.

Mansour, Mohri, Ro, Suresh. "Three Approaches for Personalization with Applications to
Federated Learning". 2020, HypCluster, as the authors released it in fedjax: the server
takes the step of an optimiser along the mean of a cluster's members' moves. With a
plain step of size 1 it is IFCA's option II, weighted by samples.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from cfljax.base.checks import at_most_clients, check_member
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.tree import (
    finite_rows,
    length,
    repeat,
    rows,
    select,
    take,
    trained_part,
    with_trained,
)
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task, Threat
from cfljax.federated.answers import predict_best_model
from cfljax.federated.average import membership
from cfljax.federated.evaluate import choose_cluster, loss_matrix
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.rounds import Info, train_round
from cfljax.federated.traffic import traffic
from cfljax.federated.training import (
    LocalState,
    Training,
    Weights,
    averaging,
    first_local_state,
    message_bytes,
    start_models,
    train_alone,
)

Start = Literal["independent", "farthest"]
ServerOptimizer = Callable[[Any], optax.GradientTransformation]  # Of a step size.


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clusters, ...]`.
    server: states of the server's optimisers, leaves `[clusters, ...]`.
    local_state: of local updates; None if they need none.
    start_bytes: that each client received and sent for the start, until they are
      reported, `[2, clients]`; None if the start was drawn at the server.
    """

    models: Stacked
    server: Stacked
    local_state: LocalState | None = None
    start_bytes: Int[Array, "2 clients"] | None = None

    __repr__ = summary


@constructor
def hyp_cluster(
    task: Task,
    *,
    num_clusters: int,
    step_size: StepSize,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    server_step_size: StepSize = 1.0,
    server_optimizer: ServerOptimizer = optax.sgd,
    start: Start = "independent",
    num_start_rounds: int = 1,
    threat: Threat | None = None,
) -> Algorithm:
    """Hypothesis-based clustering with a server optimiser for each cluster.

    A cluster that nobody chose keeps its model and its optimiser's state. Ties go to
    the lowest index and a loss that is not finite is never chosen. What a client
    answers with is chosen by its loss on its own training data, never by a test.

    Args:
      task: the learning problem.
      num_clusters: number of models, at least 1.
      step_size: of the clients; may be traced.
      num_steps: local steps in each round, at least 1.
      weights: of the clients in an average, "samples" as in fedjax, or "clients".
      participation: fraction of the clients drawn each round.
      update: how clients train.
      server_step_size: of the server; may be traced. A schedule counts the steps of
        a cluster's model.
      server_optimizer: from `server_step_size` to an optax optimiser.
      start: "independent" random models, as `ifca` draws them; or "farthest": all
        clients train one random model, and the first models are those of clients that
        the others serve badly.
      num_start_rounds: local updates in a row before a "farthest" start.
      threat: what Byzantine clients do in rounds; the start is honest.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where a "farthest"
        start has fewer clients than clusters.

    In the first round `Info` has also the bytes of a start among clients' models. A
    newcomer takes the cluster whose model it loses least with, as in a round.

    Cost of a round: that of `federated.rounds.train_round`; a "farthest" start holds a
    model of every client.
    """
    check_member(Start, start=start)
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    optimizer = server_optimizer(server_step_size)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models, start_bytes = start_models(task, key, num_clusters), None
        if start == "farthest":
            # The independent models have used the indices below.
            own = jax.random.fold_in(key, num_clusters)
            models, start_bytes = _farthest_start(
                own, task, training, models, data, num_start_rounds
            )
        server = jax.vmap(optimizer.init)(trained_part(models))
        local_state = first_local_state(training, models, data.mask.shape[0])
        return State(models, server, local_state, start_bytes)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        choose = lambda losses, _: choose_cluster(losses)
        after = train_round(key, task, state, data, training, choose)
        used = jnp.any(membership(after.assignment, num_clusters), axis=0)
        models, server = _server_step(
            optimizer, state.models, after.models, state.server, used
        )
        sizes = message_bytes(training, state.models)
        received, sent = traffic(sizes, after.present, after.assignment)
        start_bytes = state.start_bytes
        if start_bytes is not None:
            received, sent = received + start_bytes[0], sent + start_bytes[1]
            start_bytes = jnp.zeros_like(start_bytes)
        info = Info(after.assignment, after.losses, received, sent)
        return State(models, server, after.local_state, start_bytes), info

    predict = predict_best_model(task, training.update.clients_per_chunk)
    # Independent hypotheses, as IFCA's, may be more than clients: some go unchosen.
    check = at_most_clients(num_clusters if start == "farthest" else None)
    return Algorithm(init, step, predict, check=check)


def _server_step(
    optimizer: optax.GradientTransformation,
    models: Stacked,
    means: Stacked,
    states: Stacked,
    used: Bool[Array, " clusters"],
) -> tuple[Stacked, Stacked]:
    """A step of every used cluster's model along `model - mean` of its members (Reddi
    et al., ICLR 2021, Algorithm 1); statistics (`Variables`) become their mean."""
    weights = trained_part(models)
    gradient = jax.tree.map(jnp.subtract, weights, trained_part(means))
    changes, after = jax.vmap(optimizer.update)(gradient, states, weights)
    moved = with_trained(means, optax.apply_updates(weights, changes))
    return select(used, moved, models), select(used, after, states)


def _farthest_start(
    key: PRNGKeyArray,
    task: Task,
    training: Training,
    random: Stacked,
    data: ClientData,
    num_rounds: int,
) -> tuple[Stacked, Int[Array, "2 clients"]]:
    """Models trained by clients from one start, the first drawn, then always that of
    the client worst served so far, `random` where none is left; and the bytes."""
    num_clients = data.mask.shape[0]
    number = length(random)
    start_key, train_key, first_key = jax.random.split(key, 3)

    def train(index: Array, models: Stacked) -> Stacked:
        own = jax.random.fold_in(train_key, index)
        return train_alone(own, task, models, data, training)[0]

    begin = repeat(task.init(start_key), num_clients)
    trained = jax.lax.fori_loop(0, num_rounds, train, begin)
    chunk = training.update.clients_per_chunk
    able = jnp.any(data.mask, axis=1) & finite_rows(trained)
    first = jax.random.categorical(first_key, jnp.where(able, 0.0, -jnp.inf))
    first = jnp.where(jnp.any(able), first, -1).astype(jnp.int32)
    chosen = jnp.full(number, -1, jnp.int32).at[0].set(first)

    def add(slot: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        chosen, least = carry
        last = take(trained, jnp.maximum(chosen[slot - 1], 0)[None])
        losses = loss_matrix(task, last, data, clients_per_chunk=chunk)
        losses = jnp.where(jnp.isfinite(losses[:, 0]), losses[:, 0], jnp.inf)
        least = jnp.minimum(least, losses)
        fresh = ~jnp.any(jnp.arange(len(able))[:, None] == chosen[None, :], axis=1)
        score = jnp.where(able & fresh & jnp.isfinite(least), least, -jnp.inf)
        worst = jnp.where(jnp.any(score > -jnp.inf), jnp.argmax(score), -1)
        return chosen.at[slot].set(worst.astype(jnp.int32)), least

    kind = jax.eval_shape(
        lambda: loss_matrix(task, take(trained, jnp.zeros(1, jnp.int32)), data)
    ).dtype
    least = jnp.full(len(able), jnp.inf, kind)
    chosen, _ = jax.lax.fori_loop(1, number, add, (chosen, least))
    given = chosen >= 0
    one = lambda new: new[jnp.maximum(chosen, 0)]
    pick = lambda new, old: jnp.where(rows(given, old), one(new), old)
    models = jax.tree.map(pick, trained, random)
    gives = jnp.any(jnp.arange(num_clients)[:, None] == chosen[None, :], axis=1)
    model = message_bytes(training, random).one_model
    loss = jnp.dtype(jnp.result_type(float)).itemsize
    received = jnp.full(num_clients, number * model)
    sent = (number - 1) * loss + jnp.where(gives, model, 0)
    both = jnp.stack([received, sent]).astype(jnp.int32)
    return models, jnp.where(jnp.any(data.mask, axis=1)[None], both, 0)
