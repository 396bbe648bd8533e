"""Settled identities: when the centre stops sending all models (section 4.3)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.algorithms.ifca import first_history, is_settled, remember
from cfljax.data import mixed_linear
from cfljax.models import linear

ABSENT = -1


def history_of(*rounds):
    history = first_history(len(rounds[0]))
    for assignment in rounds:
        history = remember(history, jnp.array(assignment))
    return history


def test_rounds_without_a_change_are_counted():
    assert history_of([0, 1]).unchanged == 0  # Nothing was confirmed yet.
    assert history_of([0, 1], [0, 1], [0, 1]).unchanged == 2
    assert history_of([0, 1], [0, 1], [1, 1]).unchanged == 0
    assert history_of([0, 1], [0, ABSENT]).unchanged == 1
    newcomer = history_of([0, ABSENT], [0, ABSENT], [ABSENT, 1])
    assert newcomer.unchanged == 1
    assert newcomer.identities.tolist() == [0, 1]


def test_unknown_clients_are_never_settled():
    history = history_of([0, ABSENT], [0, ABSENT], [0, ABSENT])
    assert is_settled(history, 2).tolist() == [True, False]
    assert is_settled(history, 3).tolist() == [False, False]


def trace(stable_rounds, option):
    data, _ = mixed_linear(
        jax.random.key(0),
        num_clients=6,
        num_clusters=2,
        num_samples=20,
        num_features=4,
        separation=5.0,
        noise=0.1,
    )
    algorithm = ifca(
        linear(4),
        num_clusters=2,
        step_size=0.1,
        option=option,
        stable_rounds=stable_rounds,
    )
    keep = lambda state, info: (info, state.models)
    run = jax.jit(
        lambda key: engine.run(algorithm, key, data, num_rounds=8, observe=keep)
    )
    return run(jax.random.key(0))[1]


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_settled_clients_receive_one_model_and_learn_the_same(option):
    info, models = trace(2, option)
    plain, expected = trace(None, option)
    same = np.all(np.asarray(plain.assignment) == np.asarray(plain.assignment)[:1])
    assert same, "the example is meant to be stable from the start"
    np.testing.assert_allclose(models, expected, rtol=1e-5)
    np.testing.assert_array_equal(info.assignment, plain.assignment)
    model = 4 * 4
    down = np.asarray(info.received)[:, 0] // model
    assert down.tolist() == [2, 2, 2, 1, 1, 1, 1, 1]
    assert np.all(np.asarray(plain.received) == 2 * model)
    assert np.isnan(np.asarray(info.losses)[3:]).all()
    assert np.isfinite(np.asarray(info.losses)[:3]).all()


def test_patience_must_be_positive():
    with pytest.raises(ValueError, match="`stable_rounds` must be at least 1"):
        ifca(linear(3), num_clusters=2, step_size=0.1, stable_rounds=0)
