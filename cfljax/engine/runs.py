"""One run of one algorithm: a scan over communication rounds."""

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from cfljax.base.checks import is_traced
from cfljax.base.clients import check_finite_rounds
from cfljax.base.ranges import WHOLE, ranged
from cfljax.base.types import Algorithm, ClientData, Truth
from cfljax.engine.cache import keep_programs
from cfljax.engine.checkpoints import (
    EVERY,
    Checkpoint,
    Data,
    Place,
    Progress,
    SharedSets,
    Trace,
    next_place,
    told_of,
)
from cfljax.engine.devices import devices_for, mesh_of
from cfljax.engine.processes import check_alike, losses, num_processes
from cfljax.engine.states import check_state, is_key
from cfljax.engine.watch import Usual, usual_metrics
from cfljax.federated.backend import CLIENTS, EVERYWHERE

log = logging.getLogger(__name__)

Count = Int[Array, ""] | int
RoundKey = Callable[[PRNGKeyArray, Count], PRNGKeyArray]
Start = tuple[Any, Count]  # A state, and how many rounds are behind it.
Held = tuple[list[Any], list[Any]]  # Arrays of what observes and of what tests.

# What is refused inside of a transformation, and what to do.
_INSIDE = {
    "devices": "`devices` must be None inside of `jit` and the like, got {};"
    " enter `clients_over_devices` around the outermost of them.",
    "checkpoint": "`checkpoint` must be None inside of `jit` and the like, got {};"
    " call `run` outside of them.",
}


def nothing(state: Any, info: Any) -> tuple[()]:
    """Keeps no trace of a round."""
    del state, info
    return ()


def no_test(state: Any) -> tuple[()]:
    """Looks at nothing."""
    del state
    return ()


@functools.partial(ranged, num_rounds=WHOLE)
def run(
    algorithm: Algorithm,
    key: PRNGKeyArray,
    data: ClientData,
    *,
    num_rounds: int,
    observe: Callable[[Any, Any], PyTree] | None = usual_metrics,
    truth: Truth | Int[Array, " clients"] | None = None,
    test: Callable[[Any], PyTree] | None = None,
    rounds_between: int = 1,
    data_per_round: bool | Int[Array | np.ndarray, " rounds"] = False,
    devices: int | None = None,
    state: Any = None,
    first_round: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = EVERY,
    round_key: RoundKey = jax.random.fold_in,
) -> tuple[Any, PyTree]:
    """Runs `num_rounds` communication rounds, from a fresh start or a given state.

    The key's itinerary: the run's key splits into that of `init` and that of the
    rounds; round t uses the latter folded with t. So 40 rounds, and 60 more with their
    `state` and `first_round=40`, are the same bits as 100.

    Compiled, once for each algorithm, observer and shape of the data. On a CPU the
    clients are spread over one device for each core, as many as the log tells; results
    are the same bits as on one, and lie on the first. Three kinds of rounds have other
    last bits on each number of devices, and are computed on one unless `devices` or
    their context says otherwise: those of `option="gradient"`, of `order="batched"`,
    and of `fedpac`, `flux` and `momentum_clustering`. What an `observe` of your own
    adds up over clients may be rounded likewise. Inside of `jit`, `vmap` and the like
    the run becomes a part of what is transformed there, on its devices.

    A long run with a `checkpoint` survives its process: started again with the same
    arguments it goes on from the file, to the same bits, wherever it stopped. The file
    also serves a run of more rounds, and one that is complete is only read.

    Args:
      algorithm: what to run.
      key: of this run.
      data: leaves `[clients, samples, ...]`; with `data_per_round` several sets, leaves
        `[sets, clients, samples, ...]`.
      num_rounds: T, at least 0; at least 1 with `data_per_round`.
      observe: `(state, info) -> pytree`, what to keep of each round, with the state
        after the round and the info of the round; None keeps nothing. By default named
        metrics, `engine.usual_metrics`: loss and accuracy on these data, sizes of the
        clusters, MiB received and sent. They ask every client about every sample again
        in each round, see there; `engine.free_metrics` are those that cost nothing,
        `engine.metrics` has the loss besides. What it does not return is not computed.
        Given once more it is not compiled
        again; nor is a `jax.tree_util.Partial` of the same function with other arrays,
        which is how to hand it large ones, such as test samples.
      truth: of the data, or each client's true cluster; concrete. The default metrics
        then have `rand_index`; with another `observe` see `engine.watch`.
      test: `state -> pytree`, what costs too much to be seen of each round, such as
        accuracy on test samples; asked behind every `rounds_between` rounds of this
        run, and given like `observe`. It does not change what the rounds compute.
      rounds_between: rounds from one test to the next; divides `num_rounds`.
      data_per_round: whether each round has a set of `data` to itself, in order; or
        which one it has, integers in `[0, sets)`, where several rounds have the same:
        only one of each is kept in memory.
      devices: local devices that clients are spread over. If None: those of
        `clients_over_devices` around the call; else on a CPU up to 8, where there are
        so many, a round is large enough to gain and its bits do not depend on them;
        else 1. Inside of `clients_over_processes` of each process: 1 or all; None for
        all on a CPU, for 1 where bits would depend on them.
      state: to go on from, in place of what `init` makes; it stays as it is.
      first_round: rounds that are behind `state`. Data of each round begin with it.
      checkpoint: file for the state and the observations so far, written by `every`
        seconds and at the end; the one before stays beside it as `NAME.before`. A file
        of more rounds than `num_rounds` is left alone, and the run starts afresh
        without one. It is not seen whether `round_key` is another one, nor whether the
        task, `observe` or `test` are others that give leaves of the same names, types
        and shapes. One process at a time may use it. None: that of
        `engine.checkpoints` around the call, if any.
      every: seconds between two saves, at least 0; one waits for the end of a round.
      round_key: `(key, t) -> key` of round t; a pure function, the same object in each
        call that is not to be compiled again.

    Returns:
      The final state, and the observations stacked along a leading axis of rounds; with
      `test` they are the `rounds` of a pair, whose `tests` are stacked likewise.

    Raises:
      ValueError: if `num_rounds` is negative, or not the length of `data`'s leading
        axis, or of `data_per_round` itself, with that; if these are no integers, or
        known not to be of sets that exist; if `rounds_between` does not divide it; if
        `truth` stands beside an `observe` that is not the default; where `data` are
        concrete, if they are not finite (padding included) or, being one set, hold
        labels outside the task's classes; if there are not so many `devices`, or they
        are asked for inside of a transformation, as a `checkpoint`; if `first_round` is
        negative, or not 0 without a `state`, or `state` is not of the structure, shapes
        and types that `init` makes, the first leaf that differs is named. StoreError, a
        ValueError: if the checkpoint belongs to another run, is damaged without an
        earlier one, or the disk refuses.
    """
    if num_rounds < 0:
        raise ValueError(f"`num_rounds` must be at least 0, got {num_rounds}.")
    if first_round < 0:
        raise ValueError(f"`first_round` must be at least 0, got {first_round}.")
    if rounds_between < 1 or num_rounds % rounds_between:
        raise ValueError(
            f"`rounds_between` must be at least 1 and divide `num_rounds`, got"
            f" {rounds_between} and {num_rounds}."
        )
    if first_round and state is None:
        raise ValueError(
            f"`first_round` must be 0 without a `state` to go on from, got"
            f" {first_round}."
        )
    each = _sets_of_rounds(data, data_per_round, num_rounds)
    given, is_same = data, isinstance(each, bool) and not each
    if is_same:
        algorithm.check(data)
    else:
        check_finite_rounds(data)
    if not isinstance(each, bool):
        given = SharedSets(data, jnp.asarray(each, jnp.int32))
    if truth is not None and observe is not usual_metrics:
        raise ValueError(
            "`truth` must be None beside an `observe` of your own, such as"
            " `engine.watch(truth)`, which knows it."
        )
    keep_programs()
    if observe is usual_metrics:
        usual = Usual(algorithm.predict)
        observe = usual if truth is None else usual.beside(truth)
    seen, observer = _split(nothing if observe is None else observe)
    asked, tester = _split(no_test if test is None else test)
    held = seen, asked
    program = _program(
        (algorithm.init, algorithm.step, observer, tester, round_key),
        num_rounds,
        rounds_between,
        each is True,
    )
    seen_of = lambda trace: trace.rounds if test is None else trace
    start = None if state is None else (state, first_round)
    if start is not None:
        check_state(state, jax.eval_shape(program.started, key, given))
    if _is_transformed(key, given, state, algorithm.settings):
        for name, value in (("devices", devices), ("checkpoint", checkpoint)):
            if value is not None:
                raise ValueError(_INSIDE[name].format(value))
        state, trace = program.rounds(key, given, held, start)
        return state, seen_of(trace)
    if num_processes() > 1:
        told = told_of(algorithm, key, given, start)
        check_alike({**told, "num_rounds": num_rounds, "devices": devices})
    where = next_place() if checkpoint is None else Place(checkpoint, every)
    if where is None:
        state, trace = program(key, given, held, start, devices)
        return state, seen_of(trace)
    saved = Checkpoint(
        where,
        algorithm,
        key,
        given,
        differs=not is_same,
        start=start,
        shapes=jax.eval_shape(program.compiled, key, given, held, None),
        num_rounds=num_rounds,
        rounds_between=rounds_between,
    )
    done = saved.read()
    if done is not None and done.rounds == num_rounds:
        return done.state, seen_of(done.trace)
    if done is not None and done.rounds > num_rounds:
        saved = done = None
    state, trace = program(key, given, held, start, devices, saved, done)
    return state, seen_of(trace)


def _is_transformed(*values: PyTree) -> bool:
    """Whether some values are traced, or everything that is computed is."""
    return any(map(is_traced, jax.tree.leaves((*values, jnp.zeros(())))))


def _split(function: Callable[..., PyTree]) -> tuple[list[Any], Any]:
    """The arrays that a function holds, and the rest of it, which can be hashed."""
    if isinstance(function, jax.tree_util.Partial):
        return jax.tree.flatten(function)
    return [], function


def _joined(rest: Any, held: list[Any]) -> Callable[..., PyTree]:
    """What `_split` has taken apart."""
    is_tree = isinstance(rest, jax.tree_util.PyTreeDef)
    return jax.tree.unflatten(rest, held) if is_tree else rest


def _sets_of_rounds(
    data: ClientData, data_per_round: Any, num_rounds: int
) -> bool | Int[Array | np.ndarray, " rounds"]:
    """Whether each round has its own set, or which one it has; ValueError where that is
    of another number of rounds or, as far as it is known, of a set that does not
    exist."""
    if isinstance(data_per_round, bool | np.bool_):
        number = data.mask.shape[0]
        if data_per_round and (number != num_rounds or number < 1):
            raise ValueError(
                f"`data` must hold {num_rounds} rounds, at least 1, got {number}."
            )
        return bool(data_per_round)
    is_known = not is_traced(data_per_round)
    which = np.asarray(data_per_round) if is_known else data_per_round
    if not jnp.issubdtype(which.dtype, np.integer) or which.shape != (num_rounds,):
        raise ValueError(
            f"`data_per_round` must be integers of {num_rounds} rounds, True or False,"
            f" got {which.dtype}{list(which.shape)}."
        )
    last = data.mask.shape[0] - 1
    if is_known and (which.size < 1 or which.min() < 0 or which.max() > last):
        raise ValueError(
            f"`data_per_round` must be of at least one round and in [0, {last}], the"
            f" sets of `data`, got {which.tolist()}."
        )
    return which


class _Program:
    """The rounds of one algorithm, compiled for each shape of the data."""

    def __init__(
        self,
        init: Callable[..., Any],
        rounds: Callable[..., tuple[Any, PyTree]],
        segment: Callable[..., tuple[Any, PyTree]],
        test: Callable[..., PyTree],
        num_rounds: int,
    ):
        self.rounds = rounds
        self.num_rounds = num_rounds
        self.compiled = jax.jit(rounds)
        self.started = jax.jit(init)
        # A process sees of the others' devices only what its own have too.
        self.whole = jax.jit(rounds, out_shardings=EVERYWHERE)
        self.whole_start = jax.jit(init, out_shardings=EVERYWHERE)
        again = functools.partial(jax.jit, segment, donate_argnames=("state", "trace"))
        # What goes round in turns must come back as it went in.
        self.segments = {False: again(), True: again(out_shardings=EVERYWHERE)}
        again = functools.partial(jax.jit, test, donate_argnames="tests")
        self.tests = {False: again(), True: again(out_shardings=EVERYWHERE)}
        self.devices: dict[Any, int] = {}  # That pay by default.

    def __call__(
        self,
        key: PRNGKeyArray,
        data: Data,
        held: Held,
        start: Start | None,
        devices: int | None,
        saved: Checkpoint | None = None,
        done: Progress | None = None,
    ) -> tuple[Any, PyTree]:
        """The final state and the observations, on the first device unless the caller
        has a mesh."""
        play = self.compiled
        if saved is not None:
            play = functools.partial(self._in_segments, saved, done)
        if devices is None and not jax.sharding.get_abstract_mesh().empty:
            return play(key, data, held, start)
        if devices is None:
            devices = self._worth(key, data, held, start)
        log.info("clients on %d of %d devices", devices, jax.local_device_count())
        with losses():
            with mesh_of(devices) as number:
                if number == 1:
                    return play(key, data, held, start)
                if saved is None and num_processes() > 1:
                    play = self.whole
                key, held, start = _everywhere((key, held, start))
                found = play(key, _laid_out(data), held, start)
            return jax.tree.map(_at_home, found)

    def _in_segments(
        self,
        saved: Checkpoint,
        done: Progress | None,
        key: PRNGKeyArray,
        data: Data,
        held: Held,
        start: Start | None,
    ) -> tuple[Any, PyTree]:
        """The same by a program of any number of rounds, which the host calls again and
        again until all are done."""
        first_round = 0 if start is None else start[1]
        if done is None:
            begin = self.started if num_processes() == 1 else self.whole_start
            done = saved.fresh(begin(key, data) if start is None else start[0])
        has_mesh = not jax.sharding.get_abstract_mesh().empty
        if has_mesh:
            state, trace = _everywhere((done.state, done.trace))
            done = Progress(done.rounds, state, trace)
        own = key, data, held, first_round
        advance = functools.partial(self.segments[has_mesh], *own)
        test = functools.partial(self.tests[has_mesh], held)
        is_tested = bool(jax.tree.leaves(done.trace.tests))
        return saved.go_on(done, advance, test if is_tested else None)[1:]

    def _worth(
        self,
        key: PRNGKeyArray,
        data: Data,
        held: Held,
        start: Start | None,
    ) -> int:
        """Devices that pay for such data."""
        kind = (
            jax.tree.structure(data),
            *((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(data)),
        )
        if jax.local_device_count() > 1 and kind not in self.devices:
            jaxpr = self.compiled.trace(key, data, held, start).jaxpr.jaxpr
            self.devices[kind] = devices_for(jaxpr, self.num_rounds)
        return self.devices.get(kind, 1)


@functools.lru_cache(maxsize=16)
def _program(
    functions: tuple[Callable, Callable, Any, Any, RoundKey],
    num_rounds: int,
    rounds_between: int,
    data_per_round: bool,
) -> _Program:
    """The program of these rounds, kept for as long as a few others are asked for."""
    init, step, observer, tester, round_key = functions

    def begin(init_key: PRNGKeyArray, data: Data) -> Any:
        return init(init_key, _of_round(data, 0, data_per_round))

    def play(
        rounds_key: PRNGKeyArray, held: Held, index: Any, state: Any, now: ClientData
    ) -> tuple[Any, PyTree]:
        state, info = step(round_key(rounds_key, index), state, now)
        observed = _joined(observer, held[0])
        is_usual = isinstance(getattr(observed, "func", observed), Usual)
        return state, observed(state, info, *([now] if is_usual else []))

    def rounds(
        key: PRNGKeyArray, data: Data, held: Held, start: Start | None
    ) -> tuple[Any, Trace]:
        init_key, rounds_key = jax.random.split(key)
        state, first_round = (begin(init_key, data), 0) if start is None else start

        def one_round(state: Any, inputs: tuple) -> tuple[Any, PyTree]:
            index, own = inputs
            now = own if data_per_round else _set_of(data, own)
            return play(rounds_key, held, index, state, now)

        def between_tests(state: Any, inputs: tuple) -> tuple[Any, tuple]:
            state, seen = jax.lax.scan(one_round, state, inputs)
            return state, (seen, _joined(tester, held[1])(state))

        indices = first_round + jnp.arange(num_rounds)
        which = data.which if isinstance(data, SharedSets) else None
        inputs = (indices, data if data_per_round else which)
        if tester is no_test:
            state, seen = jax.lax.scan(one_round, state, inputs)
            return state, Trace(seen, ())
        several = (num_rounds // rounds_between, rounds_between)
        cut = lambda leaf: leaf.reshape(*several, *leaf.shape[1:])
        whole = lambda leaf: leaf.reshape(num_rounds, *leaf.shape[2:])
        inputs = jax.tree.map(cut, inputs)
        state, (seen, tests) = jax.lax.scan(between_tests, state, inputs)
        return state, Trace(jax.tree.map(whole, seen), tests)

    def segment(
        key: PRNGKeyArray,
        data: Data,
        held: Held,
        first_round: Count,
        state: Any,
        trace: PyTree,
        first: Count,
        last: Count,
    ) -> tuple[Any, PyTree]:
        _, rounds_key = jax.random.split(key)

        def one_round(index: Any, carried: tuple[Any, PyTree]) -> tuple[Any, PyTree]:
            state, trace = carried
            now = _of_round(data, index, data_per_round)
            state, seen = play(rounds_key, held, first_round + index, state, now)
            return state, _with_row(trace, seen, index)

        found = jax.lax.fori_loop(first, last, one_round, (state, trace))
        return jax.tree.map(_strong, found)

    def test(held: Held, state: Any, tests: PyTree, number: Count) -> PyTree:
        return _with_row(tests, _joined(tester, held[1])(state), number)

    first_state = lambda key, data: begin(jax.random.split(key)[0], data)
    return _Program(first_state, rounds, segment, test, num_rounds)


def _of_round(data: Data, index: Any, data_per_round: bool) -> ClientData:
    """What clients have in one round, counted from the first of the data."""
    if data_per_round:
        return jax.tree.map(lambda leaf: leaf[index], data)
    return _set_of(data, data.which[index] if isinstance(data, SharedSets) else None)


def _set_of(data: Data, number: Any) -> ClientData:
    """One of several sets, or the only one."""
    if isinstance(data, SharedSets):
        return jax.tree.map(lambda leaf: leaf[number], data.sets)
    return data


def _with_row(rows: PyTree, row: PyTree, index: Count) -> PyTree:
    """The rows of all leaves with one of them written."""
    return jax.tree.map(lambda own, new: own.at[index].set(new), rows, row)


def _strong(leaf: Array) -> Array:
    """The array with a type that it does not yield to others in promotion: files keep
    no other."""
    return leaf if is_key(leaf) else jnp.asarray(leaf, leaf.dtype)


def _laid_out(data: Data) -> Data:
    """The data on the devices of the mesh."""
    sets = data.sets if isinstance(data, SharedSets) else data
    place = functools.partial(_placed, axis=sets.mask.ndim - 2)
    sets = jax.tree.map(place, sets)
    if isinstance(data, SharedSets):
        return SharedSets(sets, _everywhere(data.which))
    return sets


def _placed(leaf: Array, axis: int) -> Array:
    """The array on the devices of the mesh: on each its own clients, or all of them
    where they cannot be shared out evenly."""
    is_even = leaf.shape[axis] % jax.sharding.get_mesh().size == 0
    own = PartitionSpec(*[None] * axis, CLIENTS)
    return _laid(leaf, own if is_even else EVERYWHERE)


def _everywhere(tree: PyTree) -> PyTree:
    """All of it on each device of the mesh."""
    if num_processes() == 1:
        return jax.device_put(tree, EVERYWHERE)
    # JAX would compare the values of all processes, and a NaN equals none.
    return jax.tree.map(functools.partial(_laid, spec=EVERYWHERE), tree)


def _laid(leaf: Any, spec: PartitionSpec) -> Array:
    """The array on the devices of the mesh. The cores of a CPU share its memory, so
    that nothing is copied."""
    if is_key(leaf):
        own, kind = _laid(jax.random.key_data(leaf), spec), jax.random.key_impl(leaf)
        return jax.random.wrap_key_data(own, impl=kind)
    if jax.default_backend() != "cpu" and num_processes() == 1:
        return jax.device_put(leaf, spec)
    host = np.asarray(leaf, getattr(leaf, "dtype", None) or jnp.result_type(leaf))
    where = NamedSharding(jax.sharding.get_mesh(), spec)
    own = [
        jax.device_put(host[index], device, may_alias=True)
        for device, index in where.addressable_devices_indices_map(host.shape).items()
    ]
    return jax.make_array_from_single_device_arrays(host.shape, where, own)


def _at_home(leaf: Array) -> Array:
    """The array on the first device alone, bound to it no more than any new one."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        own, kind = _at_home(jax.random.key_data(leaf)), jax.random.key_impl(leaf)
        return jax.random.wrap_key_data(own, impl=kind)
    return jax.device_put(np.asarray(leaf))
