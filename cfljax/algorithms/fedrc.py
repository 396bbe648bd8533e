"""FedRC: soft clusters that neither labels nor features decide, but concepts alone.

Guo, Tang, Lin. "FedRC: Tackling Diverse Distribution Shifts Challenge in Federated
Learning by Robust Clustering". ICML 2024. The objective is that of a mixture in which
`P(y | x; theta_k)` is divided by `P(y; theta_k)`, the share of the label among what
cluster k holds: samples are not drawn to a cluster because their label is common there.
The paper's abstract and introduction, and the authors' released code
(github.com/LINs-lab/FedRC: class `FedRC` of `client.py`, `CentralizedAggregator` of
`aggregator.py`, the loop of `run_experiment.py`), were at hand; numbers of the paper's
equations were not.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.base.constructor import constructor
from cfljax.base.describe import summary
from cfljax.base.types import Algorithm, ClientData, Stacked, StepSize, Task
from cfljax.federated.answers import has_classes, predict_mixture
from cfljax.federated.backend import everywhere
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.mixtures import join_mixture, mixture_round, mixture_start
from cfljax.federated.rounds import Info
from cfljax.federated.traffic import identity_bytes
from cfljax.federated.training import LocalState, Training, Weights, averaging, spread


class State(NamedTuple):
    """All that the next round needs.

    models: of the clusters, leaves `[clusters, ...]`.
    log_weights: logarithms of omega, each client's weights of the clusters.
    label_shares: of each label among what a cluster holds, sums 1 over the labels.
    local_state: of local updates, whose moments have leaves `[clients, clusters, ...]`;
      None if they need none.
    """

    models: Stacked
    log_weights: Float[Array, "clients clusters"]
    label_shares: Float[Array, "clusters classes"]
    local_state: LocalState | None = None

    __repr__ = summary


@constructor
def fedrc(
    task: Task,
    *,
    num_clusters: int,
    num_classes: int,
    step_size: StepSize,
    num_steps: int = 1,
    weights: Weights = "samples",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
) -> Algorithm:
    """Robust soft clustering: responsibilities in which common labels count for less.

    In a round each participant i, with the models theta_k and the label shares C as
    received, sets

        gamma_jk ~ omega_ik exp(-loss_k(sample j)) / C_k(label j)    of sum 1 over k
        omega_ik = mean of gamma_jk over its samples, which it keeps
        theta_ik: steps on the mean of gamma_jk loss_k(sample j), from theta_k

    and sends the models and, for each of its labels, the sum of gamma_jk. The server
    averages the models by the clients' samples and makes C_k the label's share of all
    sums in cluster k. Until shares differ it is `fedem`, as in the first round.

    Args:
      task: the learning problem, whose targets are classes 0, 1, ..., `num_classes` - 1
        and losses negative logarithms of their probabilities.
      num_clusters: K, at least 1. With 1 it is `fedavg`.
      num_classes: number of classes.
      step_size: local step size; may be traced.
      num_steps: local steps on every model in each round.
      weights: of the clients in a model; "samples" as in the released code.
      participation: fraction of the clients drawn each round; the others keep their
        weights. Shares are those of the participants; a label that none of them holds
        keeps its share from before.
      update: how clients train every model.

    Raises:
      ValueError: where an argument is out of its range; in `init`, where the network
        has another number of outputs or targets are no integers.

    `predict` gives logarithms of probabilities, mixed by the client's weights.
    `Info.assignment` is the cluster of largest weight.

    A newcomer is sent models and shares and learns its weights alone, from its samples
    and their labels. In the released code newcomers' shares stay equal: their weights
    are those of `fedem`.

    Cost of a round: for each participant and cluster a forward pass and `num_steps`
    passes. Memory: with a kept optimiser a state for each client and cluster.
    """
    training = averaging(step_size, num_steps, weights, participation, update, None)
    added = everywhere(functools.partial(jnp.sum, axis=0))

    def init(key: PRNGKeyArray, data: ClientData) -> State:
        start = mixture_start(key, task, training, num_clusters, len(data.mask))
        model = jax.tree.map(lambda leaf: leaf[0], start.models)
        _check_classes(task, model, data, num_classes)
        shares = jnp.full((num_clusters, num_classes), 1 / num_classes)
        kind = start.log_weights.dtype
        weights = start.log_weights
        return State(start.models, weights, shares.astype(kind), start.local_state)

    def step(key: PRNGKeyArray, state: State, data: ClientData) -> tuple[State, Info]:
        shift = lambda present: _log_shares(state, present)
        after = mixture_round(key, task, state, data, training, shift)
        sums = label_sums(
            after.responsibilities, after.present.targets, num_classes, training
        )
        shares = next_shares(added(sums), state.label_shares)
        received, sent = label_bytes(sums)
        everyone = lambda row: spread(row, after.clients, len(data.mask), absent=0)
        info = after.info
        info = info._replace(
            received=info.received + everyone(received),
            sent=info.sent + everyone(sent),
        )
        models, log_weights, local_state = after.state
        return State(models, log_weights, shares, local_state), info

    join = join_mixture(task, training.update.clients_per_chunk, _log_shares)
    return Algorithm(init, step, predict_mixture(task), join)


def _check_classes(
    task: Task, model: Stacked, data: ClientData, num_classes: int
) -> None:
    """Raises ValueError unless targets are classes of which the model has a score."""
    if not has_classes(data):
        raise ValueError(
            f"`targets` must be integer labels of classes, got {data.targets.dtype}."
        )
    one = jax.tree.map(lambda leaf: leaf[0], data.inputs)
    outputs = jax.eval_shape(task.predict, model, one)
    if outputs.shape[1:] != (num_classes,):
        raise ValueError(
            "`num_classes` must be the number of the network's outputs, "
            f"{outputs.shape[1:]}, got {num_classes}."
        )


def _log_shares(
    state: State, data: ClientData
) -> Float[Array, "clients samples clusters"]:
    """What is added to a sample's losses: the logarithm of its label's share in every
    cluster."""
    classes = state.label_shares.shape[1]
    labels = jnp.clip(data.targets, 0, classes - 1)  # Padding may have any.
    return jnp.log(state.label_shares).T[labels]


def label_sums(
    responsibilities: Float[Array, "clients samples clusters"],
    labels: Int[Array, "clients samples"],
    num_classes: int,
    training: Training,
) -> Float[Array, "clients clusters classes"]:
    """Sums of the responsibilities of a client's samples of each label."""

    def one(_: None, shares: Array, labels: Array) -> Float[Array, "clusters classes"]:
        member = jax.nn.one_hot(labels, num_classes, dtype=shares.dtype)
        return jnp.matmul(shares.T, member, precision="highest")

    return training.update.over_clients(one)(None, responsibilities, labels)


def next_shares(
    sums: Float[Array, "clusters classes"], before: Float[Array, "clusters classes"]
) -> Float[Array, "clusters classes"]:
    """Shares of the labels in every cluster; before, of a label without any sample, and
    of a cluster without any."""
    held = jnp.sum(sums, axis=1, keepdims=True)
    found = sums / jnp.where(held > 0, held, 1)
    known = (held > 0) & (jnp.sum(sums, axis=0, keepdims=True) > 0)
    found = jnp.where(known, found, before)
    # A label that has left a cluster: nothing is divided by 0.
    found = jnp.maximum(found, _LEAST)
    return found / jnp.sum(found, axis=1, keepdims=True)


_LEAST = 1e-8  # As in the released code.


def label_bytes(
    sums: Float[Array, "clients clusters classes"],
) -> tuple[Int[Array, " clients"], Int[Array, " clients"]]:
    """Of the shares of all labels, received; and of the sums of each label that a
    client holds, and the label, sent."""
    number, num_clusters, num_classes = sums.shape
    row = num_clusters * sums.dtype.itemsize
    received = jnp.full(number, num_classes * row, jnp.int32)
    held = jnp.sum(jnp.any(sums > 0, axis=1), axis=1)
    return received, (held * (row + identity_bytes(num_classes))).astype(jnp.int32)
