"""Werner's Table 1: rows, orderings and crossings by hand, the loss and the labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from cfljax.data import Sizes, load_images
from experiments.werner import table1
from experiments.werner.balls import balls

NAMES = ("oracle", "federated_clustering", "local", "fedavg")


def made_up(accuracies, steps=(10,)) -> xr.Dataset:
    """Accuracies `[method, repetition, tested]`; every other number is 0.5."""
    values = np.array(accuracies, float)[:, :, None]
    axes = ("method", "repetition", "trial", "tested")
    others = ("cross_entropy", "probability", "purity")
    data = {"accuracy": (axes, values)}
    data |= {name: (axes, np.full_like(values, 0.5)) for name in others}
    coords = {"method": list(NAMES[: len(values)]), "tested": list(steps)}
    return xr.Dataset(data, coords)


def told(accuracies):
    results = {"rotation": made_up([[[a] for a in own] for own in accuracies])}
    return table1.note(results, table1.rows(results, 0.05, is_mnist=True), [])


def test_rows_by_hand():
    results = {"rotation": made_up([[[0.8], [0.9]]])}
    (row,) = table1.rows(results, 0.05, is_mnist=True)
    np.testing.assert_allclose(row["accuracy"], 85)
    np.testing.assert_allclose(row["deviation"], 10 / np.sqrt(2))
    assert row["accuracy_high"] == 100, "no accuracy is above"
    assert (row["published"], row["published_loss"]) == (84.7, 0.432)
    (other,) = table1.rows(results, 0.05, is_mnist=False)
    assert other["published"] is None, "the paper's numbers are of its own images"


def test_the_ordering_is_counted_by_seed():
    assert "in 2 of 2 seeds" in told([[0.9, 0.8], [0.8, 0.7], [0.7, 0.6], [0.5, 0.5]])
    assert "in 1 of 2 seeds" in told([[0.9, 0.8], [0.8, 0.8], [0.7, 0.6], [0.5, 0.5]])
    nan = [[0.9, 0.8], [0.8, 0.7], [0.7, np.nan], [0.5, 0.5]]
    assert "in 1 of 2 seeds" in told(nan), "a diverged run is no success"


@pytest.mark.parametrize(
    ("local", "together", "text"),
    [
        ([0.7, 0.7, 0.7], [0.5, 0.8, 0.8], "above Local from step 20 on (80.0 %"),
        ([0.7, 0.7, 0.7], [0.8, 0.6, 0.8], "above Local from step 30 on"),
        ([0.7, 0.7, 0.7], [0.8, 0.8, 0.7], "stays below Local for 30 steps"),
        ([0.7, 0.7, 0.7], [0.8, 0.8, np.nan], "stays below Local"),
    ],
)
def test_when_global_passes_local(local, together, text):
    data = made_up([[local] * 2, [together] * 2], steps=(10, 20, 30))
    data = data.assign_coords(method=["local", "fedavg"])
    crossing = table1.long_rows({"rotation": data}, 0.05)
    assert text in table1.note({}, [], crossing)


def test_purity_leaves_out_the_receiver():
    members = jnp.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 1, 1]], bool)
    found = balls(members, jnp.array([0, 0, 1, 1]))
    np.testing.assert_allclose(found, [2 / 3, 2 / 4])


def test_the_released_loss_against_its_definition():
    task = table1._task((2, 2), 3, "probability")
    params = task.init(jax.random.key(0))
    inputs, targets = jnp.ones((1, 2, 2)), jnp.array([3])
    likelihood = jax.nn.softmax(task.predict(params, inputs))[0, 3]
    (loss,) = task.losses(params, inputs, targets)
    np.testing.assert_allclose(loss, 1 - likelihood, rtol=1e-5)


def test_private_labels_count_on():
    images = load_images("digits")
    sizes = Sizes(num_clients=8, num_samples=10, num_test_clients=8)
    data = table1.draw("private_label", images, seed=0, repetitions=1, sizes=sizes)
    plain = table1.draw("rotation", images, seed=0, repetitions=1, sizes=sizes)
    np.testing.assert_array_equal(data.clusters[0], np.repeat(np.arange(4), 2))
    shift = data.clusters[0][:, None]
    found = (data.train.targets[0] - shift) % 10
    np.testing.assert_array_equal(found, plain.train.targets[0])
    assert np.any(found != data.train.targets[0])
    turned = jnp.rot90(data.train.inputs[0, 4], 2, axes=(1, 2))
    np.testing.assert_array_equal(turned, plain.train.inputs[0, 4])
