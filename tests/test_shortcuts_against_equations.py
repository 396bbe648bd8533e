"""The certificate of exact shortcuts: radii by hand, and what they promise always."""

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis.extra.numpy import arrays
from properties import FINITE, NUMBERS, always, refuses

from cfljax.federated.evaluate import choose_cluster
from cfljax.montecarlo.lookahead import choose, pair_radii
from cfljax.montecarlo.samples import operator_norms

CLIENTS, SAMPLES, FEATURES, MODELS = 4, 3, 2, 3
SPARE = 1e-5  # What the certificate keeps for rounding, of two root losses.

INPUTS = arrays(np.float32, (CLIENTS, SAMPLES, FEATURES), elements=FINITE)
TARGETS = arrays(np.float32, (CLIENTS, SAMPLES), elements=FINITE)
THETAS = arrays(np.float32, (MODELS, FEATURES), elements=FINITE)
LOSSES = arrays(np.float32, (MODELS, CLIENTS), elements=NUMBERS.map(abs))


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
        radii = radii_of(roots, assignment, slopes / np.sqrt(np.float32(SAMPLES)))
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
