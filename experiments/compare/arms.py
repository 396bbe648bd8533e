"""What a comparison compares: its configuration, and its arms as text.

An arm is an algorithm with what is changed of its arguments:

    ditto                       as its authors have it
    ditto:penalty=.1            one argument changed
    fedavg:proximal=.1:decay=.99  two, here of the local update
    my_module:make              a function of the user's own, see `registered`
    my_module:make@0a1b2c:share=.3  its code, by which results are found, and a change

A text is canonical: equal arguments give equal texts.
"""

import dataclasses
import difflib
import functools
import inspect
import math
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import optax
from jaxtyping import Array, Int

from cfljax.algorithms import REGISTRY
from cfljax.base import Algorithm, Task
from cfljax.clustering import quantile_radius
from cfljax.federated import LocalUpdate
from experiments.checks import (
    check_divides,
    check_positive,
    check_several,
    check_values,
    configuration,
)
from experiments.clove.methods import first_split
from experiments.clove.partitions import Partition
from experiments.clove.sources import Dataset
from experiments.compare.registered import code_of, registration

Optimizer = Literal["sgd", "momentum", "adam"]
_OPTIMIZERS: Mapping[Optimizer, Callable[[Any], optax.GradientTransformation]] = {
    "sgd": optax.sgd,
    "momentum": functools.partial(optax.sgd, momentum=0.9),
    "adam": optax.adam,
}


class Percent(NamedTuple):
    """A quantile of distances instead of a radius, such as 20%."""

    value: float


Value = int | float | bool | str | None | Percent

_BUILT_IN = get_args(Dataset)
_OF_OWN = ("task", "shares")  # What data sets of their own sizes have no use for.
_NOT_OF_OWN = (
    *("partition", "cluster_size", "num_samples", "num_validation_samples"),
    *("num_test_samples", "num_channels", "num_words", "num_tokens", "fall_back"),
)
_NOT_OF_TASK = ("network", "num_hidden")
_INSTEAD = {
    "task": "it is for data of your own, `--dataset FILE.npz`.",
    **dict.fromkeys(
        ("num_samples", "num_validation_samples", "num_test_samples"),
        "`--shares` say how samples are divided.",
    ),
}


@dataclasses.dataclass(frozen=True)
class Arm:
    """An algorithm with what is changed of its arguments."""

    algorithm: str  # a key of `REGISTRY`, or "MODULE:FUNCTION"
    # Names of arguments with their values, in the order given.
    changes: tuple[tuple[str, Value], ...] = ()
    code: str = ""  # digest of it, of the user's own

    @property
    def text(self) -> str:
        """Reads back to the arm."""
        return self._text_of(f"{self.algorithm}@{self.code}".rstrip("@"))

    @property
    def name(self) -> str:
        """As the text, whatever the code."""
        return self._text_of(self.algorithm)

    def _text_of(self, algorithm: str) -> str:
        pairs = [f"{name}={_text_of(value)}" for name, value in self.changes]
        return ":".join([algorithm, *pairs])

    def with_changes(self, changes: Iterable[tuple[str, Value]]) -> "Arm":
        """The arm with more changes, of arguments that it has none of."""
        return dataclasses.replace(self, changes=(*self.changes, *changes))

    def without(self, name: str) -> "Arm":
        """The arm with one argument left as it is."""
        kept = tuple(pair for pair in self.changes if pair[0] != name)
        return dataclasses.replace(self, changes=kept)


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One row of the table: an algorithm and the values it is searched over."""

    arm: Arm  # as it was asked for
    # The arm with each combination of the values searched over, at least one.
    settings: tuple[Arm, ...]


@configuration
class Config:
    """Everything that the results depend on. One field, one flag."""

    algorithms: tuple[str, ...] = ("fedavg", "ifca", "local")
    """Names, joined by commas or spaces, or all, or MODULE:FUNCTION of your own as
    docs/own_algorithm.md explains; NAME:ARGUMENT=VALUE changes an argument of the
    constructor, or batch_size, num_epochs, decay, proximal and keep_optimizer of local
    training."""
    dataset: str = "mnist"
    """digits, mnist, fashion_mnist, cifar10, ag_news or amazon_reviews, whose files
    --data or CFLJAX_DATA find; or FILE.npz, data of your own as
    cfl.data.from_npz reads them."""
    task: str | None = None
    """MODULE:FUNCTION of your own that makes the model for data of your own, found from
    the folder that you start in; one layer of num_hidden units if None."""
    shares: tuple[float, float, float] = (0.6, 0.2, 0.2)
    """Of each client's samples of your own data: to train, to validate, to test."""
    partition: Partition = "label_skew_1"
    """How samples are shared out among clusters and clients."""
    baseline: str | None = None  # Whom the others are compared with; the first if None.
    step_sizes: tuple[float, ...] = (0.1,)
    """Each algorithm takes the one of best validation accuracy."""
    search: tuple[str, ...] = ()
    """NAME:ARGUMENT=V1,V2: further arguments, chosen likewise."""
    num_clusters: int | None = None
    """True clusters; if None those of CLoVE's experiments, or of your own file."""
    cluster_size: int = 4  # Clients of a cluster that train.
    num_newcomers: int | None = None
    """Clients of a cluster that never train, and join after the last round, 0: none; 2
    if None. Of your own data: of all clients, and none if None."""
    num_samples: int = 100  # Training samples of a client.
    num_validation_samples: int = 20
    """Further samples of the training set, by which values and rounds are chosen."""
    num_test_samples: int = 50  # Test samples of a client.
    network: Literal["own", "mlp"] = "own"
    """own: the kind that fits the data; mlp: one hidden layer, the fastest."""
    num_channels: int = 4
    """Of the first convolution; each further one has twice as many."""
    num_hidden: int = 32  # Width of the hidden layer, and of a word's embedding.
    num_words: int = 5000  # Vocabulary of texts.
    num_tokens: int = 64  # Words of a text that are kept, for ag_news.
    num_rounds: int = 20  # T, communication rounds.
    rounds_between: int = 2
    """Rounds from one test to the next; tests count in the seconds."""
    num_epochs: int = 1  # Local epochs of a round.
    batch_size: int = 10  # Of a local step.
    optimizer: Optimizer = "sgd"  # Of local training; momentum is sgd with 0.9.
    num_trials: int = 3  # Seeds; all algorithms share them.
    error_rate: float = 0.05  # Of each interval, and of all differences together.
    clients_per_chunk: int = 5  # Clients evaluated at a time; bounds memory.
    seed: int = 0  # Of all of them.
    fall_back: bool = False
    """Use the embedded digits where no folder is named and no images are found."""

    def __post_init__(self) -> None:
        check_positive(self, "cluster_size", "num_epochs", "batch_size")
        self._check_data()
        check_values(self, "step_sizes")
        if not all(math.isfinite(size) and size > 0 for size in self.step_sizes):
            raise ValueError(
                f"`step_sizes` must be finite and positive, got {self.step_sizes}."
            )
        check_several(num_trials=self.num_trials)
        check_divides(self, "rounds_between", "num_rounds")
        if self.network == "mlp" and self.dataset == "ag_news":
            raise ValueError("`network` mlp needs numbers, got the words of ag_news.")
        _ = self.contestants, self.baseline_index

    def _check_data(self) -> None:
        """Raises ValueError for a name of no data, and what they have no use for."""
        if self.is_own and pathlib.PurePath(self.dataset).suffix != ".npz":
            raise ValueError(
                f"`dataset` must be one of {', '.join(_BUILT_IN)}, or a file FILE.npz "
                f"of your own, got {self.dataset!r}."
            )
        useless, whose = _NOT_OF_OWN if self.is_own else _OF_OWN, "the built-in sets"
        if self.is_own:
            useless += _NOT_OF_TASK if self.task is not None else ()
            whose = self.dataset
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in useless and value != field.default:
                raise ValueError(
                    f"`{field.name}` has no use for {whose}, got {value}; "
                    + _INSTEAD.get(field.name, "leave it out.")
                )
        if min(self.shares) <= 0 or not abs(sum(self.shares) - 1) < 1e-6:
            raise ValueError(
                f"`shares` must be positive and add up to 1, got {self.shares}."
            )

    @property
    def is_own(self) -> bool:
        """Whether the data are a file of the user's."""
        return self.dataset not in _BUILT_IN

    @property
    def newcomers(self) -> int:
        """`num_newcomers`, or how many there are if that is None."""
        if self.num_newcomers is None:
            return 0 if self.is_own else 2
        return self.num_newcomers

    @property
    def folder(self) -> str:
        """Name of the folder that results are put into by default."""
        if self.is_own:
            return f"own-{pathlib.PurePath(self.dataset).stem}"
        return f"{self.dataset}-{self.partition}"

    @property
    def contestants(self) -> list[Contestant]:
        """All rows; raises ValueError where a text cannot be read."""
        arms = parse_all(self.algorithms)
        settings: dict[Arm, tuple[Arm, ...]] = {arm: (arm,) for arm in arms}
        for search in self.search:
            name, points = _read_search(search)
            own = [arm for arm in arms if arm.algorithm == name]
            if not own:
                names = sorted({arm.algorithm for arm in arms})
                raise ValueError(f"`search`: {nearest(name, names, 'algorithm')}")
            for arm in own:
                taken = {argument for argument, _ in settings[arm][0].changes}
                if points[0].changes[0][0] in taken or len(set(points)) < len(points):
                    raise ValueError(
                        "`search` must hold an argument that has no value yet, with "
                        f"different values, got {search} for {arm.text}."
                    )
                settings[arm] = tuple(
                    one.with_changes(point.changes)
                    for one in settings[arm]
                    for point in points
                )
        return [Contestant(arm, own) for arm, own in settings.items()]

    @property
    def baseline_index(self) -> int:
        """Which row the others are compared with."""
        if self.baseline is None:
            return 0
        texts = [contestant.arm.text for contestant in self.contestants]
        wanted = parse(self.baseline).text
        if wanted not in texts:
            raise ValueError(f"`baseline`: {nearest(wanted, texts, 'algorithm')}")
        return texts.index(wanted)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration that flags change; there is no paper's."""
    del name
    return Config()


def _read_search(text: str) -> tuple[str, list[Arm]]:
    """The algorithm's name and an arm for each value of `NAME:ARGUMENT=V1,V2`."""
    start, is_given, values = text.partition("=")
    if not is_given or start.count(":") != 1:
        raise ValueError(f"`search` must be NAME:ARGUMENT=V1,V2, got {text!r}.")
    points = [parse(f"{start}={value.strip()}") for value in values.split(",")]
    return points[0].algorithm, points


def nearest(wanted: str, known: Sequence[str], what: str) -> str:
    """The sentence that names what was probably meant."""
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5) or sorted(known)
    return f"unknown {what} {wanted!r}; nearest: {', '.join(near)}."


def parse_all(texts: Iterable[str], *, every: Iterable[str] | None = None) -> list[Arm]:
    """The arms of texts that commas may join; "all" are those named by `every`, each
    registered algorithm that takes any network if None.

    Raises:
      ValueError: as `parse`, and if an arm comes twice or there is none.
    """
    parts = [part.strip() for text in texts for part in text.split(",")]
    if every is None:
        every = [n for n, row in REGISTRY.items() if not row.needs_normalisation]
    names = [n for p in parts if p for n in (every if p == "all" else (p,))]
    arms = [parse(name) for name in names]
    if not arms or len(set(arms)) < len(arms):
        raise ValueError(
            "`algorithms` must hold different algorithms, got "
            f"{', '.join(arm.text for arm in arms) or 'none'}."
        )
    return arms


def parse(text: str) -> Arm:
    """The arm of `NAME` or `NAME:ARGUMENT=VALUE:...`, NAME of the registry or
    `MODULE:FUNCTION`.

    Raises:
      ValueError: naming the nearest name if there is no such algorithm or argument, or
        what the argument must be; or if a function is of other code than the text says.
    """
    name, *changes = text.split(":")
    code = ""
    if name not in REGISTRY:
        if not changes or "=" in changes[0]:
            raise ValueError(nearest(name, list(REGISTRY), "algorithm"))
        function, _, wanted = changes.pop(0).partition("@")
        name = f"{name}:{function}"
        code = code_of(name)
        if wanted not in ("", code):
            raise ValueError(
                f"`algorithms`: {name} has the code {code} here, got {text!r}; leave "
                "the code out to run what is here."
            )
    allowed = _arguments(name)
    found: dict[str, Value] = {}
    for change in changes:
        argument, is_given, value = change.partition("=")
        if not is_given:
            raise ValueError(
                f"{text!r} must be NAME:ARGUMENT=VALUE, got {change!r} after the colon."
            )
        if argument not in allowed:
            raise ValueError(nearest(argument, list(allowed), f"argument of {name}"))
        found[argument] = _read(value, allowed[argument], f"{name}:{argument}")
    return Arm(name, tuple(found.items()), code)


@functools.cache
def _arguments(name: str) -> Mapping[str, Any]:
    """Annotations of all arguments that may be changed, the local update's first."""
    row = registration(name)
    hints = typing.get_type_hints(row.constructor)
    own = {n: hints[n] for n in _accepted(name) if _wanted(hints.get(n))}
    taken = ["clusters", "num_classes"] + ["num_clusters"] * row.needs_truth
    for given in taken:  # They follow from the data.
        own.pop(given, None)
    if not _trains(name):
        return own
    hints = typing.get_type_hints(LocalUpdate)
    return {argument: hints[argument] for argument in _UPDATE} | own


def _accepted(name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of an algorithm's constructor."""
    return inspect.signature(registration(name).constructor).parameters


def _trains(name: str) -> bool:
    """Whether clients train by a local update, rather than by one gradient a round."""
    return "update" in _accepted(name)


def finds_clusters(arm: Arm) -> bool:
    """Whether an algorithm looks for clusters of clients."""
    row = registration(arm.algorithm)
    told = row.clustered or "max_clusters" in _accepted(arm.algorithm)
    return (told or "num_clusters" in dict(arm.changes)) and not row.needs_truth


_WORDS: dict[str, Any] = {"none": None, "true": True, "false": False}
# Of a local update, those that say how a client trains and not how it is computed.
_UPDATE = ("batch_size", "num_epochs", "decay", "proximal", "keep_optimizer")


def _read(text: str, hint: Any, name: str) -> Value:
    """The value of a text, as far as the annotation `hint` has it: a number, a word,
    "true", "false", "none", or as "20%" a quantile of distances in place of a radius.
    """
    value = _plain(text)
    if not any(_is_of(value, part) for part in _parts(hint)):
        wanted = " or ".join(dict.fromkeys(_wanted(hint)))
        raise ValueError(f"`{name}` must be {wanted}, got {text!r}.")
    return value


def _text_of(value: Value) -> str:
    """The text that reads back to the value, the same for equal values."""
    if isinstance(value, Percent):
        return f"{value.value:g}%"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _plain(text: str) -> Value:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    if text.endswith("%"):
        share = _plain(text[:-1])
        if isinstance(share, int | float) and 0 <= share <= 100:
            return Percent(float(share))
    return text


def _parts(hint: Any) -> list[Any]:
    """Members of a union, or the annotation itself.

    A scalar is a number: what else may be one, such as an array, is left out.
    """
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    found = list(typing.get_args(hint)) if is_union else [hint]
    return [p for p in found if p not in (int, bool)] if float in found else found


def _is_of(value: Value, part: Any) -> bool:
    """Whether a value is of one part of an annotation; no number is NaN or infinite."""
    if typing.get_origin(part) is Literal:
        return any(value == one and type(value) is type(one) for one in part.__args__)
    if _is_rule(part):
        return isinstance(value, Percent)
    if part is float:
        return type(value) in (int, float) and math.isfinite(value)  # pyright: ignore
    return part in (int, bool, str, types.NoneType) and type(value) is part


def _is_rule(part: Any) -> bool:
    """Whether it is a function of distances, such as that of a radius."""
    if typing.get_origin(part) is not Callable:
        return False
    return "points" in str(typing.get_args(part)[0])


def _wanted(hint: Any) -> list[str]:
    """What a text must be for an annotation; empty where none will do."""
    parts = _parts(hint)
    words = {
        int: "a whole number",
        float: "a finite number",
        bool: "true or false",
        str: "a word",
    }
    found = [words[part] for part in parts if part in words]
    for part in parts:
        if typing.get_origin(part) is Literal:
            found.append(f"one of {', '.join(map(str, part.__args__))}")
        if _is_rule(part):
            found.append("a percentage of the distances such as 20%")
    if found and types.NoneType in parts:
        found.append("none")
    return found


# Scales of gradients differ between networks; Werner et al. (section 4.2) take this
# quantile of the distances on MNIST.
_RADIUS = Percent(20.0)
_STEPS = ("num_steps", "num_personal_steps")  # Which a number of epochs overrules.


@dataclasses.dataclass(frozen=True)
class Setup:
    """What all arms are told alike; each takes what it has arguments for.

    batch_size, num_epochs, optimizer: of local training.
    """

    num_clusters: int  # true clusters, and models of those that are told how many
    num_classes: int  # of the data
    num_rounds: int  # of the run
    batch_size: int
    num_epochs: int
    optimizer: Optimizer
    clients_per_chunk: int  # clients evaluated at a time


def build(
    arm: Arm,
    task: Task,
    setup: Setup,
    *,
    step_size: Any,
    clusters: Int[Array, "_"] | None,
) -> Algorithm:
    """The algorithm of an arm, given the true clusters if it asks for them; None where
    nobody knows them.

    Where an algorithm can average models or gradients, it averages models, so that all
    train alike. One without a local update takes one gradient step a round.

    Raises:
      ValueError: as the constructor.
    """
    row, accepted = registration(arm.algorithm), _accepted(arm.algorithm)
    # What has a default of its own keeps it: that of its authors, but for a number of
    # rounds, which is a share of the run's.
    lacking = (inspect.Parameter.empty, None)
    required = [n for n, p in accepted.items() if p.default in lacking]
    own = {"max_clusters": setup.num_clusters, "radius": _RADIUS}
    own["noise_multiplier"] = 0.0  # So few clients cannot hide one and learn.
    given = {n: own.get(n, v) for n, v in row.defaults.items() if n in required}
    given["step_size"] = step_size
    if row.clustered:
        given["num_clusters"] = setup.num_clusters
    if row.needs_truth:
        given["clusters"] = clusters
    if "num_classes" in accepted:
        given["num_classes"] = setup.num_classes
    if "first_split" in accepted:
        given["first_split"] = first_split(setup.num_rounds)
    if "option" in accepted:
        given["option"] = "model"
    changes = dict(arm.changes)
    given |= {name: value for name, value in changes.items() if name in accepted}
    if _trains(arm.algorithm):
        training: dict[str, Any] = {"clients_per_chunk": setup.clients_per_chunk}
        if given.get("option") != "gradient":  # Which leaves nothing to say.
            training["batch_size"] = setup.batch_size
            training["optimizer"] = _OPTIMIZERS[setup.optimizer]
            has_steps = any(name in changes for name in _STEPS)
            training["num_epochs"] = None if has_steps else setup.num_epochs
        training |= {name: v for name, v in changes.items() if name not in accepted}
        given["update"] = LocalUpdate(**training)
    if isinstance(given.get("radius"), Percent):
        given["radius"] = quantile_radius(given["radius"].value / 100)
    return row.constructor(task, **given)
