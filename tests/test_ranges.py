"""Numbers are held to the ranges of their names, wherever they come from."""

import dataclasses
import inspect
import math
import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conformance_cases import NAMES, build, problem

from cfljax import engine
from cfljax.algorithms import REGISTRY
from cfljax.base import ranges
from cfljax.base.ranges import fault_of, range_of, ranged
from experiments.registry import BENCHMARKS, EXPERIMENTS

NONSENSE = (math.nan, math.inf, -math.inf, -1, -0.5, 1e300, "x", True, [], {})

# Against itself


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("num_clusters", 0, "must be at least 1, got 0."),
        ("num_clusters", 1.5, "must be a whole number, got 1.5."),
        ("num_clusters", True, "must be a whole number, got True."),
        ("num_clusters", np.True_, "must be a whole number, got"),
        ("num_clusters", "2", "must be a whole number, got '2'."),
        ("num_clusters", (2, 0), "must be at least 1, got 0."),
        ("num_clusters", np.array([2, 0]), "must be at least 1, got 0."),
        ("num_clusters", jnp.array([2.0]), "must be whole numbers, got float32."),
        ("first_step_size", -1, "must not be negative, got -1."),
        ("step_sizes", (0.1, math.nan), "must be finite, got nan."),
        ("step_size", jnp.array(math.inf), "must be finite, got inf."),
        ("noise", 1e39, "must be at most 1e+18, got 1e+39."),
        ("participation", 0.0, "must be in (0, 1], got 0.0."),
        ("error_rate", 1e-320, "must be in [1e-15, 1), got"),
        ("seed", 2**32, "must be in [0, 2^32), got 4294967296."),
        ("seed", -1, "must be in [0, 2^32), got -1."),
    ],
)
def test_what_is_wrong_is_said(name, value, fault):
    assert fault_of(name, value).startswith(fault)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_clusters", 2),
        ("num_clusters", np.int64(2)),
        ("num_clusters", (2, 3)),
        ("num_clusters", None),
        ("step_size", 0),
        ("step_size", np.float32(0.1)),
        ("step_size", jnp.array([0.1, 1.0])),
        ("step_size", lambda count: 0.1),
        ("held_out", 0.2),
        ("num_held_out", 50),  # A number of something, whatever its ending says.
        ("colour", "red"),
    ],
)
def test_what_is_allowed_has_no_fault(name, value):
    assert fault_of(name, value) == ""


def test_what_is_traced_is_taken_as_it_is():
    @jax.jit
    def of(step_size):
        assert fault_of("step_size", step_size) == ""
        return step_size

    assert of(-1.0) == -1


def test_a_function_is_held_to_the_ranges_of_its_arguments():
    @ranged
    def made(num_clusters: int, *, seed: int = 0, noise: float | None = None) -> int:
        return num_clusters

    assert made(2) == made(num_clusters=2, noise=None) == 2
    with pytest.raises(ValueError, match="`num_clusters` must be at least 1, got 0"):
        made(0)
    with pytest.raises(ValueError, match="`seed` must be a number, got None"):
        made(2, seed=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`num_clusters` must be a number, got \\(2,"):
        made((2, 3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`noise` must not be negative"):
        made(2, noise=-0.1)
    assert list(inspect.signature(made).parameters) == ["num_clusters", "seed", "noise"]


def numeric(hints):
    """Names whose types are those of numbers."""
    return [name for name, hint in hints.items() if ranges._takes_numbers(hint)]


@pytest.mark.parametrize("id", sorted({**EXPERIMENTS, **BENCHMARKS}))
def test_every_number_of_a_configuration_has_a_range(id):
    module = {**EXPERIMENTS, **BENCHMARKS}[id].load()
    config = module.preset("quick")
    assert type(config).__post_init__.__qualname__.startswith("configuration.")
    names = numeric(typing.get_type_hints(type(config)))
    names = [n for n in names if n in vars(config)]
    assert not [name for name in names if range_of(name) is None]
    for name in names:
        value, allowed = getattr(config, name), range_of(name)
        if allowed is None or value is None or value == ():
            continue
        bad = -1 if allowed.is_whole else math.nan  # Of the field's type.
        bad = (bad,) * len(value) if isinstance(value, tuple) else bad
        with pytest.raises(ValueError, match=f"`{name}` must"):
            dataclasses.replace(config, **{name: bad})


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_no_algorithm_takes_nonsense(name):
    _, truth = problem(name)
    parameters = inspect.signature(REGISTRY[name].constructor).parameters.values()
    tried = 0
    for parameter in parameters:
        if parameter.name == "task" or not ranges._takes_numbers(parameter.annotation):
            continue
        values: list[Any] = list(NONSENSE)
        allowed = range_of(parameter.name)
        assert allowed is not None, parameter.name
        if allowed.is_whole:
            values.append(1.5)
        if type(None) not in typing.get_args(parameter.annotation):
            values.append(None)
        if math.isinf(allowed.high):
            values.remove(math.inf)
            values.remove(1e300)
        if allowed.low < 0:
            values = [v for v in values if v not in (-1, -0.5)]
        for value in values:
            with pytest.raises(ValueError, match=parameter.name):
                build(name, truth, **{parameter.name: value})
            tried += 1
    assert tried >= 10


@pytest.mark.parametrize("num_rounds", [1.5, -1, True, None, math.nan, "5"])
def test_a_run_takes_whole_rounds(num_rounds):
    data, truth = problem()
    with pytest.raises(ValueError, match="`num_rounds` must"):
        engine.run(build("ifca", truth), jax.random.key(0), data, num_rounds=num_rounds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data._replace(mask=data.mask.astype(float)), "`mask` must be bo"),
        (lambda data: jax.tree.map(lambda leaf: leaf[:0], data), "at least one client"),
        (
            lambda data: data._replace(inputs=data.inputs[:4]),
            "`inputs` must begin with",
        ),
        (lambda data: data._replace(targets=data.targets[:, :3]), "`targets` must beg"),
        (lambda data: data._replace(inputs=data.inputs[:, :, :3]), "not fit the task"),
        (lambda data: data._replace(mask=~data.mask), "`mask` must leave some client"),
    ],
)
def test_data_that_do_not_fit_are_named(change, message):
    data, truth = problem()
    with pytest.raises(ValueError, match=message):
        engine.run(build("ifca", truth), jax.random.key(0), change(data), num_rounds=1)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ([0, 1], "`clusters` must have one entry for each of 6 clients, got 2"),
        ([0, 1, 0, 1, 0, 2], "`clusters` must be in 0..1, got 2"),
        ([0, 1, 0, 1, 0, -1], "`clusters` must be in 0..1, got -1"),
    ],
)
def test_true_clusters_that_cannot_be_are_named(clusters, message):
    data, truth = problem()
    with pytest.raises(ValueError, match=message):
        oracle = build("oracle", truth, clusters=jnp.array(clusters))
        engine.run(oracle, jax.random.key(0), data, num_rounds=1)


# What data allow, which the constructor does not see.

WARM = {"centre_start": "warm"}
BY_NUMBER = {"threshold": None, "max_clusters": None}
# Of algorithms that divide the clients, or what they send, into clusters.
DIVIDING = {
    "clove": {},
    "fesem": {},
    "flexcfl": {},
    "hyp_cluster": {"start": "farthest"},
    "k_fed": {},
    "momentum_clustering": WARM,
    "myopic_clustering": {},
    "one_shot": {},
    "pacfl": BY_NUMBER,
    "rr_cluster": {},
}
# As many models as are wished: each client chooses one, and some may go unchosen.
CHOOSING = (
    ("ifca", {}),
    ("hyp_cluster", {}),
    ("oracle", {}),
    *((name, {}) for name in ("fedem", "fedrc", "fedsoft", "feddrift")),
    ("clove", {"clustering": "agglomerative", "select_number": True}),
)


@pytest.mark.parametrize("name", DIVIDING)
def test_there_are_no_more_clusters_than_clients(name):
    data, truth = problem(name)
    number, changes = len(data.mask), DIVIDING[name]
    build(name, truth, num_clusters=number, **changes).check(data)  # Control.
    algorithm = build(name, truth, num_clusters=number + 1, **changes)
    fault = f"`num_clusters` must be at most {number}, the .*, got {number + 1}"
    with pytest.raises(ValueError, match=fault):
        engine.run(algorithm, jax.random.key(0), data, num_rounds=1)
    with pytest.raises(ValueError, match=fault):  # Where nothing is compiled.
        jax.eval_shape(algorithm.init, jax.random.key(0), data)


@pytest.mark.parametrize(("name", "changes"), CHOOSING)
def test_who_chooses_may_have_more_clusters_than_clients(name, changes):
    data, truth = problem(name)
    more = build(name, truth, num_clusters=len(data.mask) + 1, **changes)
    more.check(data)
    jax.eval_shape(more.init, jax.random.key(0), data)


def test_every_algorithm_with_clusters_is_one_or_the_other():
    known = {*DIVIDING, *(name for name, _ in CHOOSING)}
    takes = lambda row: "num_clusters" in inspect.signature(row.constructor).parameters
    assert {name for name, row in REGISTRY.items() if takes(row)} == known


def test_data_of_every_round_are_held_to_it():
    data, truth = problem("clove")
    rounds = jax.tree.map(lambda leaf: leaf[None], data)
    with pytest.raises(ValueError, match="`num_clusters` must be at most 6"):
        engine.run(
            build("clove", truth, num_clusters=7),
            jax.random.key(0),
            rounds,
            num_rounds=1,
            data_per_round=True,
        )


@pytest.mark.parametrize(
    ("name", "argument", "most"),
    [("pacfl", "num_vectors", 5), ("k_fed", "num_local_clusters", 8)],
)
def test_parts_of_a_client_are_at_most_what_it_has(name, argument, most):
    """Of 8 samples of 5 features."""
    data, truth = problem(name)
    build(name, truth, **{argument: most}).check(data)  # Control.
    for number in (most + 1, 100_000):
        with pytest.raises(ValueError, match=f"`{argument}` must be at most {most}, "):
            algorithm = build(name, truth, **{argument: number})
            engine.run(algorithm, jax.random.key(0), data, num_rounds=1)
