"""Dissent: gradients of runs most of whose clients choose as their group does.

With U_j the groups most of whose clients choose model j, A_j its other clients and D_j
those of U_j that choose another,

    X_S^T (X_S theta - y) = sum over c in U_j of (X_c^T X_c theta - X_c^T y)
        + sum over i in A_j of X_i^T e_i - sum over i in D_j of X_i^T e_i

for S = (U_j and A_j without D_j) and `e_i = X_i theta - y_i`: products with the groups'
Gram matrices, and with the samples of the clients that dissent. Runs that diverge have
few of these: their clients leave a model together once it is the longest.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cfljax.montecarlo.samples import EXACT, Samples, in_parts, padded

_ROWS = (8, 32)  # Of one client that meet its samples together.
_RUNS, _ENTRIES = 16, 64  # Least sizes of compiled programs.


class _Rows(NamedTuple):
    """Errors that gradients gain (sign 1) or lose (-1), client by client, with their
    columns and gradients; no row has sign 0 and a slot past the last one."""

    clients: Int[np.ndarray, " entries"]
    places: Int[np.ndarray, "entries rows"]
    slots: Int[np.ndarray, "entries rows"]
    signs: Float[np.ndarray, "entries rows"]


def gradients(
    samples: Samples,
    problems: Int[np.ndarray, " runs"],
    models: Float[np.ndarray, "runs models features"],
    choices: Int[np.ndarray, "runs clients"],
    majorities: Int[np.ndarray, "runs groups"],
    errors: tuple[Array, ...],
    places: Int[np.ndarray, "runs models"],
) -> Float[np.ndarray, "runs models features"]:
    """`(2 / n) X_S^T (X_S theta - y_S)` of every model of some runs.

    Args:
      samples: of all runs.
      problems: of the runs.
      models: theirs.
      choices: of the clients, -1 for none.
      majorities: a choice for each group, -1 for none; the sum is right for any, and
        cheap where most clients choose so.
      errors: of `rounds.forward`, one or several times.
      places: column with a model's errors, numbered through all of `errors`, for every
        model with clients.
    """
    number, num_models, _ = models.shape
    index = padded(np.arange(number), _size(number, _RUNS))
    by_group = backward_by_group(
        samples.grams,
        samples.moments[problems[index]],
        models[index],
        majorities[index],
    )
    found = np.asarray(by_group)[:number]
    rows = _rows(choices, majorities[:, samples.clusters], places)
    if not len(rows.clients):
        return found
    entries = padded(np.arange(len(rows.clients)), _size(len(rows.clients), _ENTRIES))
    clients, places, slots, signs = (part[entries] for part in rows)
    own = errors_by_row(errors, clients, places, signs, samples.num_clients)
    size = len(index) * num_models
    product = functools.partial(
        backward_by_row, samples.inputs, own, clients, slots, size
    )
    summed = in_parts(product, len(rows.clients), samples.device)
    return found + summed.reshape(len(index), *models.shape[1:])[:number]


def _size(number: int, least: int) -> int:
    """The least one, or four times it and so on: few, as each is compiled."""
    size = least
    while size < number:
        size *= 4
    return size


def _rows(
    choices: Int[np.ndarray, "runs clients"],
    expected: Int[np.ndarray, "runs clients"],
    places: Int[np.ndarray, "runs models"],
) -> _Rows:
    """Of the clients that do not choose what is expected of them."""
    differ = choices != expected
    gained, lost = differ & (choices >= 0), differ & (expected >= 0)
    runs, clients, models, signs = [], [], [], []
    for mask, chosen, sign in ((gained, choices, 1.0), (lost, expected, -1.0)):
        run, client = np.nonzero(mask)
        runs.append(run)
        clients.append(client)
        models.append(chosen[run, client])
        signs.append(np.full(len(run), sign, np.float32))
    run, client, model, sign = map(np.concatenate, (runs, clients, models, signs))
    order = np.argsort(client, kind="stable")
    run, client, model, sign = (values[order] for values in (run, client, model, sign))
    counts = np.bincount(client, minlength=choices.shape[1])
    own = counts[counts > 0]
    wide = _ROWS[0] if not len(own) or np.mean(own) <= _ROWS[0] else _ROWS[1]
    # Entries of a client, and each row's place among them.
    entries = -(-counts // wide)
    rank = np.arange(len(client)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = np.repeat(np.cumsum(entries) - entries, counts)
    entry, place = first + rank // wide, rank % wide
    shape = (int(np.sum(entries)), wide)
    num_models = places.shape[1]
    rows = _Rows(
        np.repeat(np.arange(len(counts)), entries).astype(np.int32),
        np.zeros(shape, np.int32),
        np.full(shape, np.iinfo(np.int32).max, np.int32),
        np.zeros(shape, np.float32),
    )
    rows.places[entry, place] = places[run, model]
    rows.slots[entry, place] = run * num_models + model
    rows.signs[entry, place] = sign
    return rows


@jax.jit
def backward_by_group(
    grams: Float[Array, "groups features features"],
    moments: Float[Array, "runs groups features"],
    models: Float[Array, "runs models features"],
    choices: Int[Array, "runs groups"],
) -> Float[Array, "runs models features"]:
    """`sum of (2 / n) (X_c^T X_c theta - X_c^T y)` over each model's groups.

    Args:
      grams: `(2 / n) X_c^T X_c` of each group.
      moments: `(2 / n) X_c^T y` of each run and group.
      models: of the runs.
      choices: of the groups; negative for none.
    """
    runs = jnp.arange(models.shape[0])
    summed = jnp.zeros_like(models)
    for group, gram in enumerate(grams):
        to = jnp.maximum(choices[:, group], 0)
        own = jnp.matmul(models[runs, to], gram, **EXACT) - moments[:, group]
        own = jnp.where(choices[:, group, None] < 0, 0, own)
        summed = summed.at[runs, to].add(own, unique_indices=True)
    return summed


@functools.partial(jax.jit, static_argnames="num_clients")
def errors_by_row(
    errors: tuple[Float[Array, "_ all_rows"], ...],
    clients: Int[Array, " entries"],
    places: Int[Array, "entries rows"],
    signs: Float[Array, "entries rows"],
    num_clients: int,
) -> Float[Array, "entries rows samples"]:
    """`+-e_i` of a list of clients and columns.

    Args:
      errors: of `rounds.forward`, one or several times.
      clients: of each entry.
      places: columns of the errors, numbered through all of `errors`.
      signs: 0 for no row.
      num_clients: m.
    """
    own, first = jnp.zeros((), errors[0].dtype), 0
    for part in errors:
        by_client = part.reshape(part.shape[0], num_clients, -1)
        is_here = (places >= first) & (places < first + len(part))
        here = jnp.where(is_here, places - first, 0)
        own = jnp.where(is_here[..., None], by_client[here, clients[:, None]], own)
        first += len(part)
    return jnp.where(signs[..., None] == 0, 0, signs[..., None] * own)


@functools.partial(jax.jit, static_argnames="num_slots")
def backward_by_row(
    inputs: Float[Array, "all_rows features"],
    errors: Float[Array, "entries rows samples"],
    clients: Int[Array, " entries"],
    slots: Int[Array, "entries rows"],
    num_slots: int,
    ends: tuple[Int[Array, ""], Int[Array, ""]],
) -> Float[Array, "slots features"]:
    """`sum of (2 / n) X_i^T e_i` over a list of clients and rows.

    Args:
      inputs: X.
      errors: of `errors_by_row`.
      clients: of each entry.
      slots: sums that the rows belong to; `num_slots` or more for none.
      num_slots: of sums.
      ends: the first entry, and the one after the last.
    """
    blocks = inputs.reshape(-1, errors.shape[2], inputs.shape[1])

    def add(entry: Array, summed: Array) -> Array:
        gradient = jnp.matmul(errors[entry], blocks[clients[entry]], **EXACT)
        return summed.at[slots[entry]].add(gradient, mode="drop")

    zero = jnp.zeros((num_slots, inputs.shape[1]), inputs.dtype)
    return (2 / errors.shape[2]) * jax.lax.fori_loop(*ends, add, zero)
