"""The networks, recomputed by hand in NumPy: values, training, layers, misuse."""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.base.tree import trained_part
from cfljax.base.types import Task, Variables
from cfljax.federated.sharing import paths
from cfljax.losses import cross_entropy, squared_error
from cfljax.models import (
    autoencoder,
    cnn,
    convolutional_autoencoder,
    deep_cnn,
    femnist_cnn,
    linear,
    mlp,
    text_cnn,
)

KEY = jax.random.key(0)
SHAPE = (8, 8, 2)


def small(input_shape=SHAPE, **changes) -> Task:
    """A convolutional network of few numbers."""
    sizes: dict[str, Any] = {"channels": (3, 4), "kernel_size": 3, "hidden": (6,)}
    sizes |= {"num_classes": 5}
    return compiled(cnn(input_shape, **sizes | changes))


def compiled(task: Task) -> Task:
    """At once, a network is tested faster than operation by operation."""
    fit = None if task.fit is None else jax.jit(task.fit)
    return Task(jax.jit(task.init), jax.jit(task.losses), jax.jit(task.predict), fit)


def uniform(num_samples: int, *shape: int) -> jax.Array:
    drawn = np.random.default_rng(1).random((num_samples, *shape))
    return jax.device_put(drawn.astype(np.float32))


def labels_of(num_samples: int, num_classes: int = 5) -> jax.Array:
    return jax.device_put(np.arange(num_samples, dtype=np.int32) % num_classes)


def batch(num_samples: int = 7, shape: tuple[int, ...] = SHAPE):
    return uniform(num_samples, *shape), labels_of(num_samples)


def doubled(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def in_order(layers: dict[int, Any]) -> list:
    return [layer for _, layer in sorted(layers.items())]


def dense(values, layer) -> np.ndarray:
    return values @ layer["kernel"] + layer["bias"]


def perceptron(values, layers) -> np.ndarray:
    """ReLU between the layers."""
    for layer in layers[:-1]:
        values = np.maximum(dense(values, layer), 0)
    return dense(values, layers[-1])


def convolve(values, kernel) -> np.ndarray:
    margin, sizes = kernel.shape[0] // 2, kernel.shape[:2]
    padded = np.pad(values, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, sizes, axis=(1, 2))
    return np.einsum("nhwcij,ijco->nhwo", windows, kernel)


def pool(values) -> np.ndarray:
    count, height, width, depth = values.shape
    squares = values.reshape(count, height // 2, 2, width // 2, 2, depth)
    return squares.max(axis=(2, 4))


def flat(values) -> np.ndarray:
    return np.asarray(values, np.float64).reshape(len(values), -1)


def cross_entropies(logits: np.ndarray, labels) -> np.ndarray:
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return -np.log(chances[np.arange(len(logits)), np.asarray(labels)])


def mlp_by_hand(params, inputs) -> np.ndarray:
    return perceptron(flat(inputs), in_order(doubled(params)["layers"]))


def cnn_by_hand(weights, inputs, moments=None) -> np.ndarray:
    """Bias and ReLU before each pool; `moments` of each layer that is normalised."""
    weights, values = doubled(weights), np.asarray(inputs, np.float64)
    values = values.reshape(*values.shape[:3], -1)
    for index, layer in weights["convolutions"].items():
        values = convolve(values, layer["kernel"])
        if moments is None:
            values = values + layer["bias"]
        else:
            mean, variance = moments(index, values)
            affine = weights["normalisations"][index]
            values = (values - mean) / np.sqrt(variance + 1e-5)
            values = values * affine["scale"] + affine["bias"]
        values = pool(np.maximum(values, 0))
    hidden = weights.get("hidden", {}).values()
    return perceptron(flat(values), [*hidden, weights["output"]])


def text_by_hand(params, tokens) -> np.ndarray:
    """Word by word."""
    params, rows = doubled(params), []
    for text in np.asarray(tokens):
        words = [params["embedding"][token] for token in text if token != 0]
        features = []
        for layer in in_order(params["convolutions"]):
            length, width, channels = layer["kernel"].shape
            behind = [np.zeros(width)] * (length - 1)
            largest = np.zeros(channels)
            for start in range(len(words)):
                window = np.stack((words + behind)[start : start + length])
                sums = np.einsum("tw,twc->c", window, layer["kernel"]) + layer["bias"]
                largest = np.maximum(largest, sums)
            features.append(largest)
        rows.append(np.concatenate(features))
    return dense(np.stack(rows), params["output"])


def dense_by_hand(params, images) -> np.ndarray:
    values = mlp_by_hand(params, images)
    return (1 / (1 + np.exp(-values))).reshape(images.shape)


def convolutional_by_hand(params, images) -> np.ndarray:
    params, values = doubled(params), np.asarray(images, np.float64)
    for layer in in_order(params["encoder"]):
        values = convolve(values, layer["kernel"]) + layer["bias"]
        values = pool(np.maximum(values, 0))
    small = values.shape
    values = dense(flat(values), params["bottleneck"])
    values = np.maximum(dense(values, params["widening"]), 0).reshape(small)
    first, last = in_order(params["decoder"])
    double = lambda values: np.kron(values, np.ones((1, 2, 2, 1)))
    values = np.maximum(convolve(double(values), first["kernel"]) + first["bias"], 0)
    return np.tanh(convolve(double(values), last["kernel"]) + last["bias"])


TOKENS = np.array(
    [[3, 1, 4, 1, 5, 2], [2, 6, 0, 0, 0, 0], [0] * 6, [6, 5, 4, 3, 2, 0]], np.int32
)


def perceptron_of(*hidden: int) -> Task:
    return compiled(mlp((3, 4), hidden=hidden, num_classes=5))


WORDY = text_cnn(7, embedding=3, windows=(2, 4), channels=5, num_classes=3)
DENSE = autoencoder((3, 4), hidden=(6, 5), latent=2)
CONVOLUTIONAL = convolutional_autoencoder(
    (4, 8, 2), channels=(3, 4), kernel_size=3, latent=5
)
# Networks, their outputs by hand, and the shape of their inputs.
CASES: dict[str, tuple[Task, Callable[[Any, Any], np.ndarray], tuple[int, ...]]] = {
    "softmax regression": (perceptron_of(), mlp_by_hand, (6, 3, 4)),
    "one hidden layer": (perceptron_of(7), mlp_by_hand, (6, 3, 4)),
    "two hidden layers": (perceptron_of(7, 5), mlp_by_hand, (6, 3, 4)),
    "cnn": (small(hidden=(6, 5)), cnn_by_hand, (7, *SHAPE)),
    "grey cnn": (small((8, 4), hidden=()), cnn_by_hand, (7, 8, 4)),
    "text": (compiled(WORDY), text_by_hand, TOKENS.shape),
    "autoencoder": (compiled(DENSE), dense_by_hand, (5, 3, 4)),
    "convolutional autoencoder": (
        compiled(CONVOLUTIONAL),
        convolutional_by_hand,
        (5, 4, 8, 2),
    ),
}
AUTOENCODERS = ("autoencoder", "convolutional autoencoder")
CLASSIFIERS = [name for name in CASES if name not in AUTOENCODERS]


def case(name: str) -> tuple[Task, Any, jax.Array]:
    """A network, its outputs by hand, and inputs."""
    task, by_hand, shape = CASES[name]
    return task, by_hand, jax.device_put(TOKENS) if name == "text" else uniform(*shape)


@functools.cache
def start(name: str) -> Any:
    """Of the network of that name in CASES."""
    return CASES[name][0].init(KEY)


# Against equations


@pytest.mark.long
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_logits_and_losses_against_equations(name):
    task, by_hand, inputs = case(name)
    params = start(name)
    logits = by_hand(params, inputs)
    np.testing.assert_allclose(task.predict(params, inputs), logits, atol=1e-5)
    labels = labels_of(len(inputs), logits.shape[1])
    losses = task.losses(params, inputs, labels)
    np.testing.assert_allclose(losses, cross_entropies(logits, labels), rtol=1e-5)
    assert task.fit is None
    wrong = cross_entropies(logits, (labels + 1) % logits.shape[1])
    assert not np.allclose(losses, wrong, rtol=1e-3)
    moved = by_hand(params, np.roll(inputs, 1, axis=1))
    assert not np.allclose(moved[0], logits[0], atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", AUTOENCODERS)
def test_reconstructions_and_losses_against_equations(name):
    task, by_hand, images = case(name)
    params, labels = start(name), labels_of(5, 3)
    expected = by_hand(params, images)
    outputs = task.predict(params, images)
    assert outputs.shape == images.shape and task.fit is None
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    errors = flat((expected - np.asarray(images)) ** 2).mean(axis=1)
    losses = task.losses(params, images, labels)
    np.testing.assert_allclose(losses, errors, rtol=1e-5)
    np.testing.assert_array_equal(losses, task.losses(params, images, labels + 1))
    # Controls: the other image's error, and that of a shifted reconstruction.
    assert not np.allclose(losses, errors[::-1], rtol=1e-4)
    assert not np.allclose(outputs, np.roll(expected, 1, axis=1), atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("name", ["one hidden layer", "grey cnn"])
def test_params_stack_under_vmap_and_agree_one_by_one(name):
    task, _, inputs = case(name)
    labels = labels_of(len(inputs))

    def trained(key):
        params = task.init(key)
        mean = lambda params: jnp.mean(task.losses(params, inputs, labels))
        return jax.grad(mean)(params), task.predict(params, inputs)

    def compute(keys):
        return jax.vmap(trained)(keys), jax.lax.map(trained, keys)

    together, alone = jax.jit(compute)(jax.random.split(KEY, 2))
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        assert a.shape == b.shape and len(a) == 2
        np.testing.assert_allclose(a, b, atol=1e-6)
        first, second = np.asarray(a)  # The keys do matter.
        assert not np.allclose(first, second, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*AUTOENCODERS, "text"])
def test_params_stack_and_training_lowers_the_loss(name):
    task, _, inputs = case(name)
    labels = jnp.arange(len(inputs)) % 3
    step_size = 0.3 if name == "text" else 0.5

    def train(key):
        def step(params, _):
            mean = lambda params: jnp.mean(task.losses(params, inputs, labels))
            loss, gradient = jax.value_and_grad(mean)(params)
            move = lambda leaf, change: leaf - step_size * change
            return jax.tree.map(move, params, gradient), loss

        start = task.init(key)
        return start, *jax.lax.scan(step, start, None, length=20)

    start, params, losses = jax.jit(jax.vmap(train))(jax.random.split(KEY, 2))
    assert jnp.all(losses[:, -1] < losses[:, 0]) and losses.shape == (2, 20)
    for leaves in (start, params):
        first, second = jax.tree.leaves(leaves)[-1]
        assert not np.allclose(first, second)  # The keys do matter.
    assert trained_part(params) is params
    if name == "text":  # Padding is never trained.
        words, before = params["embedding"], start["embedding"]
        np.testing.assert_array_equal(words[:, 0], before[:, 0])
        assert not np.allclose(words[:, 1], before[:, 1])


@functools.cache
def normalised() -> tuple[Task, Any]:
    """A network with batch normalisation, and its start."""
    task = small(batch_norm=True)
    return task, task.init(KEY)


def negative_scales(params: Variables) -> Variables:
    """Some scales below zero: normalisation must come before the pool."""
    weights = jax.tree.map(np.array, params.weights)
    weights["normalisations"][0]["scale"][0] = -1.5
    return params._replace(weights=weights)


@pytest.mark.long
def test_batch_normalisation_uses_and_measures_the_real_samples():
    task, params = normalised()
    assert task.fit is not None
    params = negative_scales(params)
    inputs, labels = batch()
    mask = jax.device_put(np.arange(7) < 4)
    everybody = jax.device_put(np.ones(7, bool))
    measured = {}

    def moments(index, values):
        real = values[:4]
        measured[index] = real.mean((0, 1, 2)), real.var((0, 1, 2))
        return measured[index]

    logits = cnn_by_hand(params.weights, inputs, moments)
    expected = cross_entropies(logits, labels)
    losses, after = task.fit(jax.random.key(5), params, inputs, labels, mask)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for index, (mean, variance) in measured.items():
        found = after.statistics["normalisations"][index]
        np.testing.assert_allclose(found["mean"], 0.1 * mean, atol=1e-6)
        np.testing.assert_allclose(found["var"], 0.9 + 0.1 * variance, rtol=1e-5)
    all_real, _ = task.fit(jax.random.key(5), params, inputs, labels, everybody)
    assert not np.allclose(all_real, losses, rtol=1e-3)
    jax.tree.map(np.testing.assert_array_equal, after.weights, params.weights)

    stored = doubled(after.statistics)["normalisations"]
    running = lambda index, _: (stored[index]["mean"], stored[index]["var"])
    np.testing.assert_allclose(
        task.predict(after, inputs),
        cnn_by_hand(after.weights, inputs, running),
        atol=1e-5,
    )


@pytest.mark.long
def test_a_batch_without_real_samples_moves_no_statistics():
    task, params = normalised()
    assert task.fit is not None
    nobody = jax.device_put(np.zeros(7, bool))
    losses, after = task.fit(jax.random.key(5), params, *batch(), nobody)
    assert np.isfinite(losses).all()
    jax.tree.map(np.testing.assert_array_equal, after, params)


@pytest.mark.long
def test_dropout_draws_from_the_key_and_keeps_the_mean():
    """With the layers behind it linear, the mean over draws is the value without."""
    task = small(channels=(3,), hidden=(400,), dropout=0.25)
    assert task.fit is not None
    params = task.init(KEY)
    inputs, labels = batch()
    fit, everybody = task.fit, jax.device_put(np.ones(7, bool))
    draw = lambda key: fit(key, params, inputs, labels, everybody)[0]
    keys = jax.random.split(jax.random.key(3), 200)
    drawn = np.asarray(jax.jit(jax.vmap(draw))(keys))
    plain = task.losses(params, inputs, labels)
    spread = np.std(drawn, axis=0)
    assert np.all(spread > 1e-4)
    # Losses bend a little: the mean may be off by a tenth of the spread.
    assert np.all(abs(np.mean(drawn, axis=0) - plain) < 0.5 * spread)
    np.testing.assert_array_equal(draw(jax.random.key(7)), draw(jax.random.key(7)))
    np.testing.assert_array_equal(plain, task.losses(params, inputs, labels))


@pytest.mark.long
def test_padding_changes_nothing():
    task, params, tokens = CASES["text"][0], start("text"), TOKENS
    predict = lambda words: np.asarray(task.predict(params, jax.device_put(words)))
    longer = np.pad(tokens, ((0, 0), (0, 3)))
    short = predict(tokens)
    np.testing.assert_allclose(predict(longer), short, atol=1e-6)
    # A text without words has the output's bias alone.
    np.testing.assert_allclose(short[2], params["output"]["bias"], atol=1e-7)
    one = tokens[1:2, :2]  # Shorter than the longest window.
    found = predict(one)
    np.testing.assert_allclose(found, text_by_hand(params, one), atol=1e-6)
    # Control: a word in the place of padding is not the same.
    longer[:, -1] = 1
    other = predict(longer)
    assert not np.allclose(other, short, atol=1e-4)
    other = predict(np.where(tokens == 5, 6, tokens))
    assert not np.allclose(other[0], short[0], atol=1e-4)  # And every word matters.


@pytest.mark.long
def test_ids_that_are_no_token_have_no_loss_and_no_gradient():
    task, params, words = CASES["text"][0], start("text"), TOKENS.copy()
    words[0, 0], words[1, 1] = 7, -1
    labels = np.array([0, 1, 2, 0], np.int32)
    tokens, labels = jax.device_put(words), jax.device_put(labels)
    losses = task.losses(params, tokens, labels)
    np.testing.assert_array_equal(np.isnan(losses), [True, True, False, False])
    kept = lambda params: jnp.nansum(task.losses(params, tokens, labels))
    gradient = jax.jit(jax.grad(kept))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    rows = np.abs(np.asarray(gradient["embedding"])).max(axis=1)
    assert rows[1] == 0  # The word 1 is in the first text alone.
    assert np.all(rows[2:6] > 0)


def test_gradients_are_finite_and_match_a_finite_difference():
    task, _, inputs = case("one hidden layer")
    params, labels = start("one hidden layer"), labels_of(6)
    mean = lambda params: jnp.mean(task.losses(params, inputs, labels))
    gradient = jax.tree.map(np.asarray, jax.jit(jax.grad(mean))(params))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    shifted = lambda size: jax.tree.map(lambda a, b: a + size * b, params, gradient)
    both = jax.jit(lambda: (mean(shifted(1e-3)), mean(shifted(-1e-3))))
    ahead, behind = map(np.asarray, both())
    squares = sum(np.sum(leaf**2) for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose(ahead - behind, 2e-3 * squares, rtol=1e-2)


def test_cross_entropy_survives_large_logits():
    logits = np.array([[1e4, 0.0], [0.0, 1e4]], np.float32)
    losses = jax.jit(cross_entropy)(logits, np.array([0, 0]))
    np.testing.assert_allclose(losses, [0.0, 1e4])


def test_labels_that_are_no_class_have_no_loss():
    logits = np.array([[0.5, 0.1, 0.3]] * 4, np.float32)
    labels = np.array([-1, 2, 3, 62])
    losses = np.asarray(jax.jit(cross_entropy)(logits, labels))
    np.testing.assert_array_equal(np.isnan(losses), [True, False, True, True])
    expected = cross_entropies(logits[1:2], [2])
    np.testing.assert_allclose(losses[1:2], expected, rtol=1e-6)
    # Where the mask hides them, as on padding, they reach no gradient.
    kept = lambda logits, labels: jnp.nansum(cross_entropy(logits, labels))
    gradient = np.asarray(jax.jit(jax.grad(kept))(logits, labels))
    assert np.isfinite(gradient).all() and np.any(gradient[1] != 0)
    np.testing.assert_array_equal(gradient[[0, 2, 3]], 0)


def test_squared_error_against_equations():
    error = jax.jit(squared_error)
    outputs, targets = np.array([1.0, 3.0]), np.array([0.0, 1.0])
    np.testing.assert_allclose(error(outputs, targets), [1.0, 4.0])
    images = np.arange(12.0).reshape(2, 2, 3)
    np.testing.assert_allclose(error(images, np.zeros((2, 2, 3))), [55 / 6, 451 / 6])


# Against theory
def uniform_within(values, bound) -> bool:
    """Inside the bound, with the standard deviation of the law up to 6 errors."""
    values = np.asarray(values, np.float64)
    scale = values.std() * np.sqrt(3) / bound
    return bool(
        abs(values).max() <= bound * (1 + 1e-6)
        and abs(scale - 1) < 6 / values.size**0.5
    )


def shapes_of(task: Task):
    shapes = jax.eval_shape(task.init, KEY)
    return jax.tree.map(lambda leaf: leaf.shape, shapes)


def test_initial_values_of_perceptrons():
    params = jax.jit(mlp((28, 28)).init)(KEY)["layers"]
    params = jax.tree.map(np.asarray, params)
    for layer, fan_in in ((params[0], 784), (params[1], 200)):
        bound = 1 / np.sqrt(fan_in)
        assert uniform_within(layer["kernel"], bound)
        assert abs(layer["kernel"]).max() <= bound
        assert abs(layer["bias"]).max() <= bound
    assert abs(params[1]["kernel"]).max() > 1 / np.sqrt(784)  # Its own fan-in.


@pytest.mark.long
def test_initial_values_of_pytorch_and_of_tensorflow():
    torch, tensorflow = (
        jax.tree.map(np.asarray, jax.jit(cnn((28, 28), initialiser=name).init)(KEY))
        for name in ("fan_in", "glorot")
    )
    second = torch["convolutions"][1]
    assert uniform_within(second["kernel"], 1 / np.sqrt(25 * 32))
    assert abs(second["bias"]).max() <= 1 / np.sqrt(25 * 32) and second["bias"].any()
    assert uniform_within(torch["hidden"][0]["kernel"], 1 / np.sqrt(7 * 7 * 64))
    second = tensorflow["convolutions"][1]
    assert uniform_within(second["kernel"], np.sqrt(6 / (25 * 32 + 25 * 64)))
    assert not uniform_within(second["kernel"], np.sqrt(6 / (25 * 32)))
    assert not second["bias"].any()


@pytest.mark.long
def test_initial_values_and_sizes_of_texts():
    params = jax.tree.map(np.asarray, jax.jit(text_cnn(500).init)(KEY))
    assert params["embedding"].shape == (500, 64)
    assert abs(float(params["embedding"].std()) - 1) < 6 / np.sqrt(2 * 500 * 64)
    lengths = [layer["kernel"].shape for layer in params["convolutions"].values()]
    assert lengths == [(3, 64, 64), (4, 64, 64), (5, 64, 64)]
    bound = 1 / np.sqrt(5 * 64)
    assert 0.99 * bound < abs(params["convolutions"][2]["kernel"]).max() <= bound
    assert abs(params["output"]["kernel"]).max() <= 1 / np.sqrt(192)


@pytest.mark.long
def test_initial_values_and_sizes_of_autoencoders():
    layers = in_order(shapes_of(autoencoder((28, 28)))["layers"])
    sizes = [(784, 128), (128, 32), (32, 128), (128, 784)]
    assert [layer["kernel"] for layer in layers] == sizes
    shapes = shapes_of(convolutional_autoencoder())
    assert shapes["bottleneck"]["kernel"] == (8 * 8 * 64, 128)
    assert shapes["decoder"][1]["kernel"] == (3, 3, 32, 3)
    layers = in_order(jax.tree.map(np.asarray, start("autoencoder")["layers"]))
    for layer, fan_in in zip(layers, (12, 6, 5, 2, 5, 6), strict=True):
        largest = abs(layer["kernel"]).max() * np.sqrt(fan_in)
        assert 0.8 < largest <= 1 + 1e-6


# Against reference
def test_femnist_has_the_layers_and_weights_of_leaf():
    shapes = shapes_of(femnist_cnn())
    assert shapes["convolutions"][0]["kernel"] == (5, 5, 1, 32)
    assert shapes["convolutions"][1]["kernel"] == (5, 5, 32, 64)
    assert shapes["hidden"] == {0: {"kernel": (3136, 2048), "bias": (2048,)}}
    assert shapes["output"] == {"kernel": (2048, 62), "bias": (62,)}
    params = jax.eval_shape(femnist_cnn().init, KEY)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 6_603_710


# Against itself
def program(task: Task) -> str:
    """What training computes, but for the addresses of functions."""
    assert task.fit is not None
    images, labels = np.zeros((2, 32, 32, 3), np.float32), labels_of(2)
    params = jax.eval_shape(task.init, KEY)
    assert isinstance(params, Variables)
    found = jax.make_jaxpr(task.fit)(KEY, params, images, labels, labels < 2)
    return re.sub("0x[0-9a-f]+", "", str(found))


@pytest.mark.long
def test_the_deeper_network_is_the_general_one():
    sizes = {"channels": (2, 3), "hidden": (4,), "num_classes": 3}
    general = cnn((32, 32, 3), **sizes, kernel_size=3, batch_norm=True, dropout=0.5)
    assert program(deep_cnn(**sizes)) == program(general)
    assert program(deep_cnn(**sizes, dropout=0.4)) != program(general)
    assert len(shapes_of(deep_cnn()).weights["convolutions"]) == 3


SAMPLES, CLASSES = 3, 4
IMAGES = uniform(SAMPLES, 4, 4)
WORDS = jax.device_put(np.array([[1, 2, 0], [3, 4, 5], [5, 0, 0]], np.int32))
TARGETS = jax.device_put(np.array([0, 3, 1], np.int32))
SIZES = {"channels": (2,), "kernel_size": 3, "num_classes": CLASSES}
SPLIT: dict[str, Any] = {
    "mlp": (mlp((4, 4), hidden=(5, 6), num_classes=CLASSES), IMAGES, 6),
    "softmax regression": (mlp((4, 4), hidden=(), num_classes=CLASSES), IMAGES, 16),
    "cnn": (cnn((4, 4), hidden=(5,), **SIZES), IMAGES, 5),
    "batch norm": (cnn((4, 4), hidden=(5,), batch_norm=True, **SIZES), IMAGES, 5),
    "dropout": (cnn((4, 4), hidden=(16,), dropout=0.5, **SIZES), IMAGES, 16),
    "text": (text_cnn(6, embedding=3, channels=2, num_classes=CLASSES), WORDS, 6),
}


@functools.cache
def split_start(name: str) -> Any:
    return jax.jit(SPLIT[name][0].init)(jax.random.key(1))


@pytest.mark.long
@pytest.mark.parametrize("name", SPLIT)
def test_body_and_head_are_the_network(name):
    task, inputs, width = SPLIT[name]
    params = split_start(name)

    @jax.jit
    def in_parts(params):
        features = task.layers.embed(params, inputs)
        outputs = task.layers.answer(params, features)
        every = task.layers.losses(outputs, TARGETS), cross_entropy(outputs, TARGETS)
        return features, outputs, every

    @jax.jit
    def whole(params):
        return task.predict(params, inputs), task.losses(params, inputs, TARGETS)

    features, outputs, every = in_parts(params)
    assert features.shape == (SAMPLES, width)
    expected, losses = whole(params)
    np.testing.assert_array_equal(outputs, expected)
    for found in every:
        np.testing.assert_array_equal(found, losses)


@pytest.mark.parametrize("name", SPLIT)
def test_the_head_is_the_last_layer_and_nothing_else(name):
    task, _, width = SPLIT[name]
    params = split_start(name)
    names = paths(params)
    head = [n for n in names if task.layers.is_head(n)]
    assert [n.split("/")[-1] for n in head] == ["bias", "kernel"]
    leaves, form = jax.tree.flatten(jax.tree.map(np.asarray, params))
    others = [
        leaf if task.layers.is_head(name) else leaf + 1
        for name, leaf in zip(names, leaves, strict=True)
    ]
    features = np.ones((SAMPLES, width), np.float32)
    answer = jax.jit(task.layers.answer)
    same = answer(params, features), answer(form.unflatten(others), features)
    np.testing.assert_array_equal(*same)
    doubled = form.unflatten([2 * leaf for leaf in leaves])
    assert not np.allclose(answer(doubled, features), same[0])


@pytest.mark.parametrize("name", ["batch norm", "dropout"])
def test_training_sees_the_body_that_fit_sees(name):
    task, inputs, _ = SPLIT[name]
    params, key = split_start(name), jax.random.key(2)
    mask = jax.device_put(np.array([True, True, False]))

    @jax.jit
    def in_parts(params):
        features, after = task.layers.fit(key, params, inputs, mask)
        losses = task.layers.losses(task.layers.answer(params, features), TARGETS)
        return losses, after, features, task.layers.embed(params, inputs)

    losses, after, features, plain = in_parts(params)
    found = jax.jit(task.fit)(key, params, inputs, TARGETS, mask)
    np.testing.assert_array_equal(found[0], losses)
    jax.tree.map(np.testing.assert_array_equal, after, found[1])
    assert not np.allclose(features, plain)


def test_who_has_none():
    assert linear(3).layers is None
    assert SPLIT["cnn"][0].layers.fit is None


# Against misuse
@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: mlp((3, 4), hidden=(0,)), "must be"),
        (lambda: mlp((3, 4), hidden=(5, -1)), "must be"),
        (lambda: mlp((3, 4), num_classes=1), "must be"),
        (lambda: small(input_shape=(8,)), "`input_shape`"),
        (lambda: small(input_shape=(8, 6)), "`input_shape`"),
        (lambda: small(input_shape=(2, 2)), "`input_shape`"),
        (lambda: small(input_shape=(0, 8)), "`input_shape`"),
        (lambda: small(channels=()), "`channels`"),
        (lambda: small(channels=(3, 0)), "`channels`"),
        (lambda: small(kernel_size=0), "`kernel_size`"),
        (lambda: small(hidden=(-1,)), "`hidden`"),
        (lambda: small(num_classes=1), "`num_classes`"),
        (lambda: small(dropout=1.0), "`dropout`"),
        (lambda: small(dropout=-0.1), "`dropout`"),
        (lambda: small(dropout=float("nan")), "`dropout`"),
        (lambda: small(dropout=0.5, hidden=()), "`dropout`"),
        (lambda: deep_cnn(dropout=1.0), "`dropout`"),
        (lambda: femnist_cnn(hidden=0), "`hidden` must be at least 1"),
        (lambda: autoencoder((3, 0)), "`input_shape`, `hidden` and `latent` must be"),
        (lambda: autoencoder((3, 4), hidden=(0,)), "`hidden` must be at least 1"),
        (lambda: autoencoder((3, 4), latent=0), "`latent` must be at least 1"),
        (lambda: convolutional_autoencoder((8, 8)), "height, width, channels"),
        (lambda: convolutional_autoencoder((6, 8, 1)), "multiples of 4"),
        (lambda: convolutional_autoencoder(channels=()), "`channels` must name"),
        (lambda: convolutional_autoencoder(latent=0), "`latent` must be at least 1"),
        (lambda: convolutional_autoencoder(kernel_size=0), "must be positive"),
        (lambda: text_cnn(1), "`num_tokens` must be at least 2, got 1"),
        (lambda: text_cnn(9, num_classes=1), "`num_classes` must be at least 2"),
        (lambda: text_cnn(9, windows=()), "`windows` must name at least one"),
        (lambda: text_cnn(9, windows=(3, 0)), "must be positive integers"),
        (lambda: text_cnn(9, embedding=0), "`embedding`, `windows` and `channels`"),
        (lambda: text_cnn(9, channels=0), "`channels` must be at least 1"),
    ],
)
def test_impossible_networks_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_initialisers_are_refused():
    with pytest.raises((ValueError, jaxtyping.TypeCheckError)):
        small(initialiser="zeros")


@pytest.mark.long
@pytest.mark.parametrize(
    "name, shape, message",
    [
        ("softmax regression", (3, 3), r"inputs must be `\[samples, 3, 4\]`, got"),
        ("cnn", (8, 8), r"`inputs` must be \[samples, 8, 8, 2\]"),
        ("cnn", (8, 8, 1), r"`inputs` must be \[samples, 8, 8, 2\]"),
        ("autoencoder", (4, 3), r"`inputs` must be \[samples, "),
        ("convolutional autoencoder", (8, 4, 2), r"`inputs` must be \[samples, "),
    ],
)
def test_images_of_another_shape_are_refused(name, shape, message):
    """Of autoencoders also if the number of pixels is the same."""
    task = CASES[name][0]
    with pytest.raises(ValueError, match=message):
        task.predict(start(name), uniform(4, *shape))


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1)])
def test_training_refuses_images_of_another_shape(shape):
    task, params = normalised()
    assert task.fit is not None
    inputs, labels = batch(shape=shape)
    with pytest.raises(ValueError, match="`inputs` must be"):
        task.fit(KEY, params, inputs, labels, labels < 9)
