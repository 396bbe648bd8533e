"""What a run tells of itself, and where it is logged."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import cfljax as cfl
from cfljax.engine import (
    accuracy_on,
    check_log,
    free_metrics,
    log_metrics,
    log_results,
    metrics,
    watch,
)

KEY = jax.random.key(3)
ROUNDS = {
    "loss": np.array([2.0, 1.0, np.nan]),
    "cluster_sizes": np.array([[3, 1], [2, 2], [2, 2]]),
}


@pytest.fixture(scope="module")
def seen():
    """Metrics of three rounds of IFCA, and what they are made of."""
    data, truth = cfl.data.mixed_linear(
        KEY,
        num_clients=8,
        num_clusters=2,
        num_samples=12,
        num_features=4,
        separation=1.0,
        noise=0.1,
    )
    algorithm = cfl.ifca(cfl.models.linear(4), num_clusters=2, step_size=0.1)
    own = watch(truth)

    def observe(state, info):
        return own(state, info), info

    _, found = cfl.run(algorithm, KEY, data, num_rounds=3, observe=observe)
    _, usual = cfl.run(algorithm, KEY, data, num_rounds=3, truth=truth)
    return jax.tree.map(np.asarray, found), jax.tree.map(np.asarray, usual), truth


# --- Against equations.


@pytest.mark.long
def test_metrics_are_those_of_the_rounds(seen):
    (found, info), _, truth = seen
    for t in range(3):
        chosen = info.assignment[t]
        losses = info.losses[t][np.arange(8), chosen]
        assert found["loss"][t] == pytest.approx(losses.mean(), rel=1e-6)
        np.testing.assert_array_equal(
            found["cluster_sizes"][t], np.bincount(chosen, minlength=2)
        )
        for name in ("received", "sent"):
            bytes_ = getattr(info, name)[t].sum()
            assert found[name][t] == pytest.approx(bytes_ / 2**20)
        index = cfl.metrics.adjusted_rand_index(jnp.asarray(chosen), truth.clusters, 2)
        assert found["rand_index"][t] == pytest.approx(float(index))
    assert found["sent"][0] == pytest.approx(
        8 * (4 * 4 + 1) / 2**20
    )  # A model and its name.


def test_a_run_returns_them_by_default(seen):
    (found, _), usual, _ = seen
    assert set(usual) == set(found), "numbers to be predicted have no accuracy"
    for name, values in usual.items():
        np.testing.assert_array_equal(values, found[name])


@pytest.mark.long
def test_by_default_labels_have_an_accuracy_and_states_are_the_same():
    """That of all real samples, after the round; padding would be right."""
    algorithm = cfl.fedavg(
        cfl.models.mlp((2,), hidden=(), num_classes=3), step_size=0.01
    )
    inputs = jax.random.normal(KEY, (3, 5, 2))
    mask = jnp.asarray(np.arange(5) < np.array([[5], [2], [3]]))
    targets = jnp.where(mask, jnp.argmax(inputs, -1) + 1, 0)
    targets = targets.at[:, 1].set(2 - targets[:, 1])  # Some stay wrong.
    data = cfl.ClientData(inputs, targets, mask)
    plain, nothing = cfl.run(algorithm, KEY, data, num_rounds=2, observe=None)
    state, seen = cfl.run(algorithm, KEY, data, num_rounds=2)
    assert nothing == () and set(seen) == {"accuracy", "loss", "received", "sent"} | {
        "cluster_sizes"
    }
    jax.tree.map(np.testing.assert_array_equal, plain, state)
    chosen = np.argmax(algorithm.predict(state, data, inputs), axis=-1)
    right = (chosen == np.asarray(targets))[np.asarray(mask)]
    assert float(seen["accuracy"][-1]) == pytest.approx(right.mean())
    assert 0 < right.mean() < 1, "control"


def test_a_truth_is_for_the_default_alone():
    algorithm = cfl.fedavg(cfl.models.linear(2), step_size=1.0)
    ones = jnp.ones((1, 2))
    data = cfl.ClientData(jnp.ones((1, 2, 2)), ones, ones > 0)
    with pytest.raises(ValueError, match=r"`truth` must be None beside an `observe`"):
        cfl.run(
            algorithm,
            KEY,
            data,
            num_rounds=1,
            observe=free_metrics,
            truth=jnp.zeros(1, int),
        )


@pytest.mark.long
def test_who_takes_no_part_does_not_count():
    class Info:
        assignment = jnp.array([1, -1, 0, 1])
        losses = jnp.array([[5.0, 1.0], [9.0, 9.0], [2.0, 5.0], [5.0, 6.0]])

    found = metrics(None, Info)
    assert float(found["loss"]) == 3.0 and found["cluster_sizes"].tolist() == [1, 2]
    assert set(found) == {"loss", "cluster_sizes"}  # It has no bytes.
    own = watch(jnp.array([7, 5, 5, 7]))(None, Info)
    assert float(own["rand_index"]) == 1.0  # The one who is wrong was not asked.
    assert metrics(None, None) == {}


def test_losses_that_nobody_chooses_by_are_for_those_who_ask():
    class Info:
        losses = jnp.array([1.0, jnp.nan, 3.0])
        sent = jnp.array([2**20, 0, 2**20])

    assert {n: float(v) for n, v in free_metrics(None, Info).items()} == {"sent": 2.0}
    found = {n: float(v) for n, v in metrics(None, Info).items()}
    assert found == {"loss": 2.0, "sent": 2.0}  # Of those who took part.


@pytest.mark.long
def test_accuracy_on_is_the_share_of_real_samples():
    task = cfl.models.mlp((2,), hidden=(3,), num_classes=2)
    algorithm = cfl.fedavg(task, step_size=0.1)
    inputs = jax.random.normal(KEY, (3, 5, 2))
    mask = jnp.asarray(np.arange(5) < np.array([[5], [2], [0]]))
    data = cfl.ClientData(inputs, jnp.zeros((3, 5), int), mask)
    state = algorithm.init(KEY, data)
    chosen = jnp.argmax(algorithm.predict(state, data, inputs), axis=-1)
    targets = chosen.at[:, 0].set(1 - chosen[:, 0])  # The first is wrong.
    found = accuracy_on(algorithm, data, data._replace(targets=targets))(state)
    assert float(found["accuracy"]) == pytest.approx(5 / 7)
    assert (
        accuracy_on(algorithm, data, data).func
        == accuracy_on(algorithm, data, data).func
    )  # So that it is compiled once.


# --- Against the libraries: what was logged is read back.


def test_csv_has_a_row_for_each_round(tmp_path):
    log_metrics(ROUNDS, "csv", tmp_path, name="a", settings={"noise": 0.1})
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["1", "2", "3"]
    assert [row["loss"] for row in rows] == ["2.0", "1.0", ""]  # NaN is left out.
    assert [row["cluster_sizes/0"] for row in rows] == ["3.0", "2.0", "2.0"]
    assert {row["noise"] for row in rows} == {"0.1"}


def events(folder):
    """Scalars of a folder's event file, name, round and value, and names of texts."""
    from tensorboardX.proto import event_pb2
    from tensorboardX.record_writer import masked_crc32c

    Event = vars(event_pb2)["Event"]  # Which is made when it is imported.

    (file,) = folder.glob("events.*")
    content, found, texts = file.read_bytes(), [], []
    while content:  # Length, its checksum, the event, and its checksum.
        length = int.from_bytes(content[:8], "little")
        event = content[12 : 12 + length]
        assert content[8:12] == masked_crc32c(content[:8]).to_bytes(4, "little")
        content = content[16 + length :]
        own = Event.FromString(event)
        for value in own.summary.value:
            if value.HasField("simple_value"):
                found.append((value.tag, own.step, value.simple_value))
            else:
                texts.append(value.tag)
    return found, texts


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    log_metrics(ROUNDS, "tensorboard", tmp_path, name="a", settings={"noise": 0.1})
    found, texts = events(tmp_path / "a")
    assert [own for own in found if own[0] == "loss"] == [
        ("loss", 1, 2.0),
        ("loss", 2, 1.0),
    ]
    assert ("cluster_sizes/1", 2, 2.0) in found and len(texts) == 1


@pytest.mark.slow
def test_mlflow_reads_what_was_written(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    log_metrics(ROUNDS, "mlflow", tmp_path, name="a", settings={"noise": 0.1})
    client = mlflow.MlflowClient(tmp_path.as_uri())
    experiment = client.get_experiment_by_name("cfljax")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "a" and run.data.params == {"noise": "0.1"}
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(1, 2.0), (2, 1.0)]


@pytest.mark.slow
def test_wandb_writes_an_offline_run(tmp_path):
    pytest.importorskip("wandb", reason="wandb is not installed")
    log_metrics(ROUNDS, "wandb", tmp_path, name="a", settings={"noise": 0.1})
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"cluster_sizes/1" in file.read_bytes()


def test_results_are_logged_run_by_run(tmp_path):
    shape = ("noise", "trial", "round")
    values = np.arange(8.0).reshape(2, 2, 2)
    values[1, 1] = np.nan  # Never computed.
    found = xarray.Dataset(
        {"loss": (shape, values), "gap": (("noise",), [1.0, 2.0])},
        coords={"noise": [0.1, 0.2], "trial": [0, 1]},
    )
    log_results(found, "csv", tmp_path)
    names = {path.stem for path in tmp_path.glob("*.csv")}
    assert names == {f"noise={a},trial={b}" for a, b in ((0.1, 0), (0.1, 1), (0.2, 0))}
    text = (tmp_path / "noise=0.2,trial=0.csv").read_text().splitlines()
    assert text == ["noise,trial,round,loss", "0.2,0,1,4.0", "0.2,0,2,5.0"]


def test_tests_are_logged_at_the_rounds_they_stand_behind(tmp_path):
    found = xarray.Dataset(
        {"sent": (("round",), [1.0, 2.0, 3.0]), "accuracy": (("tested",), [0.5, 0.6])},
        coords={"round": [1, 2, 3], "tested": [1, 3]},
    )
    log_results(found, "csv", tmp_path, settings={"arm": "fedavg:penalty=1/2"})
    text = (tmp_path / "arm=fedavg:penalty=1_2.csv").read_text().splitlines()
    assert text[0] == "arm,round,sent,accuracy"
    ends = [line.removeprefix("fedavg:penalty=1/2,") for line in text[1:]]
    assert ends == ["1,1.0,0.5", "2,2.0,", "3,3.0,0.6"]
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    log_results(found, "tensorboard", tmp_path)
    read, _ = events(tmp_path / "run")
    assert [own[1:] for own in read if own[0] == "accuracy"] == [
        (1, 0.5),
        (3, pytest.approx(0.6)),
    ]


def test_names_of_logs_are_short_and_apart(tmp_path):
    for end in ("b", "c"):
        log_metrics(ROUNDS, "csv", tmp_path, name=300 * "a" + end)
    found = [path.stem for path in tmp_path.iterdir()]
    assert len(found) == 2 and all(len(name) < 200 for name in found)


# --- Against misuse.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: log_metrics(ROUNDS, "paper", p), "csv, tensorboard, wandb, mlflow"),
        (lambda p: log_metrics({"a": [1], "b": [1, 2]}, "csv", p), "same rounds"),
        (lambda p: log_results(xarray.Dataset(), "csv", p), "axis `round` or `tested`"),
        (lambda _: check_log("paper"), "csv, tensorboard, wandb, mlflow"),
    ],
)
def test_misuse_is_refused(call, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        call(tmp_path)


def test_a_library_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"needs tensorboardX, .*pip install"):
        log_metrics(ROUNDS, "tensorboard", tmp_path)
    with pytest.raises(ValueError, match=r"needs tensorboardX"):
        check_log("tensorboard")
    check_log("csv")
