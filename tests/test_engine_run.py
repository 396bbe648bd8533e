"""One run: compiled by itself, on all cores, without what nobody looks at."""

import functools
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_trial import BARE, known, serve

import cfljax as cfl
from cfljax import cores
from cfljax.engine.devices import devices_for, products

KEY = jax.random.key(3)
PIXELS, HIDDEN = (28, 28), 64


def draw(num_clients, num_samples=20):
    """Noise with labels."""
    inputs, targets = jax.random.split(jax.random.key(0))
    shape = (num_clients, num_samples)
    return cfl.ClientData(
        jax.random.normal(inputs, (*shape, *PIXELS)),
        jax.random.randint(targets, shape, 0, 10),
        jnp.ones(shape, bool),
    )


def network():
    return cfl.models.mlp(PIXELS, hidden=(HIDDEN,))


def build(name, **options):
    if name == "ifca":
        options |= {"num_clusters": 2, "option": "model"}
    return getattr(cfl, name)(network(), step_size=0.05, **options)


def losses_of(state, info):
    return info.losses


def flops(jaxpr):
    return products(jaxpr.jaxpr)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


# Against itself: devices and transformations


# Algorithm -> clients, and numbers of devices; None stands for all.
DEVICES = {"fedavg": (10, (1, 3, None)), "ifca": (9, (1, 2, 4)), "sets": (8, (1, 2))}
FEW = {"fedavg": (10, (1, 3)), "ifca": (9, (1, None))}


def runs_on_devices(cases):
    """Whether models are the same bits on several devices, by default on all; others by
    another key; and alone on the first device."""
    found, home = {}, {jax.devices()[0]}
    is_home = lambda leaf: leaf.sharding.device_set == home and not leaf.committed
    for name, (num_clients, counts) in cases.items():
        algorithm = build("fedavg" if name == "sets" else name, num_steps=2)
        data, per_round = draw(num_clients, 60), False
        if name == "sets":  # Each round has one of two.
            data = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), data)
            per_round = np.array([1, 0])
        start = functools.partial(
            cfl.run, algorithm, data=data, num_rounds=2, data_per_round=per_round
        )
        states = [start(key=KEY, devices=number)[0] for number in counts]
        other = start(key=jax.random.key(4), devices=counts[-1])[0]
        one, *more = map(leaves, states)
        same = [all(map(np.array_equal, one, state)) for state in more]
        differs = not np.array_equal(one[0], leaves(other)[0])
        found[name] = [*same, differs, all(map(is_home, jax.tree.leaves(states)))]
    return found


def batched_decomposition():
    """An algorithm that hangs on two devices of a CPU runs on one by default."""
    algorithm = build("fedavg", num_steps=20)

    def step(key, state, data):
        squares = jnp.zeros((3, 5, 5)) + jax.random.uniform(key)
        sizes = jnp.sum(jnp.linalg.eigvalsh(squares))
        state, info = algorithm.step(key, state, data)
        return state, info._replace(losses=info.losses + sizes)

    hanging, data = algorithm._replace(step=step), draw(40)
    jaxpr = jax.make_jaxpr(
        functools.partial(cfl.run, num_rounds=1, observe=losses_of), static_argnums=0
    )
    counts = [
        devices_for(jaxpr(one, KEY, data).jaxpr, 1) for one in (algorithm, hanging)
    ]
    _, losses = cfl.run(hanging, KEY, data, num_rounds=1, observe=losses_of)
    return [*counts, bool(np.isfinite(losses).all())]


@pytest.mark.long
@pytest.mark.parametrize("cases", [FEW, pytest.param(DEVICES, marks=pytest.mark.slow)])
def test_devices_change_no_bit_of_a_model(cases):
    found, counts = serve(
        "test_engine_run",
        ("runs_on_devices", cases),
        ("batched_decomposition",),
        cores=4,
        env=BARE | {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")},
    )
    expected = {name: [True] * (len(counts) + 1) for name, (_, counts) in cases.items()}
    assert found == expected
    assert counts == [4, 1, True]


@pytest.mark.long
def test_a_run_is_compiled_once_and_inside_of_others_not_at_all():
    traced = []
    algorithm = build("fedavg", num_steps=2)

    def step(key, state, data):
        traced.append(key)
        return algorithm.step(key, state, data)

    counted, data = algorithm._replace(step=step), draw(3)
    plain = lambda key: cfl.run(counted, key, data, num_rounds=2, devices=1)[0].model
    first, _ = plain(KEY), plain(jax.random.key(4))
    assert len(traced) == 1
    several = jax.vmap(lambda key: cfl.run(counted, key, data, num_rounds=2)[0].model)
    many = several(jnp.stack([KEY, jax.random.key(4)]))
    for one, row in zip(leaves(first), leaves(many), strict=True):
        np.testing.assert_allclose(row[0], one, rtol=1e-5, atol=1e-7)
        assert not np.allclose(row[1], one, rtol=1e-5, atol=1e-7)  # Control.


@pytest.mark.long
def test_traced_settings_and_a_surrounding_jit_are_seen():
    data, task = draw(3), network()

    def moved(step_size):
        state, _ = cfl.run(
            cfl.fedavg(task, step_size=step_size), KEY, data, num_rounds=1
        )
        return state.model["layers"][0]["bias"]

    sizes = jnp.array([0.0, 0.1])
    still, moving = jax.vmap(moved)(sizes)
    start = task.init(jax.random.split(jax.random.split(KEY)[0], 1)[0])
    np.testing.assert_allclose(still, start["layers"][0]["bias"], rtol=1e-6)
    assert np.max(np.abs(moving - still)) > 1e-4
    inside = jax.jit(lambda: moved(0.1))()
    np.testing.assert_allclose(inside, moving, rtol=1e-5, atol=1e-7)


def test_devices_are_refused_where_they_cannot_be():
    algorithm, data = build("fedavg"), draw(3)
    most = jax.local_device_count()
    for number in (0, most + 1):
        with pytest.raises(ValueError, match=rf"must be in 1\.\.{most}, got {number}"):
            cfl.run(algorithm, KEY, data, num_rounds=1, devices=number)
    inside = jax.jit(lambda key: cfl.run(algorithm, key, data, num_rounds=1, devices=1))
    with pytest.raises(ValueError, match="`devices` must be None inside of `jit`"):
        inside(KEY)
    spoiled = data._replace(inputs=data.inputs.at[1, 0, 0, 0].set(jnp.nan))
    with pytest.raises(ValueError, match="`inputs` must be finite"):
        cfl.run(algorithm, KEY, spoiled, num_rounds=1)


# Against equations: what a round multiplies, and what it leaves out


def counted_by_hand(num_clients, num_samples, num_steps):
    """Operations of the products of local training: forward, and of each layer's
    weights; of its inputs behind the first."""
    first, second = 784 * HIDDEN, HIDDEN * 10
    return 2 * num_clients * num_samples * num_steps * (2 * first + 3 * second)


@pytest.mark.long
def test_products_are_counted_as_often_as_loops_run():
    algorithm, data = build("fedavg", num_steps=7), draw(16)
    evaluation = 2 * 16 * 20 * (784 * HIDDEN + HIDDEN * 10)
    found = {}
    for num_rounds in (1, 3):
        jaxpr = jax.make_jaxpr(
            lambda key, n=num_rounds: cfl.run(
                algorithm, key, data, num_rounds=n, observe=None
            )
        )(KEY)
        found[num_rounds] = flops(jaxpr)
    assert found[1] == counted_by_hand(16, 20, 7) + evaluation
    assert found[3] == 3 * found[1]
    square = jnp.ones((4, 4))
    branches = lambda x: jax.lax.cond(x[0, 0] > 0, lambda: x @ x @ x, lambda: x @ x)
    assert flops(jax.make_jaxpr(branches)(square)) == 2 * 2 * 4**3
    kernel = jnp.ones((3, 3, 2, 6))
    blur = lambda x: jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    images = jnp.ones((2, 8, 8, 2))
    assert flops(jax.make_jaxpr(blur)(images)) == 2 * (2 * 8 * 8) * (3 * 3 * 2 * 6)


def compiled_operations(algorithm, **options):
    """What XLA counts in the optimised program, a loop's body once."""
    data = draw(5, 300)
    run = lambda key: cfl.run(algorithm, key, data, num_rounds=2, **options)
    analysis = jax.jit(run).lower(KEY).compile().cost_analysis()
    assert analysis is not None
    return analysis["flops"]


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["fedavg", pytest.param("oracle", marks=pytest.mark.slow), "ifca"]
)
def test_losses_that_choose_nothing_are_computed_for_observers_only(name):
    """IFCA is the control: it chooses by them."""
    of_clusters = {"clusters": jnp.arange(5) % 2, "num_clusters": 2, "option": "model"}
    algorithm = build(name, **(of_clusters if name == "oracle" else {}))
    block = 64  # Samples evaluated at a time, on one model after the other.
    evaluation = 2 * block * (784 * HIDDEN + HIDDEN * 10)
    plain = compiled_operations(algorithm, observe=None)
    more = compiled_operations(algorithm, observe=losses_of) - plain
    if name == "ifca":
        assert plain > evaluation and more < 0.1 * evaluation
    else:
        assert 0.9 * evaluation < more < 1.4 * evaluation


# Against the system: devices are offered before JAX starts

OFFER = """
import json, os, sys
{before}
import cfljax as cfl
import jax
print(json.dumps([jax.local_device_count(), "jax" in sys.modules]))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "environment", "expected"),
    [
        ("", {}, "cores"),
        ("import jax", {}, "cores"),
        ("import jax; jax.devices()", {}, 1),
        ("", {"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ("import jax; jax.config.update('jax_num_cpu_devices', 3)", {}, 3),
        ("", {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, 3),
    ],
)
def test_each_core_is_a_device_unless_somebody_decided(before, environment, expected):
    done = subprocess.run(
        [sys.executable, "-c", OFFER.format(before=before)],
        env=known(BARE | environment),
        capture_output=True,
        text=True,
        check=True,
    )
    number, _ = json.loads(done.stdout.splitlines()[-1])
    usual = min(cores.count_cores(), cores.MOST)
    assert number == (usual if expected == "cores" else expected)


def test_the_library_itself_starts_without_jax():
    code = "import sys, cfljax; print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=known(BARE), capture_output=True, text=True
    )
    assert done.stdout.split() == ["False"], done.stderr


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 6), ("150000 100000", 2), ("900000 100000", 6), ("odd", 6)],
)
def test_cores_are_those_of_affinity_and_quota(monkeypatch, quota, expected):
    affinity = lambda process: set(range(6))
    monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)
    monkeypatch.setattr(cores.pathlib.Path, "read_text", lambda path: quota)
    assert cores.count_cores() == expected


def test_flags_of_patience_are_added_once_and_given_ones_stay(monkeypatch):
    own = "--xla_cpu_collective_call_warn_stuck_timeout_seconds=7 --xla_dump_to=x"
    monkeypatch.setenv("XLA_FLAGS", own)
    cores.wait_for_each_other()
    cores.wait_for_each_other()
    first, second, third, fourth = os.environ["XLA_FLAGS"].split()
    assert [first, second] == own.split()
    assert third.startswith("--xla_cpu_collective_call_terminate_timeout_seconds=")
    assert fourth.startswith("--xla_cpu_collective_timeout_seconds=")
