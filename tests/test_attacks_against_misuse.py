"""What attacks refuse, in one line that names the argument."""

import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from cfljax.attacks import (
    build,
    draw_byzantine,
    flip_labels,
    sleeper,
    threat,
)
from cfljax.base.types import ClientData

KEY = jax.random.key(0)
MASK = jnp.array([False, True, False])
MESSAGES = {"w": jnp.ones((3, 2))}
LABELS = ClientData(jnp.ones((3, 1, 1)), jnp.ones((3, 1), jnp.int32), MASK[:, None])
REAL = LABELS._replace(targets=jnp.ones((3, 1)))
ZERO = build("zero")


@pytest.fixture
def unchecked() -> Iterator[None]:
    """As for users, whose types nothing checks before the library does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: build("krum"), "`name` must be in .*alie.*got 'krum'"),
        (lambda: build("ipm", scale=1.0), "`ipm` must be in .*epsilon.*got 'scale'"),
        (lambda: build("ipm", epsilon=-0.1), "`epsilon` must be .*got -0.1"),
        (lambda: build("ipm", epsilon=math.nan), "`epsilon` must be .*got nan"),
        (lambda: build("alie", z=-1.0), "`z` must be .*got -1.0"),
        (lambda: build("gaussian", scale=-2.0), "`scale` must be .*got -2.0"),
        (lambda: build("noise", deviation=-2.0), "`deviation` must be .*got -2.0"),
        (lambda: build("noise", mean=math.inf), "`mean` must be finite, got inf"),
        (lambda: build("boosting", factor=math.inf), "`factor` must be finite, got"),
        (lambda: build("edge_static", radius=-1.0), "`radius` must be .*got -1.0"),
        (lambda: build("edge_adaptive", fraction=-1.0), "`fraction` must be .*got -1"),
        (lambda: build("staged", spacing=-1.0), "`spacing` must be .*got -1.0"),
        (lambda: build("mimic", direction="up"), "`direction` must be in .*got 'up'"),
        (lambda: build("staged", direction="up"), "`direction` must be in .*got 'up'"),
        (lambda: build("other_mean", other=-1), "`other` must be .*got -1"),
        (lambda: build("nan", value=0.0), "`value` must be NaN or infinite, got 0.0"),
        (lambda: build("bit_flip", variant="one"), "`variant` must be in .*got 'one'"),
        (lambda: build("bit_flip", limit=-1.0), "`limit` must be .*got -1.0"),
        (lambda: build("time_coupled", strength=-1.0), "`strength` must be .*got -1"),
        (lambda: sleeper(ZERO, wake=-1), "`wake` must be .*got -1"),
        (lambda: threat(ZERO, np.ones(4, bool)), "`byzantine` must leave.*of 4 clie"),
        (lambda: threat(ZERO, np.zeros((4, 1), bool)), "`byzantine` must be boolean"),
        (lambda: threat(ZERO, MASK, target=-1), "`target` must be at least 0, got -1"),
        (lambda: _draw(4, 1.0), r"`share` must be in \[0, 1\), got 1.0"),
        (lambda: _draw(4, -0.1), r"`share` must be in \[0, 1\), got -0.1"),
        (lambda: _draw(4, math.nan), r"`share` must be in \[0, 1\), got nan"),
        (lambda: _draw(4, 0.9), "`share` must leave a client honest, got 0.9, .*4 of"),
        (lambda: flip_labels(LABELS, MASK, 1), "`num_classes` must be .*got 1"),
        (lambda: flip_labels(LABELS, MASK, None), "`num_classes` must be given.*int32"),
        (lambda: flip_labels(REAL, MASK, 10), "`num_classes` must be None.*10 for flo"),
    ],
)
def test_misuse_is_named_where_things_are_made(call, words):
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def _draw(num_clients, share):
    return draw_byzantine(KEY, num_clients=num_clients, share=share)


@pytest.mark.parametrize(
    "name, messages, mask, words",
    [
        ("zero", {"w": jnp.ones((3, 2), jnp.int32)}, MASK, "`messages` must .*int32"),
        ("zero", {}, MASK, r"`messages` must have floating leaves .*got \[\]"),
        ("zero", MESSAGES, MASK[:2], "`byzantine` must be .*3 clients, got bool of"),
        ("edge_static", MESSAGES, MASK, "`radius` must be given .*got None"),
        ("edge_adaptive", MESSAGES, MASK, "`radius` must be given .*got None"),
        ("staged", MESSAGES, MASK, "`radius` must be given .*got None"),
        ("other_mean", MESSAGES, MASK, "`clusters` of the context .*got None"),
    ],
)
def test_misuse_is_named_where_messages_come(name, messages, mask, words):
    with pytest.raises(ValueError, match=words):
        build(name)(KEY, messages, mask)


def test_a_sleeper_must_know_the_round():
    with pytest.raises(ValueError, match="`context` must tell a sleeper the round"):
        sleeper(ZERO, wake=1)(KEY, MESSAGES, MASK)


def test_the_share_is_met_and_drawn():
    some, others = (
        draw_byzantine(key, num_clients=40, share=0.25) for key in jax.random.split(KEY)
    )
    assert int(some.sum()) == int(others.sum()) == 10
    assert some.tolist() != others.tolist()
    assert not _draw(4, 0.0).any()


def test_a_threat_lies_for_its_clients_wherever_they_are():
    mask = np.array([False, True, False, True])
    menace = threat(build("nan"), mask, target=2)
    clients = jnp.array([1, 2, 3])  # Client 0 takes no part.
    assert menace.claim(jnp.array([0, 1, -1]), clients).tolist() == [2, 1, 2]
    sent = menace.send(KEY, jnp.ones((3, 2)), clients)
    assert np.isnan(sent).tolist() == [[True] * 2, [False] * 2, [True] * 2]
    # Its target is the one whose honest clients and model matter.
    flip = threat(build("sign_flip"), np.array([False, False, True]), target=1)
    points, clusters = jnp.array([[1.0], [5.0], [9.0]]), jnp.array([0, 1, 0])
    sent = flip.send(KEY, points, jnp.arange(3), clusters=clusters)
    assert sent.tolist() == [[1], [5], [-5]]
    models = jnp.array([[0.0], [4.0]])
    sent = flip.send(KEY, points, jnp.arange(3), models, clusters=clusters)
    assert sent.tolist() == [[1], [5], [3]]  # 4 - (5 - 4)
