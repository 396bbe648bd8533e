"""Linear regressions have the law that their docstrings state: mixed and near."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.base.draws import flat_normal
from cfljax.data import (
    linear_clients,
    mixed_linear,
    nearby_linear,
    nearby_models,
    split_rounds,
)
from cfljax.models import linear

SIZES: dict[str, Any] = {
    "num_clients": 6,
    "num_clusters": 3,
    "num_samples": 40,
    "num_features": 30,
}
ERROR_RATE = 1e-6  # Of each statistical check; seeds are fixed.


def draw(seed=0, **changes):
    settings: dict[str, Any] = SIZES | {"separation": 2.0, "noise": 0.5} | changes
    return mixed_linear(jax.random.key(seed), **settings)


def residuals(data, truth):
    own = truth.models[truth.clusters]
    return data.targets - jnp.einsum("csf,cf->cs", data.inputs, own)


# Against theory
def test_clusters_are_equal_and_in_order():
    _, truth = draw()
    np.testing.assert_array_equal(truth.clusters, [0, 0, 1, 1, 2, 2])


def test_paper_convention_has_norm_separation():
    _, truth = draw(convention="paper", separation=2.0)
    np.testing.assert_allclose(np.linalg.norm(truth.models, axis=1), 2.0, rtol=1e-6)


def test_reference_convention_has_coordinates_zero_or_separation():
    _, truth = draw(convention="reference", separation=2.0)
    assert set(np.unique(truth.models)) == {0.0, 2.0}
    _, other = draw(convention="paper", separation=2.0)
    np.testing.assert_array_equal(other.models > 0, truth.models > 0)


def test_features_and_noise_against_theory():
    data, truth = draw(num_samples=400)
    inputs = np.asarray(data.inputs).ravel()
    assert scipy.stats.kstest(inputs, "norm").pvalue > ERROR_RATE
    noise = np.asarray(residuals(data, truth)).ravel() / 0.5
    assert scipy.stats.kstest(noise, "norm").pvalue > ERROR_RATE
    assert scipy.stats.kstest(noise * 1.2, "norm").pvalue < ERROR_RATE


def test_no_noise_is_exact():
    data, truth = draw(noise=0.0)
    np.testing.assert_allclose(residuals(data, truth), 0.0, atol=1e-5)


def test_a_client_does_not_depend_on_the_others():
    few, _ = draw(num_clients=3)
    many, _ = draw(num_clients=6)
    np.testing.assert_array_equal(few.inputs, many.inputs[:3])


def test_flat_draws_against_reference():
    key = jax.random.key(4)
    np.testing.assert_array_equal(
        flat_normal(key, (3, 5)), jax.random.normal(key, (3, 5))
    )


def test_rounds_share_no_sample():
    data, _ = draw()
    dealt = split_rounds(data, 5)
    assert dealt.inputs.shape == (5, 6, 8, 30)
    rows = np.asarray(dealt.inputs).reshape(5 * 6 * 8, 30)
    assert len(np.unique(rows, axis=0)) == len(rows)
    with pytest.raises(ValueError, match="multiple of `num_rounds`"):
        split_rounds(data, 7)


def test_fresh_data_for_every_round_runs():
    data, _ = draw()
    algorithm = ifca(linear(30), num_clusters=3, step_size=0.1, resample=True)
    run = functools.partial(
        engine.run,
        algorithm,
        jax.random.key(0),
        split_rounds(data, 5),
        observe=lambda state, info: info.losses,
        data_per_round=True,
    )
    state, losses = run(num_rounds=5)
    assert losses.shape == (5, 6, 3)
    assert np.isfinite(state.models).all()
    with pytest.raises(ValueError, match="must hold 4 rounds"):
        run(num_rounds=4)


# Near each other on the unit sphere (CLoVE, appendix D.1.1), against equations
NEARBY = jax.jit(lambda key, separation: nearby_models(key, 5, 20, separation))


def distances(models):
    models = np.asarray(models, float)
    each = np.linalg.norm(models[:, None] - models[None], axis=2)
    return each[np.triu_indices(len(models), 1)]


@pytest.mark.long
@pytest.mark.parametrize("separation", [0.0003, 0.01, 0.5, 1.0])
def test_norms_and_distances(separation):
    spread = []
    for seed in range(20):
        models = NEARBY(jax.random.key(seed), separation)
        np.testing.assert_allclose(np.linalg.norm(models, axis=1), 1, rtol=1e-6)
        found = distances(models) / separation
        # Rounding of coordinates moves the smallest distances by a thousandth.
        assert found.min() > 0.998 and found.max() < 5.002
        spread.append(found)
    assert np.std(spread) > 0.05


def test_impossible_distances_give_no_models():
    # At most two unit vectors are two apart, and none further.
    assert jnp.isnan(NEARBY(jax.random.key(0), 2.5)).all()
    assert jnp.isfinite(NEARBY(jax.random.key(0), 1.0)).all()


@pytest.mark.long
def test_samples_are_those_of_the_models():
    arguments: dict[str, Any] = {"num_clients": 4, "num_clusters": 2}
    arguments["num_samples"] = 50
    draw = functools.partial(nearby_linear, jax.random.key(3), separation=0.5)
    sample = jax.jit(lambda noise: draw(noise=noise, num_features=6, **arguments))
    data, truth = sample(0.0)
    assert truth.clusters.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(residuals(data, truth), 0.0, atol=1e-5)
    noisy, _ = sample(0.3)
    error = np.asarray(noisy.targets - data.targets)
    assert abs(error.std() - 0.3) < 5 * 0.3 / np.sqrt(2 * error.size)


def test_clients_of_given_models_are_those_of_the_mixture():
    key = jax.random.key(1)
    arguments = {"num_samples": 5, "noise": 0.1}
    data, truth = mixed_linear(
        key, num_clients=4, num_clusters=2, num_features=3, separation=1.0, **arguments
    )
    _, clients_key = jax.random.split(key)
    again = linear_clients(clients_key, truth, **arguments)
    np.testing.assert_array_equal(again.targets, data.targets)


# Against misuse
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_clients": 7}, "6 or 9 would do"),
        ({"num_clients": 2}, "at most `num_clients`"),
        ({"num_features": 0}, "num_features"),
    ],
)
def test_misuse_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        draw(**changes)
