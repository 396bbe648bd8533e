"""What the exact Monte-Carlo keeps: Gram matrices of groups, and errors."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.montecarlo import partitions, prepare
from cfljax.montecarlo.error_cache import ErrorCache
from cfljax.montecarlo.group_gradients import gradients
from cfljax.montecarlo.partitions import Partitions
from cfljax.montecarlo.rounds import forward
from cfljax.montecarlo.samples import Samples

# Gradients by the Gram matrices of groups, against sums over clients

CLIENTS, SAMPLES, FEATURES, MODELS = 7, 5, 4, 3
CLUSTERS = np.array([0, 0, 0, 1, 1, 1, 1])
PROBLEMS = 2


def draw(runs, heavy=1.0):
    """Samples, the runs' problems, and models; the last client is `heavy`."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype(np.float32)
    inputs[-1] *= heavy
    targets = rng.normal(size=(PROBLEMS, CLIENTS, SAMPLES)).astype(np.float32)
    models = rng.normal(size=(runs, MODELS, FEATURES)).astype(np.float32)
    samples = prepare(jnp.asarray(inputs), jnp.asarray(targets), CLUSTERS)
    return samples, rng.integers(PROBLEMS, size=runs), models


def errors_of(samples, problems, models):
    """All columns, and where those of each model are."""
    flat, which = models.reshape(-1, FEATURES), np.repeat(problems, MODELS)
    errors, _ = forward(samples.design, flat, which, CLIENTS)
    return errors, np.arange(len(flat)).reshape(models.shape[:2])


def plain(samples, problems, models, choices):
    """Line 14 of Algorithm 2, in double precision."""
    blocks = np.asarray(samples.inputs, float).reshape(CLIENTS, SAMPLES, FEATURES)
    targets = np.asarray(samples.targets, float)
    found = np.zeros(models.shape)
    for run, client in np.ndindex(choices.shape):
        j = choices[run, client]
        if j >= 0:
            error = blocks[client] @ models[run, j] - targets[problems[run], client]
            found[run, j] += 2 / SAMPLES * blocks[client].T @ error
    return found


@pytest.mark.long
@pytest.mark.parametrize("runs", [1, 3, 17, 70])  # 70: over 32 rows of one client.
def test_gradients_are_sums_over_the_clients(runs):
    """Whatever groups are said to do, and with clients that have no model."""
    samples, problems, models = draw(runs)
    rng = np.random.default_rng(runs)
    choices = rng.integers(-1, MODELS, size=(runs, CLIENTS))
    expected = plain(samples, problems, models, choices)
    errors, places = errors_of(samples, problems, models)
    counts = [
        np.sum(choices[:, group == CLUSTERS, None] == np.arange(-1, MODELS), axis=1)
        for group in range(2)
    ]
    most = np.stack([np.argmax(own, axis=1) - 1 for own in counts], axis=1)
    for groups in (most, rng.integers(-1, MODELS, size=(runs, 2))):
        for parts in ((errors,), (errors[:2], errors[2:])):
            given = samples, problems, models, choices, groups, parts, places
            np.testing.assert_allclose(gradients(*given), expected, atol=1e-4)
    other = gradients(samples, problems, models, choices[:, ::-1], most, parts, places)
    assert not np.allclose(other, expected, atol=1e-2)  # Control.


@pytest.mark.long
def test_nobody_dissents():
    samples, problems, models = draw(2)
    groups = np.array([[0, 2], [1, 1]])
    choices = groups[:, CLUSTERS]
    errors, places = errors_of(samples, problems, models)
    spoiled = jnp.full_like(errors, np.nan)  # Samples are not needed.
    given = samples, problems, models, choices, groups, (spoiled,), places
    expected = plain(samples, problems, models, choices)
    np.testing.assert_allclose(gradients(*given), expected, atol=1e-4)
    choices[0, 0] = 1
    given = samples, problems, models, choices, groups, (spoiled,), places
    assert np.any(np.isnan(gradients(*given)[0]))  # Control.


@pytest.fixture
def many_samples(monkeypatch):
    """Inside, few samples count as many."""
    monkeypatch.setattr(partitions, "_SAMPLES", 0)
    monkeypatch.setattr(partitions, "_BY_GROUP", 0)


@pytest.fixture
def majorities(many_samples):
    def found(assignments, losses=None, heavy=1.0):
        samples, _, _ = draw(1, heavy)
        if losses is None:
            losses = np.ones((len(assignments), MODELS, CLIENTS), np.float32)
        problems = np.zeros(len(assignments), int)
        return Partitions(samples).majorities(np.array(assignments), losses, problems)

    return found


def test_majorities_are_what_most_clients_of_a_group_choose(majorities):
    groups, is_near = majorities(
        [
            [2, 2, 2, 0, 0, 0, 0],
            [2, 2, 1, 0, 0, 1, 0],
            [-1, -1, 0, 1, 1, 1, 1],
            [0, 1, 2, 0, 1, 2, -1],  # No more than one each: two of seven.
        ]
    )
    assert groups[:3].tolist() == [[2, 0], [2, 0], [-1, 1]]
    assert is_near.tolist() == [True, True, True, False]


def test_no_losses_no_gram_matrices(majorities):
    """An error that overflowed may be in the product of the others."""
    assignments = [[2, 2, 1, 0, 0, 0, 0]] * 2
    losses = np.ones((2, MODELS, CLIENTS), np.float32)
    losses[1, 0, 0] = np.inf
    _, is_near = majorities(assignments, losses)
    assert is_near.tolist() == [True, False]
    unused = [[2, 2, 2, 1, 1, 1, 1]] * 2
    assert majorities(unused, losses)[1].tolist() == [True, True]


def test_a_sum_is_not_blurred_by_what_it_leaves_out(majorities):
    """Rounding of a Gram matrix with a heavy client stays when that is taken away."""
    assignments = [[2, 2, 2, 0, 0, 0, 1], [2, 2, 2, 0, 0, 0, 0]]
    assert majorities(assignments)[1].tolist() == [True, True]
    assert majorities(assignments, heavy=100.0)[1].tolist() == [False, True]


@pytest.mark.usefixtures("many_samples")
@pytest.mark.parametrize("small", [0.0, 1e-3])
def test_targets_of_zero_are_blurred_as_well(small):
    """In the problem that has them, and in no other."""
    samples, _, _ = draw(1)
    targets = np.array(samples.targets)
    targets[0, :2], targets[0, 2] = small, 1e5
    blocks = samples.inputs.reshape(CLIENTS, SAMPLES, FEATURES)
    found = Partitions(prepare(blocks, jnp.asarray(targets), CLUSTERS))
    assignments = np.array([[0, 0, 1, 2, 2, 2, 2]] * 2)
    losses = np.ones((2, MODELS, CLIENTS), np.float32)
    _, is_near = found.majorities(assignments, losses, np.arange(2))
    assert is_near.tolist() == [False, True]


def test_many_groups_are_dearer_than_samples(majorities, monkeypatch):
    """Of 35 samples in 4 dimensions, 4 in units of d for each of two groups."""
    assert Partitions(draw(1)[0]).pays_by_group
    monkeypatch.setattr(partitions, "_BY_GROUP", 5)
    assert not Partitions(draw(1)[0]).pays_by_group


def test_few_samples_are_cheaper_than_gram_matrices():
    samples, _, _ = draw(1)
    found = Partitions(samples)
    assert not found.pays_by_group
    losses = np.ones((1, MODELS, CLIENTS), np.float32)
    every = np.zeros((1, CLIENTS), int)
    assert not np.any(found.majorities(every, losses, np.zeros(1, int))[1])


@pytest.mark.usefixtures("many_samples")
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_an_accelerator_has_better_to_do(monkeypatch, platform):
    device = types.SimpleNamespace(platform=platform)
    monkeypatch.setattr(Samples, "device", property(lambda _: device))
    assert Partitions(draw(1)[0]).pays_by_group == (platform == "cpu")


# Errors that are kept are those of the models that they are said to be of

RUNS, MODELS, ROWS = 5, 3, 4


def columns_of(keys, age):
    """Columns that tell whose they are and when they were evaluated."""
    return jnp.asarray(
        [[100 * age + 10 * run + model] * ROWS for run, model in keys], jnp.float32
    )


def seen(cache, keys):
    """What is at hand of models, None where nothing is."""
    just, kept = (np.asarray(part)[:, 0] for part in cache.errors)
    columns = np.concatenate([just, kept])
    return [columns[cache.place(key)] if key in cache else None for key in keys]


def wanted(*keys):
    is_wanted = np.zeros((RUNS, MODELS), bool)
    for key in keys:
        is_wanted[key] = True
    return is_wanted


def add(cache, age, *keys):
    cache.add(columns_of(keys, age), {key: i for i, key in enumerate(keys)})


def test_models_that_stay_are_kept_until_they_move():
    cache = ErrorCache(4, ROWS)
    add(cache, 1, (0, 0), (0, 1), (1, 2))
    assert seen(cache, [(0, 1), (1, 2), (2, 0)]) == [101, 112, None]
    cache.keep(wanted((0, 1), (1, 2)))
    add(cache, 2, (0, 0), (2, 2))
    everything = [(0, 0), (0, 1), (1, 2), (2, 2)]
    assert seen(cache, everything) == [200, 101, 112, 222]
    cache.keep(wanted((0, 0), (1, 2)))  # (0, 1) moved, (2, 2) is not wanted.
    assert seen(cache, everything) == [200, None, 112, None]
    add(cache, 3, (1, 2))  # Evaluated anew: the older column is forgotten.
    assert seen(cache, everything) == [200, None, 312, None]
    cache.keep(wanted((1, 2)))
    assert seen(cache, everything) == [None, None, 312, None]


def test_the_oldest_go_where_there_is_no_room():
    cache = ErrorCache(2, ROWS)
    first, second, third = (0, 0), (1, 1), (2, 2)
    for age, key in enumerate((first, second, third)):
        add(cache, age, key)
        cache.keep(wanted(first, second, third))
    assert seen(cache, [first, second, third]) == [None, 111, 222]
    add(cache, 5, first, second, third, (3, 0))
    cache.keep(wanted(first, second, third, (3, 0)))
    found = seen(cache, [first, second, third, (3, 0)])
    assert sum(value is not None for value in found) == 2


@pytest.mark.parametrize("most", [1, 3, 40])
def test_any_history_is_remembered_rightly(most):
    draws = np.random.default_rng(0)
    cache, latest, hits = ErrorCache(most, ROWS), {}, 0
    for age in range(1, 40):
        all_keys = [(run, model) for run in range(RUNS) for model in range(MODELS)]
        chosen = [key for key in all_keys if draws.random() < 0.4] or all_keys[:1]
        add(cache, age, *chosen)
        latest |= {key: 100 * age + 10 * key[0] + key[1] for key in chosen}
        for key, value in zip(all_keys, seen(cache, all_keys), strict=True):
            assert value is None or value == latest[key]
            hits += value is not None and key not in chosen
        is_wanted = draws.random((RUNS, MODELS)) < 0.7
        cache.keep(is_wanted)
        for key in all_keys:
            assert is_wanted[key] or key not in cache
    assert hits > 10  # Some were kept.
