"""Means that bad messages cannot carry away, by hand in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from leaves import as_leaves, side_by_side
from scipy import stats

from cfljax.federated.robust import centred_clipping, mean, median, trimmed_mean

SENDERS, FEATURES = 7, 5
NAN, INF = np.nan, np.inf
RULES = {
    "mean": mean(),
    "median": median(),
    "trimmed 0": trimmed_mean(0.0),
    "trimmed .2": trimmed_mean(0.2),
    "trimmed .45": trimmed_mean(0.45),
    "clipped once": centred_clipping(1.5),
    "clipped": centred_clipping(1.5, num_rounds=3),
    "clipped nowhere": centred_clipping(1e8),
}


def cases() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Messages and weights; whoever has weight 0 sends what must reach nobody."""
    points = np.random.default_rng(0).normal(size=(9, SENDERS, FEATURES))
    points = 1 + 2 * points.astype(np.float32)
    weights = np.ones((9, SENDERS), np.float32)
    weights[1, 2] = weights[2, 1:] = weights[6, [0, 5]] = 0
    points[1, 2], points[2, 1:], points[6, 0] = NAN, INF, NAN
    weights[3] = [1, 3, 0.5, 0, 2, 1, 0.25]
    points[4, [1, 3, 6]] = NAN  # Three of seven.
    points[5, [1, 3, 6]] = np.array([[INF], [-INF], [NAN]])
    points[6, [2, 4]] = [[-INF], [1e30]]  # Two of five, one of them finite.
    points[7, 3, 1] = NAN  # One coordinate of one message.
    names = ("odd", "even", "alone", "weighed", "three NaN", "three kinds", "two of 5")
    names += ("one coordinate", "equal")
    points[8] = points[8, :1]
    return dict(zip(names, zip(points, weights, strict=True), strict=True))


CASES = cases()
ORIGIN = np.array([0.5, -1, 2, 0, 1], np.float32)


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, np.ndarray]]:
    """Every rule in every case, in one program."""

    def all_rules(points: Any, weights: Any) -> Any:
        arguments = as_leaves(points), weights, as_leaves(jnp.asarray(ORIGIN))
        return {name: rule(*arguments) for name, rule in RULES.items()}

    points, weights = (np.stack(part) for part in zip(*CASES.values(), strict=True))
    results = jax.jit(jax.vmap(all_rules))(jnp.asarray(points), jnp.asarray(weights))
    together = {rule: side_by_side(result) for rule, result in results.items()}
    one = lambda index: {rule: rows[index] for rule, rows in together.items()}
    return {case: one(index) for index, case in enumerate(CASES)}


def clipped_by_hand(
    values: np.ndarray, weights: np.ndarray, radius: float, num_rounds: int
) -> np.ndarray:
    centre = ORIGIN.astype(float)
    for _ in range(num_rounds):
        pull = np.zeros(FEATURES)
        for value, weight in zip(values, weights, strict=True):
            move = value - centre
            # A square that overflows in single precision has no norm there.
            if np.abs(move).max() < 1e19:
                pull += weight * move * min(1, radius / np.linalg.norm(move))
        centre = centre + pull / weights.sum()
    return centre


def by_hand(rule: str, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    members = weights > 0
    values, weights = points[members].astype(float), weights[members].astype(float)
    if rule == "mean":
        return (weights[:, None] * values).sum(axis=0) / weights.sum()
    numbers = np.where(np.isnan(values), INF, values)  # At the upper end.
    if rule == "median":
        return np.median(numbers, axis=0)
    if rule.startswith("trimmed"):
        return stats.trim_mean(numbers, float(rule.split()[1]))
    radius = 1e8 if rule == "clipped nowhere" else 1.5
    return clipped_by_hand(values, weights, radius, 3 if rule == "clipped" else 1)


def agree(found: np.ndarray, expected: np.ndarray) -> bool:
    """Equal up to some ten operations in single precision."""
    with np.errstate(over="ignore"):
        expected = np.asarray(expected).astype(np.float32)
    return np.allclose(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rule", RULES)
def test_rule_by_hand(found, rule, case):
    with np.errstate(invalid="ignore"):
        expected = by_hand(rule, *CASES[case])
    assert agree(found[case][rule], expected)


@pytest.mark.parametrize("rule", RULES)
def test_members_are_told_from_others(found, rule):
    """Control: the same rule over everybody is another one."""
    points, _ = CASES["weighed"]
    everybody = by_hand(rule, points, np.ones(SENDERS))
    assert not agree(found["weighed"][rule], everybody)


def test_fewer_than_half_make_nothing_infinite(found):
    for case in ("three NaN", "three kinds", "two of 5", "one coordinate"):
        points, weights = CASES[case]
        good = points[(weights > 0) & (np.abs(points) < 1e6).all(axis=1)]
        middle = found[case]["median"]
        # Inside of what good messages say, in every coordinate.
        assert (good.min(axis=0) <= middle).all() and (middle <= good.max(axis=0)).all()
        assert np.isfinite(found[case]["trimmed .45"]).all()
        assert not np.isfinite(found[case]["mean"]).all()
    # Control: of three at one end a share of .2 takes one away.
    assert not np.isfinite(found["three NaN"]["trimmed .2"]).any()


def test_half_of_an_even_number_can():
    points = jnp.asarray(np.array([[1.0], [2.0], [NAN], [INF]], np.float32))
    run = jax.jit(lambda weights: median()(points, weights, jnp.zeros(1)))
    assert run(jnp.ones(4)).item() == INF
    assert run(jnp.array([1.0, 1.0, 1.0, 0.0])).item() == 2


def test_special_cases_of_each_other(found):
    for case in ("odd", "even", "alone", "equal"):
        rules = found[case]
        np.testing.assert_allclose(rules["trimmed 0"], rules["mean"], rtol=1e-6)
        nowhere = rules["clipped nowhere"]
        np.testing.assert_allclose(nowhere, rules["mean"], rtol=1e-5, atol=1e-5)
    message = CASES["alone"][0][0]
    for rule in ("mean", "median", "trimmed .2", "trimmed .45"):
        np.testing.assert_array_equal(found["alone"][rule], message)


def test_clipping_moves_at_most_the_radius_in_each_round(found):
    for case, rules in found.items():
        assert np.linalg.norm(rules["clipped once"] - ORIGIN) <= 1.5 * (1 + 1e-6), case
        assert np.linalg.norm(rules["clipped"] - ORIGIN) <= 4.5 * (1 + 1e-6), case
    # Control: a mean goes farther.
    assert np.linalg.norm(found["odd"]["clipped nowhere"] - ORIGIN) > 1.5


def test_one_message_of_one_row():
    """`[1, d]`, on which a released trimmed mean stops."""
    message, origin = jnp.asarray(CASES["odd"][0][:1]), jnp.asarray(ORIGIN)
    for rule in (mean(), median(), trimmed_mean(0.2)):
        found = jax.jit(rule)(message, jnp.ones(1), origin)
        np.testing.assert_array_equal(found, message[0])


def test_numbers_of_messages_that_are_left_out():
    """Of 30 members .1 are 3; however near to 1/2 a share is, a message is left."""
    points = jnp.arange(30, dtype=jnp.float32)[:, None] ** 2
    weights = jnp.ones(30)
    found = jax.jit(trimmed_mean(0.1))(points, weights, points[0])
    np.testing.assert_allclose(found, np.mean(np.arange(3.0, 27) ** 2), rtol=1e-6)
    two = jnp.where(jnp.arange(30) < 2, weights, 0)
    found = jax.jit(trimmed_mean(0.49999999))(points, two, points[0])
    np.testing.assert_array_equal(found, [0.5])


def test_the_radius_of_clipping_may_be_swept():
    points, weights = (jnp.asarray(part) for part in CASES["odd"])
    run = lambda radius: centred_clipping(radius)(points, weights, jnp.asarray(ORIGIN))
    radii = np.array([0.1, 1.5, 1e8], np.float32)
    swept = jax.jit(jax.vmap(run))(jnp.asarray(radii))
    for radius, row in zip(radii, swept, strict=True):
        expected = clipped_by_hand(*CASES["odd"], radius=float(radius), num_rounds=1)
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: trimmed_mean(-0.1), r"`share` must be in \[0, 0.5\), got"),
        (lambda: trimmed_mean(0.5), r"`share` must be in \[0, 0.5\), got"),
        (lambda: trimmed_mean(NAN), r"`share` must be in \[0, 0.5\), got"),
        (lambda: centred_clipping(0.0), "`radius` must be positive, got 0.0"),
        (lambda: centred_clipping(-1.0), "`radius` must be positive"),
        (lambda: centred_clipping(NAN), "`radius` must be positive, got nan"),
        (lambda: centred_clipping(INF), "`radius` must be positive, got inf"),
        (
            lambda: centred_clipping(1.0, num_rounds=0),
            "`num_rounds` must be at least 1",
        ),
    ],
)
def test_misuse_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()
