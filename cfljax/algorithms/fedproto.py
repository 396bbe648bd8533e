"""FedProto: models of the clients' own, which share what classes look like.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang. "FedProto: Federated Prototype Learning across
Heterogeneous Clients". AAAI 2022, Algorithm 1: clients send the mean features of their
classes, never weights, and are trained towards everybody's means. Equation numbers
below are the paper's. The reference is PFLlib's `clientproto.py` and `serverproto.py`
(github.com/TsingZ0/PFLlib), with which CLoVE's FedProto was measured.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import (
    check_member,
    check_threat,
)
from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import length, put, take
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
    Variables,
)
from cfljax.federated.answers import check_clients
from cfljax.federated.backend import over_clients
from cfljax.federated.evaluate import masked_mean
from cfljax.federated.local_update import (
    LocalUpdate,
    client_update,
    step_size_at,
    work_alone,
)
from cfljax.federated.prototypes import (
    Prototypes,
    aligned,
    aligned_fit,
    class_means,
    first_prototypes,
    layers_of,
    mean_prototypes,
    prototype_bytes,
)
from cfljax.federated.rounds import Info
from cfljax.federated.training import (
    LocalState,
    Start,
    Weights,
    averaging,
    cohort,
    first_local_state,
    moments_of,
    newcomers_local_state,
    next_local_state,
    round_of,
    spread,
    start_own_models,
)

Answer = Literal["prototype", "head"]
Variant = Literal["paper", "reference"]


class State(NamedTuple):
    """All that the next round needs.

    models: leaves `[clients, ...]`, one for each client.
    prototypes: the global ones.
    local_state: of local updates; None if they need none.
    """

    models: Stacked
    prototypes: Prototypes
    local_state: LocalState | None = None

    __repr__ = summary


@constructor
def fedproto(
    task: Task,
    *,
    num_classes: int,
    step_size: StepSize,
    penalty: ScalarLike = 1.0,
    num_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    answer: Answer = "prototype",
    start: Start = "identical",
    variant: Variant = "paper",
    threat: Threat | None = None,
) -> Algorithm:
    """Personal models whose features agree on the mean of every class.

    A participant trains its own model by its loss and `penalty` times the mean squared
    distance of its features to the global prototypes of their classes, averaged over
    samples and features. The paper's regulariser sums distances over classes, each
    between means (equation 8); the authors' released code has this one. A class
    without a prototype as yet adds nothing; one that no participant of a round holds
    keeps its prototype. A client collects its prototypes after training, as
    Algorithm 1 has it.

    Args:
      task: the learning problem, with `layers`; labels are 0, 1, ..., `num_classes` -
        1.
      num_classes: number of classes.
      step_size: local step size; may be traced.
      penalty: lambda, not negative; may be traced. With 0 every client trains alone.
      num_steps: local steps in each round.
      weights: of the clients in a global prototype: "clients" for equal ones, as in the
        released code; "samples" for their numbers of samples of the class, as in
        equation 6, whose further division by the number of clients is left out:
        weights of sum 1 / |N_j| would shrink every prototype.
      participation: fraction of the clients drawn each round; the others keep their
        models.
      update: how clients train.
      answer: "prototype" answers with the class of the nearest global prototype
        (equation 4): scores are minus the mean squared distance, -inf for a class
        without one. Until there is any, and always with "head", scores are those of
        the client's last layer.
      start: of the models: "identical", or "independent" draws, as in `local`.
      variant: "paper"; or "reference", what PFLlib runs: a client's prototypes are the
        means of the features of all its local batches as training saw them, each
        before its step; and a class that no participant of a round holds has no
        prototype behind it.
      threat: what Byzantine clients send for the prototypes of all classes together,
        which start from nothing that was received; those of classes that a client does
        not hold are 0 there. They are honest about which classes they hold.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where the network
        has another number of outputs or targets are no integers.

    `Info` has the losses under clients' own models after training: the pass that makes
    the prototypes has them for nothing. Bytes received are those of the prototypes that
    are known, bytes sent those of the classes that a client holds.

    A newcomer trains a fresh model for one round with the global prototypes; with
    `start="identical"` it is the same one for all newcomers.

    Cost of a round: `num_steps` passes forward and backward and a forward pass for
    each participant. Memory: a model of every client, and prototypes of every
    participant.
    """
    layers = layers_of(task)
    check_member(Answer, answer=answer)
    check_member(Start, start=start)
    check_member(Variant, variant=variant)
    is_reference = variant == "reference"
    training = averaging(step_size, num_steps, weights, participation, update, threat)

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        models = start_own_models(task, key, len(data.mask), start)
        one = jax.tree.map(lambda leaf: leaf[0], models)
        prototypes = first_prototypes(task, one, data, num_classes)
        local_state = first_local_state(training, models, len(data.mask))
        return State(models, prototypes, local_state)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        num_clients = data.mask.shape[0]
        check_threat(threat, num_clients, 1)
        clients, present = cohort(key, data, participation)
        models, moments, means, counts, losses = work(key, state, clients, present)
        # What the server makes of the participants' prototypes.
        if threat is not None:
            own = jax.random.fold_in(key, Stream.ATTACKERS)
            when = round_of(state.local_state)
            means = threat.send(own, means, clients, round=when)
        takes_part = jnp.isfinite(losses)
        shares = counts if weights == "samples" else jnp.sign(counts)
        shares = jnp.where(takes_part[:, None], shares, 0)
        before = state.prototypes
        if is_reference:
            before = jax.tree.map(jnp.zeros_like, before)
        prototypes = mean_prototypes(means, shares, before)  # (6)
        # An integer beside each prototype.
        per_class = 4 if weights == "samples" else 0
        held = jnp.sum(counts > 0, axis=1)
        sent = prototype_bytes(held, prototypes, per_class=per_class)
        known = prototype_bytes(jnp.sum(state.prototypes.known), prototypes)
        row = lambda values, absent: spread(values, clients, num_clients, absent=absent)
        info = Info(
            assignment=row(jnp.where(takes_part, 0, NO_CLUSTER), NO_CLUSTER),
            losses=row(losses, jnp.nan),
            received=row(jnp.broadcast_to(known, clients.shape), 0),
            sent=row(jnp.where(takes_part, sent, 0), 0),
        )
        models = put(state.models, clients, models)
        after = next_local_state(state.local_state, clients, moments)
        return State(models, prototypes, after), info

    def work(
        key: PRNGKeyArray, state: State, clients: Array, data: ClientData
    ) -> tuple[Stacked, Stacked, Array, Array, Array]:
        """Models, moments, prototypes, samples of each class, and losses of
        participants after training."""

        def one(
            shared: tuple,
            client: Array,
            model: PyTree,
            moments: PyTree,
            data: ClientData,
        ) -> tuple[PyTree, PyTree, Array, Array, Array]:
            key, step_size, penalty, prototypes = shared
            local = aligned(task, prototypes, penalty)  # (7)
            begin = model
            if is_reference:
                local = collecting(task, prototypes, penalty)
                begin = with_table(model, prototypes)
            train = client_update(local, training.update, num_steps)
            learn = lambda own: train(own, step_size, begin, moments, data)
            model, moments = work_alone(key, client, data, learn, (begin, moments))
            table = None
            if is_reference:
                model, table = without_table(model)
            features = layers.embed(model, data.inputs)
            losses = layers.losses(layers.answer(model, features), data.targets)
            means, counts = class_means(  # (3)
                features, data.targets, data.mask, num_classes
            )
            if table is not None:
                seen = table.visits > 0
                means = table.sums / jnp.maximum(table.visits, 1)[:, None]
                counts = jnp.where(seen, counts, 0)
            return model, moments, means, counts, masked_mean(losses, data.mask)

        size = step_size_at(training.update, step_size, round_of(state.local_state))
        strength = jnp.asarray(penalty, jnp.result_type(float))
        shared = key, size, strength, state.prototypes
        moments = moments_of(state.local_state, clients)
        models = take(state.models, clients)
        return training.update.over_clients(one)(shared, clients, models, moments, data)

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        def one(prototypes: Prototypes, model: PyTree, inputs: Array) -> Array:
            if answer == "head":
                return task.predict(model, inputs)
            features = layers.embed(model, inputs)
            scores = prototype_scores(features, prototypes)  # (4)
            fallback = layers.answer(model, features)
            return jnp.where(jnp.any(prototypes.known), scores, fallback)

        check_clients(length(state.models), data, inputs)
        return over_clients(one)(state.prototypes, state.models, inputs)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        models = start_own_models(task, key, num_clients, start)
        kept = newcomers_local_state(training, state.local_state, models, num_clients)
        fresh = State(models, state.prototypes, kept)
        models, *_ = work(key, fresh, jnp.arange(num_clients), data)
        return fresh._replace(models=models)

    return Algorithm(init, step, predict, join)


def prototype_scores(
    features: Float[Array, "samples features"], prototypes: Prototypes
) -> Float[Array, "samples classes"]:
    """Minus the mean squared distance to each prototype; -inf where there is none."""
    away = features[:, None, :] - prototypes.means[None]
    scores = -jnp.mean(jnp.square(away), axis=2)
    return jnp.where(prototypes.known[None], scores, -jnp.inf)


class _Table(NamedTuple):
    """Features that training has seen, kept among the statistics of a model.

    statistics: of the model itself; None of one that has none.
    sums: `[classes, features]`, of the features of the visited samples of a class.
    visits: `[classes]`, their number.
    """

    statistics: PyTree
    sums: Float[Array, "classes features"]
    visits: Float[Array, " classes"]


def with_table(params: PyTree, prototypes: Prototypes) -> Variables:
    """The model and an empty table, of the shapes of the prototypes."""
    sums = jnp.zeros_like(prototypes.means)
    visits = jnp.zeros(len(sums), sums.dtype)
    if isinstance(params, Variables):
        return Variables(params.weights, _Table(params.statistics, sums, visits))
    return Variables(params, _Table(None, sums, visits))


def without_table(params: Variables) -> tuple[PyTree, _Table]:
    """The inverse of `with_table`, and the table."""
    table = params.statistics
    if table.statistics is None:
        return params.weights, table
    return Variables(params.weights, table.statistics), table


def collecting(task: Task, prototypes: Prototypes, penalty: ScalarLike) -> Task:
    """The `aligned` task, of models with a table: every batch adds the features that
    its loss is computed of."""
    fit = aligned_fit(layers_of(task), prototypes, penalty)

    def collect(
        key: PRNGKeyArray,
        params: Variables,
        inputs: Array,
        targets: Int[Array, " samples"],
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], Variables]:
        model, table = without_table(params)
        losses, features, after = fit(key, model, inputs, targets, mask)
        features = jax.lax.stop_gradient(features)
        number = len(table.visits)
        means, counts = class_means(features, targets, mask, number)
        statistics = after.statistics if isinstance(after, Variables) else None
        sums = table.sums + means * counts[:, None]
        table = _Table(statistics, sums, table.visits + counts)
        return losses, Variables(params.weights, table)

    return task._replace(fit=collect)
