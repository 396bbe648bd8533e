"""Rounds at parameters of one's own: two clusters of shares p and 1 - p."""

import jax
import numpy as np

from cfljax import law
from cfljax.statements import Margin
from theory.glossary import parameter
from theory.ifca.common.linear import Run, Setting, start

PARAMETERS = (
    parameter("m", 100),
    parameter("n", 400),
    parameter("d", 60, least=2),
    parameter("p", 0.5, least=1e-6, most=0.5, open=False),
    parameter("noise", 0.3, open=True),
    parameter("separation", 1.0, open=True),
    parameter("distance", 0.25, "distance of each model from its truth"),
    parameter("step_size", 0.75, r"step size of gradient descent, $\gamma = c_1/p$"),
)
Value = float | int  # of a parameter; counts are integers

NUMBERS = 100.0  # that a trial of one round holds at once, about


def setting(
    m: Value,
    n: Value,
    d: Value,
    p: Value,
    noise: Value,
    separation: Value,
    distance: Value,
    step_size: Value,
) -> Setting:
    """The setting of these parameters, in units of the separation."""
    return Setting(
        num_clients=float(m),
        num_samples=float(n),
        num_features=float(d),
        noise=noise / separation,
        shares=(float(p), float(1 - p)),
        step=float(step_size * p),
        alpha=0.5 - distance / separation,
    )


def simulate(
    generator: np.random.Generator, one: Setting, *, trials: int, rounds: int
) -> Run:
    """Rounds from the least favourable models at their distance, exactly in law. Any
    pair of numbers of trials and rounds compiles once."""
    truths, models = start(one)
    clients = np.rint(np.array(one.shares) * one.num_clients)
    population = law.population(
        truths,
        num_models=2,
        num_clients=clients,
        num_samples=one.num_samples,
        num_features=one.num_features,
        noise=one.noise,
    )
    trace = law.simulate(
        jax.random.key(int(generator.integers(2**31))),
        population,
        law.place(truths, models, num_features=one.num_features),
        num_trials=trials,
        num_rounds=rounds,
        step_size=one.gamma,
    )
    distances = law.distances(np.asarray(population.truths), trace.models)
    return Run(
        np.diagonal(distances, axis1=-2, axis2=-1),
        np.sum(trace.counts * (1 - np.eye(2)), axis=(-2, -1)),
    )


def start_margin(one: Setting) -> Margin:
    """Assumption 1 for the models of the round."""
    tiny = float(np.finfo(float).tiny)
    return Margin(r"ifca.asm1: $|\theta_j - \theta_j^*| < \Delta/2$", one.alpha, tiny)
