"""Newcomers that work when they join, clients nobody knows, and data nobody takes."""

import jax
import numpy as np
import pytest
from conformance_cases import NAMES, build, problem, task_of

from cfljax.algorithms import REGISTRY, fedavg
from cfljax.federated.local_update import LocalUpdate

# The others' newcomers choose a model, or train as everybody does before round one.
WORKING = (
    *("ditto", "apfl", "fedala", "fedbn", "fedpac", "fedproto", "fedrep", "fedsoft"),
    "pfedme",
)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in WORKING[1:]]


@pytest.mark.long
@pytest.mark.parametrize("name", ["ditto", *SLOW])
def test_newcomers_train_by_the_step_size_of_the_round(name):
    """One that has decayed to nothing moves nobody."""
    data, truth = problem(name)
    update = LocalUpdate(decay=1e-9)
    algorithm = build(name, truth, update=update)
    sizes = [size for size in REGISTRY[name].defaults if size.endswith("step_size")]
    still = build(name, truth, update=update, **dict.fromkeys(sizes, 1e-10))

    @jax.jit
    def run(data):
        first = algorithm.init(jax.random.key(0), data)
        later, _ = algorithm.step(jax.random.key(1), first, data)
        key, found = jax.random.key(2), []
        for state in (later, first):
            for own in (algorithm, still):
                joined = own.join(key, state, data)
                found.append(own.predict(joined, data, data.inputs))
        return found

    late, expected, early, start = run(data)
    np.testing.assert_allclose(late, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(AssertionError):  # Control: in the first round it moves.
        np.testing.assert_allclose(early, start, rtol=1e-3)


# Whose answers follow from what the state knows of each client.
KNOWING = (
    "apfl",
    "cfl_s",
    "clove",
    "ditto",
    "emd_cfl",
    "fedala",
    "fedbn",
    "feddrift",
    "federated_clustering",
    "fedem",
    "fedpac",
    "fedproto",
    "fedrep",
    "fedrc",
    "fedsoft",
    "fesem",
    "flux",
    "icfl",
    "k_fed",
    "local",
    "pacfl",
    "pfedme",
    "stocfl",
)


@pytest.mark.long
@pytest.mark.parametrize("name", KNOWING)
def test_others_are_not_answered_before_they_join(name):
    data, truth = problem(name)
    algorithm = build(name, truth)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), data)
    few = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[:4]), data)
    answers = lambda state, data: jax.eval_shape(
        lambda state: algorithm.predict(state, data, data.inputs), state
    )
    with pytest.raises(
        ValueError, match="of the 6 clients that the state knows, got 4"
    ):
        answers(state, few)
    joined = jax.eval_shape(algorithm.join, jax.random.key(1), state, few)
    assert answers(joined, few).shape[0] == 4
    assert answers(state, data).shape[0] == 6


@pytest.mark.parametrize("name", NAMES)
def test_data_that_are_no_numbers_are_refused_in_padding_too(name):
    data, truth = problem(name)
    algorithm = build(name, truth)
    mask, inputs = np.array(data.mask), np.array(data.inputs)
    mask[2, -1], inputs[2, -1] = False, np.nan
    spoilt = data._replace(mask=jax.device_put(mask), inputs=jax.device_put(inputs))
    with pytest.raises(ValueError, match="`inputs` must be finite, padding included"):
        algorithm.init(jax.random.key(0), spoilt)


def test_labels_that_begin_at_one_are_refused():
    data, truth = problem("fedproto")
    wrong = data._replace(targets=data.targets + 1)
    plain = fedavg(task_of("fedproto"), step_size=0.1)
    for algorithm in (plain, build("fedproto", truth), build("fedpac", truth)):
        with pytest.raises(ValueError, match=r"`targets` must be in 0\.\.2, padding"):
            algorithm.init(jax.random.key(0), wrong)
