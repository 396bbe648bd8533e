"""Werner's Figure 2: the constants against NumPy in double precision, rows by hand."""

import functools

import jax
import numpy as np
import pytest
import xarray as xr

from experiments.werner.fig2 import Trial, note, rows, simulate
from experiments.werner.synthetic import curvatures, shifted_linear

TRIAL = Trial(
    minimisers="normal",
    first_mean=1.0,
    num_clusters=3,
    num_members=4,
    num_samples=5,
    num_features=6,
    num_rounds=30,
)
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def drawn():
    """Data of the trial in NumPy: inputs, targets, models, curvatures."""

    def draw(key):
        data, truth = shifted_linear(
            key, num_clusters=3, num_members=4, num_samples=5, num_features=6
        )
        return data.inputs, data.targets, truth.models, curvatures(data)

    return [np.asarray(array, float) for array in jax.jit(draw)(KEY)]


@pytest.fixture(scope="module")
def found():
    run = jax.jit(functools.partial(simulate, TRIAL))
    return {name: np.asarray(array, float) for name, array in run(KEY).items()}


CLUSTERS = np.arange(12) // 4


# Against theory


def test_data_are_as_section_41_has_them(drawn):
    inputs, targets, models, own = drawn
    assert inputs.shape == (12, 5, 6) and models.shape == (3, 6)
    clean = np.einsum("isd,id->is", inputs, models[CLUSTERS])
    np.testing.assert_allclose(targets, clean, atol=1e-4)
    means = inputs.reshape(3, -1).mean(axis=1)
    np.testing.assert_allclose(means, [1, 2, 3], atol=5 / np.sqrt(4 * 5 * 6))
    product = np.einsum("isd,ise->ide", inputs, inputs) / 5
    np.testing.assert_allclose(own, product, rtol=1e-4, atol=1e-4)
    assert np.linalg.matrix_rank(product[0]) == 5  # Of 6: it leaves x open.


def test_constants_on_the_way(drawn, found):
    inputs, targets, models, _ = drawn
    gradient = lambda i, x: inputs[i].T @ (inputs[i] @ x - targets[i]) / 5
    hessians = np.einsum("isd,ise->ide", inputs, inputs) / 5
    step = 1 / max(
        np.linalg.eigvalsh(hessians[k == CLUSTERS].mean(axis=0))[-1] for k in range(3)
    )
    at = np.zeros((3, 6))
    for t in range(30):
        for k in range(3):
            every = np.array([gradient(i, at[k]) for i in range(12)])
            mean = every[k == CLUSTERS].mean(axis=0)
            for i in np.flatnonzero(k == CLUSTERS):
                within = np.sum((every[i] - mean) ** 2) / np.sum(mean**2)  # (7)
                gaps = np.sum((every[k != CLUSTERS] - every[i]) ** 2, axis=1)  # (8)
                np.testing.assert_allclose(found["within"][t, i], within, rtol=2e-3)
                np.testing.assert_allclose(
                    found["between"][t, i], gaps.min(), rtol=2e-3
                )
            np.testing.assert_allclose(
                found["distance"][t, k], np.linalg.norm(at[k] - models[k]), rtol=1e-4
            )
            at[k] -= step * mean


def test_the_supremum_is_never_passed_and_is_reached(drawn, found):
    own = drawn[3]
    mean = np.repeat(own.reshape(3, 4, 6, 6).mean(axis=1), 4, axis=0)
    turned = (own - mean) @ np.linalg.inv(mean)
    exact = np.linalg.norm(turned, ord=2, axis=(1, 2)) ** 2
    np.testing.assert_allclose(found["within_anywhere"], exact, rtol=1e-2)
    assert (found["within"] <= found["within_anywhere"] * 1.01).all()
    # The model at which client 0 reaches it: H (x - x*) is the first singular vector.
    aside = np.linalg.solve(mean[0], np.linalg.svd(turned[0])[2][0])
    gradients = (own[0] - mean[0]) @ aside, mean[0] @ aside
    reached = np.sum(gradients[0] ** 2) / np.sum(gradients[1] ** 2)
    np.testing.assert_allclose(reached, exact[0], rtol=1e-6)


def test_gradients_of_two_clients_meet_somewhere(found):
    assert found["between_anywhere"] < 1e-3 * found["between"].min()


# Against itself


def made_up() -> xr.Dataset:
    """One data set of two clusters with two clients each, two rounds."""
    within = np.array([[1, 2, 3, 4], [5, 1, np.nan, np.nan]], float)
    between = np.array([[9, 8, 7, 6], [5, 6, 7, 8]], float)
    distance = np.array([[2, 4], [1, 1]], float)
    data = {
        "within": (("round", "client"), within),
        "between": (("round", "client"), between),
        "distance": (("round", "cluster"), distance),
        "within_anywhere": (("client",), np.array([10, 20, 30, 40.0])),
        "between_anywhere": ((), np.array(1e-6)),
    }
    return (
        xr.Dataset(data).expand_dims(("first_mean", "trial")).assign_coords(trial=[0])
    )


def test_rows_by_hand():
    first, second = rows(made_up())
    assert (first["first"], first["last"], first["largest"]) == (2, 5, 5)
    assert (first["supremum"], first["least"], first["left"]) == (20, 5, 0.5)
    # The second cluster's mean gradient is 0 in the last round.
    assert (second["first"], second["last"], second["largest"]) == (4, 4, 4)
    assert (second["supremum"], second["least"], second["left"]) == (40, 6, 0.25)
    text = note([first, second], made_up())
    assert "at most 5" in text and "at least 5" in text and "reaches 40" in text
    assert "1.6e+03" in text and "1- to 2.5-fold" in text


def test_a_cluster_keeps_its_inputs_beside_more_clusters():
    draw = jax.jit(
        lambda number: shifted_linear(
            jax.random.key(0),
            num_clusters=number,
            num_members=2,
            minimisers="reference",
        ),
        static_argnums=0,
    )
    two, three = draw(2), draw(3)
    np.testing.assert_array_equal(two[0].inputs, three[0].inputs[:4])
    assert set(np.unique(np.asarray(three[1].models))) == {0, 100}
