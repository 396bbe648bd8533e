"""Speed of the exact-law engine at sizes that no data set has.

Command:   python -m experiments bench law
Targets:   two models, 1e9 clients, n' = 1e3, d = 1e8, 10,000 trials x 30 rounds: 10 s;
           eight models, 1e5 clients, d = 1e6, 20 trials x 30 rounds: 60 s; two cores,
           after compilation

As a reference the same algorithm on raw data, in NumPy, beside the law at a size where
data can be drawn at all: m = 40, n' = 50, d = 200.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from cfljax import law
from experiments.bench.timing import one_table, timed
from experiments.checks import configuration
from experiments.options import Options

BENCHMARKS = {
    "law": {"title": "the exact-law engine at 1e9 clients, and beside raw data"},
}


@configuration
class Config:
    """How often; the sizes are the targets' own."""

    repeats: int = 5  # Times that everything is timed; medians are reported.
    num_rounds: int = 30  # T.
    num_trials: int = 10_000  # Trials with two models.
    num_trials_of_eight: int = 20  # Trials with eight models.
    num_trials_on_data: int = 20  # Trials of the reference, on raw data.


def preset(name: str) -> Config:
    """Both presets are the targets."""
    return Config()


@dataclasses.dataclass(frozen=True)
class Size:
    """A balanced population whose starts are halfway into each other's clusters."""

    num_models: int
    num_clients: int
    num_samples: int
    num_features: int

    def start(self) -> tuple[law.Population, np.ndarray]:
        """Truths at distance 1, every model .45 from its own in a direction apart."""
        k = self.num_models
        truths = np.eye(k, 2 * k) / np.sqrt(2)
        models = truths + 0.45 * np.eye(k, 2 * k, k)
        population = law.population(
            truths,
            num_models=k,
            num_clients=np.full(k, self.num_clients // k),
            num_samples=self.num_samples,
            num_features=self.num_features,
            noise=1.0,
        )
        return population, law.place(truths, models, num_features=self.num_features)


TWO = Size(2, 10**9, 1000, 10**8)
EIGHT = Size(8, 10**5, 1000, 10**6)
SMALL = Size(2, 40, 50, 200)


def by_law(size: Size, *, num_trials: int, num_rounds: int) -> Callable[[], Any]:
    """Trials of the resampled IFCA, step size 1 / (2 p)."""
    population, start = size.start()
    return lambda: law.simulate(
        jax.random.key(0),
        population,
        start,
        num_trials=num_trials,
        num_rounds=num_rounds,
        step_size=size.num_models / 2,
    )


def _on_data(size: Size, *, num_trials: int, num_rounds: int) -> Callable[[], Any]:
    """The same, sample by sample."""
    k, d = size.num_models, size.num_features
    truths = np.eye(k, d) / np.sqrt(2)
    starts = truths + 0.45 * np.eye(k, d, k)
    clusters = np.repeat(np.arange(k), size.num_clients // k)
    shape = (len(clusters), size.num_samples, d)

    def job() -> np.ndarray:
        generator = np.random.default_rng(0)
        last = np.empty((num_trials, k, d))

        def fold(models: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            inputs = generator.standard_normal(shape)
            noise = generator.standard_normal(shape[:2])
            labels = np.einsum("cnd,cd->cn", inputs, truths[clusters]) + noise
            return inputs, inputs @ models.T - labels[..., None]

        for trial in range(num_trials):
            models = starts
            for _ in range(num_rounds):
                _, residuals = fold(models)
                choice = np.argmin(np.sum(residuals**2, axis=1), axis=1)
                chosen = choice[:, None] == np.arange(k)
                inputs, residuals = fold(models)
                pull = np.einsum("cnd,cnk->kd", inputs, residuals * chosen[:, None])
                models = models - k / (len(clusters) * size.num_samples) * pull
            last[trial] = models
        return last

    return job


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time everything in turn; seconds, and microseconds per trial and round."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    rounds = config.num_rounds
    two, eight = config.num_trials, config.num_trials_of_eight
    on_data = config.num_trials_on_data
    cases = {
        "law, two models, m = 1e9, n' = 1e3, d = 1e8": (by_law, TWO, two),
        "law, eight models, m = 1e5, n' = 1e3, d = 1e6": (by_law, EIGHT, eight),
        "law, two models, m = 40, n' = 50, d = 200": (by_law, SMALL, two),
        "data, two models, m = 40, n' = 50, d = 200": (_on_data, SMALL, on_data),
    }
    jobs, table = {}, []
    for name, (make, size, trials) in cases.items():
        jobs[name] = make(size, num_trials=trials, num_rounds=rounds)
        table.append({"what": name, "trials": trials})
    for row in table:
        started = time.perf_counter()
        jobs[row["what"]]()
        row["first call, s"] = time.perf_counter() - started
    times = timed(jobs, repeats=config.repeats, is_warm=True)
    for row in table:
        row["seconds"] = times[row["what"]].median
        row["µs per trial and round"] = 1e6 * row["seconds"] / row["trials"] / rounds
    for row in table:
        here = row["µs per trial and round"]
        row["data's time / this"] = table[-1]["µs per trial and round"] / here
    settings = (
        f"{rounds} rounds, medians of {config.repeats}, {jax.devices()[0].device_kind}"
    )
    return one_table("law", settings, table, options)
