"""Byzantine messages by hand, on small stacks, and against exact laws of clipping.

Werner et al., 3.1.1 and Algorithm 3 with update rule (4): the points in the ball move
the centre v by the sum of (z_i - v) over the number of all points.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from leaves import as_leaves, side_by_side
from scipy import stats

from cfljax.attacks import (
    ATTACKS,
    Context,
    build,
    draw_byzantine,
    flip_labels,
    sleeper,
    threat,
)
from cfljax.attacks.scene import Scene
from cfljax.attacks.sent import unit_direction
from cfljax.base.types import ClientData

# Against equations
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
KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, TRIALS)


def attacked(
    attack: Any, byzantine: np.ndarray = BYZANTINE, **known: Any
) -> np.ndarray:
    """Points after the attack: both trials in one compiled, batched program."""
    fixed = {"clusters": jnp.asarray(CLUSTERS), "radius": RADIUS, "round": 3, **known}

    def one(key, messages, origin, start, centre):
        context = Context(origin=origin, start=start, centre=centre, **fixed)
        return attack(key, messages, jnp.asarray(byzantine), context)

    known_points = (as_leaves(each) for each in (POINTS, ORIGIN, START, CENTRE))
    return side_by_side(jax.jit(jax.vmap(one))(KEYS, *known_points))


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


@pytest.mark.long
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
    finite, everybody = jnp.asarray(POINTS[0, :8]), jnp.ones(8, bool)
    found = jax.jit(build("sign_flip"))(KEYS[0], finite, everybody)
    assert agree(found, np.tile(-POINTS[0, :8].mean(axis=0), (8, 1)))


def test_another_cluster_and_clients_without_one():
    found = attacked(build("other_mean", other=2))[0, 7]
    assert agree(found, POINTS[0, 6])
    clusters = jnp.asarray(np.where(CLUSTERS == 1, -1, CLUSTERS))
    found = attacked(build("other_mean"), clusters=clusters)[0, 7]
    assert agree(found, POINTS[0, 6])
    found = attacked(build("other_mean"), clusters=jnp.zeros(9, jnp.int32))[0, 7]
    assert agree(found, POINTS[0, :7].mean(axis=0))


ALIE = jax.jit(build("alie"))


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


def test_bits_that_become_no_number():
    point = np.array([[0.5, 1.0, -1.5, 2.0, 0.0, -1.0]] * 2, np.float32)
    mask = jnp.array([False, True])

    def flip(**options: Any) -> np.ndarray:
        run = jax.jit(build("bit_flip", **options))
        return np.asarray(run(KEYS[0], jnp.asarray(point), mask)[1])

    huge = 2.0**127
    unlimited = [huge, np.inf, np.nan, 0, 2, -np.inf]
    np.testing.assert_array_equal(flip(limit=None), unlimited)
    limited = np.array([huge, 1e30, -1e30, 0, 2, -1e30], np.float32)
    np.testing.assert_array_equal(flip(), limited)
    np.testing.assert_array_equal(flip(variant="reference"), -point[0])


def test_directions_by_hand():
    points, mask = jnp.asarray(POINTS[0, :7]), jnp.asarray(TARGET[:7])
    scene = Scene(points, mask, ~mask, mask, Context())
    names = ("diagonal", "opposite", "component", "random")
    every = lambda scene: {name: unit_direction(name, KEYS[0], scene) for name in names}
    found = jax.jit(every)(scene)
    honest = POINTS[0, :4]
    mean = honest.mean(axis=0)
    first = np.linalg.svd(honest - mean)[2][0]
    assert agree(found["diagonal"], U)
    assert agree(found["opposite"], -mean / np.linalg.norm(mean))
    assert agree(found["component"], -np.sign(first @ mean) * first)
    drawn = np.asarray(jax.random.normal(KEYS[0], (FEATURES,)))
    assert agree(found["random"], drawn / np.linalg.norm(drawn))
    # Without a mean and without spread there is only the diagonal.
    found = jax.jit(every)(scene._replace(points=jnp.zeros((7, FEATURES))))
    for direction in ("opposite", "component"):
        assert agree(found[direction], U)


def test_mimic_copies_nobody_who_is_not_finite():
    points = POINTS[0, :8].copy()
    farthest = np.argmax(points[:7] @ U)
    points[farthest, 2] = np.nan
    mimic = jax.jit(build("mimic"))
    run = lambda points: mimic(KEYS[0], jnp.asarray(points), BYZANTINE[:8])[7]
    assert agree(run(points), points[np.nanargmax(points[:7] @ U)])
    points[:7, 2] = np.nan
    assert agree(run(points), points[0])


@pytest.mark.long
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


def test_the_share_is_met_and_drawn():
    some, others = (
        draw_byzantine(key, num_clients=40, share=0.25) for key in jax.random.split(KEY)
    )
    assert int(some.sum()) == int(others.sum()) == 10
    assert some.tolist() != others.tolist()
    assert not draw_byzantine(KEY, num_clients=4, share=0.0).any()


@pytest.mark.long
def test_a_threat_lies_for_its_clients_wherever_they_are():
    mask = np.array([False, True, False, True])
    menace = threat(build("nan"), mask, target=2)
    clients = jnp.array([1, 2, 3])  # Client 0 takes no part.
    assert menace.claim(jnp.array([0, 1, -1]), clients).tolist() == [2, 1, 2]
    sent = menace.send(KEY, jnp.ones((3, 2)), clients)
    assert np.isnan(sent).tolist() == [[True] * 2, [False] * 2, [True] * 2]
    # Its target is the one whose honest clients and model matter.
    flip = threat(build("sign_flip"), np.array([False, False, True]), target=1)
    points, clusters = jnp.array([[1.0], [5.0], [9.0]]), jnp.array([0, 1, 0])
    sent = flip.send(KEY, points, jnp.arange(3), clusters=clusters)
    assert sent.tolist() == [[1], [5], [-5]]
    models = jnp.array([[0.0], [4.0]])
    sent = flip.send(KEY, points, jnp.arange(3), models, clusters=clusters)
    assert sent.tolist() == [[1], [5], [3]]  # 4 - (5 - 4)


# Against theory
HONEST, STRANGERS, COORDINATES, BALL, ROUNDS = 50, 20, 10, 14.0, 400


def crowd(byzantine: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A cluster of total variance 1 about 0, one at distance 200, and who lies."""
    generator = np.random.default_rng(0)
    number = HONEST + STRANGERS + byzantine
    values = generator.normal(size=(number, COORDINATES)) / np.sqrt(COORDINATES)
    values[HONEST:, 0] += 200
    clusters = (np.arange(number) >= HONEST).astype(np.int32)
    return values, clusters, np.arange(number) >= HONEST + STRANGERS


def clustered(
    name: str, byzantine: int, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Centre before and after clipping, both from the honest mean."""
    values, clusters, mask = crowd(byzantine)
    attack = build(name, **options)
    mean = values[:HONEST].mean(axis=0)
    stack = jnp.asarray(values, jnp.float32)
    known = Context(jnp.asarray(clusters), start=stack[0], radius=BALL)

    def clip(centre, _):
        context = known._replace(centre=centre)
        sent = attack(KEYS[0], stack, jnp.asarray(mask), context)
        apart = sent - centre[None]
        inside = jnp.linalg.norm(apart, axis=1) <= BALL
        kept = jnp.where(inside[:, None], apart, 0)
        return centre + jnp.mean(kept, axis=0), None

    run = jax.jit(lambda start: jax.lax.scan(clip, start, None, length=ROUNDS)[0])
    return values[0] - mean, np.asarray(run(stack[0]), np.float64) - mean


REACH = 0.999 * BALL * np.full(COORDINATES, -1 / np.sqrt(COORDINATES))


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


@pytest.mark.long
def test_only_an_adaptive_majority_breaks_a_fixed_radius():
    """Breakdown at n_b / n_i = 1 - sigma / tau; static points stay within the ball."""
    for name in ("edge_static", "staged", "alie", "gaussian", "mimic"):
        _, found = clustered(name, 75)
        assert np.linalg.norm(found) <= BALL, name
    _, found = clustered("edge_adaptive", 75)
    assert np.linalg.norm(found) > 2 * BALL


@pytest.mark.parametrize(
    "byzantine, quantile", [(5, 0.1004337), (45, 1.5547736), (75, 3.0902323)]
)
def test_alie_hides_in_the_ball(byzantine, quantile):
    """Shift n_b / (n_i + n_b) z s, at the normal quantiles of 27/50, 47/50, 0.999."""
    _, found = clustered("alie", byzantine)
    deviation = crowd(byzantine)[0][:HONEST].std(axis=0)
    law = -byzantine / (HONEST + byzantine) * quantile * deviation
    np.testing.assert_allclose(found, law, atol=1e-4)
    assert np.abs(found - 1.1 * law).max() > 3e-4


@pytest.mark.parametrize("name", ["sign_flip", "ipm", "other_mean", "zero"])
def test_far_from_the_origin_these_are_rejected(name):
    """The target is moved away from 0, where a turned mean is out of its ball."""
    values, clusters, mask = crowd(25)
    shifted = jnp.asarray(values + 100, jnp.float32)
    known = Context(clusters=jnp.asarray(clusters))

    def apart(name):
        sent = jax.jit(build(name))(KEYS[0], shifted, jnp.asarray(mask), known)
        return np.linalg.norm(np.asarray(sent)[mask] - 100, axis=1)

    assert (apart(name) > BALL).all()
    assert (apart("mimic") <= BALL).all()  # Control: a mimic gets in.


@pytest.mark.parametrize("name, options", [("nan", {}), ("bit_flip", {"limit": None})])
def test_what_is_no_number_is_out_of_every_ball(name, options):
    _, found = clustered(name, 25, **options)
    np.testing.assert_allclose(found, 0, atol=1e-4)
    values, _, mask = crowd(25)
    stack = jnp.asarray(values, jnp.float32)
    sent = build("nan")(KEYS[0], stack, jnp.asarray(mask))
    assert np.isnan(np.mean(sent, axis=0)).all()  # Control: a mean takes everything.


# Against misuse
MASK = jnp.array([False, True, False])
MESSAGES = jnp.ones((3, 2))
LABELS = ClientData(jnp.ones((3, 1, 1)), jnp.ones((3, 1), jnp.int32), MASK[:, None])
REAL = LABELS._replace(targets=jnp.ones((3, 1)))
ZERO = build("zero")


def draw(num_clients, share):
    return draw_byzantine(KEY, num_clients=num_clients, share=share)


def send(attack, messages: Any = MESSAGES, mask=MASK):
    attack(KEY, messages, mask)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: build("krum"), "`name` must be in .*alie.*got 'krum'"),
        (lambda: build("ipm", scale=1.0), "`ipm` must be in .*epsilon.*got 'scale'"),
        (lambda: build("ipm", epsilon=-0.1), "`epsilon` must .*got -0.1"),
        (lambda: build("ipm", epsilon=math.nan), "`epsilon` must .*got nan"),
        (lambda: build("alie", z=-1.0), "`z` must .*got -1.0"),
        (lambda: build("gaussian", scale=-2.0), "`scale` must .*got -2.0"),
        (lambda: build("noise", deviation=-2.0), "`deviation` must .*got -2.0"),
        (lambda: build("noise", mean=math.inf), "`mean` must be finite, got inf"),
        (lambda: build("boosting", factor=math.inf), "`factor` must be finite, got"),
        (lambda: build("edge_static", radius=-1.0), "`radius` must .*got -1.0"),
        (lambda: build("edge_adaptive", fraction=-1.0), "`fraction` must .*got -1"),
        (lambda: build("staged", spacing=-1.0), "`spacing` must .*got -1.0"),
        (lambda: build("mimic", direction="up"), "`direction` must be in .*got 'up'"),
        (lambda: build("staged", direction="up"), "`direction` must be in .*got 'up'"),
        (lambda: build("other_mean", other=-1), "`other` must .*got -1"),
        (lambda: build("nan", value=0.0), "`value` must be NaN or infinite, got 0.0"),
        (lambda: build("bit_flip", variant="one"), "`variant` must be in .*got 'one'"),
        (lambda: build("bit_flip", limit=-1.0), "`limit` must .*got -1.0"),
        (lambda: build("time_coupled", strength=-1.0), "`strength` must .*got -1"),
        (lambda: sleeper(ZERO, wake=-1), "`wake` must .*got -1"),
        (lambda: threat(ZERO, np.ones(4, bool)), "`byzantine` must leave.*of 4 clie"),
        (lambda: threat(ZERO, np.zeros((4, 1), bool)), "`byzantine` must be boolean"),
        (lambda: threat(ZERO, MASK, target=-1), "`target` must be at least 0, got -1"),
        (lambda: draw(4, 1.0), r"`share` must be in \[0, 1\), got 1.0"),
        (lambda: draw(4, -0.1), r"`share` must be in \[0, 1\), got -0.1"),
        (lambda: draw(4, math.nan), r"`share` must be in \[0, 1\), got nan"),
        (lambda: draw(4, 0.9), "`share` must leave a client honest, got 0.9, .*4 of"),
        (lambda: flip_labels(LABELS, MASK, 1), "`num_classes` must .*got 1"),
        (lambda: flip_labels(LABELS, MASK, None), "`num_classes` must be given.*int32"),
        (lambda: flip_labels(REAL, MASK, 10), "`num_classes` must be None.*10 for flo"),
        (lambda: send(ZERO, jnp.ones((3, 2), jnp.int32)), "`messages` must .*int32"),
        (lambda: send(ZERO, {}), r"`messages` must have floating leaves .*got \[\]"),
        (
            lambda: send(ZERO, mask=MASK[:2]),
            "`byzantine` must be .*3 clients, got bool",
        ),
        (lambda: send(build("edge_static")), "`radius` must be given .*got None"),
        (lambda: send(build("edge_adaptive")), "`radius` must be given .*got None"),
        (lambda: send(build("staged")), "`radius` must be given .*got None"),
        (lambda: send(build("other_mean")), "`clusters` of the context .*got None"),
        (
            lambda: send(sleeper(ZERO, wake=1)),
            "`context` must tell a sleeper the round",
        ),
    ],
)
def test_misuse_is_named(call, words):
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
