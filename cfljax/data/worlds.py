"""Worlds beyond clients that stay, of one cluster each, with true labels: clients that
move, come, go and lag, whose samples are of several clusters, or whose labels lie.

    from_round = cfl.data.moves(clusters, key=key, num_rounds=60, begin=20)
    at = cfl.data.drifting(lambda own: cfl.data.turned(data, clusters=own), from_round)
    rounds, clusters = cfl.data.over_rounds(at, 60)
    there = cfl.data.attendance(key, num_rounds=60, num_clients=12, joins={11: 30})
    rounds = cfl.data.attended(rounds, there)

All run on the host, not to be traced, and say the truth besides.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax.base.checks import check_member
from cfljax.base.draws import Convention
from cfljax.base.ranges import SHARE, ranged
from cfljax.base.types import NO_CLUSTER, ClientData, Truth
from cfljax.data.heterogeneity import Scene, labels_of
from cfljax.data.linear import (
    check_mixed_linear,
    linear_targets,
    mixed_truth,
    standard_samples,
)
from cfljax.data.partition import generator

# Clients whose cluster changes

Drift = Literal["abrupt", "gradual", "recurring"]


@functools.partial(ranged, share=SHARE)
def moves(
    clusters: Sequence[int] | Int[np.ndarray | Array, " clients"],
    *,
    key: PRNGKeyArray,
    num_rounds: int,
    begin: int,
    share: float = 0.5,
    drift: Drift = "abrupt",
    period: int | None = None,
) -> dict[int, Int[np.ndarray, " clients"]]:
    """The clusters of clients of which some move to others, for `drifting`.

    The patterns are those by which drift of concepts is told apart: Gama et al., "A
    Survey on Concept Drift Adaptation", 2014, section 2. The first client of each
    cluster stays, so that no cluster is ever empty; of the others the share that moves
    is drawn, and each mover's new cluster, uniformly among the others.

    Args:
      clusters: of all clients in round 0, numbered from 0 on.
      key: a typed random key.
      num_rounds: T, of the run.
      begin: first round in which anybody has moved, in 1..T - 1.
      share: of the clients that may move, rounded up to one client; in [0, 1].
      drift: "abrupt", where all move in `begin`; "gradual", where each moves in a round
        of its own, drawn uniformly from `begin` on, before `begin + period`;
        "recurring", where all move in `begin`, are back `period` rounds later, and so
        on.
      period: see `drift`; if None, the rounds that are left for "gradual", a quarter of
        them for "recurring", at least one. Of no meaning for "abrupt".

    Returns:
      From the first round on which they hold to the clusters of all clients.

    Raises:
      ValueError: if there is one cluster only, or nobody who may move, or a number is
        out of its range.
    """
    check_member(Drift, drift=drift)
    own = np.asarray(clusters, np.int32)
    number = int(own.max(initial=-1)) + 1
    if not 1 <= begin < num_rounds:
        raise ValueError(
            f"`begin` must be in 1..{num_rounds - 1}, the rounds behind the first, got "
            f"{begin}."
        )
    left = num_rounds - begin
    if period is None:
        period = left if drift == "gradual" else max(1, left // 4)
    firsts = np.unique(own, return_index=True)[1]
    free = np.setdiff1d(np.arange(own.size), firsts)
    if number < 2 or not free.size:
        raise ValueError(
            "`clusters` must be of two clusters or more, one of them of two clients, "
            f"got {own.tolist()}."
        )
    random = generator(key)
    movers = random.permutation(free)[: int(np.ceil(share * free.size))]
    after = own.copy()
    after[movers] = (own[movers] + random.integers(1, number, movers.size)) % number
    # The round in which each client moves, and a last one for those who never do.
    when = np.full(own.size, num_rounds)
    if drift == "gradual":
        when[movers] = begin + random.integers(0, min(period, left), movers.size)
    else:
        when[movers] = begin
    if drift == "recurring":
        turns = enumerate(range(begin, num_rounds, period))
        return {0: own} | {first: (own, after)[1 - i % 2] for i, first in turns}
    starts = sorted({int(first) for first in when[movers]})
    return {0: own} | {first: np.where(when <= first, after, own) for first in starts}


# Clients that come, go and lag


@ranged
def attendance(
    key: PRNGKeyArray,
    *,
    num_rounds: int,
    num_clients: int,
    joins: Mapping[int, int] | None = None,
    leaves: Mapping[int, int] | None = None,
    missing: float | Sequence[float | int] = 0.0,
) -> Bool[np.ndarray, "rounds clients"]:
    """Who is there in which round: newcomers, leavers, and stragglers, who are late.

    Args:
      key: a typed random key.
      num_rounds: T.
      num_clients: m.
      joins: from a client to the first round in which it is there.
      leaves: from a client to the first round in which it is there no more.
      missing: chance that a client which is there answers too late to count, in a
        round, in [0, 1); one for all, or one for each client. Where nobody of those who
        are there would answer, one of them does, drawn uniformly.

    Raises:
      ValueError: if a client or a round does not exist, a client leaves before it is
        there, or nobody is there in some round.
    """
    first = _rounds_of("joins", joins, 0, num_rounds, num_clients)
    last = _rounds_of("leaves", leaves, num_rounds, num_rounds, num_clients)
    if np.any(first >= last):
        client = int(np.argmax(first >= last))
        raise ValueError(
            f"client {client} must join before it leaves, got rounds {first[client]} "
            f"and {last[client]}."
        )
    rounds = np.arange(num_rounds)[:, None]
    there = (first <= rounds) & (rounds < last)
    if not np.all(np.any(there, axis=1)):
        empty = int(np.argmin(np.any(there, axis=1)))
        raise ValueError(f"some client must be there in each round, none in {empty}.")
    chances = _of_each("missing", missing, num_clients)
    random = generator(key)
    kept = there & (random.random(there.shape) >= chances)
    # The one who answers if nobody does, drawn always: rounds do not depend on others.
    chosen = np.argmax(np.where(there, random.random(there.shape), -1), axis=1)
    nobody = ~np.any(kept, axis=1)
    kept[nobody, chosen[nobody]] = True
    return kept


def _rounds_of(
    name: str,
    given: Mapping[int, int] | None,
    usual: int,
    num_rounds: int,
    num_clients: int,
) -> Int[np.ndarray, " clients"]:
    found = np.full(num_clients, usual)
    for client, first in (given or {}).items():
        if not 0 <= client < num_clients or not 0 <= first <= num_rounds:
            raise ValueError(
                f"`{name}` must be of clients in 0..{num_clients - 1} and rounds in "
                f"0..{num_rounds}, got {client}: {first}."
            )
        found[client] = first
    return found


def _of_each(
    name: str, chance: float | Sequence[float | int], num_clients: int
) -> Float[np.ndarray, " clients"]:
    """A chance for each client, where one is given for all or each."""
    found = np.asarray(chance, float)
    if found.shape not in ((), (num_clients,)):
        raise ValueError(
            f"`{name}` must be one number or one for each of {num_clients} clients, "
            f"got {found.size}."
        )
    return np.broadcast_to(found, (num_clients,))


def attended(data: ClientData, there: Bool[np.ndarray, "rounds clients"]) -> ClientData:
    """Data of each round in which those who are not there have no sample: they take no
    part in it, and keep what they have. For `cfl.run(..., data_per_round=True)`.

    Args:
      data: of all rounds alike, leaves `[clients, samples, ...]`, or of each, leaves
        `[rounds, clients, samples, ...]`, as of `over_rounds`.
      there: as of `attendance`.

    Raises:
      ValueError: if rounds or clients do not fit.

    Cost: a copy of the data for each round, unless they are of each round already.
    """
    if data.mask.ndim == 2:
        each = lambda leaf: np.broadcast_to(leaf, (len(there), *leaf.shape))
        data = ClientData(*jax.device_put([each(np.asarray(leaf)) for leaf in data]))
    if data.mask.shape[:2] != there.shape:
        raise ValueError(
            "`there` must be of the data's rounds and clients, "
            f"{data.mask.shape[:2]}, got {there.shape}."
        )
    mask = np.asarray(data.mask) & there[:, :, None]
    return ClientData(*jax.device_put((data.inputs, data.targets, mask)))


def clusters_there(
    clusters: Int[np.ndarray | Array, "... clients"],
    there: Bool[np.ndarray, "rounds clients"],
) -> Int[np.ndarray, "rounds clients"]:
    """True clusters of each round, `NO_CLUSTER` for those who are not there.

    Args:
      clusters: of all rounds, or of each.
      there: as of `attendance`.
    """
    return np.where(there, np.asarray(clusters), NO_CLUSTER).astype(np.int32)


def thinned(
    data: ClientData, num_samples: Sequence[int] | Int[np.ndarray, " clients"]
) -> ClientData:
    """Clients of unequal numbers of samples: the first ones of each.

    Args:
      data: of any generator or partition here.
      num_samples: how many real samples each client keeps, from 1 to what it has.

    Raises:
      ValueError: if a number is out of its range, or there is not one for each client.
    """
    wanted, mask = np.asarray(num_samples), np.asarray(data.mask)
    has = mask.sum(axis=1)
    if wanted.shape != has.shape or np.any((wanted < 1) | (wanted > has)):
        raise ValueError(
            "`num_samples` must be from 1 to what each client has, "
            f"{has.tolist()}, got {wanted.tolist()}."
        )
    kept = mask & (np.cumsum(mask, axis=1) <= wanted[:, None])
    return data._replace(mask=jax.device_put(kept))


# Clients of several clusters


class Mixture(NamedTuple):
    """What is true of clients whose samples are of several clusters.

    shares: law of a client's samples, rows of sum 1.
    of_samples: the cluster of each sample.
    models: leaves `[clusters, ...]`, as of `Truth`; None where the data are real.
    """

    shares: Float[Array, "clients clusters"]
    of_samples: Int[Array, "clients samples"]
    models: Float[Array, "clusters features"] | None = None


@ranged
def dirichlet_shares(
    key: PRNGKeyArray, *, num_clients: int, num_clusters: int, concentration: float
) -> Float[np.ndarray, "clients clusters"]:
    """Shares of the clusters in each client's samples, by a symmetric Dirichlet law.

    Marfoq et al., NeurIPS 2021, section 4, draw their synthetic mixtures so. A small
    concentration makes clusters hard, a large one all clients alike.

    Args:
      key: a typed random key.
      num_clients: m.
      num_clusters: k.
      concentration: alpha, positive.
    """
    random = generator(key)
    return random.dirichlet(np.full(num_clusters, concentration), num_clients)


@ranged
def mixture_linear(
    key: PRNGKeyArray,
    *,
    shares: Float[np.ndarray | Array, "clients clusters"],
    num_samples: int,
    num_features: int,
    separation: float,
    noise: float,
    convention: Convention = "paper",
) -> tuple[ClientData, Mixture]:
    """Mixed linear regression in which each sample has a cluster of its own.

    As `mixed_linear`, with the cluster of every sample drawn by its client's shares.
    Inputs, noise and models are those of `mixed_linear` with the same key.

    Args:
      key: of the data set.
      shares: of the clusters in each client's samples, not negative, rows of sum 1.
      num_samples: n, per client.
      num_features: d.
      separation: R, see `mixed_linear`.
      noise: sigma.
      convention: see `mixed_linear`.

    Raises:
      ValueError: if shares are no laws, or a number is out of its range.
    """
    laws = _checked_shares(shares)
    num_clients, num_clusters = laws.shape
    sizes = {"num_clients": num_clients, "num_clusters": num_clusters}
    # Which client has which cluster is of no meaning here: any sizes will do.
    whole = (num_clients - num_clusters + 1, *(1,) * (num_clusters - 1))
    check_mixed_linear(
        **sizes,
        num_samples=num_samples,
        num_features=num_features,
        cluster_sizes=whole,
    )
    truth, clients_key = mixed_truth(
        key,
        **sizes,
        num_features=num_features,
        separation=separation,
        convention=convention,
        cluster_sizes=whole,
    )
    inputs, errors = standard_samples(
        clients_key,
        num_clients=num_clients,
        num_samples=num_samples,
        num_features=num_features,
    )
    of_samples = _drawn(jax.random.fold_in(key, 1), laws, num_samples)
    # Each sample is a client of its own cluster.
    alone = Truth(jnp.asarray(of_samples.ravel()), truth.models)
    targets = linear_targets(
        inputs.reshape(-1, 1, num_features), errors.reshape(-1, 1), alone, noise
    ).reshape(errors.shape)
    data = ClientData(inputs, targets, jnp.ones(errors.shape, bool))
    return data, Mixture(jnp.asarray(laws), jnp.asarray(of_samples), truth.models)


@ranged
def blended(
    data: ClientData,
    *,
    key: PRNGKeyArray,
    shares: Float[np.ndarray | Array, "clients clusters"],
    see: Callable[[ClientData, Int[np.ndarray, " samples"]], Scene],
) -> tuple[ClientData, Mixture]:
    """Clients whose samples are each seen as some cluster sees them.

        data, truth = cfl.data.blended(
            data, key=key, shares=shares,
            see=lambda own, clusters: cfl.data.turned(own, clusters=clusters),
        )

    Args:
      data: before clusters change anything, leaves `[clients, samples, ...]`.
      key: a typed random key.
      shares: as of `dirichlet_shares`; every cluster must be drawn at least once.
      see: what clusters do to clients, such as `turned` or `relabelled`; it is given
        each sample as a client of its own.

    Raises:
      ValueError: if shares are no laws of these clients, or as `see` does.
    """
    laws, mask = _checked_shares(shares), np.asarray(data.mask)
    if len(laws) != len(mask):
        raise ValueError(
            f"`shares` must have a row for each of {len(mask)} clients, got "
            f"{len(laws)}."
        )
    of_samples = _drawn(key, laws, mask.shape[1])
    apart = lambda leaf: np.asarray(leaf).reshape(-1, 1, *leaf.shape[2:])
    alone = ClientData(*jax.device_put(tuple(map(apart, data))))
    seen, _ = see(alone, of_samples.ravel())
    together = lambda new, old: jax.device_put(np.asarray(new).reshape(old.shape))
    inputs = together(seen.inputs, data.inputs)
    targets = together(seen.targets, data.targets)
    blend = data._replace(inputs=inputs, targets=targets)
    return blend, Mixture(jnp.asarray(laws), jnp.asarray(of_samples))


def _checked_shares(
    shares: Float[np.ndarray | Array, "clients clusters"],
) -> Float[np.ndarray, "clients clusters"]:
    laws = np.asarray(shares, np.float64)
    # Rows of float32 sum to one up to their rounding.
    good = np.all(laws >= 0) and np.allclose(laws.sum(axis=-1), 1, atol=1e-5)
    if laws.ndim != 2 or not laws.size or not good:
        raise ValueError(
            "`shares` must be laws of the clusters, one row of sum 1 for each client, "
            f"got {laws.tolist()}."
        )
    return laws


def _drawn(
    key: PRNGKeyArray, laws: Float[np.ndarray, "clients clusters"], num_samples: int
) -> Int[np.ndarray, "clients samples"]:
    """The cluster of each sample, by its client's law."""
    ends = np.cumsum(laws, axis=1)
    ends[:, -1] = 1  # Whatever was rounded.
    coins = generator(key).random((len(laws), num_samples))
    return np.sum(coins[:, :, None] >= ends[:, None, :], axis=2).astype(np.int32)


# Labels that are wrong


@ranged
def mislabelled(
    data: ClientData,
    *,
    key: PRNGKeyArray,
    rate: float | Sequence[float | int],
    num_classes: int,
) -> tuple[ClientData, Bool[Array, "clients samples"]]:
    """Symmetric label noise: some labels replaced by another one, drawn uniformly.

    Args:
      data: targets are labels `[clients, samples]`.
      key: a typed random key.
      rate: chance that a label is wrong, in [0, 1]; one for all, or one for each
        client.
      num_classes: C, at least 2.

    Returns:
      The clients, and which of their labels are wrong; never those of padding.

    Raises:
      ValueError: if targets are no labels of so many classes, or a number is out of its
        range.
    """
    if num_classes < 2:
        raise ValueError(f"`num_classes` must be at least 2, got {num_classes}.")
    targets, mask = labels_of(data, num_classes), np.asarray(data.mask)
    chances = _of_each("rate", rate, len(mask))
    random = generator(key)
    wrong = mask & (random.random(mask.shape) < chances[:, None])
    others = (targets + random.integers(1, num_classes, targets.shape)) % num_classes
    changed = np.where(wrong, others, targets).astype(targets.dtype)
    return data._replace(targets=jax.device_put(changed)), jax.device_put(wrong)
