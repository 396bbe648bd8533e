"""Sums over clients: the same in both orders, all chunks and any number of devices."""

import functools
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import engine
from cfljax.base.platforms import default_platform
from cfljax.federated import backend
from cfljax.federated.backend import added_over_devices
from cfljax.federated.sums import sum_in_clusters

NUMBER, CLUSTERS = 11, 3  # Not a multiple of the lanes.
KEY = jax.random.key(0)
VALUES = jax.random.normal(KEY, (NUMBER, 4))
ROWS = jnp.arange(NUMBER) % CLUSTERS
WEIGHTS = jnp.where(jnp.arange(NUMBER) == 5, 0.0, 1.0 + jnp.arange(1.0 * NUMBER))


def add(shared, memory, value):
    return ({"own": shared * value}, 3 * value), memory + 1


def sums(order=None, clients_per_chunk=None, values=VALUES, weights=WEIGHTS):
    return sum_in_clusters(
        add,
        jnp.asarray(2.0),
        10 * jnp.arange(NUMBER),
        (values,),
        assignment=ROWS,
        weights=weights,
        num_clusters=CLUSTERS,
        order=order,
        clients_per_chunk=clients_per_chunk,
    )


def by_hand(values=VALUES, weights=WEIGHTS):
    values, weights, rows = map(np.asarray, (values, weights, ROWS))
    members = (rows[:, None] == np.arange(CLUSTERS)) * weights[:, None]
    kept = np.where(weights[:, None] > 0, values, 0)
    return members.T @ (2 * kept), 3 * weights @ kept


CASES = [("sequential", None), *(("batched", size) for size in (None, 1, 4, 50))]


@pytest.mark.parametrize(("order", "size"), CASES)
def test_sums_and_memory_by_hand(order, size):
    (own, common), memory = sums(order, size)
    expected, total = by_hand()
    np.testing.assert_allclose(own["own"], expected, rtol=1e-5)
    np.testing.assert_allclose(common, [total], rtol=1e-5)
    counted = 10 * np.arange(NUMBER) + (np.asarray(WEIGHTS) > 0)
    np.testing.assert_array_equal(memory, counted)
    assert not np.allclose(own["own"], by_hand(weights=jnp.ones(NUMBER))[0])


def test_an_accelerator_computes_few_clients_at_once(monkeypatch):
    whole, memory = sums("batched")
    assert backend.clients_at_once(None, 1000) == 1000
    monkeypatch.setattr(backend, "default_platform", lambda: "gpu")
    assert (
        backend.resolve(None) == "batched" and backend.resolve("batched") == "batched"
    )
    assert backend.clients_at_once(None, 1000) == backend.TOGETHER < 1000
    assert backend.clients_at_once(None, 5) == 5
    assert backend.clients_at_once(1000, 2000) == 1000  # Asked for.
    monkeypatch.setattr(backend, "TOGETHER", 4)
    (own, _), kept = sums()
    np.testing.assert_allclose(own["own"], whole[0]["own"], rtol=1e-5)
    np.testing.assert_array_equal(kept, memory)
    seen = []

    def one(shared, value):  # Traced for four, and for those that are left.
        seen.append(value.shape)
        return shared * value

    backend.over_clients(one)(jnp.asarray(2.0), VALUES)
    sizes = str(jax.make_jaxpr(backend.over_clients(one))(jnp.asarray(2.0), VALUES))
    assert f"f32[4,{VALUES.shape[1]}]" in sizes and set(seen) == {VALUES[0].shape}


def test_the_platform_is_that_of_the_device_asked_for(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert default_platform() == "gpu"
    with jax.default_device(jax.local_devices()[0]):
        assert default_platform() == "cpu"
        assert backend.resolve(None) == "sequential"


@pytest.mark.parametrize(("order", "size"), CASES[:3])
def test_a_value_that_is_no_number_spoils_its_cluster_only(order, size):
    left_out = VALUES.at[5].set(jnp.nan)  # It has no weight.
    (own, common), _ = sums(order, size, left_out)
    assert np.all(np.isfinite(own["own"])) and np.all(np.isfinite(common))
    spoiled = VALUES.at[4].set(jnp.nan)
    (own, _), _ = sums(order, size, spoiled)
    assert np.isnan(own["own"]).all(axis=1).tolist() == [False, True, False]


def test_sequential_sums_do_not_depend_on_an_outer_vmap():
    many = jax.vmap(lambda values: sums("sequential", values=values)[0][0]["own"])
    stacked = jnp.stack([VALUES, 3 * VALUES])
    np.testing.assert_array_equal(many(stacked)[0], sums("sequential")[0][0]["own"])


def held(order, number):
    """MiB that a sum over clients needs beside their values, and MiB of these."""
    values = jax.ShapeDtypeStruct((number, 2**14), jnp.float32)

    def total(values):
        weights = jnp.ones(number)
        one = lambda shared, kept, value: ((shared * value, ()), kept)
        rows = jnp.zeros(number, int)
        options = {"assignment": rows, "weights": weights, "num_clusters": 1}
        return sum_in_clusters(one, 2.0, (), (values,), order=order, **options)

    plan = jax.jit(total).lower(values).compile().memory_analysis()
    assert plan is not None
    return plan.temp_size_in_bytes / 2**20, number * 2**14 * 4 / 2**20


@pytest.mark.parametrize("number", [400, 403])
@pytest.mark.parametrize("devices", [1, 2])
def test_sums_one_after_the_other_copy_no_clients(number, devices):
    with engine.clients_over_devices(devices):
        needed, whole = held("sequential", number)
        # Clients that do not fill the lanes are dealt out to devices anew.
        assert needed < (1.1 * whole if number % 8 and devices > 1 else whole / 16)
        needed, whole = held("batched", number)
        assert needed > whole / 16 / devices  # Of all at once.


@pytest.mark.parametrize("number", [1, 2, 3])
def test_rows_of_devices_are_added_in_their_order(number):
    rows = jnp.asarray([[1e8, 3.0], [1.0, 1e-9], [-1e8, 0.0], [0.5, 2.0]])
    with engine.clients_over_devices(2):
        add = added_over_devices(lambda shared, rows: (rows, -rows), number)
        total, rest = jax.jit(add)((), rows)
    expected = functools.reduce(np.add, list(np.asarray(rows)[:number]))
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(rest, -rows)


PROGRAM = """
import jax
jax.config.update("jax_num_cpu_devices", 4)
import hashlib, sys
import jax.numpy as jnp
import numpy as np
from cfljax import engine
from cfljax.algorithms import ifca, local, one_shot
from cfljax.data import rotated, load_images
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import mlp

train, *_ = rotated(load_images("digits"), key=jax.random.key(0), num_clients=10,
                    num_samples=8, num_clusters=2, num_test_clients=2)
task = mlp((8, 8), hidden=(9,))
order, chunk = sys.argv[1], int(sys.argv[2])
update = LocalUpdate(batch_size=3, num_epochs=2, order=order, clients_per_chunk=chunk)
runs = {
    "ifca": ifca(task, num_clusters=2, step_size=.1, option="model", update=update,
                 participation=.7),
    "local": local(task, step_size=.1, update=update),
    "one_shot": one_shot(task, num_clusters=2, step_size=.1, update=update,
                         num_local_steps=3),
}
for name, algorithm in runs.items():
    for number in (1, 2, 4):
        with engine.clients_over_devices(number):
            run = lambda key, data: engine.run(algorithm, key, data, num_rounds=3)[0]
            state = jax.jit(run)(jax.random.key(1), train)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state.models)]
        digest = hashlib.md5(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()
        print(name, number, digest, sum(float(np.abs(leaf).sum()) for leaf in leaves))
"""


def run(order, chunk):
    """Digest and total of each algorithm's models on 1, 2 and 4 devices."""
    out = subprocess.run(
        [sys.executable, "-c", PROGRAM, order, str(chunk)],
        check=True,
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
    ).stdout
    rows = [line.split() for line in out.splitlines()]
    return {
        (name, int(number)): (digest, float(total))
        for name, number, digest, total in rows
    }


@pytest.mark.slow
def test_devices_and_chunks_do_not_change_a_bit_on_a_cpu():
    whole, parts = run("sequential", 100), run("sequential", 3)
    for name in ("ifca", "local", "one_shot"):
        digests = {whole[name, n][0] for n in (1, 2, 4)}
        assert len(digests | {parts[name, n][0] for n in (1, 2, 4)}) == 1, name
    batched = run("batched", 3)
    for key, (_, total) in whole.items():
        np.testing.assert_allclose(batched[key][1], total, rtol=1e-4)
