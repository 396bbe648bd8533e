"""Long runs that go on in the middle, and trained models that are kept."""

import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from engine_trial import SERVER, contents, damage, known, serve, wait_for

import cfljax as cfl
from cfljax import engine
from cfljax.engine import kept, runs
from cfljax.engine.checkpoints import Checkpoint, Place, Trace
from cfljax.federated.local_update import LocalUpdate

KEY = jax.random.key(3)
LONG = 1e6  # Seconds: nothing is saved before the end.


@functools.cache
def draw(seed=7, num_clients=6):
    data, _ = cfl.data.mixed_linear(
        jax.random.key(seed),
        num_clients=num_clients,
        num_clusters=2,
        num_samples=8,
        num_features=5,
        separation=1.0,
        noise=0.1,
    )
    return data


def per_round(num_rounds):
    """Other data in each round."""
    rounds = [draw(seed) for seed in range(num_rounds)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds)


class Drawn(NamedTuple):
    """What files have no type for, and what is nothing."""

    key: jax.Array
    narrow: jax.Array
    count: jax.Array
    total: jax.Array
    none: None
    empty: tuple[()]


def drawing():
    """An algorithm of no model at all, whose state has leaves of every kind."""

    def init(key, data):
        del data
        wide = jax.random.normal(key, (3, 2))
        count = jnp.asarray(0)  # Of a weak type.
        return Drawn(key, wide.astype(jnp.bfloat16), count, jnp.float32(1), None, ())

    def step(key, state, data):
        own, drawn = jax.random.split(state.key)
        more = jax.random.normal(drawn, (3, 2)) + jax.random.uniform(key)
        more = more + jnp.mean(data.targets)
        narrow = (0.5 * state.narrow.astype(more.dtype) + more).astype(jnp.bfloat16)
        total = state.total * 0.9 + jnp.sum(more)
        return Drawn(own, narrow, state.count + 1, total, None, ()), drawn

    return cfl.Algorithm(init, step, lambda state, data, inputs: state.narrow)


@functools.cache
def build(name, step_size=0.05):
    """Algorithms whose states have little in common."""
    task, momentum = cfl.models.linear(5), functools.partial(optax.sgd, momentum=0.9)
    batches = LocalUpdate(
        batch_size=3, num_epochs=2, decay=0.9, optimizer=momentum, keep_optimizer=True
    )
    some = {"participation": 0.5, "update": batches, "option": "model"}
    options: dict[str, dict[str, Any]] = {
        "ifca": {"num_clusters": 2, "stable_rounds": 3, **some, "update": None},
        "batches": {"num_clusters": 2, "stable_rounds": 3, **some},
        "clove": {"num_clusters": 2, **some},
        "fesem": {"num_clusters": 2, "num_steps": 2},
        "fedavg": {},
    }
    if name == "drawing":
        return drawing()
    return getattr(cfl, "ifca" if name == "batches" else name)(
        task, step_size=step_size, **options[name]
    )


LONGER = ("batches", "clove", "fesem")  # To compile.
NAMES = ["ifca", "drawing"]
NAMES += [pytest.param(name, marks=pytest.mark.slow) for name in LONGER]


def seen(state, info):
    """Leaves of all kinds, rows of a round."""
    del state
    return info


def start(name: Any = "ifca", key: Any = KEY, num_rounds: Any = 7, **options: Any):
    """A run with all that can be observed, on one device unless told otherwise."""
    usual = {"data": draw(), "observe": seen, "devices": 1}
    return cfl.run(build(name), key, num_rounds=num_rounds, **usual | options)


def bits(tree):
    """Type, shape and bytes of all leaves."""

    def own(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()

    return jax.tree.structure(tree), [own(leaf) for leaf in jax.tree.leaves(tree)]


def digest(tree):
    return hashlib.sha256(repr(bits(tree)[1]).encode()).hexdigest()


def joined(*traces):
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *traces)


@contextlib.contextmanager
def interrupted(saves):
    """Inside, a run is interrupted when it wants to save once more than so often."""
    write, done = Checkpoint.write, []

    def limited(self, progress):
        if len(done) == saves:
            raise KeyboardInterrupt
        done.append(progress.rounds)
        write(self, progress)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "write", limited)
        with pytest.raises(KeyboardInterrupt):
            yield done


def stopped(path, rounds, name="ifca", **options):
    """Leaves a file of a run that has been stopped after some rounds."""
    with interrupted(rounds) as done:
        start(name, checkpoint=path, every=0.0, **options)
    assert done == list(range(1, rounds + 1))


@contextlib.contextmanager
def no_work():
    """Inside, nothing may be computed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs._Program, "__call__", None)
        yield


# Against itself: rounds in two parts are those in one


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_rounds_from_a_state_are_those_of_one_run(name):
    whole = start(name, num_rounds=9)
    state, first = start(name, num_rounds=4)
    kept_state = bits(state)
    after, second = start(name, num_rounds=5, state=state, first_round=4)
    assert bits((after, joined(first, second))) == bits(whole)
    assert bits(state) == kept_state  # It was not used up.
    go_on = functools.partial(start, name, num_rounds=5, first_round=4, devices=None)
    inside = jax.jit(lambda state, data: go_on(state=state, data=data))
    assert bits(inside(state, draw())[0]) == bits(after)
    # Control: random numbers of other rounds.
    if name != "fesem":  # It draws none.
        other, _ = start(name, num_rounds=5, state=state)
        assert bits(other) != bits(after)


@pytest.mark.long
@pytest.mark.parametrize("parts", [(1, 1, 1), (0, 3)])
def test_a_single_round_and_none_are_parts_too(parts):
    whole = start("ifca", num_rounds=3)
    state, traces, behind = None, [], 0
    for number in parts:
        state, trace = start(num_rounds=number, state=state, first_round=behind)
        traces.append(trace)
        behind += number
    assert bits((state, joined(*traces))) == bits(whole)


@pytest.mark.long
def test_data_of_each_round_begin_with_the_first_of_a_part():
    data = per_round(5)
    options = {"data_per_round": True, "name": "ifca"}
    whole = start(num_rounds=5, data=data, **options)
    part = lambda *ends: jax.tree.map(lambda leaf: leaf[slice(*ends)], data)
    state, first = start(num_rounds=2, data=part(2), **options)
    again = {"state": state, "first_round": 2}
    after, second = start(num_rounds=3, data=part(2, 5), **options, **again)
    assert bits((after, joined(first, second))) == bits(whole)
    other, _ = start(num_rounds=3, data=part(3), **options, **again)
    assert bits(other) != bits(after)  # Control.


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_stopped_after_any_round_a_run_ends_with_the_same_bits(tmp_path, name):
    whole = bits(start(name))
    for rounds in (1, 3, 5):
        path = tmp_path / f"{rounds}.npz"
        stopped(path, rounds, name)
        with interrupted(1):  # Once more, in the middle of the rest.
            start(name, checkpoint=path, every=0.0)
        assert bits(start(name, checkpoint=path, every=LONG)) == whole
        with no_work():
            assert bits(start(name, checkpoint=path)) == whole
    uninterrupted = start(name, checkpoint=tmp_path / "new" / "whole.npz")
    assert bits(uninterrupted) == whole
    other = start(name, jax.random.key(4))
    assert bits(other) != whole  # Control.


@pytest.mark.long
def test_a_file_serves_more_rounds_and_is_left_alone_by_fewer(tmp_path):
    path = tmp_path / "run.npz"
    start(num_rounds=4, checkpoint=path)
    assert rounds_in(path) == 4
    assert bits(start(num_rounds=9, checkpoint=path)) == bits(start(num_rounds=9))
    before = contents(tmp_path)
    for number in (0, 4):
        fewer = start(num_rounds=number, checkpoint=path)
        assert bits(fewer) == bits(start(num_rounds=number))
    assert contents(tmp_path) == before
    with no_work():
        start(num_rounds=9, checkpoint=path)


@pytest.mark.long
def test_data_of_more_rounds_go_on_with_a_file(tmp_path):
    path, options = tmp_path / "run.npz", {"name": "ifca", "data_per_round": True}
    stopped(path, 2, data=per_round(3), num_rounds=3, **options)
    saved = start(num_rounds=5, data=per_round(5), checkpoint=path, **options)
    plain = start(num_rounds=5, data=per_round(5), **options)
    assert bits(saved) == bits(plain)
    changed = jax.tree.map(lambda leaf: leaf[::-1], per_round(5))
    with pytest.raises(engine.StoreError, match=r"written with `data\.inputs` ="):
        start(num_rounds=5, data=changed, checkpoint=path, **options)
    fewer = {"num_rounds": 3, "data": per_round(3), **options}
    assert bits(start(checkpoint=path, **fewer)) == bits(start(**fewer))


@pytest.mark.long
def test_rounds_that_share_data_are_those_of_copies(tmp_path):
    """To the last bit, plainly and from a file, which serves both."""
    which, path = np.array([0, 0, 1, 0, 2]), tmp_path / "run.npz"
    options = {"name": "ifca", "num_rounds": 5}
    copies = jax.tree.map(lambda leaf: leaf[which], per_round(3))
    whole = bits(start(data=copies, data_per_round=True, **options))
    few = {"data": per_round(3), "data_per_round": which, **options}
    assert bits(start(**few)) == whole
    stopped(path, 2, **few)
    assert bits(start(checkpoint=path, **few)) == whole
    with no_work():
        again = start(checkpoint=path, data=copies, data_per_round=True, **options)
    assert bits(again) == whole
    other = start(**few | {"data_per_round": which[::-1].copy()})
    assert bits(other) != whole  # Control.


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ([0, 1], r"integers of 3 rounds, True or False, got int64\[2\]"),
        ([[0, 1, 1]], r"integers of 3 rounds, True or False, got int64\[1, 3\]"),
        (1, r"integers of 3 rounds, True or False, got int64\[\]"),
        ([0.0, 1.0, 1.0], r"integers of 3 rounds, True or False, got float64\[3\]"),
        ([True, False, True], r"integers of 3 rounds, True or False, got bool\[3\]"),
        ([0, 1, 2], r"in \[0, 1\], the sets of `data`, got \[0, 1, 2\]"),
        ([0, -1, 1], r"in \[0, 1\], the sets of `data`, got \[0, -1, 1\]"),
        ([0, 2**32, 1], r"in \[0, 1\], the sets of `data`, got \[0, 4294967296, 1\]"),
        (np.True_, "`data` must hold 3 rounds, at least 1, got 2"),
    ],
)
def test_rounds_ask_for_data_that_are_there(unchecked, which, message):
    if not isinstance(which, np.bool_):
        which = np.array(which)
    with pytest.raises(ValueError, match=message):
        start(data=per_round(2), data_per_round=which, num_rounds=3)


def test_no_rounds_have_no_data():
    for which in (True, np.zeros(0, int)):
        with pytest.raises(ValueError, match="at least"):
            start(data=per_round(1), data_per_round=which, num_rounds=0)


@pytest.mark.long
def test_a_part_of_a_run_is_saved_too(tmp_path):
    path = tmp_path / "run.npz"
    state, _ = start(num_rounds=4)
    before, part = bits(state), {"state": state, "first_round": 4, "num_rounds": 5}
    stopped(path, 2, **part)
    assert bits(start(checkpoint=path, **part)) == bits(start(**part))
    assert bits(state) == before
    with pytest.raises(engine.StoreError, match="`first_round` = 4, this run has 3"):
        start(checkpoint=path, **part | {"first_round": 3})
    with pytest.raises(engine.StoreError, match="written with `start` ="):
        start(checkpoint=path)


@pytest.mark.long
def test_one_program_plays_every_part(tmp_path):
    traced = []
    plain = build("ifca")

    def step(key, state, data):
        traced.append(key)
        return plain.step(key, state, data)

    algorithm = plain._replace(step=step)
    how: dict[str, Any] = {"num_rounds": 7, "devices": 1, "observe": None}
    go = functools.partial(cfl.run, algorithm, KEY, draw(), **how)
    for rounds in (1, 2, 5):
        with interrupted(rounds):
            go(checkpoint=tmp_path / f"{rounds}.npz", every=0.0)
        go(checkpoint=tmp_path / f"{rounds}.npz")
    go(checkpoint=tmp_path / "whole.npz")
    own = algorithm.init, step, runs.nothing, runs.no_test, jax.random.fold_in
    program = runs._program(own, 7, 1, False)
    segments: list[Any] = list(program.segments.values())
    compiled = [segment._cache_size() for segment in segments]
    assert compiled == [1, 0]
    assert len(traced) == 2  # Once for the shapes.
    cfl.run(algorithm, KEY, draw(num_clients=4), **how)
    assert len(traced) == 3  # Control.


def test_segments_are_as_long_as_their_rounds_allow(tmp_path, monkeypatch):
    """Rounds of 0.5 s, then of 40 s, by a clock that only rounds move."""
    now, calls, saves = [0.0], [], []
    clock = types.SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: 0.0)
    module = sys.modules[Checkpoint.__module__]
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "clock", clock.monotonic)
    state = start("fedavg", num_rounds=0)[0]
    saved = Checkpoint(
        Place(tmp_path / "run.npz", 60.0),
        build("fedavg"),
        KEY,
        draw(),
        differs=False,
        start=None,
        shapes=jax.eval_shape(lambda: (state, Trace((), ()))),
        num_rounds=300,
    )
    monkeypatch.setattr(saved, "write", lambda done: saves.append(done.rounds))

    def advance(state, trace, first, last):
        calls.append((first, last))
        now[0] += sum(0.5 if index < 100 else 40.0 for index in range(first, last))
        return state, trace

    saved.go_on(saved.fresh(state), advance)
    assert calls[:5] == [(0, 0), (0, 1), (1, 9), (9, 29), (29, 49)]
    assert saves[:3] == [109, 111, 113]
    assert (calls[-1], saves[-1]) == ((299, 300), 300)


# Against itself: tests now and then


def asked(data, state):
    """What a test finds: something of the state and of large arrays."""
    return {"sum": jnp.sum(state.models) + data.targets[0, 0], "models": state.models}


def examine(num_rounds: Any = 6, **options: Any):
    """A run with tests on large arrays."""
    usual = {"test": jax.tree_util.Partial(asked, draw()), "rounds_between": 3}
    return start("batches", num_rounds=num_rounds, **usual | options)


@pytest.mark.long
def test_tests_see_the_state_of_their_round_and_change_nothing():
    state, trace = examine()
    keep = lambda state, info: (info, asked(draw(), state))
    plain, (rounds, every) = examine(test=None, rounds_between=1, observe=keep)
    assert bits((state, trace.rounds)) == bits((plain, rounds))
    assert bits(trace.tests["models"]) == bits(every["models"][2::3])
    np.testing.assert_allclose(trace.tests["sum"], every["sum"][2::3], rtol=1e-6)
    assert bits(trace.tests["models"]) != bits(every["models"][1::3])  # Control.
    inside = jax.jit(lambda data: examine(devices=None))(draw())
    assert bits(inside) == bits((state, trace))
    # Those of a part of a run count from its first round.
    half, _ = examine(num_rounds=2, rounds_between=2)
    rest, later = examine(num_rounds=4, rounds_between=4, state=half, first_round=2)
    assert bits(rest) == bits(state)
    assert bits(later.tests["models"][0]) == bits(trace.tests["models"][-1])


@pytest.mark.long
def test_a_run_with_tests_is_stopped_and_goes_on_between_two_of_them(tmp_path):
    whole = bits(examine())
    for rounds in (2, 3, 4):  # Before, at and behind a test.
        path = tmp_path / f"{rounds}.npz"
        with interrupted(rounds) as done:
            examine(checkpoint=path, every=0.0)
        assert done == list(range(1, rounds + 1))
        assert bits(examine(checkpoint=path)) == whole
        with no_work():
            assert bits(examine(checkpoint=path)) == whole
    longer = examine(num_rounds=9, checkpoint=path)
    assert bits(longer) == bits(examine(num_rounds=9))
    for other, told in (
        ({"rounds_between": 1}, "`rounds_between` = 3, this run has 1"),
        ({"test": None}, "`tests` ="),
    ):
        with pytest.raises(engine.StoreError, match=told):
            examine(num_rounds=9, checkpoint=path, **other)


@pytest.mark.long
def test_keys_of_rounds_are_the_callers_to_choose():
    state, _ = examine()
    same, _ = examine(round_key=lambda key, index: jax.random.fold_in(key, index))
    assert bits(same) == bits(state)
    other, _ = examine(round_key=lambda key, index: jax.random.fold_in(key, index + 1))
    assert bits(other) != bits(state)


@pytest.mark.parametrize("between", [0, -1, 4])
def test_tests_that_do_not_fit_into_a_run_are_refused(between):
    told = f"`rounds_between` must be at least 1.*, got {between}"
    with pytest.raises(ValueError, match=told):
        examine(rounds_between=between)


# Against failures: kills, damage, a disk that refuses

ROUNDS = 500  # Seconds of saving, a moment of computing.


def play_long(path, devices, every=0.0):
    """A run that is saved after each round, and what it ends with."""
    return digest(
        start(
            num_rounds=ROUNDS,
            checkpoint=pathlib.Path(path),
            every=every,
            devices=devices,
            observe=assignment,
        )
    )


def assignment(state, info):
    del state
    return info.assignment


def begin_long(path, devices):
    """The process of such a run."""
    calls = json.dumps([["play_long", str(path), devices]])
    return subprocess.Popen(
        [sys.executable, "-c", SERVER, __name__, calls, str(devices)],
        env=known(os.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def rounds_in(path):
    found = kept.read(path)
    return found.about["rounds"] if found else 0


def kill(process):
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.long
def test_a_killed_run_goes_on_to_the_same_bits_on_another_device(tmp_path):
    """Of two devices on one; on those that it began with, below."""
    path = tmp_path / "run.npz"
    process = begin_long(path, 2)
    wait_for(lambda: rounds_in(path) >= 20)
    kill(process)
    assert 20 <= rounds_in(path) < ROUNDS
    expected = digest(start(num_rounds=ROUNDS, observe=assignment))
    assert play_long(path, 1, LONG) == expected


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_many_kills_lose_no_round_that_was_saved(tmp_path, devices):
    path, chance, before = tmp_path / "run.npz", random.Random(devices), 0
    for _ in range(12):
        process = begin_long(path, devices)
        target = min(before + chance.randint(1, 60), ROUNDS - 1)
        wait_for(lambda: rounds_in(path) >= target)  # noqa: B023
        time.sleep(0.02 * chance.random())
        kill(process)
        assert before <= rounds_in(path)
        before = rounds_in(path)
    expected = digest(start(num_rounds=ROUNDS, observe=assignment))
    call = ("play_long", str(path), devices, LONG)
    assert serve(__name__, call, cores=devices, env=os.environ) == [expected]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["flipped", "truncated", "empty"])
def test_the_file_before_serves_for_a_damaged_one(tmp_path, caplog, kind):
    path = tmp_path / "run.npz"
    stopped(path, 4)
    damage(path, kind, left=100)
    caplog.set_level(logging.WARNING)
    with interrupted(1) as done:
        start(checkpoint=path, every=0.0)
    assert done == [4]  # From the third round on.
    (record,) = caplog.records
    assert record.name == "cfljax.engine.checkpoints"
    assert record.getMessage().endswith(f"goes on from `{path}.before`, after 3 rounds")
    assert rounds_in(path) == 4 and rounds_in(tmp_path / "run.npz.before") == 3
    assert bits(start(checkpoint=path)) == bits(start())
    assert len(caplog.records) == 1


@pytest.mark.long
def test_without_a_whole_file_nothing_is_overwritten(tmp_path):
    path = tmp_path / "run.npz"
    stopped(path, 2)
    for file in (path, tmp_path / "run.npz.before"):
        damage(file, "flipped", left=0)
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    before = contents(tmp_path)
    for file in (path, other, tmp_path):
        with pytest.raises(engine.StoreError, match="damaged or no checkpoint, and"):
            start(checkpoint=file)
    assert contents(tmp_path) == before
    path.unlink()  # As it says; the one before is not asked.
    assert bits(start(checkpoint=path)) == bits(start())


def test_a_kill_between_two_names_and_a_disk_without_links(tmp_path, monkeypatch):
    path, before = tmp_path / "run.npz", tmp_path / "run.npz.before"
    stopped(path, 2)
    before.unlink()
    os.link(path, before)

    def refuse(*names):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    with interrupted(1):
        start(checkpoint=path, every=0.0)
    assert (rounds_in(path), rounds_in(before)) == (3, 2)
    monkeypatch.setattr(os, "link", refuse)
    with interrupted(2):
        start(checkpoint=path, every=0.0)
    assert (rounds_in(path), rounds_in(before)) == (5, 4)
    assert sorted(contents(tmp_path)) == ["run.npz", "run.npz.before"]


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 2},
        {"rounds": 4},
        {"rounds": "3"},
        {"rounds": -1},
        {"rounds": True},
        {"core_seconds": "x"},
    ],
    ids=str,
)
def test_a_file_that_is_not_what_it_says_is_refused(tmp_path, change):
    """Whoever computed its digest."""
    path = tmp_path / "run.npz"
    stopped(path, 3)
    whole = kept.read(path)
    assert whole is not None
    kept.write(path, whole.arrays, whole.about)
    start(checkpoint=path)  # Control.
    kept.write(path, whole.arrays, whole.about | change)
    with pytest.raises(
        engine.StoreError, match=r"not what it says|no checkpoint"
    ) as told:
        start(checkpoint=path)
    assert "\n" not in str(told.value)


def test_a_full_disk_is_told_in_one_line_and_keeps_what_is_there(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    stopped(path, 3)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "write_bytes", full)
        with pytest.raises(engine.StoreError, match="No space left on device"):
            start(checkpoint=path)
        with pytest.raises(engine.StoreError, match="No space left on device"):
            cfl.save(tmp_path / "state.npz", start()[0])
    assert rounds_in(path) == 3 and not (tmp_path / "state.npz").exists()
    assert bits(start(checkpoint=path)) == bits(start())


# Against misuse


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"key": jax.random.key(4)}, "`key` ="),
        ({"key": jax.random.key(3, impl="rbg")}, "`key` ="),
        ({"data": draw(8)}, r"`data\.inputs` ="),
        ({"data": draw(num_clients=4)}, r"`data\.inputs` ="),
        ({"observe": runs.nothing}, "has `trace.*` in its trace, which this run lacks"),
        (
            {"observe": lambda state, info: info._replace(losses=0)},
            r"`trace\.losses` =",
        ),
        ({"name": "fedavg"}, "`name` = 'ifca', this run has 'fedavg'"),
    ],
)
def test_a_file_of_another_run_is_refused(tmp_path, changes, told):
    path = tmp_path / "run.npz"
    stopped(path, 2)
    before = contents(tmp_path)
    with pytest.raises(engine.StoreError, match=told) as caught:
        start(checkpoint=path, **changes)
    assert str(caught.value).endswith("; choose another path or delete it.")
    assert "\n" not in str(caught.value)
    assert contents(tmp_path) == before
    start(checkpoint=path)  # Control.


@pytest.mark.long
def test_other_settings_and_other_files_are_refused(tmp_path):
    path, task = tmp_path / "run.npz", cfl.models.linear(5)
    go = lambda **options: cfl.run(
        cfl.ifca(task, num_clusters=2, **options),
        KEY,
        draw(),
        num_rounds=2,
        devices=1,
        checkpoint=path,
    )
    update = lambda **options: {"step_size": 0.05, "update": LocalUpdate(**options)}
    go(option="model", **update(optimizer=functools.partial(optax.sgd, momentum=0.9)))
    same = functools.partial(optax.sgd, momentum=0.9)
    go(option="model", **update(optimizer=same))
    other = functools.partial(optax.sgd, momentum=0.8)
    for options, told in (
        (update(optimizer=other), "`optimizer` ="),
        (update(optimizer=same, decay=0.5), "`decay` = 1.0, this run has 0.5"),
        (
            update(optimizer=same) | {"step_size": jnp.float32(0.05)},
            "`step_size` = 0.05",
        ),
    ):
        with pytest.raises(engine.StoreError, match=told):
            go(option="model", **options)
    cfl.save(path, start()[0])
    with pytest.raises(engine.StoreError, match="no checkpoint of a run; choose"):
        go(option="model", **update(optimizer=same))


@pytest.mark.long
def test_misuse_is_refused(tmp_path):
    state, _ = start()
    for options, told in (
        ({"first_round": -1}, "`first_round` must be at least 0, got -1"),
        ({"first_round": 4}, "`first_round` must be 0 without a `state`"),
        ({"checkpoint": tmp_path / "x", "every": -1.0}, "`every` must not be negative"),
        (
            {"checkpoint": tmp_path / "x", "every": np.nan},
            "`every` must not be negative",
        ),
    ):
        with pytest.raises(ValueError, match=told):
            start(**options)
    inside = lambda key: start(key=key, devices=None, checkpoint=tmp_path / "x")
    with pytest.raises(ValueError, match="`checkpoint` must be None inside of `jit`"):
        jax.jit(inside)(KEY)
    assert not list(tmp_path.iterdir())
    wide = state._replace(models=jnp.zeros((3, 5)))
    half = state._replace(models=state.models.astype(jnp.float16))
    bare = state._replace(history=None)
    for wrong, told in (
        (wide, r"`state\.models` must be float32\[2,5\], as `init` makes it"),
        (half, r"`state\.models` must be float32\[2,5\], .* got float16\[2,5\]"),
        (bare, r"`state\.history\.identities` must be int32\[6\], .* got absent"),
        (start("fedavg")[0], r"`state\.models` must be .* got (absent|float.*1,5\])"),
        (state._replace(history=tuple(state.history)), r"`state\.history"),
        (state._replace(is_first=()), "`state` must have the structure that `init`"),
    ):
        with pytest.raises(ValueError, match=told):
            start(state=wrong)
        with pytest.raises(ValueError, match=told):
            jax.jit(lambda wrong: start(state=wrong, devices=None))(wrong)
    start(state=jax.device_get(state))  # Control: arrays of NumPy are.


# Around a call: checkpoints of whoever calls what calls `run`


@pytest.mark.long
def test_runs_are_saved_by_what_is_around_them(tmp_path):
    path, other = tmp_path / "cell.npz", jax.random.key(4)

    def work():
        inside = jax.jit(lambda key: start(key=key, devices=None))(KEY)
        explicit = start(checkpoint=tmp_path / "own.npz")
        return inside, start(), explicit, start(key=other)

    plain = work()
    (tmp_path / "own.npz").unlink()
    with engine.checkpoints(path, identity={"loss": 1}):
        saved = work()
    assert list(map(bits, saved)) == list(map(bits, plain))
    assert sorted(contents(tmp_path)) == ["cell.2.npz", "cell.npz", "own.npz"]
    with engine.checkpoints(path, identity={"loss": 1}), no_work():
        assert bits(start()) == bits(plain[1])
        assert bits(start(key=other)) == bits(plain[3])
    with (
        engine.checkpoints(path, identity={"loss": 2}),
        pytest.raises(engine.StoreError, match="written with `loss` = 1, this run has"),
    ):
        start()
    start(key=other)  # Control: nothing is around any more.
    with pytest.raises(TypeError), engine.checkpoints(path, identity=object()):
        pass


# Models that are kept


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_states_are_found_as_they_were(tmp_path, name):
    path, algorithm, data = tmp_path / "new" / "state.npz", build(name), draw()
    state, _ = start(name)
    cfl.save(path, state)
    loaded = cfl.load(path, algorithm, data)
    assert bits(loaded) == bits(state)
    predict = jax.jit(algorithm.predict)
    answers = [predict(one, data, data.inputs) for one in (state, loaded)]
    assert bits(answers[0]) == bits(answers[1])
    more = start(name, num_rounds=2, state=loaded, first_round=7)
    assert bits(more) == bits(start(name, num_rounds=2, state=state, first_round=7))
    start(name, checkpoint=tmp_path / "run.npz")
    assert bits(cfl.load(tmp_path / "run.npz", algorithm, data)) == bits(state)
    cfl.save(path, start(name, num_rounds=1)[0])  # Control: another one.
    assert bits(cfl.load(path, algorithm, data)) != bits(state)


def test_numpy_opens_a_kept_state(tmp_path):
    state, _ = start("ifca")
    cfl.save(tmp_path / "state.npz", state)
    with np.load(tmp_path / "state.npz") as file:
        np.testing.assert_array_equal(file["state.models"], state.models)


def test_states_of_something_else_are_refused(tmp_path):
    path, data, task = tmp_path / "state.npz", draw(), cfl.models.linear(5)
    state, _ = start("ifca")
    cfl.save(path, state)
    three = cfl.ifca(task, num_clusters=3, step_size=0.05)
    with pytest.raises(ValueError, match=r"`state\.models` must be float32\[3,5\]"):
        cfl.load(path, three, data)
    with pytest.raises(ValueError, match=r"must be int32\[4\], .* got int32\[6\]\.$"):
        cfl.load(path, build("ifca"), draw(num_clients=4))
    with pytest.raises(ValueError, match=f"wrote, {tmp_path / 'none'} is missing"):
        cfl.load(tmp_path / "none", build("ifca"), data)
    with pytest.raises(ValueError, match="`state` must be concrete"):
        jax.jit(lambda state: cfl.save(path, state))(state)
    kept.write(tmp_path / "other", {"value": np.ones(3)}, {"of": 1})
    damage(path, "truncated", left=1000)
    for file in (path, tmp_path / "other", tmp_path):
        with pytest.raises(ValueError, match="is damaged or holds no state"):
            cfl.load(file, build("ifca"), data)
