"""FedPAC: rounds by hand in NumPy, what V estimates, best mixtures, and bad clients."""

import dataclasses
import functools
import itertools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import prototype_rounds as network
import pytest
from by_hand import UPDATE, compiled, misuse, rounds
from prototype_rounds import CLASSES, CLIENTS, DATA, FEATURES, KEPT, TASK
from scipy.optimize import minimize

from cfljax.algorithms import fedpac, ifca
from cfljax.algorithms.fedpac import (
    TwoStages,
    best_mixtures,
    class_moments,
    project_on_simplex,
)
from cfljax.base.types import ClientData
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.prototypes import Prototypes, class_means
from cfljax.federated.training import Training
from cfljax.models import linear, mlp

STEP, HEAD_STEP, PENALTY, SMALLEST = 0.2, 0.5, 0.7, 0.04
SETTINGS: dict[str, Any] = {
    "num_classes": CLASSES,
    "step_size": STEP,
    "head_step_size": HEAD_STEP,
    "penalty": PENALTY,
    "num_steps": 2,
    "num_head_epochs": 3,
    "smallest_weight": SMALLEST,
}
KEY = jax.random.key(0)
close = functools.partial(by_hand.close, rtol=3e-5, atol=3e-6)
differ = functools.partial(by_hand.differ, rtol=3e-5, atol=3e-6)


def build(**settings):
    return compiled(fedpac(TASK, **settings))


PLAIN = build(**SETTINGS)
# Last layers that differ, and one global prototype, so that no two rules agree.
HEADS = np.random.default_rng(4).normal(size=(CLIENTS, FEATURES, CLASSES)).astype("f4")
POINTS = np.zeros((CLASSES, FEATURES), "f4")
POINTS[1] = [0.5, -0.3]
FIRST = np.arange(CLASSES) == 1


def begin(algorithm=PLAIN):
    state = algorithm.init(jax.random.key(0), DATA)
    return state._replace(
        heads=state.heads | {"head": jnp.asarray(HEADS)},
        prototypes=Prototypes(jnp.asarray(POINTS), jnp.asarray(FIRST)),
    )


START = begin()


def matrix(points, variances, i):
    """P_i, as the paper writes it."""
    away = points[i] - points
    return np.diag(variances) + away @ away.T


def least_by_enumeration(quadratic):
    """The minimiser of `a^T P a` over the simplex: the best of all supports, on each of
    which it solves a linear system."""
    number, best = len(quadratic), (np.inf, None)
    for size in range(1, number + 1):
        for support in itertools.combinations(range(number), size):
            part = np.ix_(support, support)
            system = np.block(
                [[quadratic[part], np.ones((size, 1))], [np.ones((1, size)), 0]]
            )
            found = np.linalg.lstsq(system, np.eye(size + 1)[-1], rcond=None)[0][:-1]
            if found.min() >= 0:
                weights = np.zeros(number)
                weights[list(support)] = found
                value = weights @ quadratic @ weights
                best = min(best, (value, tuple(weights)))
    return np.array(best[1])


def combined(sent, smallest):
    """Weights of the last layers in each other's, by exact minimisation."""
    points = np.stack([message["moments"].ravel() for message in sent])
    variances = np.array([message["variance"] for message in sent])
    rows = []
    for i in range(len(sent)):
        row = least_by_enumeration(matrix(points, variances, i))
        row = np.where(row < smallest, 0, row)
        rows.append(row / row.sum())
    return np.stack(rows)


def client_by_hand(i, body, head, means, known, order, fallback):
    """What one client makes of a round."""
    x, y = by_hand.own(DATA, i)
    model = {"body": body, "head": head}
    loss = network.slopes(model, x, y, means, known, 0)[0]
    mu, counts = network.class_means(model, x, y)
    moments = counts[:, None] / len(y) * mu
    features = np.tanh(x @ body)
    variance = (np.mean(np.sum(features**2, 1)) - np.sum(moments**2)) / len(y)
    if fallback:
        means = np.where(known[:, None], means, mu)
        known = known | ((counts > 0) & known.any())
    for part in order:
        pull = PENALTY if part == "body" else 0
        for _ in range(2 if part == "body" else 3):
            slope = network.slopes(model, x, y, means, known, pull)[1][part]
            size = STEP if part == "body" else HEAD_STEP
            model = model | {part: model[part] - size * slope}
    sent = network.class_means(model, x, y)[0]
    return model | {
        "moments": moments,
        "variance": variance,
        "means": sent,
        "counts": counts,
        "loss": loss,
    }


def two_rounds(
    order=("head", "body"),
    fallback=True,
    weigh=lambda counts: counts,
    smallest=SMALLEST,
    mix=combined,
):
    body, heads = np.asarray(START.body["body"], float), HEADS.astype(float)
    means, known, rows, losses = POINTS.astype(float), FIRST, None, None
    for _ in range(2):
        sent = [
            client_by_hand(i, body, heads[i], means, known, order, fallback)
            for i in range(CLIENTS)
        ]
        part = lambda name, sent=sent: np.stack([message[name] for message in sent])
        body, losses = np.average(part("body"), axis=0, weights=KEPT), part("loss")
        rows = mix(sent, smallest)
        heads = np.einsum("ij,jfc->ifc", rows, part("head"))
        weights = weigh(part("counts").astype(float))
        means, known = network.mean_prototypes(part("means"), weights, means, known)
    return body, heads, means, known, rows, losses


@functools.cache
def found(algorithm=PLAIN):
    return rounds(algorithm, START, DATA)


def check(result, expected, atol=2e-5):
    state, info = result
    body, heads, means, known, rows, losses = expected
    close(info.combination, rows, atol=1e-4)
    close(state.body["body"], body, atol=atol)
    close(state.heads["head"], heads, atol=1e-4)
    close(state.prototypes.means, means, atol=atol)
    np.testing.assert_array_equal(state.prototypes.known, known)
    close(info.losses, losses, atol=atol)


# Against equations


def test_two_rounds_against_equations():
    result, expected = found(), two_rounds()
    check(result, expected)
    state, info = result
    assert np.all(np.asarray(info.gaps) < 1e-5)
    body, heads = expected[:2]
    answers = np.tanh(np.asarray(DATA.inputs, float) @ body) @ heads
    close(PLAIN.predict(state, DATA, DATA.inputs), answers, atol=3e-4)
    row, model = 4 * FEATURES + 1, 4 * (3 * FEATURES + FEATURES * CLASSES)
    held = np.array([2, 1, 2, 3, 2])
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, model + 3 * row))
    sent = model + 4 + held * (row + 4 + 4 * FEATURES)
    np.testing.assert_array_equal(info.sent, sent)


@pytest.mark.parametrize(
    "changes",
    [
        {"order": ("body", "head")},
        {"fallback": False},
        {"weigh": np.sign},
        {"smallest": 0.0},
        {"mix": lambda sent, _: np.tile(KEPT / KEPT.sum(), (CLIENTS, 1))},
        {"mix": lambda sent, _: np.eye(CLIENTS)},
        {"mix": lambda sent, s: combined([m | {"variance": 0.3} for m in sent], s)},
    ],
    ids=["body first", "no own", "unweighted", "all", "sizes", "own head", "equal V"],
)
def test_another_rule_is_another_algorithm(changes):
    with pytest.raises(AssertionError):
        check(found(), two_rounds(**changes))


@pytest.mark.slow
def test_unweighted_prototypes_are_an_option():
    equal = build(**SETTINGS, prototype_weights="clients")
    check(found(equal), two_rounds(weigh=np.sign))


@pytest.mark.slow
def test_clients_are_computed_one_by_one_or_together():
    together = LocalUpdate(order="batched", clients_per_chunk=2)
    check(found(build(**SETTINGS, update=together)), two_rounds())


# Against itself


@pytest.mark.long
def test_clients_of_equal_distributions_average_by_size():
    """j + 1 copies of the same samples: V goes as 1 / n, and so the best mixture of
    last layers is that of FedAvg."""
    copies = np.arange(CLIENTS) + 1
    base, labels = np.asarray(DATA.inputs[3, :3]), np.array([0, 1, 2], "i4")
    data = ClientData(
        jnp.asarray(np.tile(base, (CLIENTS, CLIENTS, 1))),
        jnp.asarray(np.tile(labels, (CLIENTS, CLIENTS))),
        jnp.asarray(np.arange(3 * CLIENTS)[None] < 3 * copies[:, None]),
    )
    after, info = PLAIN.step(KEY, START, data)
    shares = np.tile(copies / copies.sum(), (CLIENTS, 1))
    np.testing.assert_allclose(info.combination, shares, atol=1e-4)
    close(after.heads["head"], np.tile(after.heads["head"][:1], (CLIENTS, 1, 1)))


PROXIMAL = dataclasses.replace(UPDATE, proximal=0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    "update", [None, pytest.param(PROXIMAL, marks=pytest.mark.slow)]
)
def test_with_still_heads_and_no_pull_it_is_fedavg_of_the_bodies(update):
    settings: dict[str, Any] = {"step_size": STEP, "update": update}
    still = build(**settings, num_classes=CLASSES, head_step_size=0.0, penalty=0.0)
    average = ifca(
        TASK,
        **settings,
        num_clusters=1,
        option="model",
        weights="samples",
        shared=lambda name: name == "head",
        variant="reference",  # Which never trains them.
    )
    run = lambda a: rounds(a, a.init(jax.random.key(0), DATA), DATA)
    (mine, info), (theirs, _) = run(still), run(compiled(average))
    close(mine.body["body"], theirs.models["body"][0], rtol=1e-5, atol=1e-6)
    close(mine.heads["head"], np.tile(theirs.models["head"], (CLIENTS, 1, 1)))
    close(np.sum(info.combination, axis=1), 1.0)
    differ(found()[0].body["body"], theirs.models["body"][0], rtol=1e-2)


@pytest.mark.long
def test_the_absent_and_the_diverged_spoil_nothing():
    some = build(**SETTINGS, participation=0.6)
    after, info = some.step(KEY, START, DATA)
    here = np.isfinite(np.asarray(info.losses))
    assert here.sum() == 3
    np.testing.assert_array_equal(np.isfinite(np.asarray(info.gaps)), here)
    np.testing.assert_array_equal(after.heads["head"][~here], HEADS[~here])
    weights = np.asarray(info.combination)
    close(weights.sum(axis=1), here)
    assert not weights[:, ~here].any() and not np.asarray(info.sent)[~here].any()
    lost = START.heads | {"head": START.heads["head"].at[3].set(jnp.nan)}
    diverged, info = PLAIN.step(KEY, START._replace(heads=lost), DATA)
    empty = DATA._replace(mask=DATA.mask.at[3].set(False))
    alone, other = PLAIN.step(KEY, START, empty)
    for found_info in (info, other):
        np.testing.assert_array_equal(found_info.assignment, [0, 0, 0, -1, 0])
        assert not np.asarray(found_info.combination)[:, 3].any()
    close(diverged.body["body"], alone.body["body"])
    close(diverged.prototypes.means, alone.prototypes.means)
    close(np.delete(diverged.heads["head"], 3, 0), np.delete(alone.heads["head"], 3, 0))
    np.testing.assert_array_equal(alone.heads["head"][3], HEADS[3])
    assert not diverged.prototypes.known[2], "only client 3 holds it"


def test_a_newcomer_trains_the_mean_head_on_the_body():
    state, _ = found()
    new = jax.tree.map(lambda leaf: leaf[2:4], DATA)
    joined = jax.jit(PLAIN.join)(jax.random.key(0), state, new)
    body = np.asarray(state.body["body"], float)
    for i in range(2):
        model = {"body": body, "head": np.mean(np.asarray(state.heads["head"]), axis=0)}
        for _ in range(3):
            samples = by_hand.own(new, i)
            slope = network.slopes(model, *samples, POINTS, FIRST, 0)[1]["head"]
            model["head"] = model["head"] - HEAD_STEP * slope
        close(joined.heads["head"][i], model["head"])
    np.testing.assert_array_equal(joined.body["body"], state.body["body"])


def test_the_body_is_run_for_statistics_steps_and_prototypes():
    """Training the last layer, for however long, reuses what the statistics saw."""
    task, calls = network.counting()
    training = Training(step_size=0.1, option="model")
    plan = TwoStages(task, training, 0.1, 9, 1.0, CLASSES)
    model, one = network.init(KEY), jax.tree.map(lambda leaf: leaf[0], DATA)
    body, head = (
        {n: model[n] if n == kept else None for n in model} for kept in ("body", "head")
    )
    every = Prototypes(jnp.zeros((CLASSES, FEATURES)), jnp.ones(CLASSES, bool))
    received = plan.broadcast(KEY, body, every, None)
    jax.make_jaxpr(plan.train)(received, jnp.asarray(0), head, (), one)
    assert len(calls) == 3


def test_v_is_the_mean_squared_error_of_h():
    """Over all 27 ways to draw three samples anew, H is right on average, and V is the
    mean squared distance to it."""
    features = np.random.default_rng(5).normal(size=(4, FEATURES))
    labels, mask = np.array([0, 2, 2, -7]), np.array([True, True, True, False])
    outer = np.eye(3)[labels[:3]][:, :, None] * features[:3, None, :]
    draws = np.stack(
        [outer[list(d)].mean(0) for d in itertools.product(range(3), repeat=3)]
    )
    given = jnp.asarray(features, "f4"), jnp.asarray(labels, "i4"), jnp.asarray(mask)
    means, counts = class_means(*given, 3)
    moments, variance = class_moments(given[0], means, counts, given[2])
    close(moments, draws.mean(axis=0))
    close(variance, np.mean(np.sum((draws - draws.mean(axis=0)) ** 2, axis=(1, 2))))
    close(means[1], 0.0)


# Against reference: projection on the simplex and best mixtures, by exact solvers


PROJECT = jax.jit(project_on_simplex)


@functools.cache
def mixtures(num_iterations):
    return jax.jit(functools.partial(best_mixtures, num_iterations=num_iterations))


def example(seed=0, number=6):
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(number, 3)) + 5.0
    points[1] = points[0] + 0.1  # Two that are nearly alike.
    return points, generator.uniform(0.1, 1.0, number)


def solve(points, variances, allowed=None, num_iterations=1000):
    allowed = np.ones(len(points), bool) if allowed is None else allowed
    return mixtures(num_iterations)(
        jnp.asarray(points, "f4"), jnp.asarray(variances, "f4"), jnp.asarray(allowed)
    )


@pytest.mark.parametrize("solver", ["enumeration", "slsqp"])
def test_best_mixtures_against_exact_solvers(solver):
    points, variances = example()
    found = solve(points, variances)
    assert 4 < np.sum(np.asarray(found.weights) < 1e-6) < 25, "on faces"
    for i in range(len(points)):
        quadratic = matrix(points, variances, i)
        if solver == "enumeration":
            exact = least_by_enumeration(quadratic)
        else:
            exact = minimize(
                lambda a, quadratic=quadratic: a @ quadratic @ a,
                np.full(6, 1 / 6),
                method="SLSQP",
                bounds=[(0, 1)] * 6,
                constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
                options={"ftol": 1e-14, "maxiter": 500},
            ).x
        np.testing.assert_allclose(found.weights[i], exact, atol=3e-5)
        assert np.sort(exact)[-2] > 0.01, "no corner"
        wrong = least_by_enumeration(matrix(points, variances, (i + 2) % 6))
        differ(found.weights[i], wrong, rtol=1e-7, atol=1e-2)  # Another's matrix.


def test_the_gap_bounds_the_error():
    """Where the descent is stopped early, and where it is not."""
    points, variances = example()
    exact = [least_by_enumeration(matrix(points, variances, i)) for i in range(6)]
    for number, is_close in ((3, False), (1000, True)):
        found = solve(points, variances, num_iterations=number)
        for i in range(6):
            value = lambda a, i=i: a @ matrix(points, variances, i) @ a
            error = value(np.asarray(found.weights[i], float)) - value(exact[i])
            assert -1e-6 < error < found.gaps[i] + 1e-6
        assert bool(np.max(found.gaps) < 1e-5) == is_close


@pytest.mark.slow
def test_a_thousand_iterations_are_enough_for_many_clients():
    """Means of skewed classes of 100 clients with about 100 samples each, whose
    objective is then at most a thousandth above the least."""
    generator = np.random.default_rng(1)
    centres = np.maximum(generator.normal(size=(10, 64)), 0)
    shares = generator.dirichlet([0.3] * 10, size=100)
    points = (shares[:, :, None] * centres[None]).reshape(100, -1)
    points += generator.normal(size=points.shape) * 0.02
    variances = generator.uniform(0.2, 0.6, 100)
    found = solve(points, variances)
    weights = np.asarray(found.weights, float)
    values = np.sum((points - weights @ points) ** 2, axis=1) + weights**2 @ variances
    assert np.max(found.gaps / values) < 1e-3
    early = solve(points, variances, num_iterations=30)
    assert np.max(early.gaps / values) > 1e-2, "control"


def test_points_that_are_alike_are_weighed_by_precision():
    """`sum a_j^2 V_j` is least where a is proportional to 1 / V."""
    variances = np.array([0.5, 1.0, 2.0, 4.0])
    found = solve(np.full((4, 3), 7.0), variances)
    expected = 1 / variances / np.sum(1 / variances)
    np.testing.assert_allclose(found.weights, np.tile(expected, (4, 1)), atol=1e-5)
    exact = solve(np.eye(4) * 10, np.full(4, 1e-3))
    np.testing.assert_allclose(exact.weights, np.eye(4), atol=1e-4)
    nothing = solve(np.ones((4, 3)), np.zeros(4))  # Whatever: stays with equal ones.
    np.testing.assert_allclose(nothing.weights, np.full((4, 4), 0.25), atol=1e-6)


def test_who_is_not_allowed_may_hold_anything():
    points, variances = example()
    allowed = np.arange(6) != 2
    spoilt = points.copy()
    spoilt[2] = np.nan
    noisy = np.where(allowed, variances, np.inf)
    found = solve(spoilt, noisy, allowed)
    alone = solve(points[allowed], variances[allowed])
    kept = np.ix_(allowed, allowed)
    np.testing.assert_allclose(
        np.asarray(found.weights)[kept], alone.weights, atol=3e-5
    )
    assert np.all(np.asarray(found.weights)[:, 2] == 0)
    everybody = np.asarray(solve(points, variances).weights)
    differ(everybody[kept], alone.weights, rtol=1e-7, atol=1e-3)


def test_projection_against_sorting():
    """The level by the sorted entries (Held, Wolfe, Crowder, 1974)."""
    points = np.random.default_rng(2).normal(size=(20, 7)) * 3
    points[0] = 0.0
    points[1] = [5, 5, 5, -9, -9, -9, -9]
    ranked = -np.sort(-points, axis=1)
    levels = (np.cumsum(ranked, axis=1) - 1) / np.arange(1, 8)
    last = np.sum(ranked > levels, axis=1) - 1
    expected = np.maximum(points - levels[np.arange(20), last][:, None], 0)
    found = PROJECT(jnp.asarray(points, "f4"), jnp.ones(7, bool))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(np.sum(found, axis=1), 1, atol=1e-6)
    clipped = np.maximum(points, 0) + 1e-9  # Control: clipping and scaling is another.
    differ(clipped / clipped.sum(1)[:, None], expected, rtol=1e-7, atol=0.1)


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(fedpac, TASK, num_classes=CLASSES, step_size=STEP),
    ({"num_head_epochs": 0}, "`num_head_epochs` must be at least 1"),
    ({"num_iterations": 0}, "`num_iterations` must be at least 1"),
    ({"penalty": -0.1}, "`penalty` must not be negative, got -0.1"),
    ({"smallest_weight": -1}, "`smallest_weight` must not be negative, got -1"),
    ({"prototype_weights": "none"}, "prototype_weights"),
)


def test_tasks_without_a_body_are_named():
    with pytest.raises(ValueError, match="`task` must have `layers`"):
        fedpac(linear(3), num_classes=CLASSES, step_size=STEP)
    shallow = fedpac(mlp((3,), hidden=(), num_classes=4), num_classes=4, step_size=STEP)
    with pytest.raises(ValueError, match="`task` must have a body"):
        jax.eval_shape(shallow.init, KEY, DATA)
