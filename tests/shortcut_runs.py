"""Runs of IFCA on linear regression twice: round by round, and by exact shortcuts."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.algorithms.ifca import State
from cfljax.base.types import ClientData
from cfljax.federated.average import Normalise
from cfljax.models import linear
from cfljax.montecarlo import Ends, prepare, run_ifca

ROUNDS, STARTS, NOISE = 60, 4, 0.3
# Shares of the largest step size at which no set of clients is unstable.
SLOW, GOOD, UNSTABLE, HOPELESS = 0.02, 0.9, 2.5, 40.0
SHARES = np.repeat((SLOW, GOOD, UNSTABLE, HOPELESS), STARTS)
STABLE = SHARES < 1
# Losses closer than this, relative to them, may change places by rounding.
NEAR = 3e-6


class Problem(NamedTuple):
    """Two regression problems, and as many runs as there are starts and step sizes."""

    inputs: np.ndarray
    targets: np.ndarray
    truths: np.ndarray
    clusters: np.ndarray
    starts: np.ndarray
    which: np.ndarray
    normalise: Normalise


def draw(clients, samples, features, models, normalise) -> Problem:
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(clients, samples, features)).astype(np.float32)
    truths = draws.normal(size=(2, models, features))
    clusters = np.arange(clients) // (clients // models)
    targets = np.einsum("csf,pcf->pcs", inputs, truths[:, clusters])
    targets = (targets + NOISE * draws.normal(size=targets.shape)).astype(np.float32)
    which = np.arange(len(SHARES)) % 2
    near = (np.arange(STARTS) < STARTS // 2)[:, None, None]  # Of them, some succeed.
    starts = draws.normal(size=(STARTS, models, features))
    starts = np.where(near, truths[which[:STARTS]] + 0.5 * starts, starts)
    starts = np.tile(starts.astype(np.float32), (len(SHARES) // STARTS, 1, 1))
    return Problem(inputs, targets, truths, clusters, starts, which, normalise)


def largest_stable(inputs: np.ndarray, normalise: str) -> float:
    """Step size below which no set S of clients is unstable.

    A model's step is `I - (gamma / divisor) (2 / n) X_S^T X_S`. With the divisor m the
    norm is largest for all clients together, with S's own size for one client alone.
    """
    clients, samples, features = inputs.shape
    every = inputs.reshape(1, -1, features) / np.sqrt(clients)
    blocks = inputs if normalise == "cluster" else every
    return samples / np.max(np.linalg.norm(blocks, 2, axis=(1, 2))) ** 2


@functools.partial(jax.jit, static_argnames="normalise")
def in_full(inputs, targets, starts, step_sizes, normalise):
    """Final models `[runs, models, features]`, and all rounds' losses.

    Losses are `[runs, rounds, clients, models]`, under the models that a round begins
    with.
    """

    def one(start, own, step_size):
        algorithm = ifca(
            linear(start.shape[1]),
            num_clusters=start.shape[0],
            step_size=step_size,
            normalise=normalise,
        )
        state, losses = engine.run(
            algorithm._replace(init=lambda key, data: State(start)),
            jax.random.key(0),
            ClientData(inputs, own, jnp.ones(own.shape, bool)),
            num_rounds=ROUNDS,
            observe=lambda state, info: info.losses,
        )
        return state.models, losses

    return jax.vmap(one)(starts, targets, step_sizes)


def in_short(problem, step_sizes, *, clusters=None, slopes=1.0, **options) -> Ends:
    """The same runs, by shortcuts."""
    samples = prepare(
        jnp.asarray(problem.inputs),
        jnp.asarray(problem.targets),
        problem.clusters if clusters is None else clusters,
    )
    samples = dataclasses.replace(samples, lipschitz=slopes * samples.lipschitz)
    settings = {"num_rounds": ROUNDS, "normalise": problem.normalise} | options
    which = problem.which[: len(step_sizes)]
    starts = problem.starts[: len(step_sizes)]
    return run_ifca(samples, starts, which, step_sizes, **settings)


class Case(NamedTuple):
    """Both, of the same runs."""

    problem: Problem
    most: float
    step_sizes: np.ndarray
    models: np.ndarray
    losses: np.ndarray
    ends: Ends


# Sizes at which sets of clients are built at once, after some rounds, and never; and
# the largest share of the products that stable runs may need.
SIZES = {
    "built": ((12, 20, 8, 4, "all"), 1 / 3),
    "later": ((24, 30, 40, 3, "cluster"), 1 / 3),
    "never": ((12, 10, 60, 2, "participants"), 2 / 3),
}


@functools.cache
def make(name: str) -> Case:
    sizes, most = SIZES[name]
    problem = draw(*sizes)
    steps = SHARES * largest_stable(problem.inputs, problem.normalise)
    steps = steps.astype(np.float32)
    models, losses = full_runs(problem, steps)
    return Case(problem, most, steps, models, losses, in_short(problem, steps))


def full_runs(problem: Problem, step_sizes: np.ndarray) -> tuple[np.ndarray, ...]:
    """`in_full` of a problem's runs, one for each step size."""
    targets = problem.targets[problem.which]
    every = in_full(
        problem.inputs, targets, problem.starts, step_sizes, problem.normalise
    )
    return tuple(map(np.asarray, every))


def assignments(losses):
    """Of losses `[..., clients, models]`; -1 where none is finite."""
    finite = np.isfinite(losses)
    best = np.argmin(np.where(finite, losses, np.inf), axis=-1)
    return np.where(finite.any(axis=-1), best, -1)


def clear(losses: np.ndarray) -> np.ndarray:
    """Runs in which no client was ever as good as undecided, `[runs]`."""
    best, other = np.moveaxis(np.sort(losses, axis=3)[..., :2], 3, 0)
    return np.all((best < (1 - NEAR) * other) | ~np.isfinite(other), axis=(1, 2))


def furthest(models: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Largest difference of each run, relative to its largest coordinate."""
    scale = np.max(np.abs(models), axis=(1, 2))
    return np.max(np.abs(models - others), axis=(1, 2)) / scale
