"""Rotated CIFAR: its starts, its local models and its table."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from test_table1_against_equations import digits, some_clients

from cfljax.algorithms import ifca
from cfljax.models import mlp
from experiments.ifca import rotated, rotated_local, table1_cifar
from experiments.ifca.rotated_figures import draw
from experiments.ifca.rotated_published import published
from experiments.ifca.rotated_report import Result, markdown, rows
from experiments.ifca.starts import LEAST_SHARE, Start, with_balanced_start
from experiments.ifca.table1_cifar import preset, trial_of

TASK = mlp((2, 2), hidden=(3,), num_classes=3)
PAPER = preset("paper")


def test_presets_are_the_released_setting():
    trial = trial_of(PAPER, digits("cifar10"), "paper")
    assert (trial.num_clients, trial.num_samples, trial.num_clusters) == (200, 500, 2)
    assert (trial.num_participants, trial.num_rounds) == (20, 600)
    assert (trial.step_size, trial.decay, trial.batch_size) == (0.25, "0.99", 50)
    assert (trial.num_epochs, trial.num_test_clients) == (5, 40)
    assert LEAST_SHARE[2] == 0.35 and LEAST_SHARE[4] == 0.1


def test_published_numbers_stand_beside_the_published_setting_only():
    trial = trial_of(PAPER, digits("cifar10"), "reference")
    for name, value in (("ifca", 81.51), ("fedavg", 77.87), ("local", 33.97)):
        cell = published(trial, name)
        assert cell is not None and cell.same and cell.mean == value
    for change in (
        {"network": "narrow"},
        {"num_epochs": 4},
        {"num_rounds": 300},
        {"decay": "1.0"},
    ):
        cell = published(dataclasses.replace(trial, **change), "ifca")
        assert cell is not None and not cell.same
    text = dataclasses.replace(trial, network="text", num_epochs=0, num_steps=5)
    cell = published(text, "ifca")
    assert cell is not None and cell.same


def shares(models, data) -> np.ndarray:
    """Share of the clients that choose each model, by a loop."""
    losses = [
        [
            float(jnp.mean(TASK.losses(model, data.inputs[i], data.targets[i])))
            for model in (
                jax.tree.map(lambda leaf, j=j: leaf[j], models) for j in (0, 1)
            )
        ]
        for i in range(len(data.mask))
    ]
    return np.bincount(np.argmin(losses, axis=1), minlength=2) / len(losses)


@functools.cache
def starting(least_share: float, most_draws: int):
    """Compiled once for all seeds."""
    algorithm = with_balanced_start(
        ifca(TASK, num_clusters=2, step_size=0.1),
        TASK,
        lambda state: state.models,
        participation=1.0,
        least_share=least_share,
        most_draws=most_draws,
    )
    return jax.jit(lambda key: algorithm.init(key, some_clients()))


def test_starts_are_drawn_until_balanced():
    data, found = some_clients(), []
    for seed in range(4):
        key = jax.random.key(seed)
        now = starting(0.35, 50)(key)
        own = shares(now.state.models, data)
        np.testing.assert_allclose(now.share, own.min(), rtol=1e-6)
        assert own.min() >= 0.35
        found.append(int(now.draws))
    assert min(found) == 1 < max(found)  # Else nothing was filtered.


def test_a_start_that_is_never_balanced_is_the_last_draw():
    key = jax.random.key(0)
    now = starting(1.0, 3)(key)
    assert int(now.draws) == 3 and float(now.share) < 1
    third = ifca(TASK, num_clusters=2, step_size=0.1).init(
        jax.random.fold_in(key, 2), some_clients()
    )
    first = ifca(TASK, num_clusters=2, step_size=0.1).init(key, some_clients())
    leaves = lambda state: np.asarray(jax.tree.leaves(state.models)[0])
    np.testing.assert_array_equal(leaves(now.state), leaves(third))
    assert np.abs(leaves(third) - leaves(first)).max() > 1e-3
    alone = starting(0.0, 3)(key)  # The first draw is the algorithm's own start.
    np.testing.assert_array_equal(leaves(alone.state), leaves(first))


@pytest.mark.parametrize(
    ("least_share", "most_draws", "message"),
    [(1.5, 3, "`least_share` must be in"), (0.35, 0, "`most_draws` must be at least")],
)
def test_impossible_filters_are_refused(least_share, most_draws, message):
    with pytest.raises(ValueError, match=message):
        starting(least_share, most_draws)


def test_local_models_are_taken_from_all_clusters_and_some_come_first():
    trial = trial_of(preset("quick"), digits(), "paper")
    trial = dataclasses.replace(
        trial, num_clients=12, num_participants=3, num_local_clients=6, num_released=2
    )
    clients, is_released = rotated_local._in_order(trial)
    assert clients is not None
    assert sorted(np.asarray(clients).tolist()) == [0, 2, 4, 6, 8, 10]
    assert np.asarray(clients)[np.asarray(is_released)].tolist() == [0, 6]
    everyone = dataclasses.replace(trial, num_local_clients=12, num_released=0)
    clients, is_released = rotated_local._in_order(everyone)
    assert clients is None and not np.any(is_released)


@pytest.mark.slow
def test_local_models_are_tested_on_their_own_and_on_the_last_rotation():
    """Models that never move are as good in every round, by either test."""
    config = dataclasses.replace(
        preset("quick"),
        num_clients=4,
        num_samples=8,
        num_test_clients=4,
        num_test_samples=8,
        num_local_clients=4,
        num_released=4,
        network="mlp",
        num_hidden=3,
        num_rounds=2,
        rounds_between=1,
    )
    trial = trial_of(config, digits(), "paper")
    trial = dataclasses.replace(trial, algorithm="local", step_size=0.0)
    arrays = digits().arrays
    run = jax.jit(functools.partial(rotated.simulate, trial))
    still = run(jax.random.key(0), arrays)
    for name in ("accuracy", "last_cluster"):
        np.testing.assert_array_equal(still[name][0], still[name][1])
    assert float(still["accuracy"][0]) != float(still["last_cluster"][0])
    assert np.all(np.isnan(still["held_out"])) and not np.any(still["received"])


STARTS: tuple[Start, ...] = ("paper", "reference")


def made_up() -> list[Result]:
    """Results of both starts: 80 and 82 per cent, global 70, local 40 and 30."""
    results = []
    levels = {"ifca": 0.8, "fedavg": 0.7, "local": 0.4}
    for start, names in zip(STARTS, (levels, {"ifca": 0.82}), strict=True):
        trial = trial_of(PAPER, digits("cifar10"), start)
        rounds = np.arange(10, 601, 10)
        shape = (len(names), 2, 1, len(rounds))
        axes = ("algorithm", "repetition", "trial", "round")
        data = {
            name: (axes[: 3 + len(own)], np.full(shape[: 3 + len(own)], np.nan))
            for name, own in rotated.DIMS.items()
        }
        accuracy = np.array(list(names.values()))[:, None, None, None] + np.zeros(shape)
        accuracy[..., 3] += 0.05  # The best round is the fourth.
        data |= {"accuracy": (axes, accuracy), "held_out": (axes, accuracy - 0.01)}
        last = np.where(rounds <= 300, 0.3, 0.9) + np.zeros(shape)
        data |= {"last_cluster": (axes, last)}
        data |= {"matched_accuracy": (axes, np.ones(shape))}
        coords = {"algorithm": list(names), "repetition": [0.0, 1.0], "round": rounds}
        results.append(Result(trial, xr.Dataset(data, coords)))
    return results


def test_rows_say_which_form_they_have():
    table = [row for result in made_up() for row in rows(result)]
    shown = {(row["label"], row.get("start")): row for row in table}
    own = shown["IFCA", "paper"]
    np.testing.assert_allclose(own["accuracy_mean"], 80)
    np.testing.assert_allclose(own["best_mean"], 85)
    np.testing.assert_allclose(own["held_out_mean"], 79)
    assert "independent" in own["variant"] and "5 epochs (code)" in own["variant"]
    assert "redrawn" in shown["IFCA", "reference"]["variant"]
    released = shown["local, as released", None]
    np.testing.assert_allclose(released["accuracy_mean"], 30)
    assert released["round"] == 300 and released["paper_mean"] is None
    assert shown["local", None]["paper_mean"] == 33.97
    text = markdown(table)
    assert text.count("81.51") == 2 and "A stale loop variable" in text
    (axes,) = draw(made_up()).axes  # Both starts share a panel.
    assert {"IFCA", "IFCA, start redrawn"} <= {
        str(line.get_label()) for line in axes.get_lines()
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"participation": 0.0}, "`participation` must be in"),
        ({"decay": float("nan")}, "`decay` must be positive"),
        ({"starts": ("paper", "paper")}, "`starts` must hold different"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"num_epochs": 0}, "one of `num_epochs` and `num_steps` must be 0"),
        ({"num_steps": 5}, "one of `num_epochs` and `num_steps` must be 0"),
        ({"num_local_clients": 3}, "`num_local_clients` must be a multiple"),
        ({"num_released": 500}, "`num_released` must be in 0..200"),
    ],
)
def test_impossible_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        trial_of(dataclasses.replace(PAPER, **change), digits(), "paper")


def test_only_ifca_has_more_than_one_start():
    grids = table1_cifar._grids(preset("quick"), digits())
    assert [grid.axes["algorithm"] for grid in grids] == [
        ("ifca", "fedavg", "local"),
        ("ifca",),
    ]
