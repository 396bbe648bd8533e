"""Bits of every algorithm: the same on any number of devices, but for those named.

Slow, since an algorithm is compiled for each number of devices:

    OMP_NUM_THREADS=1 pytest -m slow tests/test_engine_bits.py
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import pytest
from engine_trial import serve
from together import CLIENTS, clients, digest

import cfljax as cfl
from cfljax.algorithms import REGISTRY
from cfljax.engine.devices import devices_for

CLUSTERS, CLASSES = 2, 3
COUNTS = (1, 2, 3)  # Of devices; ten clients are dealt out to two evenly.

# Rounded otherwise on each number of devices, whether by a sum over clients that is one
# product of all their samples, or by the compiler, which has other quotients and
# multiply-adds in the programs of several devices: by default they run on one.
GRADIENTS = ("ifca", "oracle")  # By default; with `option="model"` they are the same.
APART = ("fedpac", "momentum_clustering")
SAME = sorted(REGISTRY.keys() - set(APART))
FEW = ("clove", "fesem", "fedproto")
PROCESSES = 8


def build(name, **options):
    """An algorithm whose clients train models, where it lets one choose."""
    row = REGISTRY[name]
    own = dict(row.defaults)
    if row.clustered:
        own["num_clusters"] = CLUSTERS
    if row.needs_truth:
        own |= {"clusters": jnp.arange(CLIENTS) % CLUSTERS, "num_clusters": CLUSTERS}
    if row.needs_classes:
        own["num_classes"] = CLASSES
    if "option" in inspect.signature(row.constructor).parameters:
        own["option"] = "model"
    task = cfl.models.mlp((6, 6), hidden=(7,), num_classes=CLASSES)
    if row.needs_normalisation:
        task = cfl.models.normalised(task, (6, 6))
    return row.constructor(task, **own | options)


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


def by_default():
    """Devices of rounds that are large enough to be shared out."""
    images = jax.ShapeDtypeStruct((CLIENTS, 2000, 6, 6), jnp.float32)
    labels = jax.ShapeDtypeStruct(images.shape[:2], jnp.int32)
    data = cfl.ClientData(images, labels, labels.update(dtype=bool))
    found = {}
    for name in ("fedavg", *APART, *GRADIENTS):
        option = {"option": "gradient"} if name in GRADIENTS else {}
        for own in ({}, option) if option else ({},):
            algorithm = build(name, **own)
            run = functools.partial(cfl.run, algorithm, num_rounds=1)
            traced = jax.make_jaxpr(run)(jax.random.key(0), data)
            found[" ".join([name, *own.values()])] = devices_for(traced.jaxpr, 1)
    return found


@pytest.mark.long
def test_what_is_rounded_otherwise_runs_on_one_device_by_default():
    (found,) = serve("test_engine_bits", ("by_default",), cores=3)
    one = dict.fromkeys(APART, 1)
    one |= {f"{name} gradient": 1 for name in GRADIENTS}
    assert found == one | dict.fromkeys(("fedavg", *GRADIENTS), 3)
