"""Every algorithm in eight worlds: what worlds are, one budget, rows, the command."""

import json

import jax
import numpy as np
import pytest
from test_compare import made_up
from toy_experiments import save_no_figures

from cfljax.algorithms import REGISTRY
from cfljax.base.types import NO_CLUSTER
from cfljax.report import read_csv
from experiments.__main__ import main
from experiments.compare import every, scenes
from experiments.compare.every import ONE_SHOT, SEARCH, Config
from experiments.compare.scenes import WORLDS, Pool, Sizes

SIZES = Sizes(
    num_clients=8, num_samples=6, num_validation_samples=3, num_test_samples=3
)
CLUSTERS = np.array([0, 0, 1, 1, 2, 2, 3, 3])
PLAIN = [world for world in WORLDS if world != "writers"]
KEY = jax.random.key(4)


def numbered_pool() -> Pool:
    """Images that say in their pixels which they are."""
    labels = np.arange(400, dtype=np.int32) % 10
    inputs = np.broadcast_to(np.arange(400.0)[:, None, None], (400, 2, 2))
    return Pool(inputs.astype(np.float32), labels, None)


POOL = numbered_pool()


def drawn(repetitions: int = 1):
    return scenes.draw_clients(POOL, SIZES, seed=0, repetitions=repetitions)


@pytest.fixture(scope="module")
def clients():
    return drawn()


# Against equations


@pytest.mark.parametrize("world", PLAIN)
def test_no_sample_is_used_twice(clients, world):
    own = jax.tree.map(
        lambda leaf: np.asarray(leaf)[list(WORLDS).index(world)], clients
    )
    parts = [(own.inputs, own.mask)]
    parts += [(d.inputs, d.mask) for d in (own.validation, own.test)]
    parts += [(d.inputs, d.mask) for d in (own.new_train, own.new_test)]
    used = np.concatenate([inputs[mask][:, 0, 0] for inputs, mask in parts])
    assert len(np.unique(used)) == len(used)
    for _, mask in parts:
        assert mask.any(axis=1).all()  # Everybody has a sample in each part.
    if world != "dirichlet":
        assert own.mask.all()


@pytest.mark.parametrize("world", PLAIN)
def test_clusters_are_those_that_are_said(clients, world):
    own = jax.tree.map(
        lambda leaf: np.asarray(leaf)[list(WORLDS).index(world)], clients
    )
    plain = own.inputs[:, :, 0, 0].astype(int) % 10  # Labels before any change.
    if world in scenes.WITHOUT_CLUSTERS:
        assert (own.clusters == NO_CLUSTER).all()
    elif world == "unequal_clusters":
        assert np.bincount(own.clusters).tolist() == [4, 2, 1, 1]
    elif world != "drift":
        np.testing.assert_array_equal(own.clusters, CLUSTERS)
    if world == "label_skew":
        sets = [set(plain[c == CLUSTERS].ravel().tolist()) for c in range(4)]
        assert [len(s) for s in sets] == [2] * 4 and len(set.union(*sets)) == 8
    if world == "concept_shift":
        for cluster in range(4):
            whose = cluster == CLUSTERS
            pairs = {
                *zip(plain[whose].ravel(), own.targets[1][whose].ravel(), strict=True)
            }
            assert len({old for old, _ in pairs}) == len(pairs)  # A function of labels.
        assert (own.targets[1] != plain)[CLUSTERS > 0].any()
        np.testing.assert_array_equal(own.targets[1][:2], plain[:2])
    if world == "mixture":
        assert (own.targets[1] != plain).any() and (own.targets[1] == plain).any()
    if world == "drift":
        moved = own.clusters != CLUSTERS
        assert 0 < moved.sum() < 8
        same = (own.targets[0] == own.targets[1]).all(axis=1)
        np.testing.assert_array_equal(same, ~moved)
    else:
        np.testing.assert_array_equal(own.targets[0], own.targets[1])


def test_pixels_of_writers_are_means_of_squares():
    images = np.arange(10 * 10).reshape(1, 10, 10)
    small = scenes._shrunk(images, 3)
    by_hand = images[0, :9, :9].reshape(3, 3, 3, 3).mean(axis=(1, 3))
    np.testing.assert_array_equal(small[0], np.rint(by_hand))


# Against itself


@pytest.mark.long
def test_a_seed_does_not_depend_on_how_many_others_there_are(clients):
    both = drawn(repetitions=2)
    first = jax.tree.map(lambda leaf: leaf[::2], both)
    jax.tree.map(np.testing.assert_array_equal, first, clients)
    assert (np.asarray(both.inputs[0]) != np.asarray(both.inputs[1])).any()


def test_all_algorithms_have_one_budget():
    config = Config()
    assert [c.arm.algorithm for c in config.contestants] == list(REGISTRY)
    for contestant in config.contestants:
        number = len(contestant.settings) * len(config.step_sizes_of(contestant))
        assert number == len(config.step_sizes)
    assert SEARCH.keys() <= REGISTRY.keys()
    fixed = Config(algorithms=("ditto:penalty=.5",)).contestants[0]
    assert len(fixed.settings) == 1  # What was asked for is not tuned.


def test_what_cannot_serve_a_world_says_why(clients):
    config = Config(num_clients=8)
    trial = every.trial_of(
        every.Trial,
        config,
        arm="fedavg",
        world=0,
        checksum="",
        num_clusters=4,
        num_newcomers=1,
        num_classes=10,
        step_size=0.1,
        repetition=0,
    )
    arm = lambda name: every.parse(name)
    prepared = every.Prepared(trial, clients, list(WORLDS), "", "")
    why = lambda name, world: every.refusals(prepared, arm(name))[world]
    assert "told the true clusters" in why("oracle", "mixture")
    assert not why("oracle", "drift")
    assert all("once" in why(name, "drift") for name in ONE_SHOT if name in REGISTRY)
    assert not why("k_fed", "mixture")
    assert "`num_steps`" in why("fedavg:num_steps=0", "label_skew")
    everywhere = every.refusals(prepared, arm("fedbn"))
    assert set(everywhere) == set(WORLDS) and all(everywhere.values())
    assert "fedbn" in {one.arm.text for one in Config().contestants}


def test_who_is_told_apart_from_the_best():
    names = ("fedavg", "ifca", "local")
    config = Config(algorithms=names)
    accuracies = [
        [[0.90], [0.92], [0.91]],  # The best.
        [[0.89], [0.93], [0.90]],  # Not told apart.
        [[0.50], [0.52], [0.51]],  # Always .4 below.
    ]
    one = config.contestants
    results = made_up(names, accuracies, _Seen(config))
    assert [r.contestant.arm for r in results] == [c.arm for c in one]
    table = every.rows("drift", [*results[:2], results[2]], config)
    assert [row["with_best"] for row in table] == [True, True, False]
    assert table[2]["minus_best"] == pytest.approx(-40)
    refused = every.rows("drift", [*results[:2], "too late"], config)
    assert refused[2] == {
        "world": "drift",
        "algorithm": "local",
        "does_not_apply": "too late",
    }
    text = every.markdown(refused, ["drift"])
    assert "| local | does not apply |" in text and "**91.0**" in text
    assert "- local does not apply to any world: too late" in text
    at = lambda world, own: [{**row, "world": world} for row in own]
    other = {**refused[1], "does_not_apply": "too late"}
    more = [*at("mixture", [*refused[:1], other, refused[2]]), *at("writers", table)]
    text = every.markdown([*refused, *more], ["drift", "mixture", "writers"])
    assert "- local, ifca do not apply to drift, mixture: too late" in text
    told = every.outcome([*table, *at("mixture", refused[2:])], ["drift", "mixture"])
    assert told == (
        "- **drift** (permuted, half the clients move halfway): fedavg answers 91.0 % "
        "rightly (local 51.0); 1 of 2 others are told apart from it, all but ifca.\n"
    )


class _Seen:
    """Of a configuration, what made-up results need."""

    def __init__(self, config: Config) -> None:
        self.contestants, self.num_rounds = config.contestants, config.num_rounds


# Against misuse


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"num_clients": 12}, "multiple of 8"),
        ({"num_rounds": 3}, "must be even"),
        ({"step_sizes": (0.1,)}, "even number"),
        ({"algorithms": ("fedavgg",)}, "nearest"),
    ],
)
def test_misuse_is_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        Config(**flags)


def test_too_few_samples_are_told():
    with pytest.raises(ValueError, match="ask for fewer"):
        scenes.draw_clients(POOL, SIZES._replace(num_clients=64), seed=0, repetitions=1)


@pytest.mark.slow
def test_the_command_writes_all_and_reads_it_again(tmp_path, capsys, monkeypatch):
    save_no_figures(monkeypatch)
    flags = ["--algorithms", "local", "oracle", "--num-clients", "8", "--num-rounds"]
    flags += ["2", "--num-hidden", "4", "--num-trials", "2", "--json"]
    flags += ["--out", str(tmp_path)]
    run = lambda: main(["run", "compare.all", "--preset", "quick", *flags])
    assert run() == 0
    summary = json.loads(capsys.readouterr().out)
    table = read_csv(tmp_path / "table.csv")
    assert len(table) == 2 * 7 and summary["failed_cells"] == 0
    assert "does not apply" in (tmp_path / "table.md").read_text()
    assert run() == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == summary["rows"]


@pytest.mark.long
def test_what_it_takes_is_told_by_one_round(tmp_path, capsys):
    """Which has no half; of more rounds the data change in the middle."""
    flags = ["--algorithms", "fedavg", "--num-clients", "8", "--num-rounds", "2"]
    flags += ["--num-hidden", "4", "--num-trials", "2", "--out", str(tmp_path)]
    assert main(["run", "compare.all", "--preset", "quick", *flags, "--plan"]) == 0
    assert "fedavg" in capsys.readouterr().out
