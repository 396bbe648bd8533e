"""Byzantine messages by hand, in NumPy, on small stacks (Werner et al., 3.1.1)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cfljax.attacks import ATTACKS, Context, build, flip_labels, sleeper
from cfljax.attacks.scene import Scene
from cfljax.attacks.sent import unit_direction
from cfljax.base.types import ClientData

CLUSTERS = np.array([0, 0, 0, 0, 1, 1, 2, 1, 2])
BYZANTINE = np.array([False] * 7 + [True] * 2)
TARGET = np.array([True] * 4 + [False] * 5)  # Honest clients of cluster 0.
FEATURES, TRIALS, RADIUS = 5, 2, 3.0


def stacks() -> np.ndarray:
    """Points of two trials; what the last Byzantine client has must reach nobody."""
    generator = np.random.default_rng(0)
    points = generator.normal(size=(TRIALS, 9, FEATURES)).astype(np.float32)
    points[:, 8] = np.nan
    return points


POINTS = stacks()
CENTRES = np.random.default_rng(1).normal(size=(3, TRIALS, FEATURES))
ORIGIN, START, CENTRE = CENTRES.astype(np.float32)
KEYS = jax.random.split(jax.random.key(0), TRIALS)


def tree(points: Any) -> dict[str, Any]:
    """The last axis as two leaves, one of them a matrix."""
    return {
        "a": points[..., :1],
        "b": points[..., 1:].reshape(points.shape[:-1] + (2, 2)),
    }


def flat(messages: Any) -> np.ndarray:
    a, b = np.asarray(messages["a"]), np.asarray(messages["b"])
    return np.concatenate([a, b.reshape(a.shape[:-1] + (4,))], axis=-1)


def leaves(points: np.ndarray) -> Any:
    return jax.tree.map(jnp.asarray, tree(points))


def attacked(
    attack: Any, byzantine: np.ndarray = BYZANTINE, **known: Any
) -> np.ndarray:
    """Points after the attack: both trials in one compiled, batched program."""
    fixed = {"clusters": jnp.asarray(CLUSTERS), "radius": RADIUS, "round": 3, **known}

    def one(key, messages, origin, start, centre):
        context = Context(origin=origin, start=start, centre=centre, **fixed)
        return attack(key, messages, jnp.asarray(byzantine), context)

    centres = leaves(ORIGIN), leaves(START), leaves(CENTRE)
    return flat(jax.jit(jax.vmap(one))(KEYS, leaves(POINTS), *centres))


def noise_of(trial: int) -> np.ndarray:
    draw = jax.random.normal(KEYS[trial], (9 * FEATURES,))
    return np.asarray(draw).reshape(9, FEATURES)


U = np.full(FEATURES, -1 / math.sqrt(FEATURES))


def first_bits(point: np.ndarray) -> np.ndarray:
    flipped = (point.view(np.uint32) ^ np.uint32(1 << 30)).view(np.float32)
    return np.where(np.isfinite(flipped), flipped, np.copysign(np.float32(1e30), point))


def coupled(mean: np.ndarray, deviation: np.ndarray, trial: int) -> np.ndarray:
    u = np.asarray(jax.random.normal(jax.random.key(5), (FEATURES,)))
    push = 0.5 * np.linalg.norm(deviation) * u / np.linalg.norm(u)
    return mean - push + deviation * noise_of(trial)[7:]  # Round 3 is an odd one.


def expected(name: str, trial: int) -> Any:
    """Rows 7 and 8 after the attack."""
    points, o, v0, v = POINTS[trial], ORIGIN[trial], START[trial], CENTRE[trial]
    honest = points[TARGET].astype(np.float64)
    m, s = honest.mean(axis=0), honest.std(axis=0)
    others = points[[4, 5, 6]].mean(axis=0)
    farthest = honest[np.argmax(honest @ U)]
    rules = {
        "alie": lambda: m - 1.5 * s,
        "bit_flip": lambda: first_bits(points[0]),
        "boosting": lambda: o + 4 * (points[7:] - o),
        "edge_adaptive": lambda: v + 0.999 * RADIUS * U,
        "edge_static": lambda: v0 + 0.999 * RADIUS * U,
        "gaussian": lambda: m + 10 * s * noise_of(trial)[7:],
        "ipm": lambda: o - 0.5 * (m - o),
        "mimic": lambda: farthest,
        "nan": lambda: np.full(FEATURES, np.nan),
        "noise": lambda: 1e6 + 200 * noise_of(trial)[7:],
        "other_mean": lambda: others,
        "sign_flip": lambda: 2 * o - m,
        "staged": lambda: v0 + 0.999 * RADIUS * np.outer([1, 1 + 2 / 4], U),
        "time_coupled": lambda: coupled(m, s, trial),
        "zero": lambda: o,
    }
    return np.broadcast_to(rules[name](), (2, FEATURES)).astype(np.float32)


OPTIONS: dict[str, dict[str, Any]] = {
    "alie": {"z": 1.5},
    "boosting": {"factor": 4.0},
    "staged": {"spacing": 2.0},
    "time_coupled": {"strength": 0.5, "alternating": True, "seed": 5},
}


def agree(found: Any, wanted: Any) -> bool:
    """Equal up to rounding: a dozen additions and products of single precision."""
    return np.allclose(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_by_hand_and_honest_messages_untouched(name):
    found = attacked(build(name, **OPTIONS.get(name, {})))
    for trial in range(TRIALS):
        assert agree(found[trial, 7:], expected(name, trial))
        # Control: the messages of the other trial give other lies.
        assert agree(found[trial, 7:], expected(name, 1 - trial)) == (name == "nan")
    assert found[:, :7].tobytes() == POINTS[:, :7].tobytes()
    assert found[:, 7].tobytes() != POINTS[:, 7].tobytes()


def test_nobody_byzantine_changes_nothing_bit_for_bit():
    found = attacked(build("noise"), byzantine=np.zeros(9, bool))
    assert found.tobytes() == POINTS.tobytes()


def test_options_can_be_swept_by_vmap():
    sizes = jnp.array([0.0, 0.5, 2.0])
    points, mask = jnp.asarray(POINTS[0]), jnp.asarray(BYZANTINE)
    run = lambda size: build("ipm", epsilon=size)(KEYS[0], points, mask)
    found = jax.jit(jax.vmap(run))(sizes)[:, 7]
    mean = POINTS[0, :7].mean(axis=0)  # Without clusters all honest clients are one.
    assert agree(np.asarray(found), -np.asarray(sizes)[:, None] * mean)


def test_whom_an_attacker_takes_for_the_target():
    mean = build("ipm", epsilon=1.0)
    found = attacked(mean, target=1)[0, 7]
    assert agree(found, 2 * ORIGIN[0] - POINTS[0, [4, 5]].mean(axis=0))
    found = attacked(mean, target=3)[0, 7]  # Nobody is there: all honest clients.
    assert agree(found, 2 * ORIGIN[0] - POINTS[0, :7].mean(axis=0))
    flipped = jax.jit(build("sign_flip"))
    finite, everybody = jnp.asarray(POINTS[0, :8]), jnp.ones(8, bool)
    found = flipped(KEYS[0], finite, everybody)
    assert agree(found, np.tile(-POINTS[0, :8].mean(axis=0), (8, 1)))


def test_another_cluster_and_clients_without_one():
    found = attacked(build("other_mean", other=2))[0, 7]
    assert agree(found, POINTS[0, 6])
    clusters = jnp.asarray(np.where(CLUSTERS == 1, -1, CLUSTERS))
    found = attacked(build("other_mean"), clusters=clusters)[0, 7]
    assert agree(found, POINTS[0, 6])
    found = attacked(build("other_mean"), clusters=jnp.zeros(9, jnp.int32))[0, 7]
    assert agree(found, POINTS[0, :7].mean(axis=0))


@pytest.mark.parametrize(
    "honest, byzantine, z",
    [
        (50, 5, stats.norm.ppf(27 / 50)),  # s' = floor(55 / 2 + 1) - 5 = 23
        (50, 45, stats.norm.ppf(47 / 50)),
        (50, 75, stats.norm.ppf(0.999)),  # A majority needs nobody.
        (9, 1, stats.norm.ppf(4 / 9)),  # Few attackers: on the other side of m.
        (1, 1, 0.0),  # A single client has no spread, whatever z is.
    ],
)
def test_alie_takes_the_normal_quantile(honest, byzantine, z):
    values = np.zeros(125, np.float32)
    values[:honest] = np.arange(honest)
    clusters = (np.arange(125) >= honest).astype(np.int32)  # The rest is elsewhere.
    mask = np.arange(125) >= 125 - byzantine
    known = Context(clusters=jnp.asarray(clusters))
    found = ALIE(KEYS[0], jnp.asarray(values)[:, None], jnp.asarray(mask), known)
    mean, deviation = values[:honest].mean(), values[:honest].std()
    np.testing.assert_allclose(found[-1, 0], mean - z * deviation, rtol=1e-4, atol=1e-4)


ALIE = jax.jit(build("alie"))


def test_bits_that_become_no_number():
    point = np.array([[0.5, 1.0, -1.5, 2.0, 0.0, -1.0]] * 2, np.float32)
    mask = jnp.array([False, True])

    def flip(**options: Any) -> np.ndarray:
        run = jax.jit(build("bit_flip", **options))
        return np.asarray(run(KEYS[0], jnp.asarray(point), mask)[1])

    huge = 2.0**127
    np.testing.assert_array_equal(
        flip(limit=None), [huge, np.inf, np.nan, 0, 2, -np.inf]
    )
    limited = np.array([huge, 1e30, -1e30, 0, 2, -1e30], np.float32)
    np.testing.assert_array_equal(flip(), limited)
    np.testing.assert_array_equal(flip(variant="reference"), -point[0])


def test_directions_by_hand():
    points, mask = jnp.asarray(POINTS[0, :7]), jnp.asarray(TARGET[:7])
    scene = Scene(points, mask, ~mask, mask, Context())
    run = lambda direction: jax.jit(
        lambda key, scene: unit_direction(direction, key, scene)
    )(KEYS[0], scene)
    honest = POINTS[0, :4]
    mean = honest.mean(axis=0)
    first = np.linalg.svd(honest - mean)[2][0]
    assert agree(run("diagonal"), U)
    assert agree(run("opposite"), -mean / np.linalg.norm(mean))
    assert agree(run("component"), -np.sign(first @ mean) * first)
    drawn = np.asarray(jax.random.normal(KEYS[0], (FEATURES,)))
    assert agree(run("random"), drawn / np.linalg.norm(drawn))
    # Without a mean and without spread there is only the diagonal.
    still = scene._replace(points=jnp.zeros((7, FEATURES)))
    for direction in ("opposite", "component"):
        assert agree(unit_direction(direction, KEYS[0], still), U)


def test_mimic_copies_nobody_who_is_not_finite():
    points = POINTS[0, :8].copy()
    farthest = np.argmax(points[:7] @ U)
    points[farthest, 2] = np.nan
    run = jax.jit(build("mimic"))
    mask = jnp.asarray(BYZANTINE[:8])
    second = np.nanargmax(points[:7] @ U)
    assert agree(run(KEYS[0], jnp.asarray(points), mask)[7], points[second])
    points[:7, 2] = np.nan
    found = run(KEYS[0], jnp.asarray(points), mask)[7]
    assert agree(found, points[0])


def test_even_rounds_push_forwards_and_sleepers_wait():
    push = build("time_coupled", strength=0.5, alternating=True, seed=5)
    odd, even = attacked(push)[0, 7], attacked(push, round=2)[0, 7]
    always = attacked(build("time_coupled", strength=0.5, seed=5))[0, 7]
    assert agree(even, always) and not agree(odd, always)
    late = sleeper(build("zero"), wake=3)
    assert attacked(late, round=2).tobytes() == POINTS.tobytes()
    assert agree(attacked(late, round=3)[:, 7], ORIGIN)


def test_labels_are_flipped_for_byzantine_clients_alone():
    labels = np.arange(6, dtype=np.int32).reshape(2, 3)
    data = ClientData(jnp.ones((2, 3, 4)), jnp.asarray(labels), jnp.ones((2, 3), bool))
    second = jnp.array([False, True])
    found = flip_labels(data, second, 10)
    assert found.targets.tolist() == [[0, 1, 2], [6, 5, 4]]
    assert found.inputs is data.inputs and found.mask is data.mask
    real = data._replace(targets=jnp.asarray(labels, jnp.float32)[..., None])
    found = flip_labels(real, second, None).targets
    assert found[..., 0].tolist() == [[0, 1, 2], [-3, -4, -5]]
