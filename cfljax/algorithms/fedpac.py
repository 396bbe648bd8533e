"""FedPAC: one body for all, and for each client the mixture of last layers it needs.

Xu, Tong, Huang. "Personalized Federated Learning with Feature Alignment and Classifier
Collaboration". ICLR 2023. Clients train their last layer, then the body towards the
global prototypes of the classes; the server averages bodies and combines last layers
for each client, by what the features say about whose data are alike.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import (
    check_member,
    check_positive,
    check_threat,
)
from cfljax.base.constructor import constructor
from cfljax.base.decompositions import right_factor
from cfljax.base.describe import summary
from cfljax.base.streams import Stream
from cfljax.base.tree import (
    finite_rows,
    is_finite,
    length,
    put,
    repeat,
    rows,
    select,
    take,
)
from cfljax.base.types import (
    NO_CLUSTER,
    Algorithm,
    ClientData,
    Stacked,
    StepSize,
    Task,
    Threat,
)
from cfljax.federated.answers import check_clients
from cfljax.federated.average import mean_of_sums
from cfljax.federated.backend import everywhere, over_clients, rounded_apart
from cfljax.federated.evaluate import masked_mean
from cfljax.federated.heads import train_head
from cfljax.federated.local_update import (
    LocalUpdate,
    check_schedules,
    client_key,
    client_update,
    step_size_at,
    work_alone,
)
from cfljax.federated.prototypes import (
    Prototypes,
    aligned,
    class_means,
    first_prototypes,
    layers_of,
    mean_prototypes,
    prototype_bytes,
)
from cfljax.federated.robust import mean
from cfljax.federated.sharing import merge_shared, paths, split, with_common
from cfljax.federated.sums import sum_in_clusters
from cfljax.federated.traffic import num_bytes
from cfljax.federated.training import (
    LocalState,
    Training,
    Weights,
    averaging,
    cohort,
    first_local_state,
    moments_of,
    newcomers_local_state,
    next_local_state,
    round_of,
    shares,
    spread,
)


class State(NamedTuple):
    """All that the next round needs.

    body: the params but for the last layer, without a leading axis.
    heads: last layers, leaves `[clients, ...]`, as the server combined them.
    prototypes: the global ones.
    local_state: of local updates of the body; None if they need none.
    """

    body: PyTree
    heads: Stacked
    prototypes: Prototypes
    local_state: LocalState | None = None

    __repr__ = summary


class Info(NamedTuple):
    """What one round did; nothing here is carried over.

    assignment: 0 for a client that trained, `NO_CLUSTER` for one that was not asked or
      made anything that is not finite, whose last layer stays as it was.
    losses: client losses under the body and the last layer received, before training;
      NaN for a client that was not asked.
    combination: row i has the weights of all clients' last layers in that of client i;
      0 where client i took no part.
    gaps: how far each row's bias and variance may be above the least, see
      `Mixtures`; NaN for a client that took no part.
    received: bytes from the server to each client: a model and the prototypes.
    sent: bytes from each client to the server: a model, and of each class it holds the
      prototype, the number of samples and the mean feature before training; and V.
    """

    assignment: Int[Array, " clients"]
    losses: Float[Array, " clients"]
    combination: Float[Array, "clients clients"]
    gaps: Float[Array, " clients"]
    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


@constructor
def fedpac(
    task: Task,
    *,
    num_classes: int,
    step_size: StepSize,
    head_step_size: StepSize | None = None,
    penalty: ScalarLike = 1.0,
    num_steps: int = 1,
    num_head_epochs: int = 1,
    weights: Weights = "samples",
    prototype_weights: Weights = "samples",
    smallest_weight: ScalarLike = 1e-3,
    num_iterations: int = 1000,
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """A common body, and last layers combined anew for every client.

    A participant takes statistics of its data with the body it received: p_k, the
    share of class k, mu_k, its mean feature, and V, the mean squared error of H, whose
    rows are `p_k mu_k`. It trains its last layer with the body fixed, then the body
    with the last layer fixed, by its loss and `penalty` times the mean squared
    distance of features to the global prototypes of their classes (its own ones where
    there is no global one; nothing in the first round). Its prototypes are then those
    of the trained body. The last layer of client i becomes `sum_j a_j head_j` with

        a = argmin |H_i - sum_j a_j H_j|^2 + sum_j a_j^2 V_j   over the simplex,

    both sums over the participants.

    Args:
      task: the learning problem, with `layers`; labels are 0, 1, ..., `num_classes` -
        1.
      num_classes: number of classes.
      step_size: of the body; may be traced.
      head_step_size: of the last layer; `step_size` if None. May be traced.
      penalty: lambda, not negative; may be traced.
      num_steps: local steps on the body in each round.
      num_head_epochs: passes over the samples that train the last layer.
      weights: of the clients in the body.
      prototype_weights: of the clients in a global prototype: "samples" for their
        numbers of samples of the class, "clients" for equal ones, as in PFLlib.
      smallest_weight: entries of a below it are set to 0 and the others scaled up, as
        in the authors' released code; all stay where all are below it. May be traced.
      num_iterations: that a is approximated with, see `best_mixtures`; `Info.gaps`
        tells how well.
      participation: fraction of the clients drawn each round; the others keep their
        last layers.
      update: how clients train the body, and the last layer, but for the proximal term,
        the number of epochs and the optimiser's state, which is a fresh one.
      threat: what Byzantine clients send for the body, the change of the last layer
        and the prototypes together. They are honest about their data: p, mu and V.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where the network
        has another number of outputs or no body, or targets are no integers.

    A newcomer trains a last layer for as long as in one round, from the mean of all
    clients' last layers, and answers with it and the body.

    Cost of a round: `num_steps` passes forward and backward and two forward passes for
    each participant; training last layers reuses the features of the first. Memory: a
    last layer of every client; a last layer, prototypes and mean features of every
    participant; and a body of each with a threat.
    """
    check_positive(num_head_epochs=num_head_epochs)
    check_member(Weights, prototype_weights=prototype_weights)
    layers = layers_of(task)
    check_schedules(head_step_size=head_step_size)
    if head_step_size is None:
        head_step_size = step_size
    elif callable(head_step_size) and not callable(step_size):
        step_size = optax.constant_schedule(step_size)  # So that rounds are counted.
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    stages = TwoStages(
        task=task,
        training=training,
        head_step_size=head_step_size,
        num_head_epochs=num_head_epochs,
        penalty=penalty,
        num_classes=num_classes,
    )

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        num_clients = data.mask.shape[0]
        model = task.init(jax.random.split(key, 1)[0])  # As FedAvg draws it.
        if all(map(layers.is_head, paths(model))):
            raise ValueError("`task` must have a body below its last layer, got none.")
        prototypes = first_prototypes(task, model, data, num_classes)
        body, head = split(model, layers.is_head)
        local_state = first_local_state(training, repeat(body, 1), num_clients)
        return State(body, repeat(head, num_clients), prototypes, local_state)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        before = state.local_state
        check_threat(threat, data.mask.shape[0], 1)
        clients, present = cohort(key, data, participation)
        heads = take(state.heads, clients)
        received = stages.broadcast(key, state.body, state.prototypes, before)
        body, message, moments = train_all(
            received, clients, heads, present, moments_of(before, clients), before
        )
        heads, mixtures = _combined_heads(
            message, heads, smallest_weight, num_iterations
        )
        equal = prototype_weights == "clients"
        counts = jnp.sign(message.counts) if equal else message.counts
        counts = jnp.where(message.usable[:, None], counts, 0)
        # Clients' quotients become products with some numbers of devices only.
        counts = rounded_apart(counts)
        prototypes = mean_prototypes(message.means, counts, state.prototypes)
        info = _info(state, message, mixtures, clients)
        heads = put(state.heads, clients, heads)
        after = next_local_state(before, clients, moments)
        return State(body, heads, prototypes, after), info

    def train_all(
        received: Broadcast,
        clients: Int[Array, " participants"],
        heads: Stacked,
        data: ClientData,
        moments: Stacked,
        before: LocalState | None,
    ) -> tuple[PyTree, Message, Stacked]:
        """The mean of the trained bodies, kept where nobody has any weight; messages,
        not usable of a client without samples; and moments."""
        number, honest = clients.shape[0], threat is None
        bodies = () if honest else repeat(received.body, number)

        def summand(
            received: Broadcast,
            kept: tuple,
            client: Array,
            head: PyTree,
            data: ClientData,
        ) -> tuple[tuple, tuple]:
            body, moments, message = stages.train(received, client, head, kept[0], data)
            if not honest:
                return ((), ()), (moments, message, body)
            part = jax.tree.map(lambda leaf: jnp.where(message.usable, leaf, 0), body)
            own = part, message.usable.astype(message.loss.dtype)
            return (own, ()), (moments, message, ())

        weight = shares(training, data)
        (sums, _), (moments, message, bodies) = sum_in_clusters(
            summand,
            received,
            (moments, _no_message(received, heads, number), bodies),
            (clients, heads, data),
            assignment=jnp.zeros(number, jnp.int32),
            weights=weight,
            num_clusters=1,
            **training.update.placement,
        )
        if threat is None:
            body = mean_of_sums(sums[0], sums[1], empty=repeat(received.body, 1))
            return jax.tree.map(lambda leaf: leaf[0], body), message, moments
        # Bodies, changes of last layers and prototypes as they arrive.
        changes = jax.tree.map(jnp.subtract, message.head, heads)
        nothing = lambda tree: jax.tree.map(lambda leaf: jnp.zeros_like(leaf[:1]), tree)
        own = jax.random.fold_in(received.key, Stream.ATTACKERS)
        origin = repeat(received.body, 1), nothing(changes), nothing(message.means)
        sent, first = (bodies, changes, message.means), jnp.zeros_like(clients)
        bodies, changes, means = threat.send(
            own, sent, clients, origin, clusters=first, round=round_of(before)
        )
        usable = message.usable & finite_rows((bodies, changes, means))
        head = jax.tree.map(jnp.add, heads, changes)
        message = message._replace(head=head, means=means, usable=usable)
        weight = jnp.where(usable, weight, 0)
        found, used = mean()(bodies, weight, received.body), jnp.any(weight > 0)
        keep = lambda new, old: jnp.where(used, new, old)
        return jax.tree.map(keep, found, received.body), message, moments

    def predict(state: State, data: ClientData, inputs: Array) -> Array:
        check_clients(length(state.heads), data, inputs)
        one = lambda body, head, inputs: task.predict(merge_shared(body, head), inputs)
        return over_clients(one)(state.body, state.heads, inputs)

    def join(key: PRNGKeyArray, state: State, data: ClientData) -> State:
        body, prototypes, heads = state.body, state.prototypes, state.heads
        newcomers = data.mask.shape[0]
        local_state = newcomers_local_state(
            training, state.local_state, repeat(body, 1), newcomers
        )
        start = mean()(heads, finite_rows(heads).astype(jnp.result_type(float)), None)

        def one(
            shared: tuple[Broadcast, PyTree], client: Array, data: ClientData
        ) -> PyTree:
            received, head = shared
            features = layers.embed(merge_shared(received.body, head), data.inputs)
            work = lambda own: stages.train_head(own, received, head, features, data)
            return work_alone(received.key, client, data, work, head)

        received = stages.broadcast(key, body, prototypes, local_state)
        apply = training.update.over_clients(one)
        heads = apply((received, start), jnp.arange(newcomers), data)
        return State(body, heads, prototypes, local_state)

    return Algorithm(init, step, predict, join)


# What a client does.


class Broadcast(NamedTuple):
    """What the server sends to everybody in a round, with the round's key and step
    sizes, which all know."""

    key: PRNGKeyArray
    step_size: Array
    head_step_size: Array
    penalty: Array
    body: PyTree
    prototypes: Prototypes


class Message(NamedTuple):
    """What a client makes of a round beside its body; stacked, `[clients, ...]`.

    head: the last layer, trained.
    means: of its classes' features, made by the trained body.
    counts: its samples of each class.
    joint: H, mean of `one_hot(label) x feature`, as it received the body.
    variance: mean squared error of that mean, see `class_moments`.
    loss: of the model it received.
    usable: whether all of this and its body are finite.
    """

    head: PyTree
    means: Float[Array, "*clients classes features"]
    counts: Float[Array, "*clients classes"]
    joint: Float[Array, "*clients classes features"]
    variance: Float[Array, "*clients"]
    loss: Float[Array, "*clients"]
    usable: Bool[Array, "*clients"]


@dataclasses.dataclass(frozen=True)
class TwoStages:
    """How a client trains its last layer and the body; fields as the arguments of
    `fedpac`, `training` being that of the body."""

    task: Task
    training: Training
    head_step_size: StepSize
    num_head_epochs: int
    penalty: ScalarLike
    num_classes: int

    def broadcast(
        self,
        key: PRNGKeyArray,
        body: PyTree,
        prototypes: Prototypes,
        local_state: LocalState | None,
    ) -> Broadcast:
        """What everybody is sent, with the step sizes of the round."""
        update, now = self.training.update, round_of(local_state)
        return Broadcast(
            key=key,
            step_size=step_size_at(update, self.training.step_size, now),
            head_step_size=step_size_at(update, self.head_step_size, now),
            penalty=jnp.asarray(self.penalty, jnp.result_type(float)),
            body=body,
            prototypes=prototypes,
        )

    def train(
        self,
        received: Broadcast,
        client: Int[Array, ""],
        head: PyTree,
        moments: PyTree,
        data: ClientData,
    ) -> tuple[PyTree, PyTree, Message]:
        """What one client does in a round: statistics, last layer, body, prototypes;
        the body, the moments of its optimiser, and the message.

        A feature is drawn to the global prototype of its class, where there is none to
        the client's own one before training; nowhere, before there is any global one.
        The last layer and all statistics see features as evaluation does, without
        dropout.
        """
        training, layers = self.training, layers_of(self.task)
        own = client_key(received.key, client)
        aside = client_key(jax.random.fold_in(received.key, Stream.ALGORITHM), client)
        model = merge_shared(received.body, head)
        features = layers.embed(model, data.inputs)
        losses = layers.losses(layers.answer(model, features), data.targets)
        real = data.targets, data.mask
        means_of = lambda features: class_means(features, *real, self.num_classes)
        means, counts = means_of(features)
        joint, variance = class_moments(features, means, counts, data.mask)
        goal = _with_own(received.prototypes, Prototypes(means, counts > 0))
        head = self.train_head(aside, received, head, features, data)
        drawn = aligned(self.task, goal, received.penalty)
        fixed = with_common(drawn, head, layers.is_head)
        learn = client_update(fixed, training.update, training.num_steps)
        body, moments = learn(own, received.step_size, received.body, moments, data)
        features = layers.embed(merge_shared(body, head), data.inputs)
        means, _ = means_of(features)
        loss = masked_mean(losses, data.mask)
        usable = is_finite((body, head, means, joint, variance, loss))
        message = Message(head, means, counts, joint, variance, loss, usable)
        return body, moments, message

    def train_head(
        self,
        key: PRNGKeyArray,
        received: Broadcast,
        head: PyTree,
        features: Float[Array, "samples features"],
        data: ClientData,
    ) -> PyTree:
        """The last layer trained alone, on what the body makes of the inputs, by the
        update of the body without its proximal term, from a fresh optimiser."""
        update = dataclasses.replace(
            self.training.update, num_epochs=self.num_head_epochs
        )
        model, size = merge_shared(received.body, head), received.head_step_size
        return train_head(self.task, update, 1, key, size, model, features, data)


def class_moments(
    features: Float[Array, "samples features"],
    means: Float[Array, "classes features"],
    counts: Float[Array, " classes"],
    mask: Bool[Array, " samples"],
) -> tuple[Float[Array, "classes features"], Float[Array, ""]]:
    """The mean of `one_hot(label) x feature` over a client's samples, and its variance,
    from the mean feature of each class and the number of its samples.

    H has rows `p_k mu_k`, p_k being the share of class k. The variance is the mean
    squared distance of such a mean over n samples, drawn anew from the client's own, to
    H: `(sum_k p_k E[|feature|^2 | k] - sum_k p_k^2 |mu_k|^2) / n`. Both are 0 without
    samples.
    """
    number = jnp.maximum(jnp.sum(counts), 1)
    mean = counts[:, None] / number * means
    squares = jnp.sum(jnp.square(jnp.where(mask[:, None], features, 0))) / number
    # Rounding must not make a variance negative.
    return mean, jnp.maximum(squares - jnp.sum(jnp.square(mean)), 0) / number


def _with_own(common: Prototypes, own: Prototypes) -> Prototypes:
    """The common prototypes, and a client's own for classes that have none."""
    means = jnp.where(common.known[:, None], common.means, own.means)
    any_common = jnp.any(common.known)
    return Prototypes(means, common.known | (own.known & any_common))


def _no_message(received: Broadcast, heads: Stacked, number: int) -> Message:
    """Messages of clients that are not computed."""
    means = repeat(jnp.zeros_like(received.prototypes.means), number)
    each = jnp.zeros_like(means[:, 0, 0])
    return Message(
        head=heads,
        means=means,
        counts=jnp.zeros_like(means[:, :, 0]),
        joint=means,
        variance=each,
        loss=jnp.full_like(each, jnp.nan),
        usable=jnp.zeros(number, bool),
    )


# What the server does.


class Mixtures(NamedTuple):
    """Mixtures of points, one for each of them.

    weights: row i mixes the entries for point i; not negative, of sum 1.
    gaps: the Frank-Wolfe gap of each row, an upper bound on how far its objective is
      above the least one, in units of a squared distance.
    """

    weights: Float[Array, "entries entries"]
    gaps: Float[Array, " entries"]


def _combined_heads(
    message: Message,
    before: Stacked,
    smallest_weight: ScalarLike,
    num_iterations: int,
) -> tuple[Stacked, Mixtures]:
    """Each client's best mixture of last layers, small weights left out; a client
    without a usable message keeps its own, and has weights of 0 and a gap of NaN."""
    usable = message.usable
    points = message.joint.reshape(message.joint.shape[0], -1)
    noise = message.variance
    mixtures = functools.partial(best_mixtures, num_iterations=num_iterations)
    found = everywhere(mixtures)(points, noise, usable)
    large = jnp.where(found.weights < smallest_weight, 0, found.weights)
    large = jnp.where(jnp.any(large > 0, axis=1)[:, None], large, found.weights)
    total = jnp.sum(large, axis=1, keepdims=True)
    weights = large / jnp.where(total > 0, total, 1)

    @everywhere
    def combine(weights: Array, usable: Array, leaf: Array) -> Array:
        leaf = jnp.where(rows(usable, leaf), leaf, 0)
        return jnp.tensordot(weights, leaf, axes=1, precision="highest")

    each = lambda leaf: combine(weights, usable, leaf)
    heads = select(usable, jax.tree.map(each, message.head), before)
    weights = jnp.where(usable[:, None], weights, 0)
    return heads, Mixtures(weights, jnp.where(usable, found.gaps, jnp.nan))


def best_mixtures(
    points: Float[Array, "entries features"],
    variances: Float[Array, " entries"],
    allowed: Bool[Array, " entries"],
    *,
    num_iterations: int = 1000,
) -> Mixtures:
    """How to estimate every point by a mixture of noisy estimates of all of them.

    Row i minimises squared bias and variance over the simplex of the allowed entries,

        |x_i - sum_j a_j x_j|^2 + sum_j V_j a_j^2,

    which there is `a^T P_i a` with `(P_i)_jk = V_j 1[j = k] + <x_i - x_j, x_i - x_k>`.
    These matrices are never formed. Entries that are not allowed may hold anything;
    their own rows are of no meaning.

    Projected gradient descent with Nesterov's momentum from equal weights, in steps of
    1 over the Frobenius norm of the quadratic part, which its largest eigenvalue cannot
    exceed. Momentum is dropped where it points uphill (O'Donoghue, Candes. "Adaptive
    Restart for Accelerated Gradient Schemes". Found. Comput. Math., 2015).

    Cost: with f the lesser of entries and features, `entries^2 x features` for a QR
    decomposition and `2 x entries^2 x f` multiplications in each iteration.
    """
    usable = lambda values: jnp.where(allowed[:, None], values, 0)
    variances = jnp.where(allowed, variances, 0)[None]
    points = usable(points)
    number = jnp.maximum(jnp.sum(allowed, dtype=points.dtype), 1)
    # What all points have in common would only cost digits.
    points = usable(points - jnp.sum(points, axis=0, keepdims=True) / number)
    points = right_factor(points.T).T  # Of the same products.
    product = functools.partial(jnp.matmul, precision="highest")
    curvature = product(points, points.T) + jnp.diag(variances[0])
    bound = jnp.sqrt(jnp.sum(jnp.square(curvature)))
    size = 1 / jnp.where(bound > 0, bound, 1)

    def slope(weights: Array) -> Array:
        """Half the gradient; residuals first, whose rounding moves x_i alone."""
        residuals = product(weights, points) - points
        return product(residuals, points.T) + variances * weights

    def move(carry: tuple, _: None) -> tuple[tuple, None]:
        weights, ahead, time = carry
        moved = project_on_simplex(ahead - size * slope(ahead), allowed)
        uphill = jnp.sum((ahead - moved) * (moved - weights), axis=1, keepdims=True) > 0
        later = jnp.where(uphill, 1, (1 + jnp.sqrt(1 + 4 * jnp.square(time))) / 2)
        push = jnp.where(uphill, 0, (time - 1) / later)
        return (moved, moved + push * (moved - weights), later), None

    equal = jnp.broadcast_to(allowed.astype(points.dtype) / number, curvature.shape)
    start = (equal, equal, jnp.ones_like(equal[:, :1]))
    (weights, _, _), _ = jax.lax.scan(move, start, length=num_iterations)
    steep = slope(weights)
    least = jnp.min(jnp.where(allowed[None], steep, jnp.inf), axis=1)
    return Mixtures(weights, 2 * (jnp.sum(weights * steep, axis=1) - least))


def project_on_simplex(
    points: Float[Array, "rows entries"], allowed: Bool[Array, " entries"]
) -> Float[Array, "rows entries"]:
    """The nearest points with entries that are not negative and sum to 1, 0 where they
    are not allowed; each row by itself.

    A few passes, as many as the row takes longest whose smallest entries drop out one
    after the other (Michelot. "A Finite Algorithm for Finding the Projection of a Point
    onto the Canonical Simplex". JOTA, 1986).
    """
    points = jnp.where(allowed[None], points, -jnp.inf)

    def raise_level(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        level, _ = carry
        above = points > level
        total = jnp.sum(jnp.where(above, points, 0), axis=1, keepdims=True)
        number = jnp.sum(above, axis=1, keepdims=True, dtype=points.dtype)
        raised = (total - 1) / jnp.maximum(number, 1)
        return jnp.maximum(raised, level), raised > level

    low = jnp.max(points, axis=1, keepdims=True) - 1
    start = (low, jnp.ones_like(low, bool))
    level, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1]), raise_level, start)
    return jnp.maximum(points - level, 0)


def _info(state: State, message: Message, mixtures: Mixtures, clients: Array) -> Info:
    """The round in the words of `Info`."""
    num_clients = length(state.heads)
    row = lambda values, absent: spread(values, clients, num_clients, absent=absent)
    model = num_bytes(state.body) + num_bytes(state.heads) // num_clients
    features = state.prototypes.means.shape[1]
    number = message.means.dtype.itemsize
    held = jnp.sum(message.counts > 0, axis=1)
    known = jnp.sum(state.prototypes.known)
    per_class = features * number + 4
    sent = model + number + prototype_bytes(held, state.prototypes, per_class=per_class)
    prototypes = model + prototype_bytes(known, state.prototypes)
    received = jnp.broadcast_to(prototypes, clients.shape)
    combination = jnp.zeros((num_clients, num_clients), mixtures.weights.dtype)
    return Info(
        assignment=row(jnp.where(message.usable, 0, NO_CLUSTER), NO_CLUSTER),
        losses=row(message.loss, jnp.nan),
        combination=combination.at[clients[:, None], clients[None, :]].set(
            mixtures.weights
        ),
        gaps=row(mixtures.gaps, jnp.nan),
        received=row(received, 0),
        sent=row(jnp.where(message.usable, sent, 0), 0),
    )
