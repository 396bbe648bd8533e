"""Mini-batches: every epoch visits each real sample once, whatever the padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.base.types import ClientData
from cfljax.federated.local_update import batch_at, first_order, schedule


def batches(mask, batch_size, num_steps, key=3):
    """Indices of the real samples in each of the first batches."""
    mask = jnp.asarray(mask)
    index = jnp.arange(mask.shape[0])
    data = ClientData(index, index, mask)
    plan = schedule(mask, batch_size)
    order, found = first_order(mask, plan), []
    draw = jax.jit(
        lambda step, order: batch_at(jax.random.key(key), step, order, plan, data)
    )
    for step in range(num_steps):
        batch, order = draw(step, order)
        np.testing.assert_array_equal(batch.inputs, batch.targets)
        found.append(np.asarray(batch.inputs)[np.asarray(batch.mask)].tolist())
    return found


MASK = np.array([True, False, True, True, True, False, True, True, True])  # 7 real


@pytest.mark.parametrize(("size", "lengths"), [(3, [3, 3, 1]), (7, [7]), (50, [7])])
def test_an_epoch_visits_each_real_sample_once(size, lengths):
    found = batches(MASK, size, 2 * len(lengths))
    assert [len(batch) for batch in found] == 2 * lengths
    real = np.flatnonzero(MASK).tolist()
    for half in (found[: len(lengths)], found[len(lengths) :]):
        assert sorted(index for batch in half for index in batch) == real


def test_epochs_are_shuffled_afresh_and_by_key():
    found = batches(MASK, 7, 2)
    assert found[0] != found[1]
    assert found[0] != batches(MASK, 7, 1, key=4)[0]
    assert found[0] == batches(MASK, 7, 1)[0]


def test_padding_at_the_end_changes_nothing():
    padded = np.concatenate([MASK, np.zeros(5, bool)])
    assert batches(padded, 3, 6) == batches(MASK, 3, 6)
    assert batches(np.roll(padded, 1), 3, 6) != batches(MASK, 3, 6)


def test_a_client_without_samples_has_empty_batches():
    assert batches(np.zeros(4, bool), 2, 2) == [[], []]
