"""Linear models near each other on the unit sphere (CLoVE, appendix D.1.1)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.data import linear_clients, mixed_linear, nearby_linear, nearby_models

MODELS = jax.jit(
    lambda key, separation: nearby_models(key, 5, 20, separation), static_argnums=()
)


def distances(models):
    models = np.asarray(models, float)
    each = np.linalg.norm(models[:, None] - models[None], axis=2)
    return each[np.triu_indices(len(models), 1)]


@pytest.mark.parametrize("separation", [0.0003, 0.01, 0.5, 1.0])
def test_norms_and_distances(separation):
    spread = []
    for seed in range(20):
        models = MODELS(jax.random.key(seed), separation)
        np.testing.assert_allclose(np.linalg.norm(models, axis=1), 1, rtol=1e-6)
        found = distances(models) / separation
        # Rounding of coordinates moves the smallest distances by a thousandth.
        assert found.min() > 0.998 and found.max() < 5.002
        spread.append(found)
    assert np.std(spread) > 0.05


def test_impossible_distances_give_no_models():
    # At most two unit vectors are two apart, and none further.
    assert jnp.isnan(MODELS(jax.random.key(0), 2.5)).all()
    assert jnp.isfinite(MODELS(jax.random.key(0), 1.0)).all()


def test_samples_are_those_of_the_models():
    arguments = {"num_clients": 4, "num_clusters": 2, "num_samples": 50}
    draw = jax.jit(
        lambda noise: nearby_linear(
            jax.random.key(3),
            num_features=6,
            separation=0.5,
            noise=noise,
            **arguments,
        )
    )
    data, truth = draw(0.0)
    assert truth.clusters.tolist() == [0, 0, 1, 1]
    own = np.asarray(truth.models)[truth.clusters]
    expected = np.einsum("csf,cf->cs", data.inputs, own)
    np.testing.assert_allclose(data.targets, expected, rtol=1e-5, atol=1e-5)
    noisy, _ = draw(0.3)
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
