"""Attacks on Threshold-Clustering, against the exact laws of its fixed points.

Werner et al., Algorithm 3 with update rule (4): the points in the ball move the centre
v by the sum of (z_i - v) over the number of all points.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.attacks import Context, build

HONEST, STRANGERS, FEATURES, RADIUS, ROUNDS = 50, 20, 10, 14.0, 400
KEY = jax.random.key(0)


def points(byzantine: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A cluster of total variance 1 about 0, one at distance 200, and who lies."""
    generator = np.random.default_rng(0)
    number = HONEST + STRANGERS + byzantine
    values = generator.normal(size=(number, FEATURES)) / np.sqrt(FEATURES)
    values[HONEST:, 0] += 200
    clusters = (np.arange(number) >= HONEST).astype(np.int32)
    return values, clusters, np.arange(number) >= HONEST + STRANGERS


def clustered(
    name: str, byzantine: int, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Centre before and after clipping, both from the honest mean."""
    values, clusters, mask = points(byzantine)
    attack = build(name, **options)
    mean = values[:HONEST].mean(axis=0)
    start = jnp.asarray(values[0], jnp.float32)

    def clip(centre, _):
        context = Context(
            clusters=jnp.asarray(clusters),
            target=0,
            start=start,
            centre=centre,
            radius=RADIUS,
        )
        stack = jnp.asarray(values, jnp.float32)
        sent = attack(KEY, stack, jnp.asarray(mask), context)
        apart = sent - centre[None]
        inside = jnp.linalg.norm(apart, axis=1) <= RADIUS
        kept = jnp.where(inside[:, None], apart, 0)
        return centre + jnp.mean(kept, axis=0), None

    run = jax.jit(lambda start: jax.lax.scan(clip, start, None, length=ROUNDS)[0])
    return values[0] - mean, np.asarray(run(start), np.float64) - mean


REACH = 0.999 * RADIUS * np.full(FEATURES, -1 / np.sqrt(FEATURES))


@pytest.mark.parametrize("byzantine", [5, 25])
def test_edges_move_the_centre_as_far_as_the_law_says(byzantine):
    """Points that stay weigh like honest ones; those that follow weigh n_b / n_i."""
    start, static = clustered("edge_static", byzantine)
    share = byzantine / (HONEST + byzantine)
    # Steps contract, so single precision leaves a few roundings of numbers below 20.
    np.testing.assert_allclose(static, share * (start + REACH), atol=1e-4)
    _, adaptive = clustered("edge_adaptive", byzantine)
    law = byzantine / HONEST * REACH
    np.testing.assert_allclose(adaptive, law, atol=1e-4)
    # Control: neither follows the other's law, and outside of the ball is no influence.
    assert np.abs(static - law).max() > 0.01
    _, outside = clustered("edge_adaptive", byzantine, fraction=1.01)
    np.testing.assert_allclose(outside, 0, atol=1e-4)


def test_only_an_adaptive_majority_breaks_a_fixed_radius():
    """Breakdown at n_b / n_i = 1 - sigma / tau; static points stay within the ball."""
    for name in ("edge_static", "staged", "alie", "gaussian", "mimic"):
        _, found = clustered(name, 75)
        assert np.linalg.norm(found) <= RADIUS, name
    _, found = clustered("edge_adaptive", 75)
    assert np.linalg.norm(found) > 2 * RADIUS


@pytest.mark.parametrize(
    "byzantine, quantile", [(5, 0.1004337), (45, 1.5547736), (75, 3.0902323)]
)
def test_alie_hides_in_the_ball(byzantine, quantile):
    """Shift n_b / (n_i + n_b) z s, at the normal quantiles of 27/50, 47/50, 0.999."""
    _, found = clustered("alie", byzantine)
    deviation = points(byzantine)[0][:HONEST].std(axis=0)
    law = -byzantine / (HONEST + byzantine) * quantile * deviation
    np.testing.assert_allclose(found, law, atol=1e-4)
    assert np.abs(found - 1.1 * law).max() > 3e-4


@pytest.mark.parametrize("name", ["sign_flip", "ipm", "other_mean", "zero"])
def test_far_from_the_origin_these_are_rejected(name):
    """The target is moved away from 0, where a turned mean is out of its ball."""
    values, clusters, mask = points(25)
    shifted = jnp.asarray(values + 100, jnp.float32)
    known = Context(clusters=jnp.asarray(clusters))
    sent = jax.jit(build(name))(KEY, shifted, jnp.asarray(mask), known)
    apart = np.linalg.norm(np.asarray(sent)[mask] - 100, axis=1)
    assert (apart > RADIUS).all()
    copied = jax.jit(build("mimic"))(KEY, shifted, jnp.asarray(mask), known)
    apart = np.linalg.norm(np.asarray(copied)[mask] - 100, axis=1)
    assert (apart <= RADIUS).all()  # Control: a mimic gets in.


@pytest.mark.parametrize("name, options", [("nan", {}), ("bit_flip", {"limit": None})])
def test_what_is_no_number_is_out_of_every_ball(name, options):
    _, found = clustered(name, 25, **options)
    np.testing.assert_allclose(found, 0, atol=1e-4)
    values, _, mask = points(25)
    stack = jnp.asarray(values, jnp.float32)
    sent = build("nan")(KEY, stack, jnp.asarray(mask))
    assert np.isnan(np.mean(sent, axis=0)).all()  # Control: a mean takes everything.
