"""The certificate and the rounds of the exact Monte-Carlo, in double precision."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis.extra.numpy import arrays
from properties import FINITE, NUMBERS, always, refuses

from cfljax.data.linear import standard_samples
from cfljax.federated.evaluate import choose_cluster
from cfljax.montecarlo import draw_samples, prepare
from cfljax.montecarlo.lookahead import (
    FrozenRuns,
    Lookahead,
    Path,
    choose,
    pair_radii,
    set_path,
)
from cfljax.montecarlo.partitions import Partitions
from cfljax.montecarlo.rounds import (
    backward,
    backward_by_client,
    forward,
    pays_by_client,
    sample_rounds,
)
from cfljax.montecarlo.samples import operator_norms
from cfljax.montecarlo.state import Runs

# The certificate: radii by hand, and what they promise always

FEW_CLIENTS, FEW_SAMPLES, PLANE, MODELS = 4, 3, 2, 3
SPARE = 1e-5  # What the certificate keeps for rounding, of two root losses.

INPUTS = arrays(np.float32, (FEW_CLIENTS, FEW_SAMPLES, PLANE), elements=FINITE)
TARGETS = arrays(np.float32, (FEW_CLIENTS, FEW_SAMPLES), elements=FINITE)
THETAS = arrays(np.float32, (MODELS, PLANE), elements=FINITE)
LOSSES = arrays(np.float32, (MODELS, FEW_CLIENTS), elements=NUMBERS.map(abs))


def radii_of(roots, assignment, lipschitz):
    """`pair_radii` of one run, from root losses `[models, clients]`."""
    losses = np.square(np.array(roots, np.float32))[None]
    slopes = np.array(lipschitz, np.float32)
    return pair_radii(losses, np.array([assignment]), slopes)[0]


def test_radii_of_two_models_by_hand():
    """Client 2 of model 0 is the nearest to a change: 4 - 3 over slope 1."""
    roots = [[0.0, 2.0, 3.0], [3.0, 1.0, 4.0]]
    radii = radii_of(roots, [0, 1, 0], [1.0, 0.5, 1.0])
    expected = (4 - 3) - SPARE * (4 + 3)
    assert radii[0, 1] == radii[1, 0] == pytest.approx(expected, rel=1e-6)
    assert np.all(np.diag(radii) > 1e14)  # No model is unused.


def test_radii_against_a_model_that_nobody_chose_by_hand():
    """It does not move: each used model has its own radius against it."""
    roots = [[0.0, 2.0, 3.0], [3.0, 1.0, 4.0], [2.0, 10.0, 5.0]]
    radii = radii_of(roots, [0, 1, 0], [1.0, 0.5, 1.0])
    assert radii[0, 0] == pytest.approx(2 - SPARE * (3 + 5), rel=1e-6)
    assert radii[1, 1] == pytest.approx((9 - SPARE * 11) / 0.5, rel=1e-6)
    assert np.all(radii[2] == np.inf)
    assert np.all(radii[:, 2] == np.inf)


def test_a_tie_leaves_no_room():
    radii = radii_of([[1.0, 2.0], [1.0, 0.0]], [0, 1], [1.0, 1.0])
    assert radii[0, 1] == 0
    losses = np.array([[[1.0, 2.0], [1.0, 0.0]]], np.float32)
    assert choose(losses).tolist() == [[0, 1]]  # Ties go to the lowest index.


def test_one_model_alone_may_go_until_a_loss_could_overflow():
    """Root losses do above 1.8e19, if they are sums of 3e8 samples of 1e15 at least."""
    radius = radii_of([[1.0, 2.0]], [0, 0], [1.0, 1e3])[0, 0]
    assert radius == pytest.approx(1e15 / 1e3, rel=1e-4)
    assert radii_of([[2e15, 2.0]], [0, 0], [1.0, 1.0])[0, 0] == 0
    assert radii_of([[1.0, 2.0]], [0, 0], [0.0, 0.0])[0, 0] == np.inf


def test_a_client_without_inputs_never_changes_its_mind():
    roots = [[1.0, 1.0], [1.0, 2.0]]
    tied = pytest.approx(1 - SPARE * 3, rel=1e-6)
    assert radii_of(roots, [0, 0], [0.0, 1.0])[0, 0] == tied
    assert radii_of(roots, [0, 0], [1.0, 1.0])[0, 0] == 0


def test_clients_whose_losses_hardly_change_are_infinitely_far():
    radii = radii_of([[1.0, 9.0], [9.0, 1.0]], [0, 1], [1e-38, 1e-38])
    assert np.isinf(radii[0, 1])  # Without a warning.


def test_an_unknown_slope_leaves_no_room():
    radii = radii_of([[1.0, 3.0], [3.0, 1.0]], [0, 1], [np.nan, 1.0])
    assert not radii[0, 1] > 0


@pytest.mark.parametrize("lost", [np.inf, np.nan])
def test_a_loss_that_is_not_finite_counts_for_less_than_any_that_overflows(lost):
    """Root losses overflow above 1.8e19; such a model is taken to be nearer."""
    losses = np.array([[[4.0], [lost]]], np.float32)
    radius = pair_radii(losses, np.array([[0]]), np.ones(1, np.float32))[0, 0, 0]
    least = np.sqrt(np.finfo(np.float32).max)
    assert 0 < radius < (least - 2) - SPARE * (least + 2)


@pytest.mark.long
@always(losses=LOSSES)
def test_choices_are_those_of_the_algorithm(losses):
    theirs = np.asarray(choose_cluster(jnp.asarray(losses.T)))
    assert np.array_equal(choose(losses[None])[0], theirs)


def root_losses(inputs, targets, thetas, kind):
    """`[models, clients]`, in the arithmetic of a kind of float."""
    outputs = np.einsum("csf,jf->jcs", inputs.astype(kind), thetas.astype(kind))
    return np.sqrt(np.mean(np.square(outputs - targets.astype(kind)), axis=2))


def keeps(scale):
    """The check that models within `scale` times their radii keep every client."""

    def check(inputs, targets, thetas, ways, shares):
        roots = root_losses(inputs, targets, thetas, np.float32)
        assignment = np.argmin(roots, axis=0)
        slopes = np.asarray(operator_norms(jnp.asarray(inputs)))
        radii = radii_of(roots, assignment, slopes / np.sqrt(np.float32(FEW_SAMPLES)))
        used = np.isin(np.arange(MODELS), assignment)
        lengths = np.linalg.norm(ways.astype(np.float64), axis=1)
        units = ways / np.where(lengths > 0, lengths, 1)[:, None]
        pairs = shares[:, None] + np.where(np.eye(MODELS), 0, shares[None])
        pairs = np.where(used[:, None] & used[None], pairs, 0)
        bounded = np.isfinite(radii) & (pairs > 0)
        most = np.min(radii[bounded] / pairs[bounded], initial=1e6)
        moves = np.where(used, 0.999 * scale * most * shares, 0)
        moved = thetas + moves[:, None] * units
        exact = root_losses(inputs, targets, moved, np.float64)
        if most > 0:
            assert np.array_equal(np.argmin(exact, axis=0), assignment)

    return check


MOVES = {
    "inputs": INPUTS,
    "targets": TARGETS,
    "thetas": THETAS,
    "ways": THETAS,
    "shares": arrays(np.float64, MODELS, elements=st.sampled_from((0.0, 0.5, 1.0))),
}


@always(**MOVES)
def test_no_client_changes_its_choice_within_the_radii(
    inputs, targets, thetas, ways, shares
):
    keeps(1.0)(inputs, targets, thetas, ways, shares)


def test_control_some_client_changes_its_choice_beyond_the_radii():
    assert refuses(keeps(2.0), **MOVES)


@pytest.mark.parametrize(("share", "stays"), [(0.999, True), (1.001, False)])
def test_the_radius_is_the_largest_in_one_dimension(share, stays):
    """One sample, x = 2 and y = 0: models at 1 and 4 meet in the worst direction."""
    x, models = 2.0, np.array([1.0, 4.0])
    norm = float(np.asarray(operator_norms(jnp.full((1, 1, 1), x)))[0])
    radius = float(radii_of(np.abs(x * models)[:, None], [0], [norm])[0, 0])
    assert radius == pytest.approx(3, rel=1e-4)
    models[0] += share * radius  # The other is not used, and stays.
    assert (np.argmin(np.abs(x * models)) == 0) == stays


def exact_norms(blocks):
    return np.linalg.norm(np.asarray(blocks, np.float64), 2, axis=(1, 2))


@pytest.mark.parametrize("shape", [(12, 5), (5, 12), (8, 8), (1, 7), (7, 1)])
@pytest.mark.parametrize("rank", [1, 8])
def test_operator_norms_against_singular_values(shape, rank):
    """Never below, and above by no more than r^(1/4p), p = 32, and rounding."""
    draw = np.random.default_rng(0)
    left = draw.normal(size=(10, shape[0], rank))
    blocks = (left @ draw.normal(size=(10, rank, shape[1]))).astype(np.float32)
    ratios = np.asarray(operator_norms(jnp.asarray(blocks))) / exact_norms(blocks)
    assert np.all(ratios >= 1)
    assert np.all(ratios <= (1 + 3 * SPARE) * min(*shape, rank) ** (1 / 128))


def test_operator_norms_are_loosest_where_all_singular_values_are_equal():
    draw = np.random.default_rng(0)
    blocks, _ = np.linalg.qr(draw.normal(size=(10, 8, 8)))
    norms = np.asarray(operator_norms(jnp.asarray(blocks, jnp.float32)))
    np.testing.assert_allclose(norms, 8 ** (1 / 128), rtol=3 * SPARE)


@pytest.mark.parametrize("scale", [1e-30, 1e-11, 1e-6, 1e6, 1e11, 1e30])
def test_operator_norms_of_any_scale(scale):
    """Squares of squares of such inputs leave the range of float32."""
    draw = np.random.default_rng(0)
    blocks = (scale * draw.normal(size=(10, 5, 12))).astype(np.float32)
    ratios = np.asarray(operator_norms(jnp.asarray(blocks))) / exact_norms(blocks)
    assert np.all((ratios >= 1) & (ratios <= (1 + 3 * SPARE) * 5 ** (1 / 128)))


def test_operator_norms_of_zero_and_of_nan():
    blocks = np.zeros((2, 5, 12), np.float32)
    blocks[1, 0, 0] = np.nan
    norms = np.asarray(operator_norms(jnp.asarray(blocks)))
    assert norms[0] == 0
    assert np.isnan(norms[1])


# Products, against rounds of Algorithm 2

CLIENTS, SAMPLES, FEATURES, MODELS, RUNS = 6, 5, 4, 3, 2
CLUSTERS = np.array([0, 0, 1, 1, 2, 2])
PROBLEMS = np.array([1, 0])
STEPS = np.array([0.3, 0.1], np.float32)
NUMBER = 4


def draw(seed=0):
    """Inputs, two problems' targets, and starts of two runs."""
    draws = np.random.default_rng(seed)
    shapes = (
        (CLIENTS, SAMPLES, FEATURES),
        (2, CLIENTS, SAMPLES),
        (RUNS, MODELS, FEATURES),
    )
    return [draws.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.fixture(scope="module")
def problem():
    return draw()


@pytest.fixture(scope="module")
def samples(problem):
    inputs, targets, _ = problem
    return prepare(jnp.asarray(inputs), jnp.asarray(targets), CLUSTERS)


def losses_of(inputs, targets, models):
    """F_i(theta_j), `[models, clients]`, in double precision."""
    outputs = np.einsum("csf,jf->jcs", inputs.astype(float), models.astype(float))
    return np.mean(np.square(outputs - targets), axis=2)


def plain_round(inputs, targets, models, choice, step, per_cluster):
    """Line 14 of Algorithm 2, for any choice of the clients; -1 takes no part."""
    moved = models.astype(float)
    for j in range(len(models)):
        own = np.flatnonzero(choice == j)
        if len(own):
            errors = inputs[own].astype(float) @ models[j] - targets[own]
            summed = 2 / SAMPLES * np.einsum("csf,cs->f", inputs[own], errors)
            moved[j] -= step / (len(own) if per_cluster else len(inputs)) * summed
    return moved


def plain_rounds(inputs, targets, models, step, number, *, per_cluster, clusters=None):
    """Models after each round and choices before it, clients or sets choosing."""
    path, choices = [], []
    for _ in range(number):
        losses = losses_of(inputs, targets, models)
        if clusters is not None:  # Each set chooses as one.
            means = [losses[:, clusters == c].mean(axis=1) for c in np.unique(clusters)]
            losses = np.stack(means, axis=1)[:, clusters]
        choices.append(np.argmin(losses, axis=0))
        models = plain_round(inputs, targets, models, choices[-1], step, per_cluster)
        path.append(models)
    return np.array(path), np.array(choices)


def all_plain_rounds(problem, **options):
    """`plain_rounds` of every run."""
    inputs, targets, starts = problem
    return [
        plain_rounds(inputs, targets[own], starts[run], STEPS[run], NUMBER, **options)
        for run, own in enumerate(PROBLEMS)
    ]


def test_forward_and_backward_are_errors_and_gradients(problem, samples):
    inputs, targets, starts = problem
    models = starts.reshape(-1, FEATURES)
    which = np.repeat(PROBLEMS, MODELS)
    errors, losses = forward(samples.design, models, which, CLIENTS)
    for j, own in enumerate(which):
        expected = inputs.astype(float) @ models[j] - targets[own]
        found = np.asarray(errors[j]).reshape(CLIENTS, SAMPLES)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            losses[j], np.mean(np.square(expected), axis=1), rtol=1e-4
        )
    weights = np.zeros((2, CLIENTS), np.float32)
    weights[0, [1, 3]] = weights[1, 5] = 1
    gradients = backward(samples.design, errors, np.array([4, 0]), weights)
    for place, (column, members) in enumerate(((4, [1, 3]), (0, [5]))):
        own = np.asarray(errors[column], float).reshape(CLIENTS, SAMPLES)[members]
        expected = 2 / SAMPLES * np.einsum("csf,cs->f", inputs[members], own)
        found = np.asarray(gradients)[:FEATURES, place]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_a_client_left_out_has_does_not_matter(samples, problem):
    """Not even if its errors are no numbers."""
    errors, _ = forward(samples.design, problem[2][0], np.zeros(MODELS, int), CLIENTS)
    spoiled = np.array(errors).reshape(MODELS, CLIENTS, SAMPLES)
    spoiled[:, 2] = np.nan
    weights = np.ones((MODELS, CLIENTS), np.float32)
    weights[:, 2] = 0
    which = np.arange(MODELS)
    found = backward(samples.design, spoiled.reshape(MODELS, -1), which, weights)
    expected = backward(samples.design, errors, which, weights)
    np.testing.assert_array_equal(found, expected)
    weights[:, 2] = 1  # Control.
    found = backward(samples.design, spoiled.reshape(MODELS, -1), which, weights)
    assert np.all(np.isnan(found))


def by_client(samples, errors, places, choices, ends):
    first, last = np.array(ends, np.int32)
    return backward_by_client(
        samples.inputs, errors, places, choices, MODELS, (first, last)
    )


@pytest.mark.long
def test_gradients_by_client_are_those_of_whole_columns(problem, samples):
    """Whichever array has the errors, and for clients without a model as well."""
    starts = problem[2]
    which = np.repeat(PROBLEMS, MODELS)
    errors, _ = forward(samples.design, starts.reshape(-1, FEATURES), which, CLIENTS)
    choices = np.array([[0, 1, 1, 2, 0, -1], [2, 2, -1, 0, 0, 2]])
    columns = np.arange(RUNS)[:, None] * MODELS + choices
    places = np.where(choices < 0, -1, columns)
    weights = choices[:, None] == np.arange(MODELS)[None, :, None]
    weights = weights.reshape(-1, CLIENTS).astype(np.float32)
    which = np.arange(RUNS * MODELS)
    expected = backward(samples.design, errors, which, weights)[:FEATURES].T
    expected = np.reshape(expected, (RUNS, MODELS, FEATURES))
    spoiled = np.array(errors).reshape(-1, CLIENTS, SAMPLES)
    spoiled[:MODELS, 5] = spoiled[MODELS:, 2] = np.nan  # Of those without a model.
    spoiled = jnp.asarray(spoiled.reshape(errors.shape))
    for parts in ((errors,), (spoiled,), (errors[:2], errors[2:]), (errors, errors)):
        found = by_client(samples, parts, places, choices, (0, CLIENTS))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    ends = ((0, 2), (2, CLIENTS))
    parts = [by_client(samples, (spoiled,), places, choices, own) for own in ends]
    np.testing.assert_allclose(sum(parts), expected, rtol=1e-4, atol=1e-5)
    found = by_client(samples, (spoiled,), places, choices[:, ::-1], (0, CLIENTS))
    assert not np.allclose(found, expected, rtol=1e-2)  # Control.


def test_gradients_go_by_client_where_runs_have_several_models():
    assert pays_by_client(16, 64, "cpu")
    assert pays_by_client(48, 96, "cpu")
    assert not pays_by_client(48, 48, "cpu")  # Nothing is saved.
    assert not pays_by_client(4, 16, "cpu")  # It takes longer than what is saved.
    assert not pays_by_client(16, 64, "gpu")


def rounds_of(samples, starts, left, number, *, per_cluster=False, by_client):
    """Some rounds of all runs, of which each has some left."""
    divisor = np.float32(0 if per_cluster else CLIENTS)
    design, inputs = samples.design, samples.inputs
    given = (starts, PROBLEMS, STEPS, np.array(left, np.int32), divisor, CLIENTS)
    return np.asarray(
        sample_rounds(design, inputs, *given, np.int32(number), by_client=by_client)
    )


@pytest.mark.parametrize("by_client", [False, True])
@pytest.mark.parametrize("per_cluster", [False, True])
def test_rounds_on_the_samples_are_those_of_algorithm_2(
    problem, samples, per_cluster, by_client
):
    left, options = (NUMBER, 2), {"per_cluster": per_cluster, "by_client": by_client}
    found = rounds_of(samples, problem[2], left, NUMBER, **options)
    expected_rounds = all_plain_rounds(problem, per_cluster=per_cluster)
    for run, (path, choices) in enumerate(expected_rounds):
        expected = path[left[run] - 1]
        np.testing.assert_allclose(found[run], expected, rtol=1e-4, atol=1e-5)
        assert not np.allclose(found[run], path[left[run] - 2], rtol=1e-4)  # Control.
        assert len(np.unique(choices)) > 1


@pytest.mark.parametrize("by_client", [False, True])
def test_a_client_without_finite_losses_takes_no_part(problem, samples, by_client):
    starts = problem[2].copy()
    starts[0, 1:] = np.inf  # Nobody chooses these, and they stay.
    starts[1] = np.nan
    found = rounds_of(samples, starts, (NUMBER, NUMBER), 1, by_client=by_client)
    inputs, targets, _ = problem
    everyone = np.zeros(CLIENTS, int)
    expected = plain_round(
        inputs, targets[PROBLEMS[0]], starts[0, :1], everyone, STEPS[0], False
    )
    np.testing.assert_allclose(found[0, :1], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found[0, 1:], starts[0, 1:])
    np.testing.assert_array_equal(found[1], starts[1])


@pytest.mark.parametrize("per_cluster", [False, True])
def test_guessed_rounds_are_those_of_sets_that_choose_as_one(
    problem, samples, per_cluster
):
    starts = problem[2]
    members = (np.arange(3)[:, None] == CLUSTERS).astype(np.float32)
    models, choices = set_path(
        tuple(samples.grams),
        samples.moments[PROBLEMS],
        samples.squares[PROBLEMS] @ members.T,
        np.sum(members, axis=1),
        STEPS,
        np.float32(0 if per_cluster else CLIENTS),
        starts,
        np.int32(NUMBER),
        room=NUMBER,
    )
    expected_rounds = all_plain_rounds(
        problem, per_cluster=per_cluster, clusters=CLUSTERS
    )
    for run, (path, chosen) in enumerate(expected_rounds):
        np.testing.assert_allclose(models[:NUMBER, run], path, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(
            np.asarray(choices)[:NUMBER, run][:, CLUSTERS], chosen
        )


def walked(problem, samples, path_of, choices_of):
    """A run that goes along a path, evaluated as a batch would be."""
    _, _, starts = problem
    options = {"num_rounds": 50, "per_cluster": False}
    runs = Runs(samples, starts[:1], PROBLEMS[:1], STEPS[:1], **options)
    _, losses = runs.evaluate(np.zeros(MODELS, int), runs.models[0])
    runs.losses[0] = losses
    moved = np.any(choices_of[:, :, None] == np.arange(MODELS), axis=1)
    path = Path(0, choices_of, path_of.astype(np.float32), moved)
    _, seen = runs.evaluate(np.zeros(len(path.columns), int), path.columns)
    frozen = FrozenRuns(runs, np.zeros(1, bool))
    foresight = Lookahead(runs, frozen, Partitions(samples))
    places = foresight.walk(path, seen)
    return runs, places, foresight


@pytest.mark.parametrize("right", [0, 2, NUMBER])
def test_a_guess_is_followed_as_far_as_every_client_agrees(problem, samples, right):
    inputs, targets, starts = problem
    own = targets[PROBLEMS[0]]
    path, choices = plain_rounds(
        inputs, own, starts[0], STEPS[0], NUMBER, per_cluster=False
    )
    if right < NUMBER:  # One client is guessed wrong from here on.
        choices[right:, 3] = (choices[right:, 3] + 1) % MODELS
        path[right:] += 1
    runs, places, foresight = walked(problem, samples, path, choices)
    assert runs.left[0] == 50 - right
    expected = path[right - 1] if right else starts[0]
    np.testing.assert_allclose(runs.models[0], expected, rtol=1e-6)
    np.testing.assert_allclose(
        runs.losses[0], losses_of(inputs, own, expected), rtol=1e-4
    )
    assert foresight.forget(0) == (right == 0)
    assert not foresight.forget(0)
    moved = np.any(choices[:right, :, None] == np.arange(MODELS), axis=(0, 1))
    np.testing.assert_array_equal(places >= 0, moved)


@pytest.mark.long
def test_samples_are_drawn_as_the_data_draw_them():
    sizes = {"num_clients": 3, "num_samples": 7, "num_features": 5}
    found = draw_samples(jax.random.key(1), **sizes)
    expected = standard_samples(jax.random.key(1), **sizes)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    other = draw_samples(jax.random.key(2), **sizes)  # Control.
    assert not np.any(np.asarray(other[0]) == np.asarray(expected[0]))
