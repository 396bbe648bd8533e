"""What Federated-Clustering refuses, and what it calls it."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from thresholded import DATA

from cfljax.algorithms.federated_clustering import federated_clustering
from cfljax.attacks import build, threat
from cfljax.clustering.threshold import quantile_radius
from cfljax.models import linear

LIAR = threat(build("edge_adaptive"), jnp.arange(6) == 2, adaptive=True)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"momentum": 0.5, "num_groups": 2},
            "`momentum` of pairs needs `num_groups=1`",
        ),
        ({"momentum": 1.0}, r"`momentum` must be in \[0, 1\), got 1.0"),
        ({"momentum": -0.1}, "`momentum` must be in"),
        ({"num_groups": 0}, "`num_groups` must be at least 1"),
        ({"num_clipping_rounds": 0}, "`num_clipping_rounds` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"models_per_chunk": 0}, "`models_per_chunk` must be at least 1"),
        ({"radius": -1.0}, "`radius` must not be negative, got -1.0"),
        (
            {"radius": jnp.ones(3)},
            r"`radius` must be a number or a rule, got shape \(3",
        ),
        ({"threat": LIAR, "form": "gram"}, "`form` must be 'coordinates' or None"),
    ],
)
def test_misuse_is_named(changes, named):
    with pytest.raises(ValueError, match=named):
        federated_clustering(linear(3), **({"step_size": 0.1, "radius": 1.0} | changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_groups": 7}, "`num_groups` must be from 1 to the 6 clients, got 7"),
        ({"threat": LIAR, "radius": quantile_radius(0.3)}, "`radius` must be given"),
    ],
)
def test_misuse_is_named_in_the_first_round(changes, named):
    with pytest.raises(ValueError, match=named):
        algorithm = federated_clustering(
            linear(3), **({"step_size": 0.1, "radius": 1.0} | changes)
        )
        state = algorithm.init(jax.random.key(0), DATA)
        jax.eval_shape(algorithm.step, jax.random.key(0), state, DATA)


def test_tasks_that_train_otherwise_are_refused():
    task = linear(3)._replace(fit=lambda key, model, *batch: (jnp.zeros(1), model))
    with pytest.raises(ValueError, match="`task` must train on the losses"):
        federated_clustering(task, step_size=0.1, radius=1.0)


@pytest.mark.parametrize("named", ["variant", "edge", "start", "form", "order"])
def test_unknown_words_are_named(named):
    arguments = {"step_size": 0.1, "radius": 1.0, named: "neither"}
    unchecked = inspect.unwrap(federated_clustering)
    with pytest.raises(ValueError, match=f"`{named}` must be in"):
        unchecked(linear(3), **arguments)
