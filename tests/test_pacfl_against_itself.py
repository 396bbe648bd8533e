"""PACFL: groups of clients that it must find, and misuse that it must name."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.algorithms import pacfl
from cfljax.base.types import ClientData
from cfljax.models import linear

FEATURES, HEIGHT = 6, 40.0


def build(**settings):
    return pacfl(linear(FEATURES), step_size=0.05, **settings)


def in_classes(groups, counts):
    """Clients whose classes lie on lines of their own: group 0 has classes 0 and 1."""
    inputs = np.zeros((len(groups), 6, FEATURES), "f4")
    targets = np.zeros((len(groups), 6), "i4")
    generator = np.random.default_rng(3)
    for i, group in enumerate(groups):
        targets[i] = 2 * group + np.arange(6) % 2
        inputs[i] = 3 * np.eye(FEATURES)[targets[i]]
    inputs += 0.1 * generator.normal(size=inputs.shape)
    mask = np.arange(6)[None] < np.asarray(counts)[:, None]
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask))


@pytest.mark.parametrize(
    "angle", ["principal", pytest.param("entry", marks=pytest.mark.slow)]
)
def test_label_skew_is_recovered(angle):
    """Also of clients with one sample, or with a single class."""
    algorithm = build(
        num_classes=4, num_vectors=1, angle=angle, threshold=HEIGHT, max_clusters=3
    )
    start = jax.jit(algorithm.init)
    state = start(jax.random.key(0), in_classes([0, 1, 1, 0, 1], [6, 6, 1, 1, 5]))
    assert state.clusters.tolist() == [0, 1, 1, 0, 1]
    assert state.subspaces.kept.sum(1).tolist() == [2, 2, 1, 1, 2]
    state = start(jax.random.key(0), in_classes([1, 1, 1, 1, 1], [6, 6, 1, 1, 5]))
    assert int(state.found) == 1, "control: one group is not torn"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "one of `threshold` and `num_clusters` must be given"),
        ({"threshold": 3.0, "num_clusters": 2}, "one of `threshold` and"),
        ({"threshold": 3.0}, "`max_clusters` must be given beside `threshold`"),
        ({"num_clusters": 2, "max_clusters": 2}, "`max_clusters` must be given"),
        ({"num_clusters": 0}, "`num_clusters` must be at least 1, got 0"),
        ({"threshold": 3.0, "max_clusters": 0}, "`max_clusters` must be at least 1"),
        ({"threshold": -1.0, "max_clusters": 2}, "`threshold` must not be negative"),
        ({"threshold": np.nan, "max_clusters": 2}, "`threshold` must not be negative"),
        ({"num_clusters": 2, "num_vectors": 0}, "`num_vectors` must be at least 1"),
        ({"num_clusters": 2, "num_classes": 0}, "`num_classes` must be at least 1"),
        ({"num_clusters": 2, "angle": "cosine"}, "angle"),
        ({"num_clusters": 2, "linkage": "ward"}, "linkage"),
    ],
)
def test_misuse_is_named(settings, message):
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        build(**settings)
