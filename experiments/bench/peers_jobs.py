"""What `peers` times: the same round by this library and by others.

Each implementation makes a job from a round and what it starts from. The job returns
the models after the round: nested dicts in this library's layout, or a list in that of
PyTorch. Every one runs in a process of its own, which runs this module and imports what
that implementation needs and no other.
"""

import atexit
import contextlib
import dataclasses
import functools
import importlib
import pathlib
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.bench import processes, torch_jobs
from experiments.bench.work import NUM_CLASSES, Job, Start, Work, in_torch_layout
from experiments.private import check_private

if TYPE_CHECKING:
    from cfljax import Algorithm, ClientData

SEED = 1  # Of this library's run, whose first models are everybody's.
OURS, OURS_ALONE = "cfljax", "cfljax, 1 device"
JAX, FEDJAX, PFLLIB = "JAX, loop of jitted clients", "FedJAX", "PFLlib"
LOOP, POOL = "PyTorch, loop", "PyTorch, a thread a core"
VMAP = "PyTorch, vmap"


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One way to make a round.

    make: from the work and its start to the job.
    package: that has to be installed besides what this library needs.
    images: of a client's images, how many an epoch of these batches trains on.
    note: what else is to be known.
    """

    make: Callable[[Work, Start], Job]
    package: str | None = None
    images: Callable[[int, int], int] = lambda samples, batch: samples
    note: str = ""


def algorithm(work: Work) -> "Algorithm":
    """This library's, as a user makes it: FedAvg, or IFCA where clients choose."""
    import cfljax as cfl

    how: dict[str, Any] = {"step_size": work.step_size, "num_steps": work.num_steps}
    if work.batch_size is not None:
        how["update"] = cfl.LocalUpdate(batch_size=work.batch_size, num_epochs=1)
    if not work.chooses:
        return cfl.fedavg(work.task(), **how)
    how |= {"num_clusters": work.num_clusters, "option": "model"}
    return cfl.ifca(work.task(), **how)


def client_data(start: Start) -> "ClientData":
    """The samples as this library takes them."""
    import jax.numpy as jnp

    import cfljax as cfl

    mask = jnp.ones(start.labels.shape, bool)
    return cfl.ClientData(jnp.asarray(start.images), jnp.asarray(start.labels), mask)


def runner(work: Work, data: "ClientData", num_rounds: int, **how: Any) -> Job:
    """`cfljax.run` as a user calls it, with one algorithm again and again, without
    metrics, as the others; the job returns models `[clusters, ...]`."""
    import jax

    import cfljax as cfl

    own, key = algorithm(work), jax.random.key(SEED)

    def program() -> Any:
        state, _ = cfl.run(own, key, data, num_rounds=num_rounds, observe=None, **how)
        if work.chooses:
            return jax.block_until_ready(state.models)
        return jax.block_until_ready(jax.tree.map(lambda leaf: leaf[None], state.model))

    return program


def ours(work: Work, start: Start) -> Job:
    """A plain call."""
    return runner(work, client_data(start), 1)


def ours_alone(work: Work, start: Start) -> Job:
    """The call that asks for one device."""
    return runner(work, client_data(start), 1, devices=1)


def _losses(params: Any, images: Any, labels: Any) -> Any:
    """Of every image, by JAX's own functions, with weights in this library's layout."""
    import jax
    import optax
    from jax import lax

    values = images[..., None]
    for _, layer in sorted(params.get("convolutions", {}).items()):
        dimensions = ("NHWC", "HWIO", "NHWC")
        values = lax.conv_general_dilated(
            values, layer["kernel"], (1, 1), "SAME", dimension_numbers=dimensions
        )
        window = (1, 2, 2, 1)
        values = lax.reduce_window(
            values + layer["bias"], -np.inf, lax.max, window, window, "VALID"
        )
        values = jax.nn.relu(values)
    values = values.reshape(len(values), -1)
    if "layers" in params:
        *hidden, last = (layer for _, layer in sorted(params["layers"].items()))
    else:
        hidden, last = params["hidden"].values(), params["output"]
    for layer in hidden:
        values = jax.nn.relu(values @ layer["kernel"] + layer["bias"])
    logits = values @ last["kernel"] + last["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def _apart(work: Work, models: Any) -> list[Any]:
    """One tree for each cluster."""
    import jax
    import jax.numpy as jnp

    take = lambda own: jax.tree.map(lambda leaf: jnp.asarray(leaf[own]), models)
    return [take(own) for own in range(work.num_clusters)]


def _stacked(models: list[Any]) -> Any:
    """One tree with leaves `[clusters, ...]`, when they are computed."""
    import jax
    import jax.numpy as jnp

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    return jax.block_until_ready(stacked)


def looped(work: Work, start: Start) -> Job:
    """One compiled function of a client, called for one after the other."""
    import jax
    import jax.numpy as jnp
    import optax

    # On a CPU, convolutions of a loop that is not unrolled are over ten times slower.
    scan = functools.partial(jax.lax.scan, unroll=bool(work.channels))
    optimiser = optax.sgd(work.step_size)
    loss = lambda *arguments: jnp.mean(_losses(*arguments))

    def step(carry: Any, batch: Any) -> tuple[Any, None]:
        params, state = carry
        gradient = jax.grad(loss)(params, *batch)
        changes, state = optimiser.update(gradient, state)
        return (optax.apply_updates(params, changes), state), None

    @jax.jit
    def train(key: Any, params: Any, images: Any, labels: Any) -> Any:
        carry = params, optimiser.init(params)
        if work.batch_size is None:
            on_all = lambda carry, _: step(carry, (images, labels))
            carry, _ = scan(on_all, carry, length=work.num_steps)
            return carry[0]
        order = jax.random.permutation(key, len(images))
        full = len(images) - len(images) % work.batch_size
        on_some = lambda carry, some: step(carry, (images[some], labels[some]))
        batches = order[:full].reshape(-1, work.batch_size)
        carry, _ = scan(on_some, carry, batches)
        if full < len(images):
            carry, _ = on_some(carry, order[full:])
        return carry[0]

    @jax.jit
    def choose(models: Any, images: Any, labels: Any) -> Any:
        return jnp.argmin(jnp.stack([loss(own, images, labels) for own in models]))

    add = jax.jit(lambda one, other: jax.tree.map(jnp.add, one, other))
    divide = jax.jit(lambda total, by: jax.tree.map(lambda leaf: leaf / by, total))
    models = _apart(work, start.models)
    samples = start.images, start.labels
    clients = list(zip(*(map(jnp.asarray, leaf) for leaf in samples), strict=True))
    keys = list(jax.random.split(jax.random.key(0), work.num_clients))

    def program() -> Any:
        after: list[Any] = [None] * work.num_clusters
        counts = [0] * work.num_clusters
        for key, client in zip(keys, clients, strict=True):
            own = int(choose(models, *client)) if work.chooses else 0
            trained = train(key, models[own], *client)
            after[own] = trained if after[own] is None else add(after[own], trained)
            counts[own] += 1
        return _stacked(
            [
                before if count == 0 else divide(total, count)
                for before, total, count in zip(models, after, counts, strict=True)
            ]
        )

    return program


def by_fedjax(work: Work, start: Start) -> Job:
    """Its own FedAvg and HypCluster, which is IFCA with averaged models."""
    import jax

    fedjax: Any = importlib.import_module("fedjax")  # An optional extra.
    algorithms: Any = importlib.import_module("fedjax.algorithms")
    if not hasattr(jax, "tree_map"):  # Renamed since FedJAX 0.0.17 was released.
        setattr(jax, "tree_map", jax.tree.map)  # noqa: B010  # pyright knows no such
    losses = lambda params, batch, _: _losses(params, batch["x"], batch["y"])
    optimisers = fedjax.optimizers.sgd(work.step_size), fedjax.optimizers.sgd(1.0)
    batches = fedjax.ShuffleRepeatBatchHParams(
        work.batch_size or work.num_samples, num_epochs=work.passes
    )
    models = _apart(work, start.models)
    if work.chooses:
        whole = fedjax.PaddedBatchHParams(work.num_samples)
        method = algorithms.hyp_cluster.hyp_cluster(losses, *optimisers, whole, batches)
        state = method.init(models)
    else:
        gradient = fedjax.grad(losses)
        method = algorithms.fed_avg.federated_averaging(gradient, *optimisers, batches)
        state = method.init(models[0])
    keys = jax.random.split(jax.random.PRNGKey(0), work.num_clients)
    clients = [
        (number, fedjax.ClientDataset({"x": images, "y": labels}), key)
        for number, (images, labels, key) in enumerate(
            zip(start.images, start.labels, keys, strict=True)
        )
    ]

    def program() -> Any:
        after, _ = method.apply(state, clients)
        return _stacked(after.cluster_params if work.chooses else [after.params])

    return program


def by_pfllib(work: Work, start: Start, folder: pathlib.Path) -> Job:
    """Its own client of FedAvg, imported from a clone, and the mean of its clients.

    The clients' files are written as its own data sets are, in a folder of their own.
    """
    sys.path.insert(0, str(folder.resolve() / "system"))
    client: Any = importlib.import_module("flcore.clients.clientavg").clientAVG
    place = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    system = place / "system"  # It looks for data beside it.
    files = place / "dataset" / "peers" / "train"
    system.mkdir()
    files.mkdir(parents=True)
    for number, (images, labels) in enumerate(
        zip(start.images, start.labels, strict=True)
    ):
        samples: Any = {"x": images[:, None], "y": labels}
        np.savez_compressed(files / f"{number}.npz", data=samples)
    model = torch_jobs.module(work)
    first = torch_jobs.first_tensors(work, start.models)
    for weight, own in zip(model.parameters(), first, strict=True):
        weight.data = own[0]
    settings = SimpleNamespace(
        model=model,
        algorithm="FedAvg",
        dataset="peers",
        device="cpu",
        save_folder_name="",
        num_classes=NUM_CLASSES,
        batch_size=work.batch_size or work.num_samples,
        local_learning_rate=work.step_size,
        local_epochs=work.passes,
        few_shot=0,
        learning_rate_decay=False,
        learning_rate_decay_gamma=1.0,
    )
    how = {"train_samples": work.num_samples, "test_samples": 0}
    how |= {"train_slow": False, "send_slow": False}
    clients = [client(settings, id=own, **how) for own in range(work.num_clients)]

    def program() -> list[np.ndarray]:
        mean = torch_jobs.Mean(first)
        with contextlib.chdir(system):
            for own in clients:
                own.set_parameters(model)
                own.train()
                mean.add(0, own.model.parameters())
        return mean.models()

    return program


def implementations(
    work: Work, pfllib: pathlib.Path | None
) -> Mapping[str, Implementation]:
    """All that can make this round, by name."""
    found = {
        OURS: Implementation(ours),
        OURS_ALONE: Implementation(ours_alone),
        JAX: Implementation(looped),
        FEDJAX: Implementation(
            by_fedjax,
            "fedjax",
            lambda samples, batch: -(-samples // batch) * batch,
            "its backend jit, the default (pmap needs functions that JAX has removed), "
            "with `jax.tree_map` under its old name; fills the last batch of an epoch "
            "with images drawn again",
        ),
        LOOP: Implementation(torch_jobs.looped, "torch"),
        POOL: Implementation(torch_jobs.pooled, "torch"),
        VMAP: Implementation(torch_jobs.batched, "torch"),
    }
    if pfllib is not None and not work.chooses:
        found[PFLLIB] = Implementation(
            lambda work, start: by_pfllib(work, start, pfllib),
            "torch",
            lambda samples, batch: samples // batch * batch,
            "its clients read their files in every round; leaves out the last batch of "
            "an epoch where it is not full",
        )
    return found


def main(name: str, file: str, pfllib: str) -> None:
    """An implementation's process; the file holds the work and its start."""
    check_private(pathlib.Path(file).parent)  # What lies there is executed.
    work, start = pickle.loads(pathlib.Path(file).read_bytes())
    own = implementations(work, pathlib.Path(pfllib) if pfllib else None)[name]
    job = own.make(work, start)
    loaded = processes.status("VmHWM") or 0
    before = processes.resident()

    def one_round() -> dict[str, float]:
        used = time.process_time()
        job()
        return {"processor": time.process_time() - used}

    def memory() -> dict[str, float]:
        if before is None:
            return {}
        peak = processes.status("VmHWM") or 0
        return {"peak": max(peak, loaded), "round": peak - before}

    def models() -> dict[str, str]:
        fixed = work.without_chance()
        found = (job if fixed == work else own.make(fixed, start.of(fixed)))()
        if not isinstance(found, list):
            found = in_torch_layout(fixed, found)
        path = pathlib.Path(file).with_name(f"{name}.pickle")
        path.write_bytes(pickle.dumps(found))
        return {"path": str(path)}

    processes.answer({"round": one_round, "memory": memory, "models": models})


if __name__ == "__main__":
    main(*sys.argv[1:])
