"""Watch: named metrics of a run, round by round.

    state, seen = cfl.run(algorithm, key, data, num_rounds=300, truth=truth)
    seen["loss"], seen["accuracy"], seen["rand_index"], seen["received"]

and, for less and for test samples,

    state, trace = cfl.run(
        algorithm, key, data, num_rounds=300,
        observe=cfl.engine.free_metrics,
        test=cfl.engine.accuracy_on(algorithm, data, test),
    )
    trace.rounds["cluster_sizes"], trace.tests["accuracy"]
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cfljax.base.types import Algorithm, ClientData, Truth
from cfljax.federated.backend import everywhere
from cfljax.metrics import accuracy, adjusted_rand_index, mebibytes


def metrics(state: Any, info: Any) -> dict[str, Array]:
    """What a round tells of itself, by name; an `observe` of `run`.

    Only what the algorithm's `Info` has: a name is missing where it has nothing.

    Returns:
      `loss`, the mean over the clients that took part of their losses, under the model
      that they were assigned to, where there are several; NaN if nobody took part.
      `cluster_sizes`, `[clusters]`, clients of each; as long as there are clients where
      the number of clusters is found on the way. `received` and `sent`, MiB from the
      server to all clients, and back.

    Cost: that of the losses, where the algorithm does not choose by them: a pass
    forward.
    """
    found, losses = free_metrics(state, info), _field(info, "losses")
    if losses is None:
        return found
    return {"loss": _mean_loss(losses, _field(info, "assignment")), **found}


def free_metrics(state: Any, info: Any) -> dict[str, Array]:
    """As `metrics` without `loss`, which some algorithms take for observers alone.

    Cost: some sums over clients.
    """
    del state
    assignment, losses = _field(info, "assignment"), _field(info, "losses")
    found: dict[str, Array] = {}
    if assignment is not None:
        found["cluster_sizes"] = _sizes(assignment, _num_clusters(assignment, losses))
    for name in ("received", "sent"):
        if (sizes := _field(info, name)) is not None:
            found[name] = everywhere(mebibytes)(sizes)
    return found


def usual_metrics(state: Any, info: Any) -> dict[str, Array]:
    """What `run` observes by default: as `metrics`, and where targets are labels and
    the algorithm answers with a score for each class also `accuracy`, the share of all
    clients' samples that they get right after the round, on the data of the round.
    `run` alone has these data: whoever else calls this gets `metrics`.

    The loss is of the models that the round begins with, of the clients that take part.

    Cost: that of the losses, and of the algorithm's `predict` on all samples. Rounds of
    FedAvg with a local epoch (100 clients, 100 samples each, a perceptron of 32 hidden
    units, batches of 10) took 1.2 times the processor time of those that keep nothing,
    on a core of an AMD EPYC; those of one local step take a larger share, and so does
    a `predict` that searches the client's samples (`knn_per`) or trains on them.
    """
    return metrics(state, info)


class Usual:
    """`usual_metrics` of an algorithm: `([truth, number], state, info, data)`, with the
    adjusted Rand index where the truth is given. Equal for equal algorithms."""

    def __init__(self, predict: Any) -> None:
        self._predict = predict

    def __call__(self, *given: Any) -> dict[str, Array]:
        *known, state, info, data = given
        if known:
            truth, number = known
            found = _with_truth(truth, number, state, info)
        else:
            found = metrics(state, info)
        if jnp.issubdtype(data.targets.dtype, jnp.integer):
            ask = lambda: self._predict(state, data, data.inputs)
            shape = getattr(jax.eval_shape(ask), "shape", ())
            if shape[:-1] == data.targets.shape:
                found["accuracy"] = accuracy(ask(), data.targets, data.mask)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usual) and self._predict == other._predict

    def __hash__(self) -> int:
        return hash(self._predict)

    def beside(self, truth: Truth | Int[Array, " clients"]) -> jax.tree_util.Partial:
        """The same, of which the truth is known."""
        return jax.tree_util.Partial(self, *_numbered(truth))


def watch(truth: Truth | Int[Array, " clients"]) -> jax.tree_util.Partial:
    """As `metrics`, with `rand_index`, the adjusted Rand index of the clients that took
    part, where the algorithm assigns any; an `observe` of `run`.

    Args:
      truth: of the data, or each client's true cluster; concrete.
    """
    return jax.tree_util.Partial(_with_truth, *_numbered(truth))


def _numbered(
    truth: Truth | Int[Array, " clients"],
) -> tuple[Int[Array, " clients"], Int[Array, " clusters"]]:
    """Each client's cluster, numbered from 0 on, and all numbers; concrete."""
    clusters = jnp.asarray(truth.clusters if isinstance(truth, Truth) else truth)
    names, own = np.unique(np.asarray(clusters), return_inverse=True)
    return jnp.asarray(own.reshape(-1)), jnp.arange(len(names))


def accuracy_on(
    algorithm: Algorithm, data: ClientData, test: ClientData
) -> jax.tree_util.Partial:
    """Share of all test samples that clients get right, as `accuracy`; a `test` of
    `run`.

    Args:
      algorithm: that runs, of a task with classes.
      data: that it learns from.
      test: samples of the same clients, with classes as targets.
    """
    return jax.tree_util.Partial(
        _Tested(algorithm.predict),
        data,
        test,
    )


class _Tested:
    """The accuracy of a state; equal for equal algorithms: runs share programs."""

    def __init__(self, predict: Any) -> None:
        self._predict = predict

    def __call__(self, data: ClientData, test: ClientData, state: Any) -> Any:
        outputs = self._predict(state, data, test.inputs)
        return {"accuracy": accuracy(outputs, test.targets, test.mask)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tested) and self._predict == other._predict

    def __hash__(self) -> int:
        return hash(self._predict)


def _with_truth(
    truth: Int[Array, " clients"],
    number: Int[Array, " clusters"],
    state: Any,
    info: Any,
) -> dict[str, Array]:
    found = metrics(state, info)
    assignment, losses = _field(info, "assignment"), _field(info, "losses")
    if assignment is not None:
        count = _num_clusters(assignment, losses)
        index = functools.partial(
            adjusted_rand_index,
            num_clusters=count,
            num_true_clusters=number.shape[0],
        )
        present = assignment >= 0
        found["rand_index"] = everywhere(index)(assignment, truth, present=present)
    return found


def _field(info: Any, name: str) -> Array | None:
    """An array of the round's info, if it has one of this name."""
    found: Any = getattr(info, name, None)
    is_array = hasattr(found, "dtype") and getattr(found, "ndim", 0) >= 1
    return found if is_array else None


def _num_clusters(assignment: Array, losses: Array | None) -> int:
    if losses is not None and losses.ndim == 2:
        return losses.shape[1]
    return assignment.shape[0]


@everywhere
def _mean_loss(losses: Array, assignment: Array | None) -> Float[Array, ""]:
    """The mean of the participants, under the models that they were assigned to."""
    if losses.ndim == 1:
        return jnp.mean(losses, where=~jnp.isnan(losses))
    at = jnp.argmin(losses, axis=1) if assignment is None else assignment
    own = jnp.take_along_axis(losses, jnp.maximum(at, 0)[:, None], axis=1)[:, 0]
    return jnp.mean(own, where=(at >= 0) & ~jnp.isnan(own))


def _sizes(assignment: Array, number: int) -> Int[Array, " clusters"]:
    each = jnp.arange(number)[None, :]
    return jnp.sum(assignment[:, None] == each, axis=0, dtype=jnp.int32)
