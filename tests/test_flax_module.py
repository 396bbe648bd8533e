"""Tasks of flax modules: linen and nnx alike, as the models that we wrote ourselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from jaxtyping import TypeCheckError

import cfljax as cfl
from cfljax.base.types import ClientData, Variables
from cfljax.federated.sharing import paths
from cfljax.models import mlp, task
from cfljax.models.perceptron import LinearLayers

CLIENTS, SAMPLES, FEATURES, HIDDEN, CLASSES = 2, 4, 3, 5, 3
RNG = np.random.default_rng(0)
DATA = ClientData(
    jax.device_put(RNG.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")),
    jax.device_put(RNG.integers(0, CLASSES, (CLIENTS, SAMPLES)).astype("i4")),
    jax.device_put(np.arange(SAMPLES)[None] < np.array([[4], [3]])),
)
ONE = tuple(leaf[1] for leaf in DATA)  # Has padding.
KEY = jax.random.key(0)
same = np.testing.assert_array_equal


def spread(mask):
    """As normalisations want it."""
    return None if mask is None else mask[:, None]


class Linen(linen.Module):
    """With everything that differs in training, unless it is `plain`."""

    plain: bool = False

    @linen.compact
    def __call__(self, x, train=False, mask=None):
        x = linen.Dense(HIDDEN)(x)
        if not self.plain:
            x = linen.BatchNorm(use_running_average=not train)(x, mask=spread(mask))
            x = linen.Dropout(0.5, deterministic=not train)(x)
        return linen.Dense(CLASSES, name="head")(linen.relu(x))


class Nnx(nnx.Module):
    """The same."""

    def __init__(self, rngs):
        self.first = nnx.Linear(FEATURES, HIDDEN, rngs=rngs)
        self.norm = nnx.BatchNorm(HIDDEN, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(HIDDEN, CLASSES, rngs=rngs)])

    def __call__(self, x, mask=None):
        x = self.dropout(self.norm(self.first(x), mask=spread(mask)))
        return self.layers[0](nnx.relu(x))


class Plain(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Dense(HIDDEN)(x))
        return linen.Dense(CLASSES)(x)


def make(module, **settings):
    return task(module, **{"loss": "cross_entropy", "example": DATA} | settings)


# Against reference


@pytest.mark.long
def test_a_module_is_what_our_own_model_of_it_is():
    """The network of `models.mlp`, given as a module, bit for bit."""
    widths = (FEATURES, HIDDEN, CLASSES)
    found = make(lambda rngs: LinearLayers(widths, rngs), head="layers/1")
    known = mlp((FEATURES,), hidden=(HIDDEN,), num_classes=CLASSES)
    params = found.init(KEY)
    jax.tree.map(same, params, known.init(KEY))
    inputs, targets, _ = ONE
    same(found.losses(params, inputs, targets), known.losses(params, inputs, targets))
    ours, its = known.layers, found.layers
    assert ours is not None and its is not None and found.fit is its.fit is None
    features = its.embed(params, inputs)
    same(features, ours.embed(params, inputs))
    same(its.answer(params, features), ours.answer(params, features))
    names = paths(params)
    assert [its.is_head(name) for name in names] == [*map(ours.is_head, names)]
    with pytest.raises(AssertionError):  # Control.
        same(features, found.predict(params, inputs)[:, :1])


def test_a_module_of_linen_answers_as_flax_does():
    found, module = make(Plain(), head="Dense_1"), Plain()
    params, inputs = found.init(KEY), ONE[0]
    jax.tree.map(same, params, module.init(KEY, inputs)["params"])
    outputs = module.apply({"params": params}, inputs)
    same(found.predict(params, inputs), outputs)
    assert found.layers is not None and found.fit is None
    features = found.layers.embed(params, inputs)
    assert features.shape == (SAMPLES, HIDDEN)
    same(found.layers.answer(params, features), outputs)
    assert [n for n in paths(params) if found.layers.is_head(n)] == [
        "Dense_1/bias",
        "Dense_1/kernel",
    ]


# Against equations


@pytest.mark.long
@pytest.mark.parametrize("kind", ["linen", "nnx"])
def test_training_sees_dropout_and_the_statistics_of_real_samples(kind):
    module, head = {"linen": (Linen(), "head"), "nnx": (Nnx, "layers/0")}[kind]
    found = make(module, head=head)
    params = found.init(KEY)
    inputs, targets, mask = ONE
    assert isinstance(params, Variables)
    assert found.fit is not None and found.layers is not None
    losses, after = found.fit(KEY, params, inputs, targets, mask)
    # Statistics are those of real samples: other padding changes nothing.
    moved = found.fit(KEY, params, inputs.at[3].set(9.0), targets, mask)
    same(moved[0][:3], losses[:3])
    jax.tree.map(same, moved[1], after)
    other = found.fit(KEY, params, inputs.at[2].set(9.0), targets, mask)
    before, later = map(jax.tree.leaves, (after.statistics, other[1].statistics))
    assert not np.allclose(before[0], later[0])  # Control.
    jax.tree.map(same, after.weights, params.weights)
    # Dropout draws from the key, and only in training.
    assert not np.allclose(found.fit(jax.random.key(1), params, *ONE)[0], losses)
    judged = found.losses(params, inputs, targets)
    same(judged, found.losses(params, inputs, targets))
    features = found.layers.embed(params, inputs)
    same(found.layers.answer(params, features), found.predict(params, inputs))
    assert found.layers.fit is not None
    noisy, _ = found.layers.fit(KEY, params, inputs, mask)
    dropped = np.mean(np.asarray(noisy) == 0) - np.mean(np.asarray(features) == 0)
    assert dropped > 0


def test_it_is_at_the_front_door():
    assert cfl.task is task


# Against misuse


class Stranger(linen.Module):
    @linen.compact
    def __call__(self, x):
        self.variable("cache", "last", lambda: jnp.zeros(()))
        return linen.Dense(CLASSES)(x)


class Unmasked(linen.Module):
    @linen.compact
    def __call__(self, x, train=False):
        x = linen.BatchNorm(use_running_average=not train)(x)
        return linen.Dense(CLASSES)(x)


class Counter(nnx.Module):
    def __init__(self, rngs):
        self.count = nnx.Variable(jnp.zeros(()))
        self.layer = nnx.Linear(FEATURES, CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


NUMBERS = DATA._replace(targets=DATA.inputs[..., 0])


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (
            Plain(),
            {"head": "Dense_7"},
            "`head` must be .* one of Dense_0, Dense_1, got 'Dense_7'",
        ),
        (Plain(), {"head": "Dense_0"}, "`head` must be called once and last.*goes on"),
        (Nnx, {"head": "first"}, "`head` must be called once and last"),
        (
            Plain(),
            {"loss": "hinge"},
            "`loss` must be one of cross_entropy, squared_error|'loss'",
        ),
        (Plain(), {"loss": lambda o, t: jnp.mean(o)}, "one loss for each sample.*mean"),
        (
            Plain(),
            {"loss": "squared_error", "example": NUMBERS},
            r"outputs of the shape of targets.*\(2, 3\) and \(2,\)",
        ),
        (Plain(), {"example": NUMBERS}, "one integer label for each sample"),
        (Plain(), {"example": "mnist"}, "`example` must be the clients' data or an ar"),
        (Plain, {}, r"`module` must be made, as in `Plain\(...\)`, got the class"),
        (Nnx(nnx.Rngs(0)), {}, "`module` must make a module of nnx.*lambda rngs: Nnx"),
        (lambda rngs: 3, {}, "`module` must make a module of nnx from `nnx.Rngs`: "),
        (3, {}, "`module` must be a module of flax.linen, or make|'module'"),
        (Stranger(), {}, "`batch_stats` at most beside it, got cache, params"),
        (Counter, {}, "Param, BatchStat and random streams only, got Variable"),
        (Unmasked(), {}, "normalises batches, whose padding must not count"),
        (
            lambda rngs: nnx.Linear(7, CLASSES, rngs=rngs),
            {},
            "`module` cannot judge on inputs of the shape of `example`",
        ),
        (
            lambda rngs: nnx.Conv(FEATURES, CLASSES, (1,), rngs=rngs),
            {"example": np.zeros((1, 8, FEATURES), "f4")},
            r"logits \[samples, classes\]",
        ),
    ],
)
def test_modules_that_cannot_be_learnt_are_refused(module, settings, message):
    # The annotations may see it first.
    with pytest.raises((ValueError, TypeCheckError), match=message) as caught:
        make(module, **settings)
    assert caught.type is TypeCheckError or "\n" not in str(caught.value)
