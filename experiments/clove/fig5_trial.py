"""One trial of CLoVE's Figure 5: a client of each true cluster under every model."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.kernels.cluster import match_clusters
from cfljax.kernels.evaluate import loss_matrix
from cfljax.kernels.tree import take
from cfljax.types import Stacked
from experiments.clove.methods import METHODS, clusters
from experiments.clove.networks import Widths, network
from experiments.clove.partitions import Clients
from experiments.clove.trial import Trial, run

__all__ = ["DIMS", "models_of_clusters", "simulate"]

# Outputs of a trial and the names of their own axes, both as long as there are true
# clusters; NaN where a method has fewer models.
DIMS: dict[str, tuple[str, ...]] = {
    "model_losses": ("client", "model"),  # on the clients' own test samples
    "members": ("model",),  # clients that trained the model when they last trained one
    "score": (),  # mean over all clients' test samples, each under its own model
    "rand_index": (),  # of the models trained in the last round; NaN without any
}


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run, and the losses of its final models: the arrays of `DIMS`.

    Args:
      trial: its parameters.
      key: of all trials, as in `trial.simulate`.
      clients: of all repetitions.

    Cost: that of the run, and a forward pass for each model and test sample of one
    client of each true cluster.
    """
    carry, trace = run(trial, key, clients)
    index = jnp.asarray(trial.repetition).astype(jnp.int32)
    truth = clients.clusters[index]
    each = jnp.arange(trial.num_clusters)
    # The first client of every true cluster.
    shown = jnp.argmax(truth[None, :] == each[:, None], axis=1)
    test = jax.tree.map(lambda leaf: leaf[index][shown], clients.test)
    models = _models(trial, carry.state, shown)
    widths = Widths(**{name: getattr(trial, name) for name in Widths._fields})
    task = network(trial.network, test.inputs.shape[2:], widths)
    losses = loss_matrix(
        task, models, test, clients_per_chunk=trial.clients_per_chunk
    )  # [true clusters, models]
    members = jnp.ones(losses.shape[1], losses.dtype)
    if METHODS[trial.method].algorithm == "fedavg":
        members = members * trial.num_clients
    if clusters(trial.method):
        order = models_of_clusters(losses, carry.latest, truth)
        members = jax.nn.one_hot(carry.latest, trial.num_clusters).sum(axis=0)
        losses, members = losses[:, order], members[order].astype(losses.dtype)
    missing = trial.num_clusters - losses.shape[1]
    pad = lambda values: jnp.concatenate(
        [values, jnp.full((*values.shape[:-1], missing), jnp.nan, values.dtype)], -1
    )
    return {
        "model_losses": pad(losses),
        "members": pad(members),
        "score": trace["score"][-1],
        "rand_index": trace["rand_index"][-1],
    }


def _models(trial: Trial, state: Any, shown: Int[Array, " shown"]) -> Stacked:
    """All models of a method; of local ones those of the clients that are shown."""
    algorithm = METHODS[trial.method].algorithm
    if algorithm == "fedavg":
        return jax.tree.map(lambda leaf: leaf[None], state.model)
    return take(state.models, shown) if algorithm == "local" else state.models


def models_of_clusters(
    losses: Float[Array, "clusters clusters"],
    assignment: Int[Array, " clients"],
    truth: Int[Array, " clients"],
) -> Int[Array, " clusters"]:
    """The model of each true cluster, one for each, that most of its clients have.

    Clusters that are equal in this, such as several whose clients share one model, are
    told apart by their losses: the model goes to the one that it fits best.

    Args:
      losses: of each true cluster under each model, not negative; one that is not
        finite is larger than any other.
      assignment: model of each client, negative without any.
      truth: true cluster of each client.
    """
    number = losses.shape[0]
    members = jax.nn.one_hot(truth, number).T @ jax.nn.one_hot(assignment, number)
    bounded = jnp.where(jnp.isfinite(losses), losses / (1 + losses), 1)
    # The losses of a whole matching sum up to less than one client.
    return match_clusters(bounded / (number + 1) - members.astype(losses.dtype))
