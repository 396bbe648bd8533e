"""Trials of IFCA's Figure 3: their theory, computed together, and the released code.

The released experiment (m = 40, n = 50, d = 200, k = 2, sigma = .1, step size .1)
crosses 10 true models with 10 starts, all of fixed seeds, so its 100 outcomes are not
independent. Our replicas keep these models and starts, draw the samples anew, and
predict the count by their own spread.
"""

import dataclasses
import functools
import json
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from toy_experiments import trial_of_fig3

from cfljax import engine, metrics
from cfljax.algorithms.ifca import State, ifca
from cfljax.base.types import ClientData, Truth
from cfljax.data import mixed_linear
from cfljax.models import linear
from experiments.ifca.fig3_trial import (
    CRITERIA,
    DIMS,
    Trial,
    _surely_met,
    draw_data,
    judge,
    oracle_floor,
    promise,
    shares,
    simulate,
    simulate_jointly,
    stability_bound,
    start_task,
    successful,
    thresholds,
)

# Against theory

TRIAL = trial_of_fig3()
NAMES = ("num_clients", "num_samples", "num_clusters", "num_features")
SIZES: dict[str, Any] = {name: getattr(TRIAL, name) for name in NAMES}


@pytest.mark.long
def test_oracle_floor_against_theory():
    """Mean square error of least squares with known clusters, over 200 data sets."""

    def draw(key):
        settings: Any = {"separation": 1.0, "noise": 0.2, "convention": "reference"}
        return mixed_linear(key, **settings, **SIZES)

    many, truths = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 200))
    inputs = np.asarray(many.inputs).reshape(400, 100, 30)  # one row per cluster
    targets = np.asarray(many.targets).reshape(400, 100)
    models = np.asarray(truths.models).reshape(400, 30)
    errors = [
        np.sum((np.linalg.lstsq(x, y)[0] - theta) ** 2)
        for x, y, theta in zip(inputs, targets, models, strict=True)
    ]
    floor = oracle_floor(TRIAL) ** 2
    error = np.std(errors, ddof=1) / math.sqrt(len(errors))
    assert abs(np.mean(errors) - floor) < 5 * error
    assert abs(np.mean(errors) - 1.2 * floor) > 5 * error


def test_oracle_floor_needs_enough_rows():
    assert oracle_floor(dataclasses.replace(TRIAL, num_samples=6)) == math.inf


@pytest.mark.long
def test_stability_bound_against_theory():
    """Descent with known clusters converges below the bound and not above it."""
    sizes: dict = SIZES | {"num_samples": 400}
    bound = stability_bound(dataclasses.replace(TRIAL, **sizes))
    settings: Any = {"separation": 1.0, "noise": 0.0, "convention": "reference"}
    data, truth = mixed_linear(jax.random.key(0), **settings, **sizes)
    x = np.asarray(data.inputs)[np.asarray(truth.clusters) == 0].reshape(-1, 30)
    curvature = np.linalg.eigvalsh(x.T @ x / len(x))[-1]

    def factor(step_size):
        return abs(1 - 2 * step_size / 2 * curvature)  # 2 gamma / k on the Gram matrix

    assert factor(0.95 * bound) < 1 < factor(1.05 * bound)


@jax.jit
def compiled(key, step_sizes):
    return simulate(TRIAL, key, step_sizes)


@pytest.fixture(scope="module")
def outputs():
    """Of one trial at two step sizes."""
    return compiled(jax.random.key(0), jnp.array([0.5, 0.1]))


@pytest.mark.long
def test_a_simulated_trial_has_the_declared_outputs(outputs):
    sizes = {"restart": 3, "step_size": 2}
    for name, dims in DIMS.items():
        assert outputs[name].shape == tuple(sizes[dim] for dim in dims), name
    assert bool(jnp.all(outputs["nearest_distance"] <= outputs["distance"] + 1e-5))
    assert bool(jnp.all(outputs["alpha"] < 0.5))


@pytest.mark.long
def test_starts_do_not_depend_on_the_step_sizes(outputs):
    one = compiled(jax.random.key(0), jnp.array([0.1]))["distance"]
    two = outputs["distance"]
    np.testing.assert_allclose(one[:, 0], two[:, 1], rtol=1e-4, atol=1e-5)
    assert not np.allclose(two[:, 0], two[:, 1], rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("clients", "samples", "features"), [(40, 50, 200), (20, 40, 900)]
)
def test_a_trial_needs_at_most_twice_its_data(clients, samples, features):
    sizes = {"num_clients": clients, "num_samples": samples, "num_features": features}
    trial = trial_of_fig3(**sizes)
    program = jax.jit(functools.partial(simulate, trial))
    lowered = program.lower(jax.random.key(0), jnp.array([1.0, 0.1, 0.01]))
    plan = lowered.compile().memory_analysis()
    assert plan is not None
    data = 4 * clients * samples * (features + 1)
    assert data < plan.temp_size_in_bytes < 2 * data


# Together, by exact shortcuts, against one by one in full

TOLERANCE = 0.001
SHARED = trial_of_fig3(num_clients=16, num_restarts=2, tolerance=TOLERANCE)
CELLS = [
    dataclasses.replace(SHARED, convention=convention, noise=noise)
    for convention in ("reference", "paper")
    for noise in (0.0, 0.2)
]
# No set of clients is unstable below 1 / (1 + sqrt(d / (m n)))^2 = 0.59.
STEPS = np.array([0.1, 0.5], np.float32)
SEEDS = (0, 1)
EPSILON = float(np.finfo(np.float32).eps)


@functools.partial(jax.jit, static_argnames="trial")
def in_full(trial, traced, key, step_sizes):
    trial = dataclasses.replace(trial)
    for name, value in traced.items():
        object.__setattr__(trial, name, value)  # Traced, as the engine has them.
    return simulate(trial, key, step_sizes)


def one_by_one(seed, steps=STEPS):
    key = jax.random.key(seed)
    runs = [
        in_full(dataclasses.replace(cell, noise=0.0), {"noise": cell.noise}, key, steps)
        for cell in CELLS
    ]
    return [{name: np.asarray(values) for name, values in run.items()} for run in runs]


def together(seed, steps=STEPS, cells=CELLS, **changes: Any):
    changes = {"shortcuts": True} | changes
    own = [dataclasses.replace(cell, **changes) for cell in cells]
    return simulate_jointly(own, jax.random.key(seed), jnp.asarray(steps))


def flags(cell, outputs):
    """Success of each run under each criterion, `[restart, step_size]`."""
    one = {name: values[None] for name, values in outputs.items()}
    every = successful(one, thresholds(cell, TOLERANCE))
    return {name: own[0] for name, own in every.items()}


@pytest.fixture(scope="module")
def full():
    return {seed: one_by_one(seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def joint():
    return {seed: together(seed) for seed in SEEDS}


def disagreements(theirs, ours):
    """Names of the outputs that differ by more than their rounding.

    Distances and root losses are sums of differences of numbers as large as the gap
    between the true models: they are known to a few units of the last place of that.
    """
    found = []
    for name in DIMS:
        one, other = theirs[name], ours[name]
        if name in ("loss", "first_loss"):
            one, other = np.sqrt(one), np.sqrt(other)
        room = 16 * EPSILON * theirs["gap"]
        if not np.allclose(one, other, rtol=1e-5, atol=room, equal_nan=True):
            found.append(name)
    return found


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_all_outputs_are_those_of_trials_in_full(full, joint, seed):
    for theirs, ours in zip(full[seed], joint[seed], strict=True):
        assert list(theirs) and set(theirs) == set(ours) == set(DIMS)
        for name in DIMS:
            assert theirs[name].shape == ours[name].shape, name
            assert theirs[name].dtype == ours[name].dtype, name
        assert disagreements(theirs, ours) == []


@pytest.mark.long
def test_control_other_trials_and_other_cells_disagree(full, joint):
    of_runs = {"distance", "nearest_distance", "loss", "first_loss", "alpha"}
    assert of_runs <= set(disagreements(full[0][0], joint[1][0]))
    assert "distance" in disagreements(full[0][0], joint[0][1])  # Another noise.
    assert of_runs <= set(disagreements(full[0][0], joint[0][2]))  # Convention.


@pytest.mark.long
def test_a_diverged_run_is_recorded_and_never_succeeds():
    steps = np.array([0.5, 50.0], np.float32)
    full, joint = one_by_one(0, steps), together(0, steps)
    for cell, theirs, ours in zip(CELLS, full, joint, strict=True):
        assert np.all(np.isinf(theirs["loss"][:, 1]))
        assert np.all(np.isinf(ours["loss"][:, 1]))
        assert np.all(ours["followed"] == 1)
        for name in CRITERIA:
            assert not np.any(flags(cell, ours)[name][:, 1])


@pytest.mark.long
@pytest.mark.parametrize("chosen", [pytest.param([0], marks=pytest.mark.slow), [3, 1]])
def test_the_set_of_cells_changes_nothing(joint, chosen):
    alone = together(0, cells=[CELLS[i] for i in chosen])
    for i, ours in zip(chosen, alone, strict=True):
        assert disagreements(joint[0][i], ours) == []


def test_shares_tells_which_trials_draw_the_same_inputs():
    same = {"convention": "paper", "separation": 0.5, "noise": 0.1, "tolerance": 0.0}
    same |= {"init_scale": 2.0, "init_unit": "separation"}
    other = {"num_clients": 8, "num_samples": 10, "num_clusters": 4, "num_features": 20}
    other |= {"num_restarts": 3, "num_rounds": 30, "normalise": "cluster"}
    other |= {"resample": True, "shortcuts": True}
    fields = {field.name for field in dataclasses.fields(Trial)}
    assert fields == {*same, *other, "decide", "criteria"}
    for name, value in same.items():
        assert shares(dataclasses.replace(SHARED, **{name: value})) == shares(SHARED)
    for name, value in other.items():
        assert shares(dataclasses.replace(SHARED, **{name: value})) != shares(SHARED)
    by_shortcuts = dataclasses.replace(SHARED, shortcuts=True)
    deciding = dataclasses.replace(by_shortcuts, decide=True)
    assert shares(deciding) != shares(by_shortcuts)


def test_promise_by_hand():
    """The largest stable step size first, then smaller ones, unstable ones last."""
    assert 0.9 < stability_bound(SHARED) < 1.0
    turns = promise(SHARED, np.array([0.01, 1.0, 0.9, 5.0, 0.1]))
    assert turns.tolist() == [2, 3, 0, 4, 1]


@pytest.fixture(scope="module")
def decided():
    return {seed: together(seed, decide=True) for seed in SEEDS}


@pytest.mark.long
def test_trials_that_are_decided_early_succeed_as_they_would(full, decided):
    seen = {name: set() for name in CRITERIA}
    for seed in SEEDS:
        for cell, theirs, ours in zip(CELLS, full[seed], decided[seed], strict=True):
            expected, found = flags(cell, theirs), flags(cell, ours)
            for name in CRITERIA:
                assert np.any(expected[name]) == np.any(found[name]), (cell, name)
                seen[name].add(bool(np.any(found[name])))
    assert all(values == {True, False} for values in seen.values())


@pytest.mark.long
def test_runs_that_are_left_alone_are_not_a_number(joint, decided):
    left = 0
    for seed in SEEDS:
        for cell, every, ours in zip(CELLS, joint[seed], decided[seed], strict=True):
            alone = ours["followed"] == 0
            left += np.sum(alone)
            for name in set(DIMS) - {"followed"}:
                if DIMS[name] == DIMS["followed"]:
                    assert np.array_equal(np.isnan(ours[name]), alone), name
                    both = [np.where(alone, 0, own[name]) for own in (every, ours)]
                    np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-5)
            met = {name: np.any(own) for name, own in flags(cell, ours).items()}
            assert not np.any(alone) or all(met.values())
            assert np.all(every["followed"] == 1)
    assert left > 0


judged_at_once = jax.jit(judge)


@pytest.mark.parametrize(
    ("losses", "is_recovered"),
    [
        ([[0.1, 0.5, np.inf], [0.5, 0.1, 0.2]], True),
        ([[0.1, 0.5, np.inf], [0.5, 0.1, np.inf]], False),  # Client 2 has no model.
        ([[0.1, np.inf, np.inf], [np.inf, np.inf, np.inf]], False),
    ],
)
def test_what_decides_a_trial_is_what_is_judged(losses, is_recovered):
    truths = np.array([[1.0], [-1.0]], np.float32)
    truth = Truth(jax.device_put(np.array([0, 1, 1])), jax.device_put(truths))
    models, losses = np.full((2, 1), 9.0, np.float32), np.array(losses, np.float32)
    met = _surely_met(truth, models, losses, {"paper": 0.1, "floor": 0.1})
    assert met == ["recovery"] * is_recovered
    judged = judged_at_once(truth, models, losses.T)
    assert bool(judged["recovered"]) == is_recovered


def test_models_too_far_to_measure_decide_nothing():
    truths = np.array([[1.0, 1.0], [-1.0, -1.0]], np.float32)
    truth = Truth(jax.device_put(np.array([0, 1])), jax.device_put(truths))
    losses = np.array([[0.1, 0.5], [0.5, 0.1]], np.float32)
    models = np.full((2, 2), 3e38, np.float32)
    assert _surely_met(truth, models, losses, {"paper": 0.1}) == []
    distance = judged_at_once(truth, models, losses.T)["distance"]
    assert not np.isfinite(distance)


@pytest.mark.long
def test_a_run_that_is_given_up_fails_as_it_would():
    """At a step size that is far too large; what else it has may be earlier."""
    steps = np.array([0.1, 500.0], np.float32)
    ours, theirs = together(0, steps, decide=True), one_by_one(0, steps)
    lost = 0
    for cell, found, expected in zip(CELLS, ours, theirs, strict=True):
        is_followed = found["followed"] == 1
        lost += np.sum(is_followed[:, 1])
        wanted = flags(cell, expected)
        for name, flag in flags(cell, found).items():
            assert np.array_equal(flag[is_followed], wanted[name][is_followed])
        diverged = ~(found["loss"] <= found["first_loss"][:, None])
        assert np.all(diverged[:, 1][is_followed[:, 1]])
    assert lost > 0


NUM_SHAREDS = 3
QUICK_STEPS = {2: (1.0, 0.1, 0.01), 4: (2.0, 1.0, 0.5)}
KINDS = ("shortcuts", "full", "float32", "float64")


def cells(num_clusters: int) -> list[Trial]:
    sizes = {"num_clients": 40, "num_samples": 50, "num_clusters": num_clusters}
    sizes |= {"num_features": 200, "num_restarts": 4, "num_rounds": 300}
    first = dataclasses.replace(SHARED, **sizes)
    return [
        dataclasses.replace(first, convention=convention, noise=noise, separation=apart)
        for convention in ("reference", "paper")
        for noise in (0.0, 0.1)
        for apart in (0.5, 1.0)
    ]


def drawn(trial, key):
    """Data, truth and starts of a trial, by the keys of `simulate`."""
    data_key, runs_key = jax.random.split(key)
    data, truth = draw_data(trial, data_key)
    first = ifca(start_task(trial), num_clusters=trial.num_clusters, step_size=0.0)
    starts = [
        engine.run(first, jax.random.fold_in(runs_key, i), data, num_rounds=0)[0].models
        for i in range(trial.num_restarts)
    ]
    return data, truth, np.stack(starts)


class Plain(NamedTuple):
    """Final models and losses of runs in float32, and the choices of every round."""

    models: np.ndarray
    losses: np.ndarray
    choices: np.ndarray


def plain(data, starts, step_sizes, *, num_rounds, kind) -> Plain:
    """Algorithm 2, line by line, in a kind of float: every start at every step size."""
    inputs, targets = (np.asarray(leaf).astype(kind) for leaf in data[:2])
    clients, samples, features = inputs.shape
    rows = inputs.reshape(-1, features)
    models = np.repeat(starts, len(step_sizes), axis=0).astype(kind)
    rates = np.tile(step_sizes, len(starts)).astype(kind)[:, None, None]
    rates = rates * kind(2 / (clients * samples))
    names = np.arange(models.shape[1])[:, None]
    choices = []
    with np.errstate(over="ignore", invalid="ignore"):
        for turn in range(num_rounds + 1):
            outputs = (models.reshape(-1, features) @ rows.T).reshape(
                *models.shape[:2], clients, samples
            )
            errors = outputs - targets
            losses = np.mean(np.square(errors), axis=3)
            finite = np.isfinite(losses)
            best = np.argmin(np.where(finite, losses, np.inf), axis=1)
            best = np.where(np.any(finite, axis=1), best, -1)
            if turn == num_rounds:
                break
            choices.append(best)
            own = best[:, None] == names
            errors = np.where(own[..., None], errors, 0).reshape(-1, len(rows))
            moved = models - rates * (errors @ rows).reshape(models.shape)
            models = np.where(np.any(own, axis=2)[..., None], moved, models)
        rounded = models.astype(np.float32), losses.astype(np.float32)
    return Plain(*rounded, np.stack(choices, axis=1))


def sharpness(data, choices, num_models, known):
    """Largest eigenvalue of `(2 / m n) X_S^T X_S` over the sets S of a run's models."""
    inputs = np.asarray(data.inputs, np.float64)
    scale = 2 / (inputs.shape[0] * inputs.shape[1])
    largest = 0.0
    for best in np.unique(choices, axis=0):
        for model in range(num_models):
            own = best == model
            if own.any() and own.tobytes() not in known:
                rows = inputs[own].reshape(-1, inputs.shape[2])
                known[own.tobytes()] = scale * np.linalg.eigvalsh(rows.T @ rows)[-1]
            largest = max(largest, known.get(own.tobytes(), 0.0))
    return largest


class Run(NamedTuple):
    """One run in all kinds: outputs of `judge`, and success under each criterion."""

    place: tuple[int, int, int]  # trial, cell, run
    num_clusters: int
    gap: float
    is_stable: bool
    distances: dict[str, float]
    successes: dict[str, dict[str, bool]]


@pytest.fixture(scope="module", params=QUICK_STEPS)
def runs(request) -> list[Run]:
    steps = np.array(QUICK_STEPS[request.param], np.float32)
    found = []
    for index in range(NUM_SHAREDS):
        key = jax.random.fold_in(jax.random.key(0), index)
        trials = cells(request.param)
        quick = [dataclasses.replace(trial, shortcuts=True) for trial in trials]
        known: dict[bytes, float] = {}
        joints = simulate_jointly(quick, key, jnp.asarray(steps))
        for cell, (trial, joint) in enumerate(zip(trials, joints, strict=True)):
            found += compare(trial, joint, key, steps, known, (index, cell))
    return found


def compare(trial, joint, key, steps, known, place):
    """All runs of one trial of one cell."""
    static = dataclasses.replace(trial, noise=0.0, separation=0.0)
    traced = {"noise": trial.noise, "separation": trial.separation}
    full = in_full(static, traced, key, steps)
    outputs = {"shortcuts": joint, "full": full}
    data, truth, starts = drawn(trial, key)
    judges = jax.vmap(lambda models, losses: judge(truth, models, losses.T))
    for kind in (np.float32, np.float64):
        ends = plain(data, starts, steps, num_rounds=trial.num_rounds, kind=kind)
        outputs[kind.__name__] = judges(ends.models, ends.losses)
    limits = thresholds(trial, TOLERANCE)
    flat = {
        kind: {n: np.reshape(own[n], (1, -1, 1)) for n in ("distance", "recovered")}
        for kind, own in outputs.items()
    }
    met = {kind: successful(own, limits) for kind, own in flat.items()}
    sizes = np.tile(steps, len(starts))
    return [
        Run(
            place=(*place, run),
            num_clusters=trial.num_clusters,
            gap=float(full["gap"]),
            is_stable=sizes[run] * sharpness(data, own, trial.num_clusters, known) < 2,
            distances={
                kind: float(flat[kind]["distance"][0, run, 0]) for kind in KINDS
            },
            successes={
                kind: {name: bool(met[kind][name][0, run, 0]) for name in CRITERIA}
                for kind in KINDS
            },
        )
        for run, own in enumerate(ends.choices)
    ]


def apart(run: Run, one: str, other: str) -> bool:
    """Whether distances differ by more than what float32 knows of them."""
    room = 1e-4 * run.distances[other] + 16 * EPSILON * run.gap
    return not abs(run.distances[one] - run.distances[other]) <= room


@pytest.mark.slow
def test_stable_runs_are_the_same_in_every_kind(runs):
    stable = [run for run in runs if run.is_stable]
    assert len(stable) > len(runs) / 4
    for run in stable:
        for kind in KINDS:
            assert run.successes[kind] == run.successes["float64"], run
            assert not apart(run, kind, "float64"), run
    if runs[0].num_clusters == 2:  # With four, so few starts find none.
        for name in CRITERIA:
            assert {run.successes["full"][name] for run in stable} == {True, False}


@pytest.mark.slow
def test_control_unstable_runs_differ_with_nothing_but_the_precision(runs):
    unstable = [run for run in runs if not run.is_stable]
    count = lambda kind: sum(apart(run, kind, "float64") for run in unstable)
    differing = {kind: count(kind) for kind in KINDS[:3]}
    print(len(unstable), "unstable runs, apart from float64:", differing)
    assert differing["float32"] > 0


@pytest.mark.slow
def test_every_trial_comes_as_near_in_all_kinds_or_in_none(runs):
    """Under the criteria of a distance, also where some step sizes are unstable.

    The true partition is another matter: an unstable run may meet it in its last round
    by chance, in one precision and not in the other.
    """
    trials: dict[tuple[int, int], list[Run]] = {}
    for run in runs:
        trials.setdefault(run.place[:2], []).append(run)
    differing = dict.fromkeys(CRITERIA, 0)
    for own in trials.values():
        for name in CRITERIA:
            kinds = {any(run.successes[kind][name] for run in own) for kind in KINDS}
            differing[name] += len(kinds) > 1
    print(len(trials), "trials, different in some kind:", differing)
    assert differing["paper"] == differing["floor"] == 0


# Against the released code's success counts

CLIENTS, SAMPLES, FEATURES, CLUSTERS, NOISE, STEP = 40, 50, 200, 2, 0.1, 0.1
STARTS = TRIALS = 10
ROUNDS = 300
ERROR_RATE = 1e-3  # Of the four separations together.


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "reference" / "ifca_golden.json").read_text())


def released_models():
    """Starts and truths, `[seed, cluster, feature]`: Bernoulli vectors from the legacy
    NumPy stream that the released code uses."""

    def coins(seed, is_start):
        stream = np.random.RandomState(seed)
        if is_start:
            stream.normal()
        return [stream.binomial(1, 0.5, FEATURES) for _ in range(CLUSTERS)]

    every = [[coins(seed, own) for seed in range(TRIALS)] for own in (True, False)]
    return jnp.asarray(every, jnp.float32)


def distances(data, truth_models, starts, step_size):
    """Final distance of a run from each start, `[starts]`."""
    algorithm = ifca(linear(FEATURES), num_clusters=CLUSTERS, step_size=step_size)

    def one(start):
        def one_round(state, _):
            return algorithm.step(jax.random.key(0), state, data)[0], None

        state, _ = jax.lax.scan(one_round, State(start), None, length=ROUNDS)
        return metrics.centre_distance(state.models, truth_models)

    return jax.vmap(one)(starts)


@jax.jit
def study(key, separation, init_scale):
    """Successes among the released 10 truths x 10 starts, with samples of our own."""
    starts, truths = released_models()

    def trial(inputs):
        key, models = inputs
        sizes: Any = {"num_clients": CLIENTS, "num_clusters": CLUSTERS}
        sizes |= {"num_samples": SAMPLES, "num_features": FEATURES}
        # The targets are noise alone, so that the models are ours.
        data, truth = mixed_linear(key, separation=0.0, noise=NOISE, **sizes)
        own = models[truth.clusters]
        clean = jnp.einsum("csf,cf->cs", data.inputs, own, precision="highest")
        data = data._replace(targets=data.targets + clean)
        final = distances(data, models, init_scale * starts, STEP)
        return metrics.is_success(final, 0.6 * NOISE)

    keys = jax.random.split(key, TRIALS)
    return jnp.sum(jax.lax.map(trial, (keys, separation * truths)))


def reach_and_mean(separation, num_studies, seed, init_scale=1.0):
    """Prediction interval for one more study, from the spread of `num_studies`."""
    keys = jax.random.split(jax.random.key(seed), num_studies)
    ours = np.array([int(study(key, separation, init_scale)) for key in keys])
    tail = scipy.stats.t.ppf(1 - ERROR_RATE / 4 / 2, num_studies - 1)
    reach = tail * ours.std(ddof=1) * np.sqrt(1 + 1 / num_studies)
    return reach, ours.mean()


@pytest.mark.slow  # By default, single runs of the released code are compared.
def test_a_count_against_reference(golden):
    """At R = 1, and a control that must leave it: starts twenty times as far."""
    row = golden["reduced_scale"]["summary"][3]
    reach, mean = reach_and_mean(row["r"], num_studies=6, seed=0)
    assert abs(row["init_success"] - mean) <= reach
    _, other = reach_and_mean(row["r"], num_studies=2, seed=0, init_scale=20.0)
    assert abs(row["init_success"] - other) > reach


@pytest.mark.slow
@pytest.mark.parametrize("index", range(4))
def test_counts_against_reference(golden, index):
    row = golden["reduced_scale"]["summary"][index]
    reach, mean = reach_and_mean(row["r"], num_studies=40, seed=1)
    print(f"R = {row['r']}: {mean:.1f} +- {reach:.1f}, released {row['init_success']}")
    assert abs(row["init_success"] - mean) <= reach


@pytest.mark.slow
def test_every_run_against_reference_on_the_same_random_numbers(golden):
    """All 400 runs of the released code, on the streams that PyTorch gave it."""
    torch = pytest.importorskip("torch", reason="its random streams need PyTorch")
    rows = {
        (row["r"], row["data_seed"], row["train_seed"]): row["matched_dist"]
        for row in golden["reduced_scale_rows"]
    }
    starts, truths = released_models()
    replay = jax.jit(distances)
    for separation in (0.1, 0.25, 0.5, 1.0):
        for seed, truth in enumerate(separation * truths):
            torch.manual_seed(seed)
            inputs, targets = [], []
            for client in range(CLIENTS):
                x, noise = torch.randn(SAMPLES, FEATURES), torch.randn(SAMPLES)
                own = torch.tensor(truth[client // (CLIENTS // CLUSTERS)].tolist())
                inputs.append(x.numpy())
                targets.append((x @ own + NOISE * noise).numpy())
            mask = jnp.ones((CLIENTS, SAMPLES), bool)
            data = ClientData(jnp.stack(inputs), jnp.stack(targets), mask)
            ours = replay(data, truth, starts, STEP)
            theirs = [rows[separation, seed, start] for start in range(STARTS)]
            np.testing.assert_allclose(ours, theirs, rtol=1e-4)
            np.testing.assert_array_equal(ours <= 0.06, np.array(theirs) <= 0.06)
