"""Bits of every algorithm: the same on any number of devices, but for those named.

Slow, since an algorithm is compiled for each number of devices:

    OMP_NUM_THREADS=1 pytest -m slow tests/test_engine_bits.py
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import pytest
from conformance_cases import needed_by
from engine_trial import serve
from together import CLIENTS, clients, digest

import cfljax as cfl
from cfljax.algorithms import REGISTRY
from cfljax.engine.devices import devices_for
from cfljax.federated.local_update import LocalUpdate

CLUSTERS, CLASSES = 2, 3
COUNTS = (1, 2, 3)  # Of devices; ten clients are dealt out to two evenly.

# Rounded otherwise on each number of devices, whether by a sum over clients that is one
# product of all their samples, or by the compiler, which has other quotients and
# multiply-adds in the programs of several devices: by default they run on one.
GRADIENTS = ("ifca", "oracle")  # By default; with `option="model"` they are the same.
APART = ("fedpac", "flux", "momentum_clustering")
SAME = sorted(REGISTRY.keys() - set(APART))
FEW = ("clove", "fesem", "fedproto")
PROCESSES = 8
# What lets three rounds find clusters.
CHANGES = {"icfl": {"rate": 1.0}}


def build(name, **options):
    """An algorithm whose clients train models, where it lets one choose."""
    row = REGISTRY[name]
    truth = jnp.arange(CLIENTS) % CLUSTERS
    own = needed_by(name, clusters=truth, num_clusters=CLUSTERS, num_classes=CLASSES)
    if "option" in inspect.signature(row.constructor).parameters:
        own["option"] = "model"
    task = cfl.models.mlp((6, 6), hidden=(7,), num_classes=CLASSES)
    if row.needs_normalisation:
        task = cfl.models.normalised(task, (6, 6))
    return row.constructor(task, **own | CHANGES.get(name, {}) | options)


def digests(names, counts):
    """Of final states and observations on each number of devices, and, last, of another
    key."""
    found = {}
    for name in names:
        run = functools.partial(cfl.run, build(name), data=clients(), num_rounds=3)
        each = [run(jax.random.key(1), devices=number) for number in counts]
        each.append(run(jax.random.key(2), devices=1))
        found[name] = [digest(one) for one in each]
    return found


def check(names, counts):
    (found,) = serve("test_engine_bits", ("digests", names, counts), cores=max(counts))
    assert list(found) == list(names)
    for name, (one, *more, other) in found.items():
        assert set(more) == {one}, name
        assert other != one, name


@pytest.mark.long
def test_devices_change_no_bit_of_a_server():
    check(FEW, (1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PROCESSES))
def test_devices_change_no_bit_of_any_algorithm(part):
    check(SAME[part::PROCESSES], COUNTS)


def many():
    """Samples of rounds that are large enough to be shared out."""
    shape = (CLIENTS, 2000)
    labels = jnp.zeros(shape, jnp.int32)
    return cfl.ClientData(jnp.zeros((*shape, 6, 6)), labels, jnp.ones(shape, bool))


def by_default():
    """Devices of such rounds."""
    batched = {"update": LocalUpdate(order="batched")}
    cases = {name: (name, {}) for name in ("fedavg", "fesem", *APART, *GRADIENTS)}
    cases |= {f"{name} gradient": (name, {"option": "gradient"}) for name in GRADIENTS}
    cases |= {f"{name} batched": (name, batched) for name in ("fedavg", "fesem")}
    data, found = jax.eval_shape(many), {}
    for case, (name, options) in cases.items():
        run = functools.partial(cfl.run, build(name, **options), num_rounds=1)
        traced = jax.make_jaxpr(run)(jax.random.key(0), data)
        found[case] = devices_for(traced.jaxpr, 1)
    return found


@pytest.mark.long
def test_what_is_rounded_otherwise_runs_on_one_device_by_default():
    (found,) = serve("test_engine_bits", ("by_default",), cores=3)
    shared_out = {name for name, number in found.items() if number == 3}
    assert shared_out == {"fedavg", "fesem", *GRADIENTS}
    assert {found[name] for name in found.keys() - shared_out} == {1}
