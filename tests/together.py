"""What several processes on loopback compute together, or one of them alone.

    python together.py ADDRESS INDEX NUMBER DEVICES SECONDS CALLS

calls functions of this file in turn and prints what they return, as one line of JSON.
With a number of 1 there are no others; with "auto" JAX finds them. JAX is not used
before the processes have met.
"""

import functools
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from engine_trial import AXES, JOINT, Trial, draw, known, plain_grid

import cfljax as cfl
from cfljax import cores, engine
from cfljax.engine.processes import gathered

CLIENTS, SAMPLES, ROUNDS = 10, 6, 2
SIZES = {"num_clusters": 2}
ALGORITHMS = {
    "fedavg": {"num_steps": 2},
    "ifca": {**SIZES, "option": "model"},
    "clove": SIZES,
    "pacfl": SIZES,
}


def digest(tree: Any) -> str:
    """Of all bits of a tree."""
    code = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        plain = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        code.update(f"{plain.dtype}{plain.shape}".encode() + plain.tobytes())
    return code.hexdigest()[:16]


def clients(num_clients: int = CLIENTS) -> cfl.ClientData:
    """Images of noise with labels."""
    inputs, targets = jax.random.split(jax.random.key(0))
    shape = (num_clients, SAMPLES)
    return cfl.ClientData(
        jax.random.normal(inputs, (*shape, 6, 6)),
        jax.random.randint(targets, shape, 0, 3),
        jnp.ones(shape, bool),
    )


@functools.cache
def algorithm(name: str) -> cfl.Algorithm:
    task = cfl.models.mlp((6, 6), hidden=(7,), num_classes=3)
    return getattr(cfl, name)(task, step_size=0.1, **ALGORITHMS[name])


def start(name: str, seed: int = 1, num_clients: int = CLIENTS, **how: Any) -> Any:
    how = {"num_rounds": ROUNDS, **how}
    return cfl.run(algorithm(name), jax.random.key(seed), clients(num_clients), **how)


def runs(*names: str) -> dict[str, str]:
    """Digests of final states and of what was observed."""
    return {name: digest(start(name)) for name in names}


def careless(state: Any, info: Any) -> Any:
    """A sum over clients that each device begins with its own."""
    del state
    return jnp.sum(jnp.exp(7 * info.losses))


def orders(name: str) -> list[str]:
    """Digests of a run: of what it observes by default, by a careless sum, and of
    another seed. An odd number of clients is not shared out before the rounds."""
    found = [start(name), start(name, num_clients=32, observe=careless)]
    return [digest(one) for one in [*found, start(name, seed=2)]]


def goes_on(name: str, path: str) -> list[Any]:
    """Rounds that are saved each, then more from the file, with tests in between; and
    whether this process has written."""
    test = lambda state: {"size": sum(map(jnp.size, jax.tree.leaves(state)))}
    how: dict[str, Any] = {"checkpoint": path, "every": 0.0, "test": test}
    few = start(name, num_rounds=2, **how)
    more = start(name, num_rounds=5, **how)
    return [digest(few), digest(more), digest(start(name, num_rounds=5, test=test))]


def sweeps(path: str) -> list[Any]:
    """Digests of datasets: of trials in one program, of joint ones, of long runs and of
    cells of which some raise."""
    long = engine.Grid(
        experiment="long",
        trial=Trial(),
        axes={"separation": (0.5, 1.0)},
        num_trials=2,
        dims={"loss": ("round",)},
    )
    joint = plain_grid(experiment="joint", axes=AXES, num_trials=13)
    failing = plain_grid(experiment="failing", traced=(), num_trials=3)
    own = functools.partial(engine.sweep, path=path, progress=False)
    found = [
        own(plain_grid(), draw),
        own(joint, None, joint=JOINT),
        own(long, learn, by_rounds=True),
        own(failing, fail),
        own(plain_grid(), draw),  # Only read.
    ]
    return [
        [
            digest(one["value" if "value" in one else "loss"].values),
            one.attrs["failures"],
        ]
        for one in found
    ]


def learn(trial: Trial, key: jax.Array, constants: Any) -> dict[str, Any]:
    """A run of rounds."""
    del constants
    data = clients()._replace(inputs=trial.separation * clients().inputs)
    _, seen = cfl.run(algorithm("fedavg"), key, data, num_rounds=2)
    return {"loss": seen["loss"]}


def fail(trial: Trial, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    if trial.noise > 1:
        raise RuntimeError("no such noise")
    return draw(trial, key, constants)


def milliseconds(num_clients: int, num_rounds: int) -> float:
    """Of a round of FedAvg with two local steps, a perceptron of 64 hidden units and 60
    images of 28 x 28 a client: the least of five runs, which are compiled."""
    inputs, targets = jax.random.split(jax.random.key(0))
    shape = (num_clients, 60)
    data = cfl.ClientData(
        jax.random.normal(inputs, (*shape, 28, 28)),
        jax.random.randint(targets, shape, 0, 10),
        jnp.ones(shape, bool),
    )
    task = cfl.models.mlp((28, 28), hidden=(64,))
    own = cfl.fedavg(task, step_size=0.05, num_steps=2)
    how: dict[str, Any] = {"num_rounds": num_rounds, "observe": None}
    found = []
    for seed in range(6):
        begin = time.perf_counter()
        jax.block_until_ready(cfl.run(own, jax.random.key(seed), data, **how))
        found.append(1e3 * (time.perf_counter() - begin) / num_rounds)
    return round(min(found[1:]), 3)


def messages(number: int) -> float:
    """Milliseconds that what all tell each other takes."""
    gathered(0)
    begin = time.perf_counter()
    for _ in range(number):
        gathered(0)
    return round(1e3 * (time.perf_counter() - begin) / number, 3)


def differ(what: str) -> str:
    """What is said where the processes do not compute the same."""
    index = jax.process_index()
    try:
        start("fedavg", seed=1 + index * (what == "seed"))
    except ValueError as error:
        return str(error)
    return "nothing"


def endless(index: int, how: str) -> None:
    """Rounds without end, in which one process ends or falls silent."""
    start("fedavg")
    print("begun", flush=True)
    if jax.process_index() == index:
        time.sleep(1)
        if how == "raises":
            raise RuntimeError("on purpose")
        os.kill(os.getpid(), getattr(signal, how))
    for seed in range(10**9):
        start("fedavg", seed=seed)


def begin(
    address: str,
    place: tuple[int, int],
    *calls: Sequence[Any],
    devices: int = 1,
    seconds: float = 60,
    more: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[str]:
    """A process of its own, with more in its environment."""
    told = [address, *map(str, place), str(devices), str(seconds), json.dumps(calls)]
    return subprocess.Popen(
        [sys.executable, str(pathlib.Path(__file__)), *told],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=known({**os.environ, **more}),
    )


def main() -> None:
    """Be one of them."""
    warnings.simplefilter("ignore")
    address, index, number, devices, seconds, calls = sys.argv[1:]
    cores.make_devices(int(devices))
    play = lambda: [globals()[name](*rest) for name, *rest in json.loads(calls)]
    if int(number) == 1:
        print(json.dumps(play()))
        return
    place = None if address == "auto" else (int(index), int(number))
    address = None if address == "auto" else address
    with engine.clients_over_processes(address, place, seconds=float(seconds)):
        print(json.dumps(play()), flush=True)


if __name__ == "__main__":
    main()
