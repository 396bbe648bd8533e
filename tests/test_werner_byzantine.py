"""Attacks on Threshold-Clustering: errors, breakdowns, the padded kernel, rows."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from cfljax.attacks import Context, build
from cfljax.clustering.threshold import quantile_radius, threshold_clustering
from experiments.werner import byzantine

SIZES = {"num_clusters": 3, "num_members": 20, "num_places": 24, "num_features": 4}
TRIAL = byzantine.Trial(
    attack="edge_adaptive",
    radii="fixed",
    share=0.5,
    noise=1.0,
    separation=200.0,
    quantile=0.2,
    num_rounds=80,
    **SIZES,
)
KEYS = jax.random.split(jax.random.key(5), 12)


def errors(function=byzantine.simulate, keys=KEYS, **changes):
    trial = dataclasses.replace(TRIAL, **changes)
    found = jax.jit(jax.lax.map, static_argnums=0)(lambda k: function(trial, k), keys)
    return {name: np.asarray(array, float) for name, array in found.items()}


@pytest.fixture(scope="module")
def honest():
    """Without attackers: squared errors of the trials."""
    return errors(share=0.0)


def test_errors_without_attackers_are_those_of_means(honest):
    """sigma^2 / n times chi^2_4 / 4 each; 5 standard deviations of 12 of them."""
    exact, deviation = 1 / 20, np.sqrt(2 / 4 / 12) / 20
    assert abs(honest["error"].mean() - exact) < 5 * deviation
    np.testing.assert_allclose(honest["radius"], np.sqrt(200 / 3), rtol=1e-6)


def test_the_adaptive_edge_ends_where_predicted(honest):
    """v - mu = (m - mu) + share tau u exactly, as long as all members are inside."""
    found = errors()
    tau = 0.999 * np.sqrt(200 / 3.5)
    offset = 0.5 * tau
    rest = found["error"] - honest["error"] - offset**2  # 2 share tau <m - mu, u>
    spread = 2 * offset * np.sqrt(1 / 20 / 4)
    assert np.abs(rest).max() < 5 * spread
    assert 0.9 < (found["error"] - honest["error"]).mean() / offset**2 < 1.1


@pytest.mark.long
@pytest.mark.parametrize("attack", ["edge_static", "alie", "sign_flip"])
def test_others_do_less(honest, attack):
    tau = np.sqrt(200 / 3.5)
    found = errors(attack=attack)["error"] - honest["error"]
    assert (found < 0.8 * 0.25 * tau**2).all()


def test_a_majority_at_the_edge_takes_the_centre(honest):
    """Control: beyond the breakdown nothing holds the centre."""
    tau = np.sqrt(200 / 4.2)
    assert (errors(share=1.2)["error"] > 4 * tau**2).all()


@pytest.mark.long
def test_breakdown_is_near_its_prediction():
    adaptive = errors(byzantine.breakdown, KEYS[:4])
    exact = byzantine.predicted_breakdown(3, 1.0, 200.0)
    assert abs(adaptive["share"].mean() - exact) < 0.1
    # By hand: the last number that holds and the first that does not.
    least = round(adaptive["share"][0] * 20)
    for number, broken in ((least - 1, False), (least, True)):
        error = errors(keys=KEYS[:1], share=number / 20)["error"][0]
        assert (error > 4 * 200 / (3 + number / 20)) == broken


def test_points_that_stay_where_they_are_break_nothing():
    found = errors(byzantine.breakdown, KEYS[:2], attack="edge_static")
    assert np.isinf(found["share"]).all()


def test_predicted_breakdown_solves_its_equation():
    for separation in (50.0, 200.0, 800.0):
        share = byzantine.predicted_breakdown(4, 1.0, separation)
        tau = np.sqrt(byzantine.squared_radius(share, 4, 1.0, separation))
        np.testing.assert_allclose(share, 1 - 1 / tau, rtol=1e-12)
    shares = [byzantine.predicted_breakdown(4, 1.0, d) for d in (50.0, 200.0, 800.0)]
    np.testing.assert_allclose(shares, [0.694, 0.844, 0.922], atol=5e-4)
    assert byzantine.predicted_breakdown(4, 10.0, 1.0) == 0  # tau below sigma


def test_a_traced_place_is_the_quantile_of_who_is_there():
    distances = jnp.array([0.0, 1.0, 3.0, 7.0, 8.0, jnp.inf, jnp.inf])
    for quantile in (0.0, 0.2, 0.25, 0.6, 1.0):
        exact = quantile_radius(quantile)(distances[:5])
        at = jnp.asarray(quantile) * 4
        np.testing.assert_allclose(
            byzantine.order_statistic(at)(distances), exact, rtol=1e-6
        )
    assert np.isinf(byzantine.order_statistic(jnp.asarray(6.0))(distances))


@pytest.mark.long
@pytest.mark.parametrize("radii", ["fixed", "quantile"])
def test_absent_places_change_nothing(radii):
    """The kernel on the clients that are there, against the padded trial."""
    number = 10
    changes = {"radii": radii, "attack": "alie", "num_rounds": 15}
    padded = errors(keys=KEYS[:1], **changes)
    places = errors(keys=KEYS[:1], **changes, num_places=number)
    np.testing.assert_allclose(padded["error"], places["error"], rtol=1e-3)
    np.testing.assert_allclose(padded["radius"], places["radius"], rtol=1e-4)

    def whole(key):
        points_key, attack_key = jax.random.split(key)
        honest = jnp.arange(60) // 20
        means = 200 / jnp.sqrt(2.0) * jnp.eye(3, 4)
        draw = jax.random.normal(points_key, (60, 4)) / 2
        points = jnp.concatenate([means[honest] + draw, jnp.zeros((number, 4))])
        clusters = jnp.concatenate([honest, jnp.zeros(number, int)])
        byzantine = jnp.arange(70) >= 60
        context = Context(clusters=clusters)
        messages = build("alie")(attack_key, points, byzantine, context)
        tau = jnp.sqrt(200 / 3.5)
        radius = tau if radii == "fixed" else quantile_radius(0.2)
        found = threshold_clustering(messages, points[:1], num_rounds=15, radius=radius)
        return jnp.sum(jnp.square(found.centres[0] - means[0]))

    np.testing.assert_allclose(padded["error"], jax.jit(whole)(KEYS[0]), rtol=1e-3)


def made_up(errors):
    """K = 4, sigma = 1, Delta = 200, fixed radius; errors `[share, trial]` of three."""
    values = np.array(errors, float)[None, None]
    axes = ("radii", "attack", "share", "trial")
    coords = {"radii": ["fixed"], "attack": ["alie"], "share": [0.0, 0.5, 1.0]}
    data = {"error": (axes, values), "radius": (axes, np.ones_like(values))}
    return byzantine.rows(xr.Dataset(data, coords), byzantine.preset("quick"))


def broken(shares):
    axes = ("attack", "separation", "trial")
    coords = {"attack": ["edge_adaptive"], "separation": [200.0]}
    data = {"share": (axes, np.array(shares, float)[None, None])}
    return byzantine.breakdown_rows(xr.Dataset(data, coords), byzantine.preset("quick"))


def test_influence_by_hand():
    none, some, many = made_up([[1, 3], [12, 14], [1, 3]])
    assert "influence" not in none and none["bound"] == 0
    np.testing.assert_allclose(some["bound"], 0.25 * 200 / 4.5)
    np.testing.assert_allclose(some["influence"], 11 / (50 / 4.5))
    np.testing.assert_allclose(some["influence_low"], 11 / (50 / 4.5))
    assert some["below"] and not many["below"] and many["influence"] == 0
    (line,) = byzantine.overview([none, some, many])
    assert [line[f"β/δ = {share}"] for share in ("0", "0.5", "1")] == [2, 13, 2]


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ([[1, 1], [12, 12], [9, 9]], "yes, in 1 of 1"),  # 11 / 11.1
        ([[1, 1], [13, 13], [9, 9]], "no, in 0 of 1"),  # 12 / 11.1, without spread
        ([[1, 1], [12, 15], [9, 9]], "yes, in 1 of 1"),  # within its interval
        ([[1, 1], [np.nan, 1], [9, 9]], "no, in 0 of 1"),
    ],
)
def test_the_rule_of_influences(errors, verdict):
    assert f"breakdown: {verdict} settings" in byzantine.note(made_up(errors), [])


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ([0.9, 0.92], "within 0.1: yes"),
        ([0.98, 0.96], "within 0.1: no"),
        ([0.9, np.inf], "none in some trials (1/2 broke)"),
        ([0.9, np.nan], "none in some trials (1/2 broke)"),
    ],
)
def test_the_rule_of_the_breakdown(shares, text):
    (row,) = broken(shares)
    exact = 1 - np.sqrt((4 + row["predicted"]) / 200)
    np.testing.assert_allclose(row["predicted"], exact, rtol=1e-12)
    assert text in byzantine.note([], [row])
