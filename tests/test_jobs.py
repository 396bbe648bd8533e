"""Long runs of networks: they go on in the middle, are shared out, and have a price."""

import contextlib
import csv
import dataclasses
import functools
import importlib
import itertools
import json
import logging
import pathlib
import sys
from collections import Counter
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.base import ClientData
from cfljax.command import parser_of
from cfljax.data import Images, load_images, mixed_linear
from cfljax.engine import kept, ways
from cfljax.engine.claims import Claims
from cfljax.engine.logs import Kind
from cfljax.engine.store import Store
from cfljax.models import linear
from experiments import jobs, plan, study
from experiments.__main__ import PROGRAM, main
from experiments.clove import sources
from experiments.clove.tables import load
from experiments.jobs import Job
from experiments.options import Options
from experiments.registry import EXPERIMENTS

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

SWEEPS = importlib.import_module("cfljax.engine.sweeps")
checkpoints = importlib.import_module("cfljax.engine.checkpoints")


@dataclasses.dataclass(frozen=True)
class Trial:
    method: str = "ifca"
    num_rounds: int = 4
    rounds_between: int = 1
    num_clients: int = 6
    num_samples: int = 8
    step_size: float = 0.1
    repetition: int = 0


begun: Counter[tuple] = Counter()


def simulate(trial: Trial, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    """One run of IFCA on linear data."""
    begun[trial.method, str(trial.repetition), trial.num_rounds] += 1
    own = jax.random.fold_in(key, jnp.asarray(trial.repetition, jnp.uint32))
    data = drawn(own, trial.num_clients, trial.num_samples)
    _, trace = engine.run(
        algorithm(trial.step_size),
        own,
        data,
        num_rounds=trial.num_rounds,
        observe=losses,
    )
    return {"loss": constants * trace}


# One object for all trials, and one program for their data: each is compiled once.
algorithm = functools.cache(
    lambda step_size: ifca(linear(3), num_clusters=2, step_size=step_size)
)


@functools.partial(jax.jit, static_argnums=(1, 2))
def drawn(key: jax.Array, num_clients: int, num_samples: int) -> ClientData:
    return mixed_linear(
        key,
        num_clients=num_clients,
        num_samples=num_samples,
        num_clusters=2,
        num_features=3,
        separation=1.0,
        noise=0.1,
    )[0]


def losses(state: Any, info: Any) -> jax.Array:
    """Of the models that clients choose."""
    del state
    return jnp.mean(jnp.min(info.losses, axis=-1))


def job(
    num_rounds: int = 4, methods: tuple[str, ...] = ("ifca",), seeds: int = 3
) -> Job:
    """Methods in name only, each with some seeds."""
    grid = engine.Grid(
        experiment="toy.long",
        trial=Trial(num_rounds=num_rounds),
        axes={"method": methods, "repetition": tuple(range(seeds))},
        num_trials=1,
        traced=("repetition",),
        dims={"loss": ("round",)},
        coords={"round": list(range(1, num_rounds + 1))},
        growing=lambda trial: ("num_rounds",),
    )
    return Job(grid, simulate, lambda: jnp.float32(1))


def options(folder: pathlib.Path, **others: Any) -> Options:
    return Options(out=folder, progress=False, **others)


@pytest.fixture
def segments(monkeypatch) -> list[int]:
    """States are kept after every round; those that were."""
    written: list[int] = []
    original = checkpoints.Checkpoint.write

    def noted(self, done):
        original(self, done)
        written.append(done.rounds)

    monkeypatch.setattr(checkpoints.Checkpoint, "write", noted)
    monkeypatch.setattr(checkpoints, "_SEGMENT", 0.0)
    often = functools.partial(checkpoints.checkpoints, every=0.0)
    monkeypatch.setattr(ways, "checkpoints", often)
    return written


def cut_after(monkeypatch, rounds: int) -> None:
    """Ends a run when a state of so many rounds is kept."""
    original = checkpoints.Checkpoint.write

    def cut(self, done):
        original(self, done)
        if done.rounds == rounds:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints.Checkpoint, "write", cut)


# Against files that are read back: what jobs log


def test_jobs_are_logged_by_what_differs_among_and_within_them(tmp_path):
    own = options(tmp_path)
    other = job(num_rounds=2, seeds=1)
    with jobs.watching() as ran:
        found = jobs.run(own, job(seeds=2))
        jobs.run(own, job(seeds=2))  # Once more, as one that needs its results does.
        jobs.run(own, other)
    jobs.run(own, job(seeds=3))
    assert len(ran) == 2, "nor what nobody watches"
    assert jobs.log(ran, "csv", tmp_path / "log") == [str(tmp_path / "log")]
    names = {path.stem for path in (tmp_path / "log").iterdir()}
    assert names == {"num_rounds=4,repetition=0", "num_rounds=4,repetition=1"} | {
        "num_rounds=2"
    }
    with (tmp_path / "log" / "num_rounds=4,repetition=1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]
    logged = [float(row["loss"]) for row in rows]
    expected = found["loss"].sel(repetition=1).values.ravel()
    np.testing.assert_array_equal(np.asarray(logged, np.float32), expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run ifca.fig3a --log csv", "`--log` has no use for ifca.fig3a, got csv"),
        ("bench linear --log csv", "`--log` has no use for linear"),
        ("run ifca.fig4 --log csv --shard 1/2", "to a command without `--shard`"),
        ("compare --log csv --plan", "to a command without `--plan`"),
        ("run ifca.fig4 --log tensorboard", "pip install 'cfljax[log]'"),
        ("run clove.fig5 --fall-back --log csv", "measures nothing by round"),
        ("run ifca.fig4 --log paper", "choose from"),
    ],
)
def test_what_cannot_be_logged_is_refused_before_it_is_run(
    words, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)  # It is not installed.
    assert main([*words.split(), "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1
    assert printed.out == "" and not (tmp_path / "out").exists()


def test_the_command_knows_all_kinds_of_logs():
    parser = parser_of(PROGRAM, PROGRAM.find("compare"), [])
    (flag,) = (own for own in parser._actions if "--log" in own.option_strings)
    assert tuple(flag.choices or ()) == get_args(Kind)


# Against itself: how a run is cut, lengthened or shared does not matter


def test_run_that_was_cut_goes_on_to_the_same_bits(tmp_path, monkeypatch, segments):
    whole = jobs.run(options(tmp_path / "whole"), job())
    segments.clear()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_after(patch, 2)
        jobs.run(options(tmp_path / "cut"), job(seeds=1))
    first, segments[:] = list(segments), []
    found = jobs.run(options(tmp_path / "cut"), job())
    assert first == [1, 2] and segments[:2] == [3, 4]  # Not from the start.
    assert found.identical(whole) and len(segments) == 2 + 2 * 4


def test_rounds_are_added_behind_those_that_are_there(tmp_path, segments):
    jobs.run(options(tmp_path), job(num_rounds=2))
    segments.clear()
    found = jobs.run(options(tmp_path), job(num_rounds=5))
    assert segments == 3 * [3, 4, 5]
    fresh = jobs.run(options(tmp_path / "fresh"), job(num_rounds=5))
    assert found.identical(fresh)
    # The other way a shorter run is a run of its own.
    short = jobs.run(options(tmp_path), job(num_rounds=3))
    np.testing.assert_array_equal(short["loss"], fresh["loss"][..., :3])


def test_traced_trials_give_the_same(tmp_path):
    own = job()
    found = jobs.run(options(tmp_path / "rounds"), own)
    traced = engine.sweep(
        own.grid, simulate, tmp_path / "traced", constants=own.constants()
    )
    np.testing.assert_allclose(found["loss"], traced["loss"], rtol=1e-5)


@pytest.mark.parametrize("kind", ["newest", "both"])
def test_damaged_states_lose_no_more_than_they_held(
    tmp_path, monkeypatch, segments, caplog, kind
):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_after(patch, 3)
        jobs.run(options(tmp_path), job(seeds=1))
    (state,) = (tmp_path / "store" / "states").glob("*.npz")
    before = state.with_name(f"{state.name}.before")
    for file in (state, before)[: 1 if kind == "newest" else 2]:
        file.unlink()  # They may be one file by two names.
        file.write_bytes(b"damaged")
    segments.clear()
    with caplog.at_level(logging.WARNING):
        found = jobs.run(options(tmp_path), job(seeds=1))
    assert segments == ([3, 4] if kind == "newest" else [1, 2, 3, 4])
    assert caplog.text.count("is damaged") == 1
    fresh = jobs.run(options(tmp_path / "fresh"), job(seeds=1))
    assert found.identical(fresh)


def core_seconds(folder: pathlib.Path) -> list[float]:
    """Of all blocks of a store, the longest runs' first."""
    blocks = engine.stored(folder / "store")
    key = lambda block: -block.about["fields"]["num_rounds"]
    return [own.about["core_seconds"] for own in sorted(blocks, key=key)]


@pytest.mark.usefixtures("segments")
def test_what_a_run_had_cost_counts_when_it_goes_on(tmp_path, monkeypatch):
    """Rounds that another process had played, and those that are added."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_after(patch, 3)
        patch.setattr(checkpoints.time, "process_time", lambda: next(clock))
        clock = itertools.count(step=1000.0)
        jobs.run(options(tmp_path), job(seeds=1))
    jobs.run(options(tmp_path), job(seeds=1))
    (cost,) = core_seconds(tmp_path)
    assert 1000 <= cost < 10_000
    jobs.run(options(tmp_path), job(num_rounds=6, seeds=1))
    more, same = core_seconds(tmp_path)
    assert same == cost < more < cost + 1000


def test_states_stay_while_there_is_room(tmp_path, monkeypatch, segments):
    states = tmp_path / "store" / "states"
    jobs.run(options(tmp_path), job(seeds=1))
    assert len(segments) > 1, "there was one before the last"
    assert [own.suffix for own in states.iterdir()] == [".npz"]
    monkeypatch.setattr(SWEEPS, "STATE_BYTES", 0)
    jobs.run(options(tmp_path), job(num_rounds=5, seeds=1))
    assert not list(states.iterdir())


def test_states_stay_only_where_rounds_can_be_added(tmp_path):
    own = job(seeds=1)
    fixed = dataclasses.replace(own.grid, growing=lambda trial: ())
    jobs.run(options(tmp_path / "fixed"), own._replace(grid=fixed))
    jobs.run(options(tmp_path / "growing"), own)
    kept_states = lambda name: list((tmp_path / name / "store/states").glob("*"))
    assert not kept_states("fixed") and len(kept_states("growing")) == 1


def test_job_that_fails_leaves_the_others_to_be_done(tmp_path, capsys):
    broken = job(seeds=2)._replace(simulate=lambda *_: 1 / 0)
    found = jobs.share("toy.long", options(tmp_path, shard=(1, 1)), [broken, job(3)])
    assert (found["failed_cells"], found["open_blocks"]) == (2, 0)
    assert "ZeroDivisionError" in capsys.readouterr().err


def states(folder: pathlib.Path) -> set[str]:
    """Names of all files of states, without those of earlier ones."""
    return {file.name for file in (folder / "store" / "states").glob("*.npz")}


@pytest.mark.parametrize("what", ["code", "revision"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_other_code_takes_up_no_state_and_replaces_it(
    tmp_path, monkeypatch, segments, what, is_alone
):
    """Unless a run of more rounds is at it, which may need it."""
    own, store = job(seeds=1), tmp_path / "store"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_after(patch, 3)
        jobs.run(options(tmp_path), own)
    before = states(tmp_path)
    segments.clear()
    if what == "code":
        other = {"modules": {"a": "b"}, "settings": {}}
        monkeypatch.setattr(SWEEPS, "describe", lambda function: other)
    else:
        grid = dataclasses.replace(own.grid, revision=2)
        own = own._replace(grid=grid)
    name = Store(store, own.grid).state_key(own.grid.trial)
    with Claims(store) as claims, contextlib.ExitStack() as another:
        if not is_alone:
            assert another.enter_context(claims.claim([f"states/{name}"]))
        jobs.run(options(tmp_path), own)
    assert segments == [1, 2, 3, 4] and len(before) == 1
    after = states(tmp_path)
    assert len(after - before) == 1 and after & before == (
        set() if is_alone else before
    )
    everything = [file.name for file in (store / "states").iterdir()]
    assert is_alone == (len(everything) == 1)  # Else with those before the last.


def test_states_of_finished_trials_go_though_a_kill_came_before(tmp_path, monkeypatch):
    """When the next run writes to the store; those that can grow stay."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    own = job(seeds=2)
    fixed = own._replace(grid=dataclasses.replace(own.grid, growing=lambda trial: ()))
    for kind, ours in (("fixed", fixed), ("growing", own)):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(SWEEPS._Run, "_forget", killed)
            jobs.run(options(tmp_path / kind), ours)
        assert len(states(tmp_path / kind)) == 1
    jobs.run(options(tmp_path / "fixed"), fixed)
    jobs.run(options(tmp_path / "growing"), own)
    assert not states(tmp_path / "fixed") and len(states(tmp_path / "growing")) == 2


def test_seeds_of_other_code_are_told(tmp_path, monkeypatch):
    first = jobs.run(options(tmp_path), job(seeds=1))
    assert study.versions(first) == ""
    other = {"modules": {}, "settings": {"threefry_partitionable": False}}
    monkeypatch.setattr(SWEEPS, "describe", lambda function: other)
    found = jobs.run(options(tmp_path), job(seeds=2))
    assert study.versions(found) == "seeds of 2 versions of the code"
    assert study.size_text("paper", found).startswith("paper, seeds of 2")
    assert study.size_text("paper", first) == "paper"
    assert study.versions(found.sel(repetition=1)) == ""
    assert study.versions(xr.Dataset()) == "", "of no sweep"


def test_workers_share_all_jobs_and_repeat_nothing(tmp_path):
    both = [job(methods=("ifca",)), job(methods=("a", "b"), num_rounds=3)]
    begun.clear()
    for number in (2, 1, 3):
        own = options(tmp_path, shard=(number, 3))
        found = jobs.share("toy.long", own, both)
    assert found["open_blocks"] == 0 and found["blocks"] == 9
    assert len(begun) == 9 and set(begun.values()) == {1}
    begun.clear()
    for own in both:
        assert not np.isnan(jobs.run(options(tmp_path), own)["loss"]).any()
    assert not begun


def test_shares_are_even_over_small_jobs(tmp_path):
    """Of four jobs of one cell each worker of two gets two."""
    four = [job(seeds=1, num_rounds=number) for number in (1, 2, 3, 4)]
    begun.clear()
    found = jobs.share("toy.long", options(tmp_path, shard=(1, 2)), four)
    assert found["open_blocks"] == 2 and len(begun) == 2


def test_what_is_done_is_not_prepared_again(tmp_path):
    drawn: list[str] = []
    both = [
        own._replace(constants=lambda: drawn.append("") or jnp.float32(1))
        for own in (job(seeds=1), job(seeds=1, num_rounds=3))
    ]
    jobs.share("toy.long", options(tmp_path, shard=(1, 1)), both[:1])
    assert len(drawn) == 1
    found = jobs.share("toy.long", options(tmp_path, shard=(1, 1)), both)
    assert len(drawn) == 2 and found["open_blocks"] == 0
    for own in both:
        jobs.run(options(tmp_path), own)
    assert len(drawn) == 2


def test_what_failed_is_tried_again_by_the_next_who_shares(tmp_path):
    def broken(trial: Trial, *rest: Any) -> dict[str, jax.Array]:
        return simulate(trial, *rest) if trial.repetition else 1 / 0  # pyright: ignore

    own = options(tmp_path, shard=(1, 1))
    found = jobs.share("toy.long", own, [job(seeds=2)._replace(simulate=broken)])
    assert (found["failed_cells"], found["open_blocks"]) == (1, 0)
    found = jobs.share("toy.long", own, [job(seeds=2)])
    assert (found["failed_cells"], found["open_blocks"]) == (0, 0)


# Against itself: a job that needs another's results


def both_jobs(folder: pathlib.Path, seeds: int = 2, simulate: Any = simulate) -> list:
    """Two, of which the second takes its scale from the first one's losses."""
    first = job(methods=("ifca",), seeds=seeds)._replace(name="first")
    first = first._replace(simulate=simulate)
    later = job(methods=("a", "b"), num_rounds=3)
    scale = lambda: jnp.float32(jobs.result(options(folder), first)["loss"].max())
    stand_in = lambda: jnp.float32(1)
    return [first, later._replace(constants=scale, stand_in=stand_in, name="later")]


def test_workers_share_a_job_that_needs_another(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for own in both_jobs(one):
        whole = jobs.run(options(one), own)
    begun.clear()
    found = [
        jobs.share("toy.long", options(other, shard=(number, 3)), both_jobs(other))
        for number in (3, 1, 2)
    ]
    assert [own["open_blocks"] for own in found] == [4, 2, 0]
    assert len(begun) == 8 and set(begun.values()) == {1}
    later = both_jobs(other)[1]
    assert jobs.run(options(other), later).identical(whole)
    # Control: other results of the first are other numbers.
    plain = later._replace(constants=lambda: jnp.float32(1))
    assert not jobs.run(options(tmp_path), plain).identical(whole)


@pytest.mark.parametrize("ending", ["done", "killed"])
def test_what_another_worker_computes_is_waited_for(
    tmp_path, monkeypatch, caplog, ending
):
    """Whatever becomes of it, it is computed once."""
    first, later = both_jobs(tmp_path)
    store = tmp_path / "store"
    held = Store(store, first.grid).key((0, 1, 0))
    begun.clear()
    with Claims(store) as claims, contextlib.ExitStack() as other:
        assert other.enter_context(claims.claim([held]))

        def wait(seconds: float) -> None:
            assert begun == {("ifca", "0", 4): 1}, "what is held was begun"
            other.close()
            if ending == "done":
                jobs.run(options(tmp_path), first)

        monkeypatch.setattr(SWEEPS.time, "sleep", wait)
        own = options(tmp_path, shard=(1, 1))
        found = jobs.share("toy.long", own, [first, later])
    assert "waiting" in caplog.text and found["open_blocks"] == 0
    assert len(begun) == 8 and set(begun.values()) == {1}


def test_nothing_is_begun_that_needs_what_failed(tmp_path, capsys):
    def broken(trial: Trial, *rest: Any) -> dict[str, jax.Array]:
        return simulate(trial, *rest) if trial.repetition else 1 / 0  # pyright: ignore

    own = options(tmp_path, shard=(1, 1))
    begun.clear()
    found = jobs.share("toy.long", own, both_jobs(tmp_path, simulate=broken))
    assert (found["failed_cells"], found["open_blocks"]) == (1, 6) and len(begun) == 1
    assert "first: 1 of 2 cells failed" in capsys.readouterr().err
    found = jobs.share("toy.long", own, both_jobs(tmp_path))
    assert (found["failed_cells"], found["open_blocks"]) == (0, 0)
    assert len(begun) == 8 and set(begun.values()) == {1}


def test_plan_computes_nothing_that_is_needed(tmp_path):
    needed = both_jobs(tmp_path)
    found = plan.plan("toy.long", options(tmp_path), needed)
    assert not (tmp_path / "store").exists() and "later: priced" in found["headline"]
    assert [row["what"].split(",")[0] for row in found["rows"]] == [
        "first",
        *2 * ["later"],
    ]
    assert all(row["core_hours"] > 0 for row in found["rows"])
    # Control: without a stand-in the first is computed.
    plan.plan("toy.long", options(tmp_path), [needed[1]._replace(stand_in=None)])
    assert (tmp_path / "store").exists()


# Against itself: what a plan says


def test_plan_counts_what_is_done_once_and_every_round(tmp_path):
    """Of products before the rounds each round has its share."""

    def long(trial: Trial, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
        square = jnp.ones((100, 100))
        step = lambda _, row: (row @ jnp.ones((100, 10))) @ jnp.ones((10, 100))
        row = jax.lax.fori_loop(0, trial.num_rounds, step, (square @ square)[0])
        return {"loss": jnp.full(trial.num_rounds, row[0])}

    own = job(num_rounds=50, seeds=1)._replace(simulate=long)
    speed = plan._Speed(options(tmp_path), 0.0)
    found, _ = speed._count(own, own.grid.trial)
    assert found == 2 * 100**3 / 50 + 2 * 2 * 100 * 10


def test_plan_counts_what_is_there_and_what_is_left(tmp_path):
    own = [job(methods=("ifca", "other"), num_rounds=50)]
    first = plan.plan("toy.long", options(tmp_path), own)
    assert (first["cells"], first["done"]) == (6, 0)
    assert {row["known_by"] for row in first["rows"]} == {"operations"}
    assert first["core_hours"] > 0
    jobs.run(options(tmp_path), job(methods=("ifca",), num_rounds=50, seeds=2))
    later = plan.plan("toy.long", options(tmp_path), own)
    assert (later["cells"], later["done"]) == (6, 2)
    known = {row["what"].split(", ")[-1]: row for row in later["rows"]}
    assert known["ifca"]["known_by"] == "the store"
    assert known["other"]["known_by"] == "operations"
    left = known["ifca"]["core_seconds"] * 50 + known["other"]["core_seconds"] * 150
    assert later["core_hours"] == pytest.approx(left / 3600)
    assert later["rows"][0]["core_hours"] is not None
    unmeasured = plan.plan("toy.long", options(tmp_path), own, measures=False)
    assert unmeasured["core_hours"] is None and unmeasured["done"] == 2


LONG = [name for name, entry in EXPERIMENTS.items() if entry.has_jobs]


def test_experiments_that_spread_clients_have_jobs():
    spread = {name for name, entry in EXPERIMENTS.items() if entry.spreads_clients}
    assert not spread - set(LONG)


# Of whose clients one repetition is drawn in every run of the tests; those of CLoVE's
# other tables, and CIFAR's beside MNIST's, take long, or are these once more.
TABLES = ("5", "14", "16", "17")
DRAWN = {name for name in LONG if not name.startswith("clove.table")}
DRAWN -= {"ifca.table1_cifar"}
DRAWN |= {f"clove.table{number}" for number in TABLES}


@functools.cache
def source(dataset: Any, folder: pathlib.Path, num_words: int, num_tokens: int) -> Any:
    texts = {"num_words": num_words, "num_tokens": num_tokens}
    own = options(folder, data=folder)
    return sources.load_source(dataset, own, fall_back=False, **texts)


@functools.cache
def image_files(images: Any, folder: pathlib.Path) -> Images:
    return load_images(images, folder=folder)


@pytest.fixture
def read_once(monkeypatch):
    """Files are read once for all presets: their sizes matter here, not their bytes."""

    def load(dataset, options, *, fall_back, num_words, num_tokens):
        del fall_back  # A folder is named.
        return source(dataset, options.data, num_words, num_tokens)

    monkeypatch.setattr("experiments.clove.study.load_source", load)
    monkeypatch.setattr("experiments.images.load_images", image_files)


@pytest.fixture
def drawn_once(monkeypatch):
    """Of repetitions, which have the same sizes, the first is drawn."""

    for place in ("clove.study.draw", "werner.table1.repeated"):
        module, name = f"experiments.{place}".rsplit(".", 1)
        every = getattr(importlib.import_module(module), name)
        one = lambda *own, every=every, **sizes: every(
            *own, **sizes | {"repetitions": 1}
        )
        monkeypatch.setattr(f"{module}.{name}", one)


@pytest.mark.usefixtures("read_once", "drawn_once")
@pytest.mark.parametrize("name", LONG)
def test_every_paper_preset_can_be_planned_on_real_data(tmp_path, real_data, name):
    module = EXPERIMENTS[name].load()
    own = options(tmp_path, data=real_data)
    every = module.jobs(module.preset("paper"), own)
    found = plan.plan(name, own, every, measures=False)
    assert found["cells"] > 0 == found["done"]
    assert not (tmp_path / "store").exists()
    if name in DRAWN:
        for job in every:
            (job.stand_in or job.constants)()  # Raises if there are too few samples.


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_every_paper_preset_has_its_clients(tmp_path, real_data, name):
    """In all repetitions."""
    module = EXPERIMENTS[name].load()
    own = options(tmp_path, data=real_data)
    for job in module.jobs(module.preset("paper"), own):
        (job.stand_in or job.constants)()


def test_preset_beyond_the_samples_cannot_be_planned(tmp_path, real_data):
    """Control: a thousand test samples of each digit are asked for."""
    module = load("clove.fig7")
    config = dataclasses.replace(module.preset("paper"), num_test_samples=(100,))
    own = options(tmp_path, data=real_data)
    with pytest.raises(ValueError, match="892"):
        module.jobs(config, own)


# Against misuse


@jax.numpy_dtype_promotion("standard")  # Optax's Adam: a float to an integer's power.
def test_commands_share_and_plan(tmp_path, capsys):
    flags = ["clove.table17", "--methods", "local", "--num-rounds", "5"]
    flags += ["--num-trials", "2", "--out", str(tmp_path), "--json"]
    assert main(["run", *flags, "--plan"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cells"], found["done"]) == (2, 0) and found["core_hours"] > 0
    assert not (tmp_path / "store").exists()
    assert main(["run", *flags, "--shard", "1/2"]) == 0
    assert json.loads(capsys.readouterr().out)["open_blocks"] == 1
    assert not list(tmp_path.glob("*.csv"))
    assert main(["run", *flags, "--shard", "2/2"]) == 0
    assert json.loads(capsys.readouterr().out)["open_blocks"] == 0
    assert main(["run", *flags, "--plan"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cells"], found["done"], found["core_hours"]) == (2, 2, 0)
    blocks = list(engine.stored(tmp_path / "store"))
    assert {block.about["fields"]["repetition"] for block in blocks} == {0, 1}
    states = list((tmp_path / "store" / "states").glob("*.npz"))
    assert len(states) == 2 and all(kept.read(file) for file in states)


@pytest.mark.parametrize("flag", ["--plan", "--shard=1/2"])
def test_flags_without_a_use_are_refused(capsys, flag):
    assert main(["run", "werner.fig2", flag]) == 2
    assert "has no use for werner.fig2" in capsys.readouterr().err


def test_ways_that_exclude_each_other_are_refused(tmp_path):
    own = job()
    with pytest.raises(ValueError, match="`chunk` does not apply with `by_rounds`"):
        engine.sweep(own.grid, simulate, tmp_path / "s", by_rounds=True, chunk=1)


def test_trials_of_other_fields_can_be_planned(tmp_path):
    """Without sizes, or a number of rounds between tests."""
    kind = dataclasses.make_dataclass(
        "Short", [("num_rounds", int, 3), ("repetition", int, 0)], frozen=True
    )
    ours = job(seeds=1)
    grid = dataclasses.replace(
        ours.grid, trial=kind(), axes={"repetition": (0,)}, traced=("repetition",)
    )
    long = lambda own, *rest: simulate(Trial(num_rounds=own.num_rounds), *rest)
    found = plan.plan(
        "toy", options(tmp_path), [ours._replace(grid=grid, simulate=long)]
    )
    assert found["core_hours"] > 0 and found["rows"][0]["rounds"] == 3
