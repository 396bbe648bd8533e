"""LocalUpdate: what one client does between two messages (IFCA, lines 18-21)."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.checks import check_positive
from cfljax.base.ranges import check_fields
from cfljax.base.streams import Stream
from cfljax.base.tree import trained_part, with_trained
from cfljax.base.types import ClientData, Stacked, StepSize, Task
from cfljax.federated.backend import Order, check_order, over_clients
from cfljax.federated.evaluate import masked_mean
from cfljax.federated.sharing import merge_shared


@dataclasses.dataclass(frozen=True)
class LocalUpdate:
    """How a client trains, besides its step size and number of steps.

    batch_size: samples of a mini-batch; all of the client's samples if None. Batches
      run through the client's own samples in an order shuffled for every epoch; the
      last of an epoch may be smaller, and a batch larger than a client's data holds
      all of them.
    num_epochs: passes over the client's own samples instead of a number of steps, so
      that clients with more samples take more steps.
    decay: the step size of round t is `step_size * decay**t`, t being 0 in the first;
      of a schedule `step_size(t) * decay**t`.
    proximal: mu of FedProx, `mu / 2 |theta - theta_received|^2` is added to the loss.
    optimizer: from a step size to an optax optimiser, e.g.
      `functools.partial(optax.sgd, momentum=0.9)`. One that has a schedule of its own,
      such as `lambda size: optax.sgd(lambda count: size / (1 + count))`, counts the
      client's steps: of the round, or of all rounds with `keep_optimizer`.
    keep_optimizer: whether a client goes on with its optimiser's state when it next
      takes part, instead of a fresh one. The server's averaging never touches it.
    clients_per_chunk: clients computed at a time, where they are computed together
      (evaluation of cluster models; all training in batched order). Bounds memory and
      changes no result beyond the rounding of sums. If None all of them, on an
      accelerator a hundred.
    order: "sequential" or "batched" over clients; by backend if None.

    Raises:
      ValueError: where an argument is out of its range.
    """

    batch_size: int | None = None
    num_epochs: int | None = None
    decay: float = 1.0
    proximal: float = 0.0
    optimizer: Callable[[Any], optax.GradientTransformation] = optax.sgd
    keep_optimizer: bool = False
    clients_per_chunk: int | None = None
    order: Order | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(batch_size=self.batch_size, num_epochs=self.num_epochs)
        check_order(self.order, self.clients_per_chunk)

    @property
    def placement(self) -> dict[str, Any]:
        """Where clients are computed: `order` and `clients_per_chunk` as arguments."""
        return {"order": self.order, "clients_per_chunk": self.clients_per_chunk}

    def over_clients(self, function: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """`backend.over_clients` there."""
        return over_clients(function, **self.placement)


ClientUpdate = Callable[
    [PRNGKeyArray, ScalarLike, PyTree, PyTree, ClientData], tuple[PyTree, PyTree]
]


def step_size_at(
    update: LocalUpdate, step_size: StepSize, round_index: Int[Array, ""] | None
) -> Array:
    """The step size of a round; without a round, that of the first."""
    step_size = jnp.asarray(scheduled(step_size, round_index), jnp.result_type(float))
    if round_index is None or update.decay == 1:
        return step_size
    return step_size * update.decay ** round_index.astype(step_size.dtype)


def scheduled(step_size: StepSize, round_index: Int[Array, ""] | None) -> Any:
    """The number that a step size is in a round, before any decay."""
    if not callable(step_size):
        return step_size
    count = jnp.zeros((), jnp.int32) if round_index is None else round_index
    with jax.numpy_dtype_promotion("standard"):  # optax's mix the count with floats.
        return step_size(count)


def check_schedules(**step_sizes: StepSize | None) -> None:
    """Raises ValueError, naming the first that is a schedule and gives no number."""
    for name, step_size in step_sizes.items():
        if not callable(step_size):
            continue
        count = jax.ShapeDtypeStruct((), jnp.int32)
        try:
            found = jax.eval_shape(lambda t, of=step_size: scheduled(of, t), count)
        except Exception as error:  # Whatever the user's own function raises.
            reason = " ".join(str(error).split())[:100]
            raise ValueError(
                f"`{name}` must be a number, or a schedule that JAX can trace, from "
                f"the rounds that are over to a number; it raises: {reason}"
            ) from error
        if getattr(found, "shape", None) != ():
            raise ValueError(
                f"`{name}` must give one number for a round, got {found}; call a "
                "factory of schedules first, as in `optax.cosine_decay_schedule(0.1, "
                "100)`."
            )


def client_key(key: PRNGKeyArray, client: Int[Array, ""]) -> PRNGKeyArray:
    """Key of a client's own draws in a round, whoever else takes part."""
    # Folded twice: the round's key itself has drawn the participants.
    return jax.random.fold_in(jax.random.fold_in(key, Stream.CLIENTS), client)


def work_alone(
    key: PRNGKeyArray,
    client: Int[Array, ""],
    data: ClientData,
    work: Callable[[PRNGKeyArray], PyTree],
    otherwise: PyTree,
) -> PyTree:
    """What one client makes with a key of its own; `otherwise`, of the same form, if it
    has no samples: `client_update` trains only clients with some. To be carried to all
    by `LocalUpdate.over_clients`."""
    own = client_key(key, client)
    return jax.lax.cond(jnp.any(data.mask), lambda: work(own), lambda: otherwise)


def batch_loss(
    task: Task, params: PyTree, batch: ClientData, key: PRNGKeyArray | None = None
) -> tuple[Float[Array, ""], PyTree]:
    """The mean loss that training minimises on samples of one client, and the params
    with their statistics moved. Without a real sample it is 0 and asks for no step.

    `key` is of what `Task.fit` draws. The losses are those that the task is judged by
    if it is None, or where training sees no others.
    """
    if key is None:
        losses, after = task.losses(params, batch.inputs, batch.targets), params
    else:
        losses, after = training_losses(task, key, params, batch)
    return masked_mean(losses, batch.mask, least=1), after


def training_losses(
    task: Task, key: PRNGKeyArray, params: PyTree, batch: ClientData
) -> tuple[Float[Array, " samples"], PyTree]:
    """What `Task.fit` gives of samples of one client; where training sees no others,
    `Task.losses` and the params."""
    if task.fit is None:
        return task.losses(params, batch.inputs, batch.targets), params
    return task.fit(key, params, *batch)


def losses_of_gradient(
    gradient: PyTree, weights: PyTree, mask: Bool[Array, " samples"]
) -> Float[Array, " samples"]:
    """Losses of 0 whose mean has this gradient at the weights: nobody asks for their
    values. To be returned by a `Task.fit` that computes its gradient itself."""
    term = lambda g, w: jnp.sum(g * (w - jax.lax.stop_gradient(w)))
    terms = jax.tree.leaves(jax.tree.map(term, gradient, weights))
    total = sum(terms, jnp.zeros((), jnp.result_type(float)))
    return jnp.broadcast_to(total, mask.shape)


def weighted(
    task: Task, data: ClientData, weights: Float[Array, " samples"]
) -> tuple[Task, ClientData]:
    """The task of one client whose samples count by weights, and the samples to train
    it on, whose targets are their places: by these a batch finds weights and targets.

    A batch's loss is the sum of its weighted losses divided by its number of samples,
    as if each weight were 1. A sample of weight 0 adds nothing, whatever its loss.
    """
    targets = data.targets

    def counted(
        losses: Float[Array, " samples"], places: Int[Array, " samples"]
    ) -> Float[Array, " samples"]:
        share = weights[places]
        return jnp.where(share > 0, share * losses, 0)

    def losses(
        params: PyTree, inputs: Array, places: Int[Array, " samples"]
    ) -> Float[Array, " samples"]:
        return counted(task.losses(params, inputs, targets[places]), places)

    def fit(
        key: PRNGKeyArray,
        params: PyTree,
        inputs: Array,
        places: Int[Array, " samples"],
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], PyTree]:
        assert task.fit is not None
        losses, after = task.fit(key, params, inputs, targets[places], mask)
        return counted(losses, places), after

    own = task._replace(losses=losses, fit=None if task.fit is None else fit)
    places = jnp.arange(weights.shape[0], dtype=jnp.int32)
    return own, data._replace(targets=places)


def client_update(task: Task, update: LocalUpdate, num_steps: int) -> ClientUpdate:
    """LocalUpdate of one client, to be carried to all by `backend` or `sums`:

        (key, step_size, params, moments, data) -> (params, moments).

    The moments are the optimiser's state that the client kept, or an empty tree for a
    fresh one, and likewise what it returns. A client must have samples. Costs a forward
    and a backward pass over a batch for each step.
    """
    number = num_steps if update.num_epochs is None else update.num_epochs

    def train(
        key: PRNGKeyArray,
        step_size: ScalarLike,
        received: PyTree,
        moments: PyTree,
        data: ClientData,
    ) -> tuple[PyTree, PyTree]:
        optimizer = update.optimizer(step_size)
        kept = moments if update.keep_optimizer else None
        if kept is None:
            kept = optimizer.init(trained_part(received))

        def one(key: PRNGKeyArray, model: tuple, batch: ClientData) -> tuple:
            """One step of the optimiser on one batch (line 19)."""
            params, moments = model

            def loss(weights: PyTree) -> tuple[Float[Array, ""], PyTree]:
                whole = with_trained(params, weights)
                total, after = batch_loss(task, whole, batch, key)
                return total, jax.lax.stop_gradient(after)

            weights = trained_part(params)
            gradient, after = jax.grad(loss, has_aux=True)(weights)
            if update.proximal:
                pull = lambda g, w, start: g + update.proximal * (w - start)
                gradient = jax.tree.map(pull, gradient, weights, trained_part(received))
            changes, moments = optimizer.update(gradient, moments, weights)
            weights = optax.apply_updates(weights, changes)
            return with_trained(after, weights), moments

        def on_all(model: tuple, index: Int[Array, ""]) -> tuple[tuple, None]:
            return one(jax.random.fold_in(key, index), model, data), None

        if update.batch_size is None:
            model, _ = jax.lax.scan(on_all, (received, kept), jnp.arange(number))
        else:
            model = on_batches(key, one, (received, kept), data, update.batch_size)
        params, kept = model
        return params, kept if update.keep_optimizer else moments

    def on_batches(
        key: PRNGKeyArray,
        one: Callable[[PRNGKeyArray, tuple, ClientData], tuple],
        model: tuple,
        data: ClientData,
        batch_size: int,
    ) -> tuple:
        plan = schedule(data.mask, batch_size)
        order_key, noise_key = jax.random.split(key)
        most, mine = number, jnp.asarray(number, jnp.int32)
        if update.num_epochs is not None:
            most = number * -(-data.mask.shape[0] // plan.size)
            mine = number * plan.batches

        def step(carry: tuple, index: Int[Array, ""]) -> tuple[tuple, None]:
            def train() -> tuple:
                model, order = carry
                batch, order = batch_at(order_key, index, order, plan, data)
                return one(jax.random.fold_in(noise_key, index), model, batch), order

            return jax.lax.cond(index < mine, train, lambda: carry), None

        carry = (model, first_order(data.mask, plan))
        return jax.lax.scan(step, carry, jnp.arange(most, dtype=jnp.int32))[0][0]

    return train


def held_near(
    optimizer: optax.GradientTransformation,
    anchor: PyTree,
    penalty: ScalarLike,
    *,
    apart: ScalarLike | None = None,
) -> optax.GradientTransformation:
    """The optimiser of `loss + penalty / 2 |weights - anchor|^2`, of the same state;
    with `apart`, the step size, the term is added to the optimiser's step instead."""

    def update(
        updates: PyTree, state: PyTree, params: PyTree | None = None
    ) -> tuple[PyTree, PyTree]:
        share = penalty if apart is None else -jnp.asarray(apart) * penalty
        proximal = lambda g, w, a: g + share * (w - a)
        if apart is None:
            updates = jax.tree.map(proximal, updates, params, anchor)
        updates, state = optimizer.update(updates, state, params)
        if apart is not None:
            updates = jax.tree.map(proximal, updates, params, anchor)
        return updates, state

    return optax.GradientTransformation(optimizer.init, update)


def local_descent(
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    key: PRNGKeyArray,
    step_size: ScalarLike,
    num_steps: int,
    update: LocalUpdate,
    moments: Stacked = (),
    clients: Int[Array, " clients"] | None = None,
    shared: PyTree = (),
    train_by: Callable[[PyTree], ClientUpdate] | None = None,
) -> tuple[Stacked, Stacked]:
    """Local training of every client from a model of its own.

    Args:
      task: the learning problem.
      models: leaves `[clients, ...]`, where each client starts.
      data: leaves `[clients, samples, ...]`.
      key: of the round; a client's own is folded with its index.
      step_size: gamma of this round; may be traced.
      num_steps: tau, unless the update counts epochs.
      update: everything else about it.
      moments: optimiser states that clients kept, leaves `[clients, ...]`, or an
        empty tree.
      clients: index of each client among all, for its key; 0, 1, ... if None.
      shared: what `train_by` is given; may be traced.
      train_by: from `shared` to how one client trains, as `client_update` returns it,
        which is what is taken if None.

    Returns:
      Trained models and moments, leaves `[clients, ...]`. A client without samples
      keeps both.

    Cost: `num_steps` forward and backward passes per client; memory of one client's
    activations in sequential order, of a chunk's in batched order.
    """
    make = train_by or (lambda _: client_update(task, update, num_steps))

    def one(
        shared: tuple, client: Array, model: PyTree, moments: PyTree, data: ClientData
    ) -> tuple[PyTree, PyTree]:
        key, step_size, extra = shared
        train = make(extra)
        learn = lambda own: train(own, step_size, model, moments, data)
        return work_alone(key, client, data, learn, (model, moments))

    if clients is None:
        clients = jnp.arange(data.mask.shape[0])
    everybody = (key, jnp.asarray(step_size, jnp.result_type(float)), shared)
    return update.over_clients(one)(everybody, clients, models, moments, data)


class Schedule(NamedTuple):
    """How a client goes through its samples.

    size: samples of a full batch.
    num_samples: real samples of the client.
    batches: of one epoch, `ceil(num_samples / size)`, at least 1; the last may be
      smaller than the others.
    """

    size: int
    num_samples: Int[Array, ""]
    batches: Int[Array, ""]


def schedule(mask: Bool[Array, " samples"], batch_size: int) -> Schedule:
    """The schedule of a client; batches larger than its data hold all of them."""
    size = min(batch_size, mask.shape[0])
    real = jnp.sum(mask, dtype=jnp.int32)
    return Schedule(size, real, jnp.maximum(-(-real // size), 1))


def first_order(mask: Bool[Array, " samples"], plan: Schedule) -> Int[Array, " slots"]:
    """An order of the right shape, to be replaced by `batch_at` at once."""
    slots = -(-mask.shape[0] // plan.size) * plan.size
    return jnp.zeros(slots, jnp.int32)


def batch_at(
    key: PRNGKeyArray,
    step: Int[Array, ""],
    order: Int[Array, " slots"],
    plan: Schedule,
    data: ClientData,
) -> tuple[ClientData, Int[Array, " slots"]]:
    """Batch number `step`, counted from 0 without gaps, of an endless row of freshly
    shuffled epochs; epoch e is shuffled by the key folded with e.

    The order is that of the epoch that the previous step was in, and the one to pass
    on. The batch's mask is false on slots that the last batch of an epoch leaves empty.
    The real samples that are drawn do not depend on how far the client is padded at its
    end. Sorts the client's samples once an epoch.
    """
    inputs, targets, mask = data
    epoch, place = step // plan.batches, step % plan.batches

    def shuffled() -> Int[Array, " slots"]:
        scores = jax.random.uniform(jax.random.fold_in(key, epoch), mask.shape)
        real_first = jnp.argsort(jnp.where(mask, scores, 2.0)).astype(jnp.int32)
        return jnp.pad(real_first, (0, order.shape[0] - mask.shape[0]))

    order = jax.lax.cond(place == 0, shuffled, lambda: order)
    slots = place * plan.size + jnp.arange(plan.size, dtype=jnp.int32)
    chosen = jax.lax.dynamic_slice(order, (place * plan.size,), (plan.size,))
    take = lambda leaf: leaf[chosen]
    return ClientData(take(inputs), take(targets), slots < plan.num_samples), order


def draw_batch(
    key: PRNGKeyArray, data: ClientData, batch_size: int | None
) -> ClientData:
    """The samples that each client computes gradients on in a round: drawn without
    replacement from its real ones, all of them if it has fewer; the data as they are,
    and no draw, if `batch_size` is None."""
    if batch_size is None:
        return data

    def one(client: Array, rows: ClientData) -> ClientData:
        plan = schedule(rows.mask, batch_size)
        order = first_order(rows.mask, plan)
        first = jnp.zeros((), jnp.int32)
        return batch_at(client_key(key, client), first, order, plan, rows)[0]

    return jax.vmap(one)(jnp.arange(data.mask.shape[0]), data)


def client_gradients(
    task: Task,
    models: Stacked,
    data: ClientData,
    *,
    common: PyTree = None,
    order: Order | None = None,
    clients_per_chunk: int | None = None,
) -> tuple[Float[Array, " clients"], tuple[Stacked, Stacked]]:
    """Loss and gradient of every client's `task.losses` at a model of its own.

    `models` may be the part that is the clients' own, beside the `common` part without
    that axis. The losses are NaN for a client without samples; gradients, of the own
    and of the common part, have leaves `[clients, ...]`, 0 for such a client.
    """

    def one(common: PyTree, model: PyTree, data: ClientData) -> PyTree:
        def loss(model: PyTree, common: PyTree) -> Float[Array, ""]:
            return batch_loss(task, merge_shared(model, common), data)[0]

        return jax.value_and_grad(loss, argnums=(0, 1))(model, common)

    apply = over_clients(one, order, clients_per_chunk)
    losses, gradients = apply(common, models, data)
    return jnp.where(jnp.any(data.mask, axis=1), losses, jnp.nan), gradients
