"""Werner's examples of Figure 1, against their losses and by hand."""

import numpy as np
import pytest

from theory.werner import failure_modes, three_clients
from theory.werner.failure_modes_escaped import ball_chances

ETA = 0.1


def losses_a(x: float) -> list[float]:
    u = x - 1
    second = 4 * u**3 + 3 * u**4 + 1 if x < 1 else u**2 / (2 * ETA) + 1
    return [x**2 / (6 * ETA), second, (x - 2) ** 2 / (2 * ETA)]


@pytest.mark.parametrize("place", [-0.7, 0.3, 0.9, 1.4, 2.5])
def test_gradients_are_those_of_the_losses(place):
    width = 1e-6
    slopes = np.subtract(losses_a(place + width), losses_a(place - width)) / (2 * width)
    found = three_clients.gradients_a(np.array(place), ETA)
    np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-8)
    squares = [(place + s + 0.5) ** 2 for s in (width, -width)]
    first = three_clients.gradients_b(np.array(place))[0]
    np.testing.assert_allclose(first, -np.diff(squares)[0] / (2 * width), rtol=1e-6)


def test_curvature_is_bounded_by_what_neighbours_show():
    places = np.linspace(-1, 1.5, 100_001)
    slopes = np.diff(three_clients.gradients_a(places, ETA)[:, 1]) / np.diff(places)
    bound = three_clients.curvature_bound(-1.0, 1.5, ETA)
    assert 0.999 * bound < np.max(np.abs(slopes)) < bound * (1 + 1e-6)
    assert three_clients.curvature_bound(0.5, 0.7, ETA) == pytest.approx(4)


def test_two_means_of_three_points_by_hand():
    assert three_clients.two_means(np.array([5.0, 0.0, 1.0])) == [{1, 2}, {0}]
    assert three_clients.two_means(np.array([0.0, 3.0, 5.0])) == [{0}, {1, 2}]


def test_a_federated_step_by_hand():
    """Balls {1,2}, {1,2} and {3}: two clipping rounds, each over all three points."""
    models = np.array([0.0, 1.0, 2.0])
    received = np.array([[0.0, 1.0, 9.0], [0.0, 1.0, 9.0], [0.0, 1.0, 9.0]])
    found = three_clients.federated_step(
        models, received, step_size=1.0, radius=2.0, num_rounds=2
    )
    # v = 0 -> 1/3 -> 1/3 + (-1/3 + 2/3)/3, and the mirror image from 1.
    np.testing.assert_allclose(models - found, [4 / 9, 5 / 9, 9.0], rtol=1e-12)


def test_ifca_leaves_symmetric_clients_where_they_are_and_moves_others():
    start = np.array([-1.5, 0.0])
    for local_steps in (None, 3):
        move = failure_modes.ifca_round(start, step_size=0.1, local_steps=local_steps)
        np.testing.assert_array_equal(move, start)
    apart = np.array([-0.6, 0.4])
    one = failure_modes.ifca_round(apart, step_size=0.1, local_steps=1)
    np.testing.assert_allclose(one, [-0.58, 0.42], rtol=1e-12)
    half = failure_modes.ifca_round(apart, step_size=0.1, local_steps=None)
    np.testing.assert_allclose(half, [-0.59, 0.41], rtol=1e-12)


@pytest.mark.parametrize(
    ("gradients", "alone"),
    [((1.0, -1.0, 1.0), 1), ((1.0, -1.0, -2.0), 0), ((1.0, 1.0, -1.0), 2)],
)
def test_the_bipartition_parts_opposite_signs(gradients, alone):
    found = failure_modes.bipartition(np.array(gradients))
    assert frozenset({alone}) in found and len(found) == 2


def test_ball_chances_are_binomial():
    chances, right = ball_chances(4, 0.25)
    np.testing.assert_allclose(chances, np.array([1, 4, 6, 4, 1]) / 16, rtol=1e-12)
    # Client 1's ball is right from 2 heads on, client 2's from 1 to 3.
    np.testing.assert_array_equal(right, [0, 1, 2, 2, 1])
