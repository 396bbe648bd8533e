"""The synthetic data have the law that their docstring states."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.base.draws import flat_normal
from cfljax.data import mixed_linear, split_rounds
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
    state, losses = engine.run(
        algorithm,
        jax.random.key(0),
        split_rounds(data, 5),
        num_rounds=5,
        observe=lambda state, info: info.losses,
        data_per_round=True,
    )
    assert losses.shape == (5, 6, 3)
    assert np.isfinite(state.models).all()
    with pytest.raises(ValueError, match="must hold 4 rounds"):
        engine.run(
            algorithm,
            jax.random.key(0),
            split_rounds(data, 5),
            num_rounds=4,
            data_per_round=True,
        )
