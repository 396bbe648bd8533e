"""How models are trained, whatever chooses the clusters: settings, state, start.

What the algorithms' common arguments mean; each constructor says in a line what is its
own:

    argument       meaning
    task           the learning problem, a `Task`
    num_clusters   how many models the server has, at least 1
    step_size      of a client's step (gamma, eta); a number, which may be traced, so
                   that `vmap` can sweep it, or a schedule, such as any of optax's: from
                   the communication rounds that are over, 0 in the first, to the number
                   of that round, the same for all of its steps and clients. What is
                   trained before the first round takes the schedule's first
    num_steps      steps of a client in a round (tau), at least 1, unless the update
                   counts epochs
    option         "gradient": the server averages the participants' gradients at the
                   models they received and takes one step. "model": participants take
                   their steps and the server averages their models. Where it may be
                   None, that is "gradient" with one step and "model" with more
    normalise      what summed gradients of option "gradient" are divided by: "all",
                   the number of clients; "participants"; or "cluster", its members. It
                   changes the effective step size: for k balanced clusters under full
                   participation "cluster" moves k times further than the others
    weights        of the clients in an average: "clients" for equal ones, "samples"
                   for their numbers of real samples
    participation  fraction of the clients drawn for each round, in (0, 1]; the others
                   neither receive nor send and keep what is theirs
    update         how clients take their steps, a `LocalUpdate`: mini-batches, epochs,
                   decay of the step size, optimiser, order on the machine ...; steps
                   of plain gradient descent on all samples if None
    shared         from the name of a leaf, such as "output/kernel" (`sharing.paths`),
                   to whether all clusters have it in common; none if None
    variant        of `shared`: "paper" trains common leaves with all participants,
                   "reference" leaves them as they start
    threat         what Byzantine clients do, see `attacks.threat`; all are honest if
                   None
    aggregate      the mean of members' messages, one of `robust`'s, `median()`,
                   `trimmed_mean(share)` or `centred_clipping(radius)`; the plain one if
                   None. It counts clients alike, so that it needs `weights="clients"`

A client whose loss under its model is not finite is left out of the round's average,
and so is a trained model that is not, unless a robust `aggregate` is to judge it.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from cfljax.base.checks import check_member, check_positive
from cfljax.base.tree import put, repeat, take, trained_part
from cfljax.base.types import ClientData, Stacked, StepSize, Task, Threat
from cfljax.federated.average import Normalise
from cfljax.federated.local_update import (
    ClientUpdate,
    LocalUpdate,
    check_schedules,
    local_descent,
    step_size_at,
)
from cfljax.federated.robust import Aggregate
from cfljax.federated.sharing import Shared, SharingVariant, split
from cfljax.federated.traffic import MessageBytes, identity_bytes, num_bytes

FirstRound = Literal["evaluation", "random"]
Option = Literal["gradient", "model"]
Start = Literal["independent", "identical"]
Weights = Literal["clients", "samples"]


@dataclasses.dataclass(frozen=True)
class Training:
    """Everything about a round but who chooses which cluster.

    The fields are arguments of the table above, and `resample`: choose on the first
    half of the padded samples, train on the second.

    Raises:
      ValueError: where an argument is out of its range, or belongs to another option.
    """

    step_size: StepSize
    option: str = "model"
    num_steps: int = 1
    normalise: str = "all"
    weights: str = "clients"
    participation: float = 1.0
    resample: bool = False
    update: LocalUpdate = dataclasses.field(default_factory=LocalUpdate)
    shared: Shared | None = None
    variant: str = "paper"
    threat: Threat | None = None
    aggregate: Aggregate | None = None

    def __post_init__(self) -> None:
        check_schedules(step_size=self.step_size)
        check_member(Option, option=self.option)
        check_member(Normalise, normalise=self.normalise)
        check_member(Weights, weights=self.weights)
        check_member(SharingVariant, variant=self.variant)
        self._check_steps()
        by_samples = self.weights == "samples"
        if by_samples and (self.option, self.normalise) == ("gradient", "all"):
            raise ValueError(
                "`weights='samples'` needs `normalise` 'participants' or 'cluster' "
                "with `option='gradient'`: the samples of absent clients are not "
                "counted."
            )
        if by_samples and self.aggregate is not None:
            raise ValueError(
                "`aggregate` counts clients alike and needs `weights='clients'`."
            )
        if not 0 < self.participation <= 1:
            raise ValueError(
                f"`participation` must be in (0, 1], got {self.participation}."
            )
        if self.variant == "reference" and self.shared is None:
            raise ValueError(
                "`variant='reference'` freezes the leaves that `shared` names; give "
                "`shared` as well."
            )

    def _check_steps(self) -> None:
        """Raises ValueError where the steps do not fit each other."""
        num_steps, update = self.num_steps, self.update
        check_positive(num_steps=num_steps)
        if update.num_epochs is not None and num_steps != 1:
            raise ValueError(
                f"`num_steps` and the update's `num_epochs` exclude each other, got "
                f"{num_steps} and {update.num_epochs}."
            )
        if self.option == "model":
            return
        if num_steps != 1:
            raise ValueError(
                "`num_steps` belongs to `option='model'`: gradient averaging takes one "
                f"step a round, got {num_steps}."
            )
        plain = LocalUpdate(
            decay=update.decay,
            clients_per_chunk=update.clients_per_chunk,
            order=update.order,
        )
        if update != plain:
            raise ValueError(
                "`update` belongs to `option='model'`, but for `decay` and "
                f"`clients_per_chunk`; got {update}."
            )


def averaging(
    step_size: StepSize,
    num_steps: int,
    weights: Weights,
    participation: float,
    update: LocalUpdate | None,
    threat: Threat | None,
    aggregate: Aggregate | None = None,
) -> Training:
    """Training by option "model" with the arguments that nearly all algorithms have."""
    return Training(
        step_size=step_size,
        num_steps=num_steps,
        weights=weights,
        participation=participation,
        update=update or LocalUpdate(),
        threat=threat,
        aggregate=aggregate,
    )


def option_for(option: Option | None, num_steps: int) -> Option:
    """The option asked for, or the one that a client can take its steps with."""
    if option is not None:
        return option
    return "gradient" if num_steps == 1 else "model"


class LocalState(NamedTuple):
    """What local updates carry from round to round.

    round: rounds that are over.
    moments: optimiser states that clients keep, leaves `[clients, ...]`; an empty
      tree if they keep none.
    """

    round: Int[jax.Array, ""]
    moments: Stacked


def first_local_state(
    training: Training, models: Stacked, num_clients: int
) -> LocalState | None:
    """Before the first round; None if nothing is to be carried on. `models` have leaves
    `[any, ...]`, for the shapes."""
    update = training.update
    counts = update.decay != 1 or training.threat is not None
    has_schedule = callable(training.step_size)
    if not (counts or has_schedule or update.keep_optimizer):
        return None
    moments: PyTree = ()
    if update.keep_optimizer:
        model = jax.tree.map(lambda leaf: leaf[0], models)
        if training.variant == "reference":
            model = split(model, training.shared)[0]
        optimizer = update.optimizer(step_size_at(update, training.step_size, None))
        state = optimizer.init(trained_part(model))
        moments = repeat(state, num_clients)
    return LocalState(jnp.zeros((), jnp.int32), moments)


def next_local_state(
    before: LocalState | None,
    clients: Int[jax.Array, " participants"],
    moments: Stacked,
) -> LocalState | None:
    """After a round, given the moments of its participants; None stays None."""
    if before is None:
        return None
    return LocalState(before.round + 1, put(before.moments, clients, moments))


def newcomers_local_state(
    training: Training, others: LocalState | None, models: Stacked, number: int
) -> LocalState | None:
    """Of so many clients that never took part: the round of the `others`, whose length
    they work for, and nothing else is known."""
    fresh = first_local_state(training, models, number)
    if fresh is None or others is None:
        return fresh
    return fresh._replace(round=others.round)


def round_of(local_state: LocalState | None) -> Int[jax.Array, ""] | None:
    """Rounds that are over; None where nothing depends on it."""
    return None if local_state is None else local_state.round


def moments_of(
    local_state: LocalState | None, clients: Int[Array, " participants"]
) -> Stacked:
    """Optimiser states that participants kept; an empty tree if they keep none."""
    return () if local_state is None else take(local_state.moments, clients)


def message_bytes(training: Training, models: Stacked) -> MessageBytes:
    """Sizes of a round's messages with these models, or shapes; frozen leaves are never
    sent."""
    own, common = split(models, training.shared)
    number = jax.tree.leaves(models)[0].shape[0]
    own_bytes = num_bytes(own) // number
    common_bytes = num_bytes(common) // number if training.variant == "paper" else 0
    return MessageBytes(
        all_models=number * own_bytes + common_bytes,
        one_model=own_bytes + common_bytes,
        answer=own_bytes + common_bytes + identity_bytes(number),
    )


def start_models(
    task: Task, key: PRNGKeyArray, num_clusters: int, start: Start = "independent"
) -> Stacked:
    """Random models, leaves `[clusters, ...]`: "independent", or "identical" ones."""
    check_member(Start, start=start)
    if start == "identical":
        return repeat(task.init(key), num_clusters)
    return jax.vmap(task.init)(jax.random.split(key, num_clusters))


def start_own_models(
    task: Task, key: PRNGKeyArray, num_clients: int, start: Start
) -> Stacked:
    """Random models of the clients' own, leaves `[clients, ...]`: "identical" ones,
    that of FedAvg; or "independent" ones, each drawn by the client's index, so that it
    does not depend on how many clients there are."""
    if start == "identical":
        return repeat(task.init(jax.random.split(key, 1)[0]), num_clients)
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(task.init)(fold(key, jnp.arange(num_clients)))


def shares(training: Training, data: ClientData) -> Float[Array, " participants"]:
    """Weight of each participant; none for a client without samples."""
    count = jnp.sum(data.mask, axis=1, dtype=jnp.result_type(float))
    if training.weights == "samples":
        return count
    return jnp.where(count > 0, jnp.ones_like(count), 0)


def cohort(
    key: PRNGKeyArray, data: ClientData, participation: float
) -> tuple[Int[Array, " participants"], ClientData]:
    """A uniformly random subset M_t of the clients: sorted indices, and the rows of
    `data` that belong to them. Full participation copies nothing and draws nothing."""
    num_clients = data.mask.shape[0]
    num_participants = size_of_cohort(num_clients, participation)
    if num_participants >= num_clients:
        return jnp.arange(num_clients), data
    chosen = jax.random.permutation(key, num_clients)[:num_participants]
    chosen = jnp.sort(chosen)
    return chosen, take(data, chosen)


def size_of_cohort(num_clients: int, participation: float) -> int:
    """How many clients are drawn for a round: the fraction, rounded, at least one."""
    return min(max(1, math.floor(participation * num_clients + 0.5)), num_clients)


def spread(
    values: Shaped[Array, "participants ..."],
    participants: Int[Array, " participants"],
    num_clients: int,
    *,
    absent: int | float,
) -> Shaped[Array, "clients ..."]:
    """Values of the participants in rows of all clients, `absent` elsewhere."""
    if values.shape[0] == num_clients:
        return values
    everyone = jnp.full((num_clients,) + values.shape[1:], absent, values.dtype)
    return everyone.at[participants].set(values)


def train_alone(
    key: PRNGKeyArray,
    task: Task,
    models: Stacked,
    data: ClientData,
    training: Training,
    local_state: LocalState | None = None,
    clients: Int[Array, " participants"] | None = None,
    *,
    shared: PyTree = (),
    train_by: Callable[[PyTree], ClientUpdate] | None = None,
) -> tuple[Stacked, Stacked]:
    """`local_descent` of participants for as long as in a round: trained models and
    moments, leaves `[participants, ...]`.

    Without a local state it is the first round; without moments in it everybody has a
    fresh optimiser. `clients` are the participants' indices among all; None for
    everybody.
    """
    update, moments = training.update, ()
    if local_state is not None:
        kept = local_state.moments
        moments = kept if clients is None else take(kept, clients)
    if not jax.tree.leaves(moments):
        update = dataclasses.replace(update, keep_optimizer=False)
    return local_descent(
        task,
        models,
        data,
        key=key,
        step_size=step_size_at(update, training.step_size, round_of(local_state)),
        num_steps=training.num_steps,
        update=update,
        moments=moments,
        clients=clients,
        shared=shared,
        train_by=train_by,
    )
