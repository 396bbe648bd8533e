"""Werner's examples, figures, Table 1 and attacks, by searches and by hand."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.clustering.threshold import quantile_radius, threshold_clustering
from cfljax.statements import Grade, Preset, Status
from theory.werner import assumptions, byzantine, figure4, table1
from theory.werner import failure_modes as examples
from theory.werner import figure2 as regression

ETA = 0.1


def slopes(function, place: np.ndarray, width: float) -> np.ndarray:
    """Central differences along every axis."""
    steps = width * np.eye(len(place))
    ends = [np.subtract(function(place + one), function(place - one)) for one in steps]
    return np.array(ends) / (2 * width)


def losses_a(x: float) -> list[float]:
    u = x - 1
    second = 4 * u**3 + 3 * u**4 + 1 if x < 1 else u**2 / (2 * ETA) + 1
    return [x**2 / (6 * ETA), second, (x - 2) ** 2 / (2 * ETA)]


@pytest.mark.parametrize("place", [-0.7, 0.3, 0.9, 1.4, 2.5])
def test_gradients_are_those_of_the_losses(place):
    start = np.array([place])
    exact = slopes(lambda moved: losses_a(*moved), start, 1e-6)[0]
    found = examples.gradients_a(np.array(place), ETA)
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-8)
    exact = slopes(lambda moved: (moved + 0.5) ** 2, start, 1e-6)[0]
    np.testing.assert_allclose(examples.gradients_b(start)[0, 0], exact, rtol=1e-6)


def test_curvature_is_bounded_by_what_neighbours_show():
    places = np.linspace(-1, 1.5, 100_001)
    found = np.diff(examples.gradients_a(places, ETA)[:, 1]) / np.diff(places)
    bound = assumptions.curvature_bound(-1.0, 1.5, ETA)
    assert 0.999 * bound < np.max(np.abs(found)) < bound * (1 + 1e-6)
    assert assumptions.curvature_bound(0.5, 0.7, ETA) == pytest.approx(4)


def test_two_means_of_three_points_by_hand():
    assert examples.two_means(np.array([5.0, 0.0, 1.0])) == [{1, 2}, {0}]
    assert examples.two_means(np.array([0.0, 3.0, 5.0])) == [{0}, {1, 2}]


def test_a_federated_step_by_hand():
    """Balls {1,2}, {1,2} and {3}: two clipping rounds, each over all three points."""
    models = np.array([0.0, 1.0, 2.0])
    received = np.tile([0.0, 1.0, 9.0], (3, 1))
    found = examples.federated_step(
        models, received, step_size=1.0, radius=2.0, num_rounds=2
    )
    # v = 0 -> 1/3 -> 1/3 + (-1/3 + 2/3)/3, and the mirror image from 1.
    np.testing.assert_allclose(models - found, [4 / 9, 5 / 9, 9.0], rtol=1e-12)


def test_ifca_leaves_symmetric_clients_where_they_are_and_moves_others():
    start = np.array([-1.5, 0.0])
    for local_steps in (None, 3):
        move = examples.ifca_round(start, step_size=0.1, local_steps=local_steps)
        np.testing.assert_array_equal(move, start)
    apart = np.array([-0.6, 0.4])
    one = examples.ifca_round(apart, step_size=0.1, local_steps=1)
    np.testing.assert_allclose(one, [-0.58, 0.42], rtol=1e-12)
    half = examples.ifca_round(apart, step_size=0.1, local_steps=None)
    np.testing.assert_allclose(half, [-0.59, 0.41], rtol=1e-12)


@pytest.mark.parametrize(
    ("gradients", "alone"),
    [((1.0, -1.0, 1.0), 1), ((1.0, -1.0, -2.0), 0), ((1.0, 1.0, -1.0), 2)],
)
def test_the_bipartition_parts_opposite_signs(gradients, alone):
    found = examples.bipartition(np.array(gradients))
    assert frozenset({alone}) in found and len(found) == 2


def test_ball_chances_are_binomial():
    chances, right = examples.ball_chances(4, 0.25)
    np.testing.assert_allclose(chances, np.array([1, 4, 6, 4, 1]) / 16, rtol=1e-12)
    # Client 1's ball is right from 2 heads on, client 2's from 1 to 3.
    np.testing.assert_array_equal(right, [0, 1, 2, 2, 1])


DRAWS = np.random.default_rng(0)
TASK = regression.draw_regression(
    DRAWS, num_clients=3, num_clusters=2, features=4, samples=5
)


def loss(cluster: int, client: int, place: np.ndarray) -> float:
    inputs = TASK.inputs[cluster, client]
    targets = inputs.T @ TASK.optima[cluster]
    return float(np.sum((inputs.T @ place - targets) ** 2) / (2 * inputs.shape[1]))


def test_gradients_are_those_of_the_loss():
    place = DRAWS.standard_normal(4)
    found = regression.gradients(TASK, place)
    exact = slopes(lambda moved: loss(1, 2, moved), place, 1e-5)
    np.testing.assert_allclose(found[1, 2], exact, rtol=1e-6)
    assert not np.allclose(found[1, 1], exact, rtol=0.1)


def test_inputs_have_their_clusters_mean():
    large = regression.draw_regression(DRAWS, num_clients=50, samples=40)
    means = np.mean(large.inputs, axis=(1, 2, 3))
    np.testing.assert_allclose(means, [1, 2, 3, 4], atol=0.05)


def test_worst_ratio_is_attained_and_never_exceeded():
    sizes, places = regression.worst_ratio(TASK, 1)
    attained = np.diagonal(regression.intra_ratio(TASK, 1, places))
    np.testing.assert_allclose(attained, sizes, rtol=1e-9)
    around = TASK.optima[1] + DRAWS.standard_normal((5000, 4))
    seen = np.max(regression.intra_ratio(TASK, 1, around), axis=0)
    assert np.all(seen <= sizes) and np.all(seen >= 0.3 * sizes)
    # At the optimum it is undefined.
    assert np.all(np.isnan(regression.intra_ratio(TASK, 1, TASK.optima[1:])))


def test_least_distance_of_gradients_is_that_of_all_pairs():
    models = DRAWS.standard_normal((2, 4))
    pairs = [
        np.sum((mine - other) ** 2)
        for own in (0, 1)
        for mine in regression.gradients(TASK, models[own])[own]
        for other in regression.gradients(TASK, models[own])[1 - own]
    ]
    found = regression.least_apart(TASK, models)
    assert found == pytest.approx(min(pairs)) and found < np.median(pairs)


@pytest.mark.parametrize("slack", [0.0, 0.5, 2.0])
def test_the_certificate_is_a_minimum(slack):
    found, places = regression.certificate(TASK, slack)
    assert len(found) == 2 * 3 * 3

    def objective(pair: int, place: np.ndarray) -> float:
        first, second = divmod(pair, 3)
        own = regression.gradients(TASK, place)[0, first]
        other = regression.gradients(TASK, place)[1, second]
        return float(np.sum((own - other) ** 2) + slack**2 * np.sum(own**2))

    for pair in range(9):  # Clients of the first cluster against those of the second.
        at = objective(pair, places[pair])
        np.testing.assert_allclose(at, found[pair], rtol=1e-9, atol=1e-18)
        for _ in range(20):
            near = places[pair] + 0.1 * DRAWS.standard_normal(4)
            assert objective(pair, near) > at
    assert np.all(found > 1e-3) if slack else np.all(found < 1e-18)


def test_noise_forms_are_the_variance_of_one_sample():
    error = DRAWS.standard_normal(4)
    inputs = TASK.inputs[1, 0]
    single = inputs * (inputs.T @ error)
    variance = np.mean(np.sum((single - np.mean(single, 1)[:, None]) ** 2, axis=0))
    form = regression.noise_forms(TASK)[1, 0]
    np.testing.assert_allclose(error @ form @ error, variance, rtol=1e-10)


def test_descent_contracts_by_the_mean_hessian():
    path = regression.descent(TASK, 3)
    means = np.mean(TASK.hessians, axis=1)
    step_size = 1 / np.max(np.linalg.eigvalsh(means))
    assert np.all(path[0] == 0)
    for cluster in range(2):
        factor = np.eye(4) - step_size * means[cluster]
        error = path[2, cluster] - TASK.optima[cluster]
        expected = factor @ factor @ -TASK.optima[cluster]
        np.testing.assert_allclose(error, expected, rtol=1e-10)


GENERATOR = np.random.default_rng(1)


def test_gradients_are_those_of_the_cross_entropy():
    inputs = GENERATOR.standard_normal((2, 3, 4))
    labels = GENERATOR.integers(0, 5, (2, 3))
    models = GENERATOR.standard_normal((2, 4, 5))

    def loss(model: np.ndarray, client: int) -> float:
        logits = inputs[client] @ model
        odds = np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)
        return -float(np.mean(np.log(odds[np.arange(3), labels[client]])))

    found = table1.batch_gradients(models, inputs, np.eye(5)[labels])
    for model, client in itertools.product((0, 1), (0, 1)):
        exact = slopes(
            lambda moved, client=client: loss(moved.reshape(4, 5), client),
            models[model].ravel(),
            1e-6,
        )
        own = found[model, client].ravel()
        np.testing.assert_allclose(own[[2, 17]], exact[[2, 17]], rtol=1e-6)


def test_centres_are_the_librarys():
    points = GENERATOR.standard_normal((6, 6, 3)).astype(np.float32)
    found = table1.clipped_centres(points)
    for index in (0, 4):
        own = threshold_clustering(
            jnp.asarray(points[index]),
            jnp.asarray(points[index, index][None]),
            num_rounds=10,
            radius=quantile_radius(0.2),
        )
        np.testing.assert_allclose(found[index], own.centres[0], atol=1e-5)


@pytest.mark.parametrize(("group", "needed"), [(3, 2), (4, 3)])
def test_strangers_against_all_groups(group, needed, monkeypatch):
    monkeypatch.setattr(table1, "_CLIENTS", 8)
    monkeypatch.setattr(table1, "_OWN", 3)
    groups = list(itertools.combinations(range(1, 8), group - 1))  # 0 is the client.
    few = [1 + sum(one < 3 for one in others) < needed for others in groups]
    assert table1.strangers(group, needed) == pytest.approx(np.mean(few), rel=1e-12)


def test_the_elbow_by_hand():
    curve = np.array([10.0, 5.0, 4.0, 3.95, 3.94])
    assert figure4.elbow(curve) == 3
    assert figure4.elbow(curve, threshold=0.2) == 2
    assert figure4.elbow(curve, threshold=0.005) == 4


def test_blobs_have_their_deviation_and_centres():
    blobs = figure4.draw_blobs(np.random.default_rng(2), 2.0, 50)
    again = figure4.draw_blobs(np.random.default_rng(2), 4.0, 50)
    away = blobs.points - blobs.centres[:, :, None]
    np.testing.assert_array_equal(blobs.centres, again.centres)
    np.testing.assert_allclose(np.std(away), 2.0, rtol=0.02)
    assert np.max(np.abs(blobs.centres)) <= 10


def test_curves_start_where_they_say():
    near = figure4.curves(Preset(), "near")
    member = figure4.curves(Preset(), "member")
    norm = np.sqrt(10)  # Of a standard normal vector in 10 dimensions, about.
    np.testing.assert_allclose(near[:, 0], 3 * norm, rtol=0.1)
    np.testing.assert_allclose(member[:, 0], np.array([0.5, 1, 2, 4]) * norm, rtol=0.1)
    assert np.all(member[:, -1] < 0.6 * member[:, 0])


@pytest.fixture(scope="module")
def scenes() -> byzantine.Scenes:
    """Three of them: few attackers, some, and many."""
    drawn = byzantine.draw_scenes(Preset(), "toy")
    assert drawn.points.shape[0] == 160
    fields = ("points", "byzantine", "share", "mean")
    return drawn._replace(**{one: getattr(drawn, one)[[0, 61, 159]] for one in fields})


def settled(points: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Rule (4), one point at a time, in float64."""
    centre = start.astype(float)
    for _ in range(60):
        moved = np.array(
            [
                z if np.linalg.norm(z - centre) <= byzantine.RADIUS else centre
                for z in points
            ]
        )
        centre = np.mean(moved, axis=0)
    return centre


def test_scenes_are_what_they_say(scenes):
    assert np.all(scenes.byzantine.sum(axis=1) == np.round(25 * scenes.share))
    assert not np.any(scenes.byzantine[:, scenes.clusters == 0])
    honest = scenes.points[:, :25].astype(float)
    means = np.mean(honest, axis=1)
    np.testing.assert_allclose(means[:, 1:], 0, atol=0.4)
    np.testing.assert_allclose(means[:, 0], scenes.mean, atol=0.4)
    spread = np.mean(np.sum((honest - means[:, None]) ** 2, axis=-1))
    assert 0.7 < spread < 1.3
    others = scenes.points[:, 25:]
    assert np.min(np.linalg.norm(others - means[:, None], axis=-1)) > 190


def test_a_zero_attack_moves_the_centre_as_by_hand(scenes):
    found = byzantine.attacked(scenes, "zero")
    for index, points in enumerate(scenes.points):
        sent = np.where(scenes.byzantine[index][:, None], 0, points)
        honest = np.mean(points[:25].astype(float), axis=0)
        shift = np.linalg.norm(settled(sent, points[0]) - honest)
        np.testing.assert_allclose(found.shift[index], shift, atol=1e-10)
        number = scenes.byzantine[index].sum()
        mean = np.linalg.norm(honest) * number / (25 + number)
        np.testing.assert_allclose(found.unprotected[index], mean, rtol=1e-5)


def test_the_adaptive_edge_reaches_its_fixed_point(scenes):
    found = byzantine.attacked(scenes, "edge_adaptive")
    exact = 0.999 * scenes.share * byzantine.RADIUS
    np.testing.assert_allclose(found.shift, exact, atol=2e-5)
    assert not np.allclose(found.shift, exact / 0.999, atol=2e-5)


@pytest.mark.parametrize("attack", ["other_mean", "bit_flip"])
def test_attackers_outside_the_ball_leave_what_the_start_does(scenes, attack):
    found = byzantine.attacked(scenes, attack)
    honest = np.mean(scenes.points[:, :25], axis=1)
    start = np.linalg.norm(scenes.points[:, 0] - honest, axis=1)
    np.testing.assert_allclose(found.shift, 0.8**60 * start, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "check, name, seed",
    [
        (byzantine.check_percentile, "werner.byz.percentile", 25),
        (byzantine.check_percentile, "werner.byz.percentile", 88),
        (byzantine.check_breakdown, "werner.byz.breakdown", 151),
        (byzantine.check_breakdown, "werner.byz.breakdown", 230),
        (regression.check_curves, "werner.fig2", 150),
    ],
)
def test_claims_about_laws_hold_where_single_draws_are_odd(check, name, seed):
    found = check(Preset(seed=seed), name)
    assert found.status is Status.HOLDS and found.grade is Grade.SAMPLED


def test_adaptive_errors_are_the_law_below_breakdown():
    honest = np.random.default_rng(0).standard_normal((20, 4)) / 2
    found = byzantine.adaptive_errors(honest, 8.0, 300)
    share = np.arange(1, 21) / 20
    np.testing.assert_allclose(found[:12], (8.0 * share[:12]) ** 2, rtol=1e-6)
    assert found[-1] > 4 * 8.0**2


@pytest.mark.long
@pytest.mark.parametrize("kind", ["labelflip", "alternating"])
def test_gaps_start_at_nothing_and_stay_below_the_edge(kind):
    gaps, squares = byzantine.gradient_gaps(Preset(), kind)
    edge, _ = byzantine.gradient_gaps(Preset(), "time_coupled")
    assert np.all(gaps[:, 0] == 0) and np.all(gaps[:, -1] > 0)
    assert np.all(gaps[:, 20:] < edge[:, 20:])
    np.testing.assert_allclose(squares[:, 0], 4.0)  # |a_i|^2


def test_sleepers_are_awake_in_the_second_half_only():
    gaps, _ = byzantine.gradient_gaps(Preset(), "sleeper")
    half = gaps.shape[1] // 2
    assert np.max(gaps[:, : half + 1]) < 0.2 * np.min(gaps[:, -1])


def test_seeds_are_not_shared_between_presets():
    first, second = (
        byzantine.draw_scenes(Preset(seed=seed), "toy").seed for seed in (0, 1)
    )
    assert first != second
