"""What a device does: parts within their time, honest counts, the CPU's outcomes."""

import dataclasses
import json
import math
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.models import rotated_cifar_cnn
from experiments.bench import accelerator, accelerator_jobs, fig3, neural_jobs
from experiments.bench.accelerator import DONE, FULL_SHARE, LATE, Config
from experiments.bench.accelerator_jobs import Clock, Outcome, measured, multiplications
from experiments.bench.neural_jobs import compiled
from experiments.bench.work import Work
from experiments.ifca import table1
from experiments.options import Options

LONG = Clock(math.inf)
TINY = dataclasses.replace(
    accelerator.preset("quick"),
    squares=(16, 32),
    outcome_rounds=1,
    outcome_restarts=2,
    networks=("mlp",),
    num_clusters=2,
    image=4,
    mlp_hidden=5,
    mlp_samples=3,
    mlp_steps=1,
    repeats=1,
)
MLP = Work(3, 4, 2)
CNN = dataclasses.replace(MLP, channels=(32, 64), hidden=512)


# Against equations


def test_multiplications_by_hand():
    assert multiplications(MLP.task(), ()) == [784 * 200, 200 * 10]
    first, second = 28**2 * 25 * 32, 14**2 * 25 * 32 * 64
    linear = [7 * 7 * 64 * 512, 512 * 10]
    assert multiplications(CNN.task(), (28, 14)) == [first, second, *linear]
    colour = [24**2 * 75 * 64, 12**2 * 25 * 64 * 64]
    linear = [36 * 64 * 384, 384 * 192, 192 * 10]
    assert multiplications(rotated_cifar_cnn(), (24, 12)) == [*colour, *linear]


def test_differences_by_hand():
    choices, successes = np.array([[0, 1], [1, 1]]), np.array([True, False])
    one = Outcome(choices, successes, {"a": np.array([1.0, -4.0]), "b": np.ones(1)})
    assert accelerator_jobs.differences(one, one) == {
        "choices differ": 0,
        "choices": 4,
        "successes differ": 0,
        "successes": 2,
        "largest relative difference": 0.0,
    }
    weights = {"a": np.array([1.0, -5.0]), "b": np.ones(1)}
    other = Outcome(1 - choices, ~successes, weights)
    found = accelerator_jobs.differences(one, other)
    assert found["choices differ"] == 4 and found["successes differ"] == 2
    assert found["largest relative difference"] == pytest.approx(1 / 5)
    lost = one._replace(weights={"a": np.array([1.0, np.nan]), "b": np.ones(1)})
    assert math.isnan(
        accelerator_jobs.differences(lost, one)["largest relative difference"]
    )


def test_shares_by_hand():
    rows = [
        {"precision": "highest", "TFLOP/s": 2.0},
        {"precision": "default", "TFLOP/s": 8.0},
        {"precision": "highest", "TFLOP/s": 4.0},
        {"precision": "default", "status": LATE},
    ]
    parts = {"peak": {"rows": rows}, "law": {"rows": [{"TFLOP/s": 1.0}, {}]}}
    accelerator.add_shares(parts)
    measured, other = parts["law"]["rows"]
    assert measured[FULL_SHARE] == 1 / 4
    assert measured[accelerator.DEFAULT_SHARE] == 1 / 8
    assert other == {}


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("..\n3 passed, 1 skipped in 2.0s", {"passed": 3, "skipped": 1}),
        ("==== 1 failed, 2 errors in 9s ====", {"failed": 1, "error": 2}),
        ("4 passed\nno tests ran in 0.1s", {}),
        ("", {}),
    ],
)
def test_outcomes_of_tests_are_counted(output, counts):
    assert accelerator.counted(output) == counts


# Against reference


@pytest.mark.long
def test_operations_are_those_that_xla_counts():
    """Of a step with a perceptron, up to what is no product; a gradient in the images
    would be a quarter more."""
    task, layers = MLP.task(), multiplications(MLP.task(), ())
    data = neural_jobs.client_data(dataclasses.replace(MLP, num_clients=1))
    model = jax.eval_shape(task.init, jax.random.key(0))
    loss = lambda *given: jnp.mean(task.losses(*given))
    step = jax.jit(jax.value_and_grad(loss))
    found = step.lower(model, data.inputs[0], data.targets[0]).cost_analysis()
    assert found is not None
    counted = found["flops"]
    own = 2.0 * MLP.num_samples * (sum(layers) + 2 * sum(layers) - layers[0])
    assert own <= counted <= 1.15 * own
    assert counted < own + 2.0 * MLP.num_samples * layers[0]


def test_sizes_are_those_of_the_papers():
    paper = accelerator.preset("paper")
    figure, mnist = fig3.Config(), table1.mnist_preset("paper")
    for name in ("clients", "samples", "features"):
        own = getattr(paper, f"fig3_{name}")
        assert own == getattr(figure, f"num_{name}")
    assert paper.fig3_restarts == figure.num_restarts
    assert paper.fig3_rounds == figure.num_rounds
    sizes = zip(mnist.num_clients, mnist.num_samples, strict=True)
    assert (paper.rotated_clients[-1], paper.rotated_samples) in sizes
    assert paper.rotated_steps == mnist.num_steps
    assert (paper.mlp_hidden, paper.num_clusters) == (200, mnist.num_clusters)
    cifar = table1.cifar_preset("paper")
    assert paper.cifar_clients[-1] == cifar.num_clients
    assert paper.cifar_samples == cifar.num_samples


# Against itself


@pytest.mark.long
def test_the_cpu_has_the_cpus_outcomes():
    """And another key has others, so that the comparison can fail."""
    regression, network = accelerator_jobs.outcomes(TINY, LONG)
    for row in (regression, network):
        assert row["choices differ"] == row["successes differ"] == 0
        assert row["largest relative difference"] == 0
        moved = row["one rounding: largest relative difference"]
        assert 0 < moved < 0.01 < row["control: largest relative difference"]
    assert regression["control: choices differ"] > 0
    assert (regression["choices"], regression["successes"]) == (20 * 10 * 2, 2)


def test_what_a_row_will_take_is_told_by_a_smaller_one():
    """Of which only the rounds grow: the set-up compiles what draws, once."""
    row = {"compilation, s": 8.0, "set-up, s": 3.0, "seconds": 0.001}
    assert accelerator_jobs._expected(row, 64.0) == pytest.approx(11.128)
    assert accelerator_jobs._expected(None, 64.0) == 0
    assert accelerator_jobs._expected({"status": "not run: memory"}, 64.0) == 0


def test_what_was_computed_elsewhere_is_refused():
    (place,) = jnp.ones(2).devices()
    accelerator_jobs.check_place([jnp.ones(2)], place)
    with pytest.raises(RuntimeError, match="not on another"):
        accelerator_jobs.check_place([jnp.ones(2)], "another")


def test_products_tell_their_rate_and_error():
    rows = list(accelerator_jobs.peak(TINY, LONG))
    settings = [(row["side"], row["precision"]) for row in rows]
    kinds = ("highest", "default")
    assert settings == [(side, kind) for side in (16, 32) for kind in kinds]
    for row in rows:
        assert row["TFLOP/s"] * row["seconds"] == pytest.approx(
            2e-12 * row["side"] ** 3
        )
    assert all(0 < row["relative error"] < 1e-6 for row in rows[:2])
    _, late = list(accelerator_jobs.peak(TINY, Clock(0)))[:2]
    assert late == {"side": 16, "precision": "default", "status": LATE}


def program():
    return compiled(lambda values: values + 1, jnp.ones(3))


def test_a_program_says_why_it_was_not_run(monkeypatch):
    look = lambda make, **how: measured({"a": 1}, make, LONG, TINY, **how)["status"]
    assert look(program) == DONE
    soon = Clock(time.time() + 60)
    late = measured({"a": 1}, program, soon, TINY, expected=61.0)
    assert late == {"a": 1, "status": LATE}

    def fail(text):
        raise RuntimeError(text)

    assert look(lambda: fail("no\nluck")) == "failed: no luck"
    assert look(lambda: fail("RESOURCE_EXHAUSTED: of")) == accelerator_jobs.FULL
    monkeypatch.setattr(accelerator_jobs.engine, "available_memory", lambda: 20)
    assert look(program) == accelerator_jobs.FULL


def test_the_first_chunk_that_fits_is_measured(monkeypatch):
    asked = []

    def made_up(row, make, clock, config, *, expected):
        asked.append(row["clients at a time"])
        fits = asked[-1] <= 40
        took = {"status": DONE, "seconds": 2.0} if fits else {"status": "full"}
        return row | took

    monkeypatch.setattr(accelerator_jobs, "measured", made_up)
    monkeypatch.setattr(accelerator_jobs, "FULL", "full")
    config = dataclasses.replace(TINY, clients=(50,), chunks=(1000, 40, 10))
    (row,) = accelerator_jobs.networks(config, LONG)
    assert asked == [50, 40] and row["clients at a time"] == 40
    assert row["images / s"] == 50 * TINY.mlp_samples * TINY.mlp_steps / 2


# Against failures

CHILD = """
import json, os, sys, time
asked = json.loads(sys.stdin.readline())
write = lambda **line: open(asked["path"], "a").write(json.dumps(line) + "\\n")
write(machine={"platform": "cpu"})
write(row={"a": 1})
if asked["part"] == "peak":
    write(status="done")
    time.sleep(60)
elif asked["part"] == "law":
    print("last words", file=sys.stderr)
    os._exit(3)
open(asked["path"], "a").write('{"row": {"cut o')
time.sleep(60)
"""


@pytest.fixture
def made_up_child(monkeypatch):
    """A process that measures nothing: it is done, breaks off, or hangs."""
    begun = []

    def begin(log):
        begun.append(log)
        with log.open("w") as file:
            return subprocess.Popen(
                [sys.executable, "-S", "-c", CHILD],
                stdin=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    monkeypatch.setattr(accelerator, "_begun", begin)
    return begun


@pytest.mark.long
def test_each_part_ends_however_its_process_does(made_up_child):
    statuses = {}
    with accelerator._Worker() as worker:
        for part in ("peak", "law", "fig3"):
            found = accelerator.measure(part, TINY, 3.0, None, worker)
            assert found["rows"] == [{"a": 1}]
            assert found["machine"] == {"platform": "cpu"}
            statuses[part] = found["status"]
            worker.end()
    assert statuses == {
        "peak": DONE,
        "law": "failed (3): last words",
        "fig3": "ended after 3 s: time",
    }
    assert len(made_up_child) == 3


def test_no_part_begins_without_time(made_up_child):
    with accelerator._Worker() as worker:
        found = accelerator.measure("peak", TINY, 0.5, None, worker)
    assert (found["status"], found["rows"], made_up_child) == (LATE, [], [])


def test_tests_need_an_accelerator():
    with accelerator._Worker() as worker:
        machine = {"platform": "cpu"}
        found = accelerator.measure("tests", TINY, 9.0, machine, worker)
    assert found["status"] == "no accelerator"


# What is written

MACHINE = {"platform": "gpu", "device": "made up", "devices": 2, "cores": 4}
SQUARES = [
    {"precision": name, "TFLOP/s": rate, "relative error": error, "status": DONE}
    for name, rate, error in (("highest", 10.0, 1e-7), ("default", 80.0, 3e-4))
]
ROUNDS = [
    {"network": "MLP", "algorithm": name, "clients": clients, "status": DONE}
    | {"TFLOP/s": 1.0, "images / s": 1e5 * clients}
    for clients in (10, 100)
    for name in ("fedavg", "ifca")
]


@pytest.fixture
def made_up_parts(monkeypatch):
    """Parts that take no time, and the limits that they were given."""
    limits = {}

    def measure(part, config, limit, machine, worker):
        limits[part] = limit
        rows = {"peak": SQUARES, "networks": ROUNDS}.get(part, [])
        found = {"status": DONE, "rows": [dict(row) for row in rows]}
        if part == "fig3":
            found["status"] = "failed: no luck"
        return found | {"machine": MACHINE, "seconds": 0.0, "limit": limit}

    monkeypatch.setattr(accelerator, "measure", measure)
    return limits


@pytest.mark.long
def test_page_and_file_are_written(made_up_parts, tmp_path, capsys):
    config = dataclasses.replace(TINY, parts=("networks", "fig3", "peak"))
    summary = accelerator.main(config, Options(out=tmp_path))
    page = (tmp_path / "accelerator.md").read_text()
    assert page == summary["headline"] and "cfljax on 2 x made up" in page
    assert "reduced, as in TF32" in page and "failed: no luck" in page
    for name in ("rounds", "shares"):
        assert f"({name}.svg)" in page and (tmp_path / f"{name}.svg").exists()
    kept = json.loads((tmp_path / "accelerator.json").read_text())
    assert list(kept["parts"]) == ["peak", "fig3", "networks"]
    assert kept["machine"] == MACHINE
    assert kept["config"]["minutes"] == TINY.minutes
    assert kept["parts"]["networks"]["rows"][0][FULL_SHARE] == 0.1
    assert summary["failed_cells"] == 1
    assert "at most" in capsys.readouterr().err


def test_time_that_is_not_used_is_left_to_others(made_up_parts, tmp_path):
    config = dataclasses.replace(TINY, parts=("peak", "law"), minutes=1.0)
    accelerator.main(config, Options(out=tmp_path, progress=False))
    shares = accelerator.SHARES
    first = shares["peak"] / (shares["peak"] + shares["law"]) * 55
    assert made_up_parts["peak"] == pytest.approx(first, abs=2)
    assert made_up_parts["law"] == pytest.approx(55, abs=2)


def test_precision_like_float32_is_told():
    same = [row | {"relative error": 1e-7} for row in SQUARES]
    (told,) = accelerator._precision({"peak": {"rows": same}}).values()
    assert told.startswith("that of float32")
    assert accelerator._precision({}) == {}


@pytest.mark.slow
def test_a_part_is_measured_in_a_process_of_its_own(tmp_path):
    config = dataclasses.replace(TINY, parts=("peak",), minutes=2.0)
    summary = accelerator.main(config, Options(out=tmp_path, progress=False))
    part = summary["parts"]["peak"]
    assert part["status"] == DONE and len(part["rows"]) == 4
    assert part["memory"]["peak, MiB"] > 0
    assert summary["machine"]["platform"] == jax.default_backend()


# Against misuse


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"minutes": 0.0}, "`minutes` must be positive"),
        ({"parts": ()}, "`parts` must hold different entries"),
        ({"clients": ()}, "`clients` must hold different entries"),
        ({"clients": (10, 5)}, "`clients` must be ascending"),
        ({"squares": (0, 5)}, "`squares` must be at least 1"),
        ({"repeats": 0}, "`repeats` must be at least 1"),
    ],
)
def test_misuse_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(Config(), **change)


# On an accelerator


@pytest.fixture
def device():
    """The accelerator."""
    if jax.default_backend() == "cpu":
        pytest.skip("there is no accelerator here")
    return jax.local_devices()[0]


# A sum of a thousand terms in each of 25 updates, each rounded the same way.
ROUNDING = 25 * 1000 * 2**-23
BOTH = dataclasses.replace(Config(), outcome_clients=4, outcome_rounds=5, mlp_steps=5)


@pytest.mark.gpu
def test_an_accelerator_has_the_cpus_outcomes(device):
    rows = list(accelerator_jobs.outcomes(BOTH, LONG))
    full = [row for row in rows if row["precision"] == "highest"]
    assert len(full) == 3 and len(rows) == 6
    for row in full:
        assert row["choices differ"] == row["successes differ"] == 0, row
        # A convolutional network carries one rounding of its data further than that.
        near = max(ROUNDING, 3 * row["one rounding: largest relative difference"])
        assert row["largest relative difference"] < near, row
        assert row["control: largest relative difference"] > near, row


@pytest.mark.gpu
@pytest.mark.parametrize("channels", [(), (4, 8)], ids=["MLP", "CNN"])
def test_both_orders_train_alike_on_an_accelerator(device, channels):
    work = Work(6, 8, 5, num_clusters=2, channels=channels, hidden=20)
    with jax.default_matmul_precision("highest"):
        first, second = (
            jax.tree.leaves(neural_jobs.round_program(work, order, 1)())
            for order in ("sequential", "batched")
        )
        start = jax.tree.leaves(neural_jobs.first_models(work))
    far = lambda a, b: float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))
    assert max(map(far, first, second)) < ROUNDING
    # Control: the models have moved further than that.
    assert max(map(far, first, start)) > ROUNDING


@pytest.mark.gpu
def test_an_accelerator_tells_its_memory(device):
    program()()
    found = accelerator_jobs.peak_memory()
    assert found["of"] == "device" and found["peak, MiB"] > 0
    assert accelerator_jobs.describe_machine()["platform"] == device.platform
