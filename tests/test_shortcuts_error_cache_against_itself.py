"""Errors that are kept are those of the models that they are said to be of."""

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.montecarlo.error_cache import ErrorCache

RUNS, MODELS, ROWS = 5, 3, 4


def errors_of(keys, age):
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
    cache.add(errors_of(keys, age), {key: i for i, key in enumerate(keys)})


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
