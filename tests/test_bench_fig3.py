"""The benchmark of Figure 3 at tiny sizes: equal trials, honest counts and ratios."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.montecarlo import Work
from cfljax.report import read_csv
from experiments.__main__ import plain
from experiments.bench import fig3, fig3_comparison, linear, timing
from experiments.bench.fig3_comparison import trial_key
from experiments.ifca import fig3 as figure
from experiments.ifca.fig3_trial import simulate
from experiments.options import Options

TINY = fig3.Config(
    num_trials=2,
    separation=(0.1, 1.0),
    num_clients=6,
    num_samples=10,
    num_features=8,
    num_restarts=2,
    step_sizes=(0.5, 0.1),
    num_rounds=20,
    scaling_trials=1,
    scaling_clients=(4, 6),
    scaling_samples=(5, 10),
    scaling_features=(4, 8),
    panels=("a",),
)
TRIAL = TINY.cells()[1]


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.setattr(timing, "has_torch", lambda: False)


@pytest.fixture
def tiny_panel(monkeypatch):
    """A panel of two sizes, and how often a size was timed."""
    config = dataclasses.replace(
        figure.load("ifca.fig3a").preset("paper"),
        separation=(0.1, 1.0),
        noise=(0.1,),
        num_clients=(4, 6),
        num_samples=(10,),
        num_features=5,
        num_restarts=2,
        num_rounds=5,
    )
    monkeypatch.setattr(fig3, "panel_config", lambda letter: config)
    calls = []

    def made_up(trials, key, step_sizes):
        calls.append((len(trials), trials[0].num_clients, trials[0].decide))

    monkeypatch.setattr(fig3, "simulate_jointly", made_up)
    return calls


@pytest.mark.slow
def test_pytorch_makes_the_same_trials():
    """Its final distances are those of `simulate`, from the same key alone."""
    pytest.importorskip("torch")
    key = trial_key(0, 1)
    plain_trial = dataclasses.replace(TRIAL, shortcuts=False)
    steps = jnp.asarray(TINY.step_sizes, jnp.float32)
    expected = jax.jit(lambda key: simulate(plain_trial, key, steps))(key)
    job = fig3_comparison.by_pytorch(TRIAL, TINY.step_sizes, 0, 0)
    (found,) = job.judge(1, job.prepare(1)())
    np.testing.assert_allclose(found["distance"], expected["distance"], rtol=1e-4)
    np.testing.assert_array_equal(found["recovered"], expected["recovered"])
    # Control: another trial ends elsewhere.
    (other,) = job.judge(0, job.prepare(0)())
    assert not np.allclose(other["distance"], expected["distance"], rtol=1e-2)


def test_pytorch_by_hand():
    """Two rounds in NumPy, and no assignment where no loss is finite."""
    pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    normal = lambda *shape: generator.normal(size=shape).astype(np.float32)
    inputs, targets, start = normal(6, 10, 8), normal(6, 10), normal(2, 8)
    models = start
    losses = lambda: np.mean((inputs @ models.T - targets[..., None]) ** 2, axis=1)
    for _ in range(2):
        gradient = np.zeros_like(models)
        for client, own in enumerate(np.argmin(losses(), axis=1)):
            errors = inputs[client] @ models[own] - targets[client]
            gradient[own] += 2 / 10 * errors @ inputs[client]
        models = models - 0.5 / 6 * gradient
    steps = np.array([0.5, 1e30], np.float32)
    starts = np.stack([start, start])
    ends = linear.torch_on_data(inputs, targets, starts, steps, num_rounds=2)()
    np.testing.assert_allclose(ends.models[0], models, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ends.assignment[0], np.argmin(losses(), axis=1))
    assert len(np.unique(ends.assignment[0])) == 2  # Both models were trained.
    assert np.all(ends.assignment[1] == -1)


def outputs(distances):
    distance = np.array([distances])  # [restart, step_size]
    nothing = np.zeros_like(distance)
    followed = np.isfinite(distance).astype(float)
    return {"distance": distance, "recovered": nothing, "followed": followed}


def test_differences_are_counted():
    """Thresholds are .061 of the paper and above .01 of the floor; .5 is stable."""
    limit = 0.6 * TRIAL.noise + TRIAL.tolerance
    steps = np.array([0.5, 100.0])
    count = lambda own, other: list(
        fig3_comparison.differences(
            [outputs(own)], [outputs(other)], TRIAL, steps
        ).values()
    )
    assert count([1.0, 1.0], [1.0, 2.0]) == [1, 0, 0, 2, 0, 0]
    assert count([0.0, 1.0], [0.0, limit]) == [1, 1, 0, 2, 1, 0]
    assert count([1.0, 0.0], [0.0, 0.0]) == [1, 1, 0, 2, 1, 1]
    assert count([1.0, 1.0], [0.0, 1.0]) == [1, 0, 1, 2, 1, 1]
    # A run that was left alone neither counts nor decides.
    assert count([0.0, np.nan], [0.0, 0.0]) == [1, 1, 0, 1, 0, 0]
    assert count([np.nan, 1.0], [0.0, 1.0]) == [1, 0, 1, 1, 0, 0]


def record(what, cells, seconds, data):
    found = fig3_comparison.Record(what, cells, 9.0)
    found.seconds, found.data = seconds, data
    found.processor = [2 * own for own in seconds]
    found.outputs = [[outputs([0.0, 1.0])] * len(cells)] * len(seconds)
    return found


def test_ratios_by_hand():
    cells, steps = TINY.cells(), np.array(TINY.step_sizes)
    theirs = [
        record(fig3_comparison.PYTORCH, (cell,), [10.0, 30.0], [1.0, 1.0])
        for cell in (0, 1)
    ]
    ours = record(fig3_comparison.NAMES["decide"], (0, 1), [3.0, 5.0], [1.0, 1.0])
    rows = fig3_comparison.table(cells, steps, [ours, *theirs])
    together, alone, _ = rows
    assert together["R"] == "0.1 and 1" and alone["R"] == "0.1"
    assert together["s, with data"] == 4 and together["s, without data"] == 3
    # Two cells of 10 or 30 s, on one data set.
    assert together["PyTorch's median / this, with data"] == (40 + 1) / 4
    assert together["PyTorch's total / this, without data"] == 80 / 6
    assert together["PyTorch's processor median / this"] == 40 / 4
    assert together["trials checked"] == together["trials succeed"] == 4
    assert together["trials differ"] == 0
    assert alone["s, with data"] == 21 and alone["s, without data"] == 20
    assert alone["PyTorch's total / this, with data"] == 1
    assert "trials checked" not in alone
    (lonely,) = fig3_comparison.table(cells, steps, [ours])
    assert not any("PyTorch" in name or "checked" in name for name in lonely)


@pytest.mark.slow
def test_outcomes_are_those_of_pytorch(tmp_path):
    pytest.importorskip("torch")
    config = dataclasses.replace(TINY, parts=("comparison",), ways=("decide", "follow"))
    summary = fig3.main(config, Options(out=tmp_path))
    rows = summary["rows"]
    assert len(rows) == 2 * 3 + 2
    checked = [row for row in rows if "PyTorch" not in row["what"]]
    assert [row["trials checked"] for row in checked] == [2, 2, 4] * 2
    assert all(row["trials differ"] == row["runs differ"] == 0 for row in checked)
    followed = [row["runs checked"] for row in checked if "followed" in row["what"]]
    assert followed == [8, 8, 16]
    assert len(read_csv(tmp_path / "trials.csv")) == 2 * len(rows)


@pytest.mark.slow
def test_without_pytorch_its_rows_are_left_out(tmp_path, without_torch):
    config = dataclasses.replace(
        TINY, parts=("comparison",), num_trials=1, separation=(1.0,), num_rounds=3
    )
    summary = fig3.main(config, Options(out=tmp_path))
    (row,) = summary["rows"]
    assert row["what"] == "cfljax, until decided" and row["s, with data"] > 0
    assert "PyTorch is not installed" in summary["headline"]
    assert read_csv(tmp_path / "table.csv")[0]["settings"] == summary["settings"]
    json.dumps(plain(summary), allow_nan=False)


def measured(exponent):
    """Sizes along m alone, of made-up times and columns."""
    return [
        fig3.Measured(
            dataclasses.replace(TRIAL, num_clients=m),
            num_runs=4,
            seconds_full=[float(m)] * 2,
            seconds=[float(m) ** exponent, 1.0],
            work=[Work(full=10, forward=3, backward=2, frozen=7)] * 2,
        )
        for m in (10, 30, 100)
    ]


def test_slopes_and_operations_by_hand():
    (row, *_) = fig3.scaling_rows(measured(0.5))
    product = 10 * TRIAL.num_samples * TRIAL.num_features
    assert row["operations, all rounds"] == 2 * product * 10
    features = TRIAL.num_features
    expected = 2 * product * (5 + features) + 2 * features**2 * 7
    assert row["operations, with shortcuts"] == expected
    each = 4 * TRIAL.num_rounds
    assert row["columns, with shortcuts per run and round"] == 5 / each
    assert row["rounds by Gram matrices per run and round"] == 7 / each
    found = {slope["quantity"]: slope for slope in fig3.slopes(measured(0.5))}
    assert {slope["along"] for slope in found.values()} == {"m"}
    full, short = found["s, all rounds"], found["s, with shortcuts"]
    assert full["slope"] == pytest.approx(1) == full["lowest"]
    assert short["lowest"] == pytest.approx(0, abs=1e-9)
    assert short["highest"] == pytest.approx(0.5) and (short["from"], 10) == (10, 10)


@pytest.mark.slow
def test_scaling_measures_every_size(tmp_path):
    config = dataclasses.replace(TINY, parts=("scaling",))
    tables = fig3.main(config, Options(out=tmp_path))["tables"]
    sizes = {(row["m"], row["n"], row["d"]) for row in tables["scaling"]}
    assert sizes == {(6, 10, 8), (4, 10, 8), (6, 5, 8), (6, 10, 4)}
    by_construction = [
        row["slope"]
        for row in tables["slopes"]
        if row["quantity"] == "operations, all rounds"
    ]
    np.testing.assert_allclose(by_construction, np.ones(3))
    # Of models that meet all samples in every round, twice.
    columns = {
        row["columns, all rounds per run and round"] for row in tables["scaling"]
    }
    assert columns == {2 * TINY.num_clusters}


def test_projection_resumes(tmp_path, tiny_panel):
    config = dataclasses.replace(TINY, parts=("projection",))
    tables = fig3.main(config, Options(out=tmp_path))["tables"]
    # Both conventions and separations together, each size cold and warm.
    assert tiny_panel == [(4, 4, True)] * 2 + [(4, 6, True)] * 2
    groups, (panel,) = tables["projection"], tables["panels"]
    for row in groups:
        total = row["cold, s"] + 39 * row["warm, s"]
        assert row["hours"] == pytest.approx(total / 3600)
    assert panel["cells"] == 8 and panel["trials of cells"] == 320
    assert panel["hours"] == pytest.approx(sum(row["hours"] for row in groups))
    # What is kept is not measured again; what is not, is.
    path = tmp_path / "projection.json"
    kept = json.loads(path.read_text())
    kept["times"].popitem()
    path.write_text(json.dumps(kept))
    tiny_panel.clear()
    again = fig3.main(config, Options(out=tmp_path))["tables"]["projection"]
    assert tiny_panel == [(4, 6, True)] * 2
    assert again[0] == groups[0]


@pytest.mark.parametrize("content", ["other machine", "half of a fi", "[]"])
def test_times_of_others_are_not_kept(tmp_path, tiny_panel, content):
    config = dataclasses.replace(TINY, parts=("projection",))
    fig3.main(config, Options(out=tmp_path))
    path = tmp_path / "projection.json"
    if content == "other machine":
        kept = json.loads(path.read_text())
        kept["run"]["cores"] += 1
        content = json.dumps(kept)
    path.write_text(content)
    fig3.main(config, Options(out=tmp_path))
    assert len(tiny_panel) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": ()}, "`parts` must hold different values, got \\(\\)"),
        ({"panels": ("a", "a")}, "`panels` must hold different values"),
        ({"num_trials": 0}, "`num_trials` must be at least 1, got 0"),
        ({"noise": -0.1}, "`noise` must be finite and not negative, got -0.1"),
        ({"scaling_features": (8, 4)}, "`scaling_features` must hold at least 2 asc"),
        ({"num_clients": 7}, "`num_clients` must be divisible by `num_clusters`"),
    ],
)
def test_misuse_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)
