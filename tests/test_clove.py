"""CLoVE, Algorithm 1: rounds by hand, when it is stable, newcomers, limits."""

import functools
import itertools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import compiled, misuse

from cfljax import engine
from cfljax.algorithms import clove, fedavg, oracle
from cfljax.algorithms.clove import first_stability, observe_round
from cfljax.base.types import NO_CLUSTER, ClientData
from cfljax.data import mixed_linear
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, FEATURES, SAMPLES, GAMMA = 6, 4, 10, 0.1
TRUTH = np.array([0, 0, 0, 1, 1, 1])


@functools.cache
def problem() -> ClientData:
    """Two clusters of three clients with 10, 9, ... 5 samples."""
    data, truth = mixed_linear(
        jax.random.key(3),
        num_clients=CLIENTS,
        num_clusters=2,
        num_samples=SAMPLES,
        num_features=FEATURES,
        separation=3.0,
        noise=0.1,
    )
    np.testing.assert_array_equal(truth.clusters, TRUTH)
    counts = SAMPLES - jnp.arange(CLIENTS)
    return data._replace(mask=jnp.arange(SAMPLES)[None, :] < counts[:, None])


def build(**settings):
    return compiled(
        clove(linear(FEATURES), num_clusters=2, step_size=GAMMA, **settings)
    )


@functools.cache
def one_round(**settings):
    """First state, second state and info of a compiled round."""
    algorithm = build(**settings)
    state = algorithm.init(jax.random.key(0), problem())
    return state, *algorithm.step(jax.random.key(1), state, problem())


def two_means(points):
    """The partition in two of least inertia, by trying all."""
    best, chosen = np.inf, np.zeros(len(points), int)
    for labels in itertools.product((0, 1), repeat=len(points)):
        labels = np.array(labels)
        if labels[0] or not labels.any():
            continue
        groups = [points[labels == c] for c in (0, 1)]
        inertia = sum(((group - group.mean(axis=0)) ** 2).sum() for group in groups)
        if inertia < best:
            best, chosen = inertia, labels
    return chosen


def round_by_hand(state, data, *, option, num_steps=1, root=False):
    """Models and assignment after a round (lines 6-23)."""
    models = np.asarray(state.models, float)
    of = lambda i: [by_hand.loss(data, i, theta) for theta in models]
    losses = np.array([of(i) for i in range(CLIENTS)])
    clusters = two_means(np.sqrt(losses) if root else losses)  # line 11
    cost = [losses[clusters == cluster].sum(axis=0) for cluster in (0, 1)]
    swapped = cost[0][1] + cost[1][0] < cost[0][0] + cost[1][1]
    assignment = 1 - clusters if swapped else clusters  # line 12
    counts, new = np.asarray(data.mask).sum(axis=1), models.copy()
    num_steps = num_steps if option == "model" else 1
    for model in (0, 1):
        members = np.flatnonzero(assignment == model)
        if not len(members):
            continue
        moved = [
            by_hand.trained(
                data, i, models[model], step_size=GAMMA, num_steps=num_steps
            )
            for i in members
        ]
        new[model] = np.average(moved, axis=0, weights=counts[members])  # lines 22, 23
    return new, assignment, losses


# Against equations


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"option": "model", "num_steps": 3},
        {"option": "gradient"},
        {"option": "model", "embedding": "square_root"},
    ],
    ids=["I", "II", "root"],
)
def test_a_round_by_hand(settings):
    data = problem()
    state, after, info = one_round(**settings)
    models, assignment, losses = round_by_hand(
        state,
        data,
        option=settings["option"],
        num_steps=settings.get("num_steps", 1),
        root="embedding" in settings,
    )
    np.testing.assert_allclose(info.losses, losses, rtol=1e-5)
    np.testing.assert_array_equal(info.assignment, assignment)
    np.testing.assert_allclose(after.models, models, rtol=1e-4, atol=1e-5)
    # The control: equal weights of the clients are other models.
    counts = np.full(CLIENTS, 7)
    even = data._replace(mask=jnp.arange(SAMPLES)[None, :] < counts[:, None])
    other, _, _ = round_by_hand(state, even, option=settings["option"])
    assert np.abs(other - models).max() > 1e-3


@pytest.mark.long
def test_the_anchor_holds_the_models_received_and_mean_loss_vectors():
    state, after, info = one_round()
    np.testing.assert_array_equal(after.anchor.models, state.models)
    losses, assignment = np.asarray(info.losses), np.asarray(info.assignment)
    means = [losses[assignment == model].mean(axis=0) for model in (0, 1)]
    np.testing.assert_allclose(after.anchor.centroids, means, rtol=1e-5)


@pytest.mark.long
def test_bytes_are_models_and_loss_vectors():
    _, _, info = one_round()
    model, vector = 4 * FEATURES, 4 * 2
    assert info.received.tolist() == [2 * model] * CLIENTS
    assert info.sent.tolist() == [model + vector] * CLIENTS


@pytest.mark.long
def test_a_random_first_round_asks_for_no_losses():
    data = problem()
    algorithm = build(first_round="random")
    state = algorithm.init(jax.random.key(0), data)
    drawn = set()
    for seed in range(4):
        after, info = algorithm.step(jax.random.key(seed), state, data)
        assert np.isnan(info.losses).all()
        assert np.isnan(after.anchor.centroids).all()
        assert info.received.tolist() == [4 * FEATURES] * CLIENTS
        drawn.add(tuple(info.assignment.tolist()))
    assert len(drawn) > 1
    _, info = algorithm.step(jax.random.key(9), after, data)
    assert np.isfinite(info.losses).all()
    assert len(set(info.assignment[:3].tolist())) == 1


@pytest.mark.long
def test_identical_models_are_identical():
    state, _, info = one_round(start="identical")
    np.testing.assert_array_equal(state.models[0], state.models[1])
    np.testing.assert_array_equal(info.losses[:, 0], info.losses[:, 1])
    independent, _, _ = one_round()
    assert not np.array_equal(independent.models[0], independent.models[1])


@pytest.mark.long
def test_epochs_and_optimisers_are_the_local_update_s():
    _, after, info = one_round(update=LocalUpdate(batch_size=2, num_epochs=2))
    _, plain, _ = one_round()
    assert np.abs(np.asarray(after.models) - np.asarray(plain.models)).max() > 1e-3
    assert len(set(info.assignment.tolist())) == 2


# Against equations: when a clustering counts as stable (section 3)


def after(*rounds, stable_rounds=3):
    stability = first_stability(len(rounds[0]))
    for assignment in rounds:
        stability = observe_round(stability, jnp.array(assignment), stable_rounds)
    return stability


def test_three_equal_rounds_are_stable():
    assert not after([0, 1], [0, 1]).stable
    assert after([0, 1], [0, 1], [0, 1]).stable
    assert after([1, 1], [0, 1], [0, 1], [0, 1]).streak.tolist() == [3, 4]
    assert not after([1, 1], [0, 1], [0, 1]).stable


def test_the_rounds_between_the_ends_count():
    # First and last round agree, which is all that the released code compares.
    assert not after([0, 1], [1, 1], [0, 1]).stable


def test_stable_stays_stable():
    assert after([0, 1], [0, 1], [0, 1], [1, 1]).stable


def test_absent_clients_neither_confirm_nor_deny():
    assert not after([0, -1], [0, -1], [-1, 1]).stable
    assert after([0, 1], [0, -1], [0, -1]).stable
    found = after([0, 1], [-1, 1], [0, -1])
    assert found.streak.tolist() == [2, 2]
    assert found.identities.tolist() == [0, 1]
    assert not after([-1, -1], [-1, -1], [-1, -1]).stable


@pytest.mark.parametrize(("stable_rounds", "expected"), [(1, True), (None, False)])
def test_one_round_or_none(stable_rounds, expected):
    assert bool(after([0, 1], stable_rounds=stable_rounds).stable) is expected


# Against itself


MANY, CLUSTERS, WIDE, ROUNDS = 12, 3, 8, 8


@functools.cache
def three_clusters():
    return mixed_linear(
        jax.random.key(2),
        num_clients=MANY,
        num_clusters=CLUSTERS,
        num_samples=60,
        num_features=WIDE,
        separation=3.0,
        noise=0.1,
    )


def three(num_clusters=CLUSTERS, step_size=0.1, **settings):
    return clove(
        linear(WIDE), num_clusters=num_clusters, step_size=step_size, **settings
    )


@functools.cache
def program(num_rounds, num_clusters, **settings):
    """A compiled run: last state, and every round's info and models."""
    algorithm = three(num_clusters=num_clusters, **settings)
    keep = lambda state, info: (info, state.models)
    data, _ = three_clusters()
    return jax.jit(
        lambda key: engine.run(
            algorithm, key, data, num_rounds=num_rounds, observe=keep
        )
    )


def trace(seed=0, num_rounds=ROUNDS, num_clusters=CLUSTERS, **settings):
    run = program(num_rounds, num_clusters, **settings)
    return jax.tree.map(np.asarray, run(jax.random.key(seed)))


def groups(assignment):
    """The partition, whatever its names."""
    first = {label: index for index, label in reversed(list(enumerate(assignment)))}
    return [first[label] for label in assignment]


def is_right(assignment):
    return groups(assignment.tolist()) == groups(three_clusters()[1].clusters.tolist())


@pytest.mark.long
def test_clusters_are_found_and_kept():
    _, (info, _) = trace()
    assert all(is_right(row) for row in info.assignment[2:])
    assert not info.stable.any()


@pytest.mark.long
def test_early_stop_changes_the_messages_and_nothing_else():
    _, (plain, models) = trace()
    last, (info, stopped) = trace(stable_rounds=3)
    np.testing.assert_array_equal(plain.assignment, info.assignment)
    np.testing.assert_allclose(models, stopped, rtol=1e-5, atol=1e-6)
    begin = int(np.argmax(info.stable))
    # The last three rounds before it, and not the four, had equal assignments.
    before = info.assignment[begin - 3 : begin]
    assert (before == before[0]).all()
    assert begin == 3 or (info.assignment[begin - 4] != before[0]).any()
    assert info.stable[begin:].all() and last.stability.stable
    model, vector = 4 * WIDE, 4 * CLUSTERS
    assert (info.received[:begin] == CLUSTERS * model).all()
    assert (info.received[begin:] == model).all()
    assert (info.sent[:begin] == model + vector).all()
    assert (info.sent[begin:] == model).all()
    assert np.isnan(info.losses[begin:]).all()
    # The anchor is that of the last clustering.
    np.testing.assert_array_equal(last.anchor.models, stopped[begin - 2])


@pytest.mark.long
def test_newcomers_find_their_cluster_after_stability():
    last, _ = trace(stable_rounds=3)
    data, _ = three_clusters()
    late = np.array([0, 5, 11])
    identities = last.stability.identities.copy()
    identities[late] = NO_CLUSTER
    state = last._replace(stability=last.stability._replace(identities=identities))
    algorithm = compiled(three(stable_rounds=3))
    after, info = algorithm.step(jax.random.key(5), state, data)
    np.testing.assert_array_equal(info.assignment, last.stability.identities)
    np.testing.assert_array_equal(after.stability.identities, info.assignment)
    model, vector = 4 * WIDE, 4 * CLUSTERS
    asked = np.isin(np.arange(MANY), late)
    np.testing.assert_array_equal(  # All saved models, then the present one.
        info.received, np.where(asked, (CLUSTERS + 1) * model, model)
    )
    np.testing.assert_array_equal(info.sent, model + vector * asked)
    # Centroids decide: with those of two clusters exchanged, newcomers are too.
    wrong = last.anchor.centroids[[1, 0, 2]]
    moved = state._replace(anchor=state.anchor._replace(centroids=wrong))
    _, misled = algorithm.step(jax.random.key(5), moved, data)
    assert (misled.assignment != info.assignment)[late].any()
    answers = jax.jit(algorithm.predict)(state, data, data.inputs)
    own = last.models[last.stability.identities]
    expected = np.einsum("csf,cf->cs", data.inputs, own)
    np.testing.assert_allclose(answers, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_partial_participation_reaches_the_same_clusters():
    last, (info, _) = trace(participation=0.5, num_rounds=12)
    assert ((info.assignment >= 0).sum(axis=1) == 6).all()
    assert is_right(last.stability.identities)


@pytest.mark.slow
def test_fewer_participants_than_clusters_leave_models_alone():
    _, (info, models) = trace(participation=1 / 6, num_rounds=5)
    for index in range(1, 5):
        used = set(info.assignment[index]) - {NO_CLUSTER}
        assert 1 <= len(used) <= 2
        for model in range(CLUSTERS):
            same = np.array_equal(models[index][model], models[index - 1][model])
            assert same == (model not in used)


@pytest.mark.long
@pytest.mark.parametrize(
    ("first_round", "start"),
    [
        pytest.param("random", "identical", marks=pytest.mark.slow),
        ("random", "independent"),
    ],
)
def test_clusters_are_found_from_random_first_rounds(first_round, start):
    right = 0
    for seed in range(3):
        _, (info, _) = trace(seed, first_round=first_round, start=start)
        assert not is_right(info.assignment[0])
        right += is_right(info.assignment[-1])
    assert right == 3


@pytest.mark.long
def test_number_of_clusters_is_found():
    settings = {"clustering": "agglomerative", "select_number": True}
    _, (info, _) = trace(num_clusters=5, **settings)
    assert is_right(info.assignment[-1])
    # Without the selection five models split three clusters.
    _, (fixed, _) = trace(num_clusters=5, clustering="agglomerative")
    assert len(set(fixed.assignment[-1])) == 5


@pytest.mark.slow
def test_one_cluster_is_fedavg():
    data, _ = three_clusters()
    settings = {"step_size": 0.1, "num_steps": 2}
    single = three(num_clusters=1, **settings)
    average = fedavg(linear(WIDE), **settings)
    state = single.init(jax.random.key(0), data)
    other = average.init(jax.random.key(0), data)._replace(model=state.models[0])
    key = jax.random.key(1)
    after, _ = jax.jit(single.step)(key, state, data)
    expected, _ = jax.jit(average.step)(key, other, data)
    np.testing.assert_allclose(after.models[0], expected.model, rtol=1e-5, atol=1e-6)
    assert np.abs(np.asarray(after.models - state.models)).max() > 0.1


@pytest.mark.long
def test_once_the_clusters_are_right_it_is_the_oracle():
    data, truth = three_clusters()
    _, (info, models) = trace()
    names = info.assignment[-1][[0, 4, 8]]  # A model for each true cluster.
    known = oracle(
        linear(WIDE),
        clusters=truth.clusters,
        num_clusters=CLUSTERS,
        step_size=0.1,
        option="model",
        weights="samples",
    )
    state = jax.eval_shape(known.init, jax.random.key(0), data)
    state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)
    state = state._replace(
        models=jnp.asarray(models[-2][names]), clusters=jnp.asarray(truth.clusters)
    )
    after, _ = jax.jit(known.step)(jax.random.key(0), state, data)
    np.testing.assert_allclose(after.models, models[-1][names], rtol=1e-4, atol=1e-5)


# Against misuse


test_misuse_is_named = misuse(
    three,
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"stable_rounds": 0}, "`stable_rounds` must be at least 1"),
    ({"first_round": "never"}, "first_round"),
    ({"start": "same"}, "start"),
    ({"select_number": True}, "give `clustering='agglomerative'`"),
    ({"participation": 0.0}, "`participation` must be in"),
    ({"option": "gradient", "num_steps": 2}, "`num_steps` belongs to"),
)
