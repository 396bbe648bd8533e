"""Checkpoints: long runs that go on where they stopped, to the last bit.

One file holds the state after some rounds, what was observed of them, and what run it
belongs to. A new one takes its place whole, and the one before stays beside it as
`NAME.before`, in case a disk loses what it said it had.

orbax-checkpoint, which saves in a way that is atomic and fast enough, would not do:
with one bit of its largest file flipped, 0.12.8 restored other numbers without a word.
"""

import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import itertools
import logging
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from cfljax.base.describe import short
from cfljax.base.types import Algorithm, ClientData
from cfljax.engine import kept, objects
from cfljax.engine.kept import StoreError, difference, disk_errors
from cfljax.engine.processes import clock, shared
from cfljax.engine.states import (
    ROOT,
    arrays_of,
    bits_of,
    blank,
    from_bits,
    kinds,
    named,
    tree_of,
)
from cfljax.federated.local_update import scheduled

log = logging.getLogger(__name__)

EVERY = 120.0  # Seconds between two saves.
_SEGMENT = 10.0  # Seconds that the host is away at most, unless a round takes longer.
_TRACE = "trace"  # What the names of observations begin with,
_TESTS = "tests"  # and those of tests.
_LAYOUT = 1
_ADVICE = "choose another path or delete it."


class SharedSets(NamedTuple):
    """Data of rounds of which several have the same.

    sets: leaves `[sets, clients, samples, ...]`.
    which: of them each round has.
    """

    sets: ClientData
    which: Int[Array, " rounds"]


Data = ClientData | SharedSets


@dataclasses.dataclass
class Spent:
    """What runs had cost before this process took them up.

    core_seconds: processor time of the processes that made their checkpoints.
    """

    core_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a run saves its checkpoints.

    path: the file.
    every: seconds between two saves.
    identity: plain data that a file must agree on, beside what is found out.
    spent: is told of what a run had cost that goes on.

    Raises:
      TypeError: if JSON has no such identity.
      ValueError: if `every` is negative.
    """

    path: str | os.PathLike[str]
    every: float
    identity: Any = None
    spent: Spent = dataclasses.field(default_factory=Spent)

    def __post_init__(self) -> None:
        if not self.every >= 0:
            raise ValueError(f"`every` must be at least 0 seconds, got {self.every}.")
        kept.key_of(self.identity)


_PLACES: contextvars.ContextVar[Iterator[Place] | None] = contextvars.ContextVar(
    "places", default=None
)


@contextlib.contextmanager
def checkpoints(
    path: str | os.PathLike[str], *, every: float = EVERY, identity: Any = None
) -> Iterator[Spent]:
    """Inside, `run` saves checkpoints without being told to.

    For whoever calls what calls `run`. The first run uses `path`, the second
    `NAME.2.SUFFIX` and so on: started again, the same runs must come in the same order.
    Runs with a `checkpoint` of their own, inside of `jit` and the like, and in other
    threads are left alone.

    Args:
      path: the file.
      every: seconds between two saves.
      identity: anything that JSON has and that says more of the run than `run` sees,
        such as its loss function; a file of another identity is refused.

    Yields:
      What the runs inside that went on had cost before.

    Raises:
      TypeError: if JSON has no such identity.
      ValueError: if `every` is negative.
    """
    spent = Spent()
    first = Place(path, every, identity, spent)
    plain = pathlib.Path(path)
    name = lambda number: f"{plain.stem}.{number}{plain.suffix}"
    more = (
        Place(plain.with_name(name(number)), every, identity, spent)
        for number in itertools.count(2)
    )
    token = _PLACES.set(itertools.chain([first], more))
    try:
        yield spent
    finally:
        _PLACES.reset(token)


def next_place() -> Place | None:
    """Where `checkpoints` around the call lets the next run save, None without it."""
    places = _PLACES.get()
    return None if places is None else next(places)


class Trace(NamedTuple):
    """What was seen of a run that is tested now and then.

    rounds: what `observe` returned of each round, leaves `[rounds, ...]`.
    tests: what `test` returned of each test, leaves `[tests, ...]`.
    """

    rounds: PyTree
    tests: PyTree


class Progress(NamedTuple):
    """What is done of a run.

    rounds: how many are behind.
    state: after them.
    trace: of them; rows of later rounds and tests are zeros.
    """

    rounds: int
    state: Any
    trace: Trace


class Checkpoint:
    """The file of one run.

    Args:
      place: where it is.
      algorithm: what is run.
      key: of the run.
      data: see `run`.
      differs: whether rounds differ in their data.
      start: the state and the round that it goes on from; None for a fresh start.
      shapes: of the final state and the trace.
      num_rounds: of the whole run.
      rounds_between: from one test to the next; divides `num_rounds`.
    """

    def __init__(
        self,
        place: Place,
        algorithm: Algorithm,
        key: PRNGKeyArray,
        data: Data,
        *,
        differs: bool,
        start: tuple[PyTree, Int[Array, ""] | int] | None,
        shapes: tuple[PyTree, Trace],
        num_rounds: int,
        rounds_between: int = 1,
    ) -> None:
        self.path = pathlib.Path(place.path)
        self.every = place.every
        self.num_rounds = num_rounds
        self.rounds_between = rounds_between
        self._shapes = shapes
        self._before = self.path.with_name(f"{self.path.name}.before")
        self._is_whole = False  # Whether `path` is known to be.
        self._spent, self._begun = place.spent, time.process_time()
        self._earlier = 0.0  # Core-seconds of those who made the file.
        self._data = _digests(data) if differs else [_digest(data, "data")]
        told = told_of(algorithm, key, (), start)
        self._about = {
            "layout": _LAYOUT,
            **{name: told[name] for name in ("algorithm", "key", "start")},
            "data_per_round": differs,
            ROOT: kinds(shapes[0], ROOT),
            _TRACE: kinds(jax.tree.map(_one_row, shapes[1].rounds), _TRACE),
            _TESTS: None,
            "identity": place.identity,
        }
        if jax.tree.leaves(shapes[1].tests):
            tests = kinds(jax.tree.map(_one_row, shapes[1].tests), _TESTS)
            self._about[_TESTS] = {"rounds_between": rounds_between, **tests}

    def read(self) -> Progress | None:
        """What is done of the run; None if there is no file yet. A file of more rounds
        than are asked for is whole too, and has no state of them.

        Raises:
          StoreError: if the file belongs to something else, or is damaged without an
            earlier one.
        """
        found, self._is_whole = shared(self._found)
        if found is None:
            return None
        self._check(found)
        if not self._is_whole:
            log.warning(
                "warning: `%s` is damaged or gone; the run goes on from `%s`, after %d"
                " rounds",
                self.path,
                self._before,
                found.about["rounds"],
            )
        return self._progress(found)

    def _found(self) -> tuple[kept.Kept | None, bool]:
        """What the file holds, or the one before it, and whether it is whole."""
        found = kept.read(self.path)
        if found is not None:
            return found, True
        if (found := kept.read(self._before)) is None and self.path.exists():
            raise StoreError(
                f"`{self.path}` is damaged or no checkpoint, and there is no earlier"
                f" one; {_ADVICE}"
            )
        return found, False

    def _check(self, found: kept.Kept) -> None:
        """Raises StoreError unless the file belongs to this run."""
        about = found.about
        if not isinstance(about, dict) or not _is_count(about.get("rounds")):
            raise StoreError(f"`{self.path}` is no checkpoint of a run; {_ADVICE}")
        here = self._data_of(about["rounds"], about.get("data")) | self._about
        for name, mine in here.items():
            if fault := difference(name, about.get(name), mine):
                raise StoreError(f"`{self.path}` {fault}; {_ADVICE}")
        there = {name: array.shape for name, array in found.arrays.items()}
        seconds = about.get("core_seconds", 0.0)
        if there != self._sizes(about["rounds"]) or not isinstance(
            seconds, float | int
        ):
            raise StoreError(f"`{self.path}` is not what it says; {_ADVICE}")

    def _sizes(self, rounds: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of a file of so many rounds."""
        state, (trace, tests) = self._shapes
        number = rounds // self.rounds_between
        of = lambda tree, root: {n: blank(k) for n, k in named(tree, root).items()}
        rows = [(of(trace, _TRACE), rounds), (of(tests, _TESTS), number)]
        found = {name: own.shape for name, own in of(state, ROOT).items()}
        for arrays, count in rows:
            found |= {name: (count, *own.shape[1:]) for name, own in arrays.items()}
        return found

    def _data_of(self, rounds: int, unknown: Any = None) -> dict[str, Any]:
        """What says which data so many rounds have used; `unknown` for more rounds than
        there are data of."""
        if not self._about["data_per_round"]:
            return {"data": self._data[0]}
        used = max(rounds, 1)  # The first ones are looked at for the start.
        is_known = used <= len(self._data)
        return {"data": self._data[used - 1] if is_known else unknown}

    def _progress(self, found: kept.Kept) -> Progress:
        rounds = found.about["rounds"]
        state, trace = self._shapes
        if rounds > self.num_rounds:
            return Progress(rounds, None, Trace(None, None))
        self._earlier = found.about.get("core_seconds", 0.0)
        self._spent.core_seconds += self._earlier

        def filled(tree: PyTree, root: str, count: int) -> PyTree:
            leaves = []
            for name, kind in named(tree, root).items():
                rows = blank(kind)
                rows[:count] = found.arrays[name]
                leaves.append(from_bits(rows, kind))
            return jax.tree.unflatten(jax.tree.structure(tree), leaves)

        seen = Trace(
            filled(trace.rounds, _TRACE, rounds),
            filled(trace.tests, _TESTS, rounds // self.rounds_between),
        )
        return Progress(rounds, tree_of(found.arrays, state, ROOT), seen)

    def fresh(self, state: Any) -> Progress:
        """Nothing is done yet: a copy of the state to begin with."""
        copy = tree_of(arrays_of(state, ROOT), self._shapes[0], ROOT)
        empty = lambda kind: from_bits(blank(kind), kind)
        return Progress(0, copy, jax.tree.map(empty, self._shapes[1]))

    def write(self, done: Progress) -> None:
        """Save what is done; the file before stays beside it.

        Raises:
          StoreError: if the disk refuses.
        """
        rounds = done.rounds
        trace = arrays_of(done.trace.rounds, _TRACE)
        arrays = {name: rows[:rounds] for name, rows in trace.items()}
        tests = arrays_of(done.trace.tests, _TESTS)
        number = rounds // self.rounds_between
        arrays |= {name: rows[:number] for name, rows in tests.items()}
        about = self._about | self._data_of(rounds) | {"rounds": rounds}
        about["core_seconds"] = self._earlier + time.process_time() - self._begun
        arrays |= arrays_of(done.state, ROOT)
        shared(lambda: self._replace(arrays, about))
        self._is_whole = True

    def _replace(self, arrays: Mapping[str, np.ndarray], about: Any) -> None:
        with disk_errors(self.path):
            if self._is_whole:  # Else the one before is all there is.
                self._keep()
            kept.write(self.path, arrays, about, compress=False)
        objects.saved(self.path)

    def _keep(self) -> None:
        """Give the file its second name, which stays when a new one takes the first."""
        if self._before.exists() and self._before.samefile(self.path):
            return  # A kill came before the new one.
        with kept.replacing(self._before) as partial:
            try:
                os.link(self.path, partial)
            except OSError:  # Not every file system has links.
                shutil.copyfile(self.path, partial)

    def go_on(
        self,
        done: Progress,
        advance: Callable[[Any, PyTree, int, int], tuple],
        test: Callable[[Any, PyTree, int], PyTree] | None = None,
    ) -> Progress:
        """Play the rounds that are left, and save what is done from time to time.

        Args:
          done: so far; its arrays are used up.
          advance: `(state, trace, first, last) -> (state, trace)`, plays these rounds
            of the run but the last, of observations of rounds; it may be slow the first
            time.
          test: `(state, tests, number) -> tests`, writes the row of this number; None
            where nothing is tested.
        """
        rounds, state, (trace, tests) = done
        state, trace = advance(state, trace, rounds, rounds)  # Compiles.
        saved = before = clock()
        count = 1
        while rounds < self.num_rounds:
            last = min(rounds + count, self.num_rounds)
            if test is not None:
                last = min(last, self._next_test(rounds))
            state, trace = advance(state, trace, rounds, last)
            jax.block_until_ready((state, trace))
            now = clock()
            each, before = (now - before) / (last - rounds), now
            rounds = last
            number, since = divmod(rounds, self.rounds_between)
            if test is not None and not since:
                tests = jax.block_until_ready(test(state, tests, number - 1))
                now = before = clock()
            if rounds < self.num_rounds and now - saved >= self.every:
                self.write(Progress(rounds, state, Trace(trace, tests)))
                saved = before = clock()
            wanted = min(self.every, _SEGMENT) / max(each, 1e-9)
            count = max(1, min(int(wanted), 8 * count))  # Later rounds may be slower.
        done = Progress(rounds, state, Trace(trace, tests))
        self.write(done)
        return done

    def _next_test(self, rounds: int) -> int:
        """Rounds that are behind at the next test."""
        return (rounds // self.rounds_between + 1) * self.rounds_between


def told_of(
    algorithm: Algorithm, key: PRNGKeyArray, data: PyTree, start: Any
) -> dict[str, Any]:
    """Plain data that say what is run, from what and on what."""
    return {
        "algorithm": {
            "name": algorithm.name,
            **_described(algorithm.settings),
            **_schedules(algorithm.settings),
        },
        "key": _digest_of_leaf(key),
        "data": _digest(data, "data"),
        "start": None if start is None else _started(*start),
    }


def _is_count(value: Any) -> bool:
    """Whether a value is a number of rounds."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _one_row(leaf: Any) -> jax.ShapeDtypeStruct:
    """The kind of one row."""
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _digest_of_leaf(leaf: Any) -> str:
    """Kind and bytes of an array in a few words."""
    bits, code = bits_of(leaf), hashlib.sha256()
    for row in bits if bits.ndim else [bits]:  # Memory for one row.
        code.update(np.ascontiguousarray(row).data)
    kind = leaf if hasattr(leaf, "dtype") else bits
    return f"{short(kind)} {code.hexdigest()[:24]}"


def _digest(tree: PyTree, root: str) -> dict[str, str]:
    """Kind and digest of each leaf by its name."""
    return {name: _digest_of_leaf(leaf) for name, leaf in named(tree, root).items()}


def _started(state: PyTree, first_round: Int[Array, ""] | int) -> dict[str, Any]:
    """What a run went on from."""
    return {"first_round": first_round, **_digest(state, ROOT)}


def _digests(data: Data) -> list[dict[str, str]]:
    """Of the data of the first round, of the first two, and so on."""
    sets = data.sets if isinstance(data, SharedSets) else data
    of_set = [
        _digest(ClientData(*(bits_of(leaf)[number] for leaf in sets)), "data")
        for number in range(len(sets.mask))
    ]
    which = range(len(of_set))
    if isinstance(data, SharedSets):
        which = np.asarray(data.which).tolist()
    found: list[dict[str, str]] = []
    for number in which:
        own = of_set[number]
        if found:
            both = {name: found[-1][name] + own[name] for name in own}
            own = {name: kept.key_of(text) for name, text in both.items()}
        found.append(own)
    return found


def _schedules(settings: Mapping[str, Any]) -> dict[str, list[float]]:
    """What step sizes that are schedules give at rounds 0, 1, 2, 4, ...: their names do
    not say it."""
    rounds = [0, *(2**power for power in range(20))]
    given = lambda one: [
        float(scheduled(one, jnp.asarray(at, jnp.int32))) for at in rounds
    ]
    sizes = {n: one for n, one in settings.items() if n.endswith("step_size")}
    return {name: given(one) for name, one in sizes.items() if callable(one)}


def _described(value: Any) -> Any:
    """Plain data that say what a setting is, the same in every process: of arrays a
    digest, of functions the name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _digest_of_leaf(value)
    if isinstance(value, functools.partial):
        return [_described(part) for part in (value.func, value.args, value.keywords)]
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()  # pyright: ignore[reportAttributeAccessIssue]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        value = {field.name: getattr(value, field.name) for field in fields}
    if isinstance(value, Mapping):
        return {str(name): _described(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_described(part) for part in value]
    named_like = value if hasattr(value, "__qualname__") else type(value)
    return f"{named_like.__module__}.{named_like.__qualname__}"
