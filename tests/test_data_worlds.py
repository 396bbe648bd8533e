"""Worlds with drift, absence, mixtures and wrong labels: laws, truths, refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cfljax as cfl
from cfljax import intervals
from cfljax.base.types import NO_CLUSTER, ClientData
from cfljax.data import (
    attendance,
    attended,
    blended,
    clusters_there,
    consecutive,
    dirichlet_shares,
    drifting,
    mislabelled,
    mixed_linear,
    mixture_linear,
    moves,
    over_rounds,
    relabelled,
    thinned,
)

KEY = jax.random.key(5)
CLUSTERS = consecutive((4, 3, 3))
SIZES: dict[str, Any] = {"num_samples": 6, "num_features": 3}


def labels(num_clients: int = 4, num_samples: int = 50, num_classes: int = 3):
    drawn = np.random.default_rng(0).integers(
        0, num_classes, (num_clients, num_samples)
    )
    mask = np.ones(drawn.shape, bool)
    mask[0, -5:] = False
    inputs = np.arange(drawn.size, dtype=np.float32).reshape(*drawn.shape, 1)
    return ClientData(jnp.asarray(inputs), jnp.asarray(drawn), jnp.asarray(mask))


def unseen(data: ClientData, clusters: Any) -> Any:
    """What no data are given to."""
    raise AssertionError(clusters)


# Against equations


@pytest.mark.parametrize("drift", ["abrupt", "gradual", "recurring"])
def test_the_share_moves_elsewhere_and_each_cluster_keeps_somebody(drift):
    found = moves(CLUSTERS, key=KEY, num_rounds=20, begin=5, share=0.5, drift=drift)
    assert min(found) == 0 and found[0].tolist() == CLUSTERS.tolist()
    assert all(5 <= first < 20 for first in found if first)
    furthest = max(found) if drift == "gradual" else 5
    moved = found[furthest] != CLUSTERS
    assert moved.sum() == 4  # Half of the seven who are no cluster's first.
    assert not moved[[0, 4, 7]].any()
    for own in found.values():
        assert set(own.tolist()) == {0, 1, 2}


def test_patterns_of_drift():
    make = lambda drift, period=None: moves(
        CLUSTERS, key=KEY, num_rounds=20, begin=4, drift=drift, period=period
    )
    assert sorted(make("abrupt")) == [0, 4]
    gradual = make("gradual", 6)
    assert max(gradual) < 10 and len(gradual) > 2
    counts = [int((gradual[first] != CLUSTERS).sum()) for first in sorted(gradual)]
    assert counts == sorted(set(counts))  # More and more, and nobody goes back.
    back = make("recurring", 5)
    assert sorted(back) == [0, 4, 9, 14, 19]
    assert back[9].tolist() == back[19].tolist() == CLUSTERS.tolist()
    assert back[4].tolist() == back[14].tolist() == make("abrupt")[4].tolist()


def test_newcomers_leavers_and_stragglers():
    there = attendance(KEY, num_rounds=40, num_clients=4, joins={1: 10}, leaves={2: 30})
    assert there[:, 0].all() and there[:, 3].all()
    assert not there[:10, 1].any() and there[10:, 1].all()
    assert there[:30, 2].all() and not there[30:, 2].any()
    late = attendance(KEY, num_rounds=40, num_clients=4, missing=[0, 0.5, 0.9, 0.99])
    assert late[:, 0].all() and (np.diff(late.sum(axis=0)) < 0).all()
    alone = attendance(KEY, num_rounds=40, num_clients=2, missing=0.999)
    assert alone.any(axis=1).all() and alone.any(axis=0).all()
    truth = clusters_there(np.array([0, 1, 0, 1]), there)
    assert truth[0].tolist() == [0, NO_CLUSTER, 0, 1] and truth.shape == there.shape


@pytest.mark.long
def test_mixtures_are_mixed_linear_with_a_cluster_for_each_sample():
    hard = np.eye(2)[[0, 0, 1]]
    linear: dict[str, Any] = {**SIZES, "separation": 2.0, "noise": 0.5}
    data, truth = mixture_linear(KEY, shares=hard, **linear)
    plain, known = mixed_linear(
        KEY, num_clients=3, num_clusters=2, cluster_sizes=(2, 1), **linear
    )
    np.testing.assert_array_equal(data.inputs, plain.inputs)
    np.testing.assert_allclose(data.targets, plain.targets, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(truth.models, known.models)
    assert (truth.of_samples == np.array([[0], [0], [1]])).all()
    soft, mixed = mixture_linear(KEY, shares=np.full((3, 2), 0.5), **linear)
    own = np.asarray(known.models)[np.asarray(mixed.of_samples)]
    errors = soft.targets - np.einsum("msd,msd->ms", soft.inputs, own)
    noise = plain.targets - np.einsum(
        "msd,md->ms", plain.inputs, known.models[known.clusters]
    )
    np.testing.assert_allclose(errors, noise, atol=1e-5)
    assert len(np.unique(mixed.of_samples)) == 2


def test_blended_samples_are_as_their_cluster_sees_them():
    data = labels()
    see = lambda own, clusters: relabelled(
        own, key=KEY, clusters=clusters, num_classes=3
    )
    shares = np.array([[1, 0], [0, 1], [0.5, 0.5], [0.2, 0.8]])
    found, truth = blended(data, key=KEY, shares=shares, see=see)
    whole = [
        relabelled(data, key=KEY, clusters=own, num_classes=3)[0].targets
        for own in ([0, 0, 0, 1], [1, 1, 1, 0])
    ]
    maps = [np.asarray(whole[0])[:3], np.asarray(whole[1])[:3]]
    for cluster in (0, 1):
        own = (np.asarray(truth.of_samples)[:3] == cluster) & np.asarray(data.mask)[:3]
        np.testing.assert_array_equal(
            np.asarray(found.targets)[:3][own], maps[cluster][own]
        )
    assert not np.asarray(truth.of_samples)[0].any()
    assert np.asarray(truth.of_samples)[1].all()
    np.testing.assert_array_equal(found.inputs, data.inputs)
    assert (maps[0] != maps[1]).any()  # Control: clusters do see labels differently.


def test_thinned_clients_keep_their_first_samples():
    data = labels()
    kept = thinned(data, [3, 50, 1, 7])
    assert np.asarray(kept.mask).sum(axis=1).tolist() == [3, 50, 1, 7]
    assert np.asarray(kept.mask)[0, :3].all()


# Against theory


def test_wrong_labels_have_their_rate_and_are_uniform_among_the_others():
    data = labels(num_clients=2, num_samples=4000)
    noisy, wrong = mislabelled(data, key=KEY, rate=[0.0, 0.3], num_classes=3)
    differ = np.asarray(noisy.targets != data.targets)
    np.testing.assert_array_equal(differ, wrong)
    assert not differ[0].any()
    interval = lambda hits: intervals.betting(hits.astype(float), error_rate=1e-6)
    low, high = np.min(interval(differ[1])), np.max(interval(differ[1]))
    assert low < 0.3 < high and not low < 0.4 < high  # Control: another rate.
    steps = np.asarray(noisy.targets - data.targets)[1][differ[1]] % 3
    low, high = np.min(interval(steps == 1)), np.max(interval(steps == 1))
    assert low < 0.5 < high
    everything = mislabelled(data, key=KEY, rate=1.0, num_classes=3)[1]
    np.testing.assert_array_equal(everything, data.mask)  # Padding is never wrong.


def test_shares_have_the_moments_of_their_law():
    """E sum p^2 = (alpha + 1) / (k alpha + 1)."""
    shares = dirichlet_shares(KEY, num_clients=4000, num_clusters=3, concentration=0.5)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    interval = intervals.betting(np.sum(shares**2, axis=1), error_rate=1e-6)
    low, high = np.min(interval), np.max(interval)
    assert low < 1.5 / 2.5 < high
    assert not low < 2 / 4 < high  # Control: twice the concentration.


# Against itself


@pytest.mark.long
def test_who_is_not_there_changes_nothing_and_keeps_what_it_has():
    """A run whose second client leaves ends as one without it from then on."""
    data, _ = mixed_linear(
        KEY, num_clients=3, num_clusters=1, separation=1.0, noise=0.1, **SIZES
    )
    there = attendance(KEY, num_rounds=4, num_clients=3, leaves={1: 2})
    task = cfl.models.linear(3)
    algorithm = cfl.ditto(task, step_size=0.1)
    run = lambda rounds: cfl.run(
        algorithm, KEY, rounds, num_rounds=4, observe=None, data_per_round=True
    )[0]
    found = run(attended(data, there))
    two = cfl.run(
        algorithm,
        KEY,
        attended(data, there[:2]),
        num_rounds=2,
        observe=None,
        data_per_round=True,
    )[0]
    np.testing.assert_array_equal(found.personal[1], two.personal[1])
    scrambled = data._replace(targets=data.targets.at[1].add(100.0))
    late = jax.tree.map(
        lambda old, new: jnp.concatenate([old[:2], new[2:]]),
        attended(data, there),
        attended(scrambled, there),
    )
    np.testing.assert_array_equal(found.model, run(late).model)
    stays = run(attended(data, np.ones_like(there)))
    assert (np.asarray(stays.model) != np.asarray(found.model)).any()  # Control.


def test_drift_and_absence_together():
    def make(clusters):
        return relabelled(labels(10), key=KEY, clusters=clusters, num_classes=3)

    at = drifting(make, moves(CLUSTERS, key=KEY, num_rounds=6, begin=3))
    rounds, clusters = over_rounds(at, 6)
    there = attendance(KEY, num_rounds=6, num_clients=10, missing=0.3)
    found = attended(rounds, there)
    assert found.targets.shape == (6, 10, 50)
    np.testing.assert_array_equal(found.mask.any(axis=2), there)
    np.testing.assert_array_equal(found.targets, rounds.targets)
    assert clusters_there(clusters, there).shape == (6, 10)


def test_the_key_decides():
    draw = lambda key: [
        *moves(CLUSTERS, key=key, num_rounds=9, begin=3, drift="gradual").values(),
        attendance(key, num_rounds=9, num_clients=3, missing=0.5),
        dirichlet_shares(key, num_clients=3, num_clusters=2, concentration=1.0),
        mislabelled(labels(), key=key, rate=0.5, num_classes=3)[1],
    ]
    same = lambda a, b: len(a) == len(b) and all(map(np.array_equal, a, b))
    assert same(draw(KEY), draw(KEY))
    assert not same(draw(KEY), draw(jax.random.key(6)))


# Against misuse


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: moves([0, 0], key=KEY, num_rounds=9, begin=3), "two clusters"),
        (lambda: moves([0, 1], key=KEY, num_rounds=9, begin=3), "two clients"),
        (lambda: moves(CLUSTERS, key=KEY, num_rounds=9, begin=9), "in 1..8"),
        (lambda: moves(CLUSTERS, key=KEY, num_rounds=9, begin=0), "in 1..8"),
        (
            lambda: moves(CLUSTERS, key=KEY, num_rounds=9, begin=3, share=1.5),
            "`share` must be in",
        ),
        (
            lambda: moves(CLUSTERS, key=KEY, num_rounds=9, begin=3, period=0),
            "`period` must be at least 1",
        ),
        (
            lambda: attendance(KEY, num_rounds=9, num_clients=2, joins={2: 1}),
            "clients in 0..1",
        ),
        (
            lambda: attendance(
                KEY, num_rounds=9, num_clients=2, joins={1: 4}, leaves={1: 4}
            ),
            "join before it leaves",
        ),
        (
            lambda: attendance(KEY, num_rounds=9, num_clients=1, joins={0: 1}),
            "none in 0",
        ),
        (
            lambda: attendance(KEY, num_rounds=9, num_clients=2, missing=1.0),
            "`missing` must be in",
        ),
        (
            lambda: attendance(KEY, num_rounds=9, num_clients=2, missing=[0.1]),
            "one for each of 2 clients",
        ),
        (lambda: attended(labels(), np.ones((3, 5), bool)), "rounds and clients"),
        (lambda: thinned(labels(), [46, 1, 1, 1]), "what each client has"),
        (
            lambda: mislabelled(labels(), key=KEY, rate=1.1, num_classes=3),
            "`rate` must be in",
        ),
        (
            lambda: mislabelled(labels(), key=KEY, rate=0.1, num_classes=2),
            "labels in 0..1",
        ),
        (
            lambda: blended(labels(), key=KEY, shares=np.full((4, 2), 0.4), see=unseen),
            "rows? of sum 1",
        ),
        (
            lambda: blended(labels(), key=KEY, shares=np.full((3, 2), 0.5), see=unseen),
            "each of 4 clients",
        ),
    ],
)
def test_misuse_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
