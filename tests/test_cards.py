"""Cards against the algorithms: every one has a card, whose passes it really runs."""

import dataclasses
import functools
import inspect
import math
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conformance_cases import needed_by
from jax.extend.core import Literal

from cfljax.algorithms import REGISTRY
from cfljax.base.types import ClientData
from cfljax.cards import CARDS, Card, Passes, Sizes, read
from cfljax.models import mlp, normalised

# Passes of a round, counted in its program and not by a clock
#
# A perceptron of one hidden layer has two products that nothing else has the shapes
# of: a forward pass contracts inputs and makes hidden units, a backward pass makes as
# many numbers as there are weights. How large they are tells how many clients and
# models they are of, merged or mapped; how often they are run, the loops around them
# tell. What the last layer costs alone does not count.


class Network(NamedTuple):
    """Of the perceptron: numbers that no other axis has, and its batch's samples."""

    num_inputs: int
    num_hidden: int
    num_samples: int


def count_passes(
    function: Any, *arguments: Any, network: Network, turns: int | None = None
) -> Passes:
    """Passes over a batch that a call of the function runs, which is traced only.

    No number of clients or clusters may be a multiple of the network's samples. Loops
    whose length depends on data turn `turns` times, and are refused without it.
    """
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    found = _Counter(network, turns).count(program)
    return Passes(*(products / math.prod(network) for products in found))


Products = tuple[float, float]  # Multiplications of forward and of backward passes.


class _Counter:
    def __init__(self, network: Network, turns: int | None) -> None:
        self._network, self._turns = network, turns

    def count(self, program: Any) -> Products:
        """Of everything that the program runs."""
        forward = backward = 0.0
        known: dict[Any, Any] = {}
        for equation in program.eqns:
            _fold(equation, known)
            if equation.primitive.name == "dot_general":
                found = self._product(equation)
            elif equation.primitive.name == "cond":
                found = self._branch(equation, known)
            else:
                found = self._inside(equation)
            forward, backward = forward + found[0], backward + found[1]
        return forward, backward

    def _product(self, equation: Any) -> Products:
        """Of one product, if it is one of the network's first layer."""
        (contracted, _), _ = equation.params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        made = equation.outvars[0].aval.shape
        summed = [left[axis] for axis in contracted]
        work = float(math.prod(made) * math.prod(summed))
        num_inputs, num_hidden, num_samples = self._network
        if num_inputs in summed and num_hidden in made:
            return work, 0.0
        # A sum over clients makes as many numbers, and no sum over samples.
        over_samples = math.prod(summed) % num_samples == 0
        if num_inputs in made and num_hidden in made and over_samples:
            return 0.0, work
        return 0.0, 0.0

    def _branch(self, equation: Any, known: dict[Any, Any]) -> Products:
        """Of the dearer branch, unless it is known which one is taken."""
        found = [self.count(inner.jaxpr) for inner in equation.params["branches"]]
        taken = _value(equation.invars[0], known)
        return max(found, key=sum) if taken is None else found[int(taken)]

    def _inside(self, equation: Any) -> Products:
        """Of the programs inside an equation, as often as they turn."""
        found = [self.count(inner) for inner in _programs(equation.params)]
        times = 1
        if equation.primitive.name == "scan":
            times = equation.params["length"]
        elif equation.primitive.name == "while" and any(map(any, found)):
            if self._turns is None:
                raise ValueError("passes inside a loop whose length depends on data.")
            times = self._turns
        return times * sum(f for f, _ in found), times * sum(b for _, b in found)


def _programs(parameters: dict[str, Any]) -> Iterator[Any]:
    """Programs among an equation's parameters."""
    for value in parameters.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(one, "jaxpr", one)
            if hasattr(inner, "eqns"):
                yield inner


def _value(variable: Any, known: dict[Any, Any]) -> Any:
    """A number that does not depend on the arguments; None if it does."""
    return variable.val if isinstance(variable, Literal) else known.get(variable)


def _fold(equation: Any, known: dict[Any, Any]) -> None:
    """Note the equation's result if it is one number that is known beforehand."""
    inputs = [_value(variable, known) for variable in equation.invars]
    is_number = all(variable.aval.shape == () for variable in equation.outvars)
    plain = not any(_programs(equation.params)) and len(equation.outvars) == 1
    if inputs and is_number and plain and all(one is not None for one in inputs):
        result = equation.primitive.bind(*inputs, **equation.params)
        known[equation.outvars[0]] = np.asarray(result)


# Against itself


# Eight clients fill all lanes of `federated.sums`; no two sizes are equal.
ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZES = Sizes(num_clients=8, num_clusters=3, num_steps=5, num_personal_steps=2)
NETWORK = Network(num_inputs=11, num_hidden=13, num_samples=7)
CLASSES = 4
KEY = jax.random.key(0)
# Whose passes run in loops of a length that depends on data, and how often these turn
# once the start is over.
TURNS = {"fedala": 1}
# Whose losses under all models choose nothing: they are in the program for those who
# look at them, and a run of anybody else does without; and how many models these are.
LOOKED_AT = {
    "feddrift": "num_clusters",
    "flexcfl": "num_clusters",
    "flux": "num_clients",
    "pacfl": "num_clusters",
}

# Whose passes are counted in the default run: one of each kind.
TRIED = ("ditto", "fedala", "federated_clustering", "ifca")
NAMES = [
    name if name in TRIED else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(REGISTRY)
]


def build(name, sizes=SIZES):
    """The algorithm as its card means it: averaged models, the rest by default."""
    row = REGISTRY[name]
    accepted = inspect.signature(row.constructor).parameters
    arguments = needed_by(
        name,
        clusters=jnp.arange(sizes.num_clients) % sizes.num_clusters,
        num_clusters=sizes.num_clusters,
        num_classes=CLASSES,
    )
    if "option" in accepted:
        arguments["option"] = "model"
    for steps in ("num_steps", "num_personal_steps"):
        if steps in accepted:
            arguments[steps] = getattr(sizes, steps)
    hidden = (NETWORK.num_hidden,)
    task = mlp((NETWORK.num_inputs,), hidden=hidden, num_classes=CLASSES)
    if row.needs_normalisation:
        task = normalised(task, (NETWORK.num_inputs,))
    return row.constructor(task, **arguments)


def client_data(sizes=SIZES):
    shape = (sizes.num_clients, NETWORK.num_samples)
    inputs = jax.random.normal(KEY, (*shape, NETWORK.num_inputs))
    targets = jnp.arange(shape[0] * shape[1]).reshape(shape) % CLASSES
    return ClientData(inputs, targets, jnp.ones(shape, bool))


@functools.cache
def counted(name, sizes=SIZES):
    """Passes of each client in a round."""
    algorithm, data = build(name, sizes), client_data(sizes)
    state = jax.eval_shape(algorithm.init, KEY, data)
    arguments = (KEY, state, data)
    turns = TURNS.get(name)
    found = count_passes(algorithm.step, *arguments, network=NETWORK, turns=turns)
    return Passes(*(number / sizes.num_clients for number in found))


def test_every_algorithm_has_a_card_and_every_card_an_algorithm():
    assert set(REGISTRY) == set(CARDS)
    assert all(row.card is CARDS[name] for name, row in REGISTRY.items())


def expected(name, sizes):
    """By the card, and for those who look at losses."""
    passes = CARDS[name].passes(sizes)
    more = getattr(sizes, LOOKED_AT[name]) if name in LOOKED_AT else 0
    return Passes(passes.forward + more, passes.backward)


@pytest.mark.parametrize("name", NAMES)
def test_a_round_runs_the_passes_of_its_card(name):
    assert counted(name) == expected(name, SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_passes_grow_with_the_sizes_as_the_card_says(name):
    # As many clients as fill the blocks of samples that losses are computed of.
    other = Sizes(num_clients=64, num_clusters=5, num_steps=2, num_personal_steps=6)
    assert counted(name, other) == expected(name, other)


def test_wrong_passes_are_rejected():
    """Control: every count differs from that of an algorithm which costs otherwise."""
    wrong = {
        "ifca": Passes(1 + 5, 5),  # Without the losses under the other models.
        "fedala": Passes(1 + 5, 5),  # Without the pass that learns weights.
        "ditto": Passes(2 + 5, 5),  # Without the personal steps.
        "federated_clustering": Passes(1, 1),
    }
    for name, passes in wrong.items():
        assert counted(name) != passes, name


def test_a_pass_more_is_counted():
    """Control: a round that evaluates once more costs one forward pass more."""
    algorithm, data = build("fedavg"), client_data()
    task = mlp((11,), hidden=(13,), num_classes=CLASSES)

    def step(key, state, data):
        again = task.losses(state.model, data.inputs[0], data.targets[0])
        return algorithm.step(key, state, data), again

    state = jax.eval_shape(algorithm.init, KEY, data)
    found = count_passes(step, KEY, state, data, network=NETWORK)
    assert found == Passes(8 * (1 + 5) + 1, 8 * 5)


@pytest.mark.long
def test_loops_branches_and_gradients_are_counted():
    task = mlp((11,), hidden=(13,), num_classes=CLASSES)
    data = client_data()
    batch = data.inputs[0], data.targets[0]
    model = task.init(KEY)
    loss = lambda model: jnp.mean(task.losses(model, *batch))
    count = functools.partial(count_passes, network=NETWORK)
    assert count(loss, model) == Passes(1, 0)
    assert count(jax.grad(loss), model) == Passes(1, 1)
    descend = lambda model, _: (
        jax.tree.map(lambda w, g: w - g, model, jax.grad(loss)(model)),
        None,
    )
    assert count(lambda m: jax.lax.scan(descend, m, length=3), model) == Passes(3, 3)
    either = lambda m, which: jax.lax.cond(which, loss, lambda _: 0.0, m)
    assert count(either, model, True) == Passes(1, 0)
    assert count(lambda m: either(m, jnp.zeros((), bool)), model) == Passes(0, 0)
    until = lambda m: jax.lax.while_loop(lambda x: loss(m) > x, lambda x: x + 1, 0.0)
    with pytest.raises(ValueError, match="length depends on data"):
        count(until, model)
    assert count_passes(until, model, network=NETWORK, turns=4) == Passes(4, 0)


@pytest.mark.slow
def test_loops_turn_as_often_as_is_assumed():
    algorithm, data = build("fedala"), client_data()
    step = jax.jit(algorithm.step)
    state, taken = jax.jit(algorithm.init)(KEY, data), []
    for key in jax.random.split(KEY, 3):
        state, info = step(key, state, data)
        taken.append(info.epochs.tolist())
    assert taken[0] == [0] * 8 and taken[2] == [TURNS["fedala"]] * 8
    assert min(taken[1]) > 1  # The start, which cards leave out.


def test_units_count_a_backward_pass_twice():
    assert Passes(3, 4).units == 11


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        ("K + tau forward, tau backward.", (3 + 5, 5)),
        ("2 + 2 tau + s forward, tau backward: and more.", (2 + 10 + 4, 5)),
        ("N forward, 1 backward.", (8, 1)),
        ("1 + tau s forward, 2 tau s backward.", (1 + 5 * 4, 2 * 5 * 4)),
    ],
)
def test_costs_are_formulas(cost, expected):
    card = dataclasses.replace(CARDS["fedavg"], cost=cost)
    assert card.passes(Sizes(8, 3, 5, 4)) == Passes(*expected)
    assert card.passes(Sizes(9, 4, 6, 5)) != Passes(*expected)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ("Two passes.", "must begin with a formula"),
        ("K + rho forward, tau backward.", "N, K, tau, s, got 'rho'"),
        ("K * tau forward, tau backward.", r"got 'K \* tau'"),
        ("tau rho forward, tau backward.", "got 'tau rho'"),
        ("K +  forward, tau backward.", "got ''"),
    ],
)
def test_other_costs_are_refused(cost, message):
    card = dataclasses.replace(CARDS["fedavg"], cost=cost)
    with pytest.raises(ValueError, match=message):
        card.passes(SIZES)


def test_cards_have_all_sections():
    """Control: a card that lacks one, or has another, is refused."""
    text = (ROOT / "cfljax" / "cards" / "ifca.md").read_text()
    assert read(text) == CARDS["ifca"]
    with pytest.raises(ValueError, match="must have the sections Cost, Messages"):
        read(text.replace("## Newcomers", "## Others"))
    with pytest.raises(ValueError, match="got none"):
        read("# Title\n\nNothing else.\n")


@pytest.mark.parametrize("name", sorted(CARDS))
def test_cards_are_whole_sentences(name):
    for field in dataclasses.fields(Card):
        text = getattr(CARDS[name], field.name)
        if not isinstance(text, str):
            continue
        assert text == " ".join(text.split()), field.name
        assert text and (text.endswith(".") or field.name == "title"), field.name
    assert 2 <= len(re.findall(r"[.:](?= |$)", CARDS[name].what)) <= 5
