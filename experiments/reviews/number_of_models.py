"""What if the number of models is not that of the clusters?

Reviewers: the approach requires the right number of clusters a priori; how does the
           clustering behave if the set number deviates from the true one?
Command:   python -m experiments run reviews.k --preset paper
Quick:     the same with --preset quick: fewer runs
Measured:  paper, 1.9 minutes of one core of an AMD EPYC: both costs are as predicted,
           but models that are empty near a truth do revive, 1,069 of 1,531
Predicted: too many models split clusters: no bias, and as every split is trained on
           its share of the rows, a client's mean square error is the oracle's times
           the number of models that serve its cluster. Too few models merge clusters:
           models tend to weighted means, Delta/2 from both of a balanced pair. With
           gradient averaging (option I) an empty model never moves, so never revives.
Rules:     ratios to what the splits predict are 1 +- 0.05 in all cases; the worst error
           with too few models is at least Delta/2 - 5 %; extra models are empty in at
           least 95 % of the runs (the paper's "remaining clusters are empty"); at most
           5 % of the models that are once empty have clients later, those that start
           near a truth and random ones judged apart. Exact intervals
           decide. The number of models with the lowest held-out loss is reported.
Differs:   fresh data, drawn exactly in law. First models are near different truths;
           extra ones near any truth, or random and as long as the truths.
"""

import dataclasses
import math
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from cfljax import law, report
from experiments.checks import configuration
from experiments.reviews import exact_law, study

EXPERIMENTS = {
    "reviews.k": {"title": "what if the number of models is not that of the clusters?"}
}
NEAR, RANDOM = "near a truth", "random"  # Where models beyond the truths start.
LAST = 10  # Rounds at the end over which errors are averaged.
SETTLED = 5  # Rounds after which a model without clients is followed.
MARGIN = 0.05  # Of a ratio that is predicted to be 1.
MOST_REVIVED = 0.05  # Of the models that are once without a client.
RULES = {
    "lowest": "held-out loss of a client's best model",
    "chosen": "held-out loss of the model chosen on other samples",
}


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    num_models: tuple[int, ...]  # Numbers of models to try, in rising order.
    num_trials: int  # Runs of each cell.
    num_clusters: int = 4  # k of the truth, of equal sizes.
    num_clients: int = 200  # m, a multiple of `num_clusters`.
    num_features: int = 30  # d, at least the number of clusters.
    num_samples: int = 50  # n', fresh samples of a client for each use.
    num_held_out: int = 50
    """Samples of a client by which the number of models is selected, twice."""
    noise: float = 0.25  # Sigma.
    separation: float = 1.0  # Delta, distance between any two truths.
    radius: float = 0.2
    """Distance of a first model from the truth that it starts near, of Delta."""
    num_rounds: int = 30  # T.
    step_size: float = 0.5  # Gamma, with gradients averaged over a model's clients.
    seed: int = 0  # Of all runs.
    error_rate: float = 0.05  # Of all intervals together.

    def __post_init__(self) -> None:
        study.check(
            self,
            different=("num_models",),
            at_least={
                0: ("noise",),
                1: ("num_models", "num_samples", "num_held_out"),
                2: ("num_trials", "num_clusters"),
                LAST + SETTLED: ("num_rounds",),
            },
        )
        if self.num_clusters not in self.num_models:
            raise ValueError(
                f"`num_models` must hold `num_clusters` = {self.num_clusters}, got "
                f"{self.num_models}."
            )
        if tuple(sorted(self.num_models)) != self.num_models:
            raise ValueError(f"`num_models` must rise, got {self.num_models}.")
        if self.num_clients % self.num_clusters:
            raise ValueError(
                "`num_clients` must be a multiple of `num_clusters`, got "
                f"{self.num_clients} and {self.num_clusters}."
            )
        if self.num_features < self.num_clusters:
            raise ValueError(
                f"`num_features` must be at least `num_clusters`, got "
                f"{self.num_features} and {self.num_clusters}."
            )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(num_models=(2, 3, 4, 5, 6, 8), num_trials=100)
    return Config(num_models=(1, 2, 3, 4, 5, 6, 7, 8, 12), num_trials=400)


def cells(config: Config) -> list[study.Row]:
    """Numbers of models, and where those beyond the truths start."""
    above = [number for number in config.num_models if number > config.num_clusters]
    same = {"config": dataclasses.asdict(config)}
    near = study.grid(same | {"extra": NEAR}, models=config.num_models)
    return near + study.grid(same | {"extra": RANDOM}, models=above)


def _truths(config: Config) -> Float[np.ndarray, "clusters clusters"]:
    return exact_law.truths(config.num_clusters, separation=config.separation)


def oracle(config: Config) -> float:
    """Root-mean-square error of IFCA's floor with known clusters."""
    rows = config.num_clients * config.num_samples / config.num_clusters
    step = 2 * config.step_size
    return float(law.stationary_floor(rows, config.num_features, config.noise, step))


def compute(cell: study.Cell) -> study.Arrays:
    """Runs with one number of models; what is kept has one entry per trial."""
    config, extra = Config(**cell["config"]), cell["extra"]
    width, number = max(config.num_models), cell["models"]
    population = exact_law.population(
        vars(config), config.num_clusters, num_models=width
    )
    indices = (config.seed, 0, number, extra == RANDOM)
    starts = _starts(config, number, extra, study.generator(*indices))
    models = law.place(_truths(config), starts, num_features=config.num_features)
    # All numbers of models share a compilation: what is not finite is never chosen.
    models[:, number:] = np.nan
    key, options = study.key(*indices, 1), vars(config)
    trace = exact_law.run(key, population, models, options, divisor="cluster")
    outcome = _outcome(config, population, trace)
    return outcome | _use(trace.counts[..., :number]) | {"last": trace.models[:, -1]}


def _starts(
    config: Config, number: int, extra: str, random: np.random.Generator
) -> Float[np.ndarray, "trials models features"]:
    """Models near different truths first, then near any truth or anywhere."""
    width, clusters = max(config.num_models), config.num_clusters
    shape = (config.num_trials, width, config.num_features)
    length = config.separation / math.sqrt(2)
    truths = length * np.eye(clusters, config.num_features)
    homes = random.integers(clusters, size=shape[:2])
    homes[:, : min(number, clusters)] = np.arange(min(number, clusters))
    away = random.standard_normal(shape)
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    near = truths[homes] + config.radius * config.separation * away
    if extra == RANDOM:
        scale = length / math.sqrt(config.num_features)
        near[:, clusters:] = scale * random.standard_normal(shape)[:, clusters:]
    return near


def _outcome(
    config: Config, population: law.Population, trace: law.Trace
) -> dict[str, np.ndarray]:
    """Over the last rounds: mean over clients of the squared distance to the model they
    chose, after its step, and what was to be expected of it exactly; the largest
    distance; mean over clients of the number of models that serve its cluster."""
    counts = trace.counts[:, -LAST:]
    after, before = trace.models[:, -LAST:], trace.models[:, -LAST - 1 : -1]
    truths, chosen = population.truths, counts > 0
    distances = np.where(chosen, np.nan_to_num(law.distances(truths, after)), 0.0)
    expected = np.zeros(counts.shape)
    for place in np.ndindex(counts.shape[:2]):
        expected[place] = law.expected_square_error(
            truths,
            np.nan_to_num(before[place]),
            counts[place],
            num_samples=config.num_samples,
            num_features=config.num_features,
            noise=config.noise,
            step_size=config.step_size,
            total=np.maximum(counts[place].sum(axis=0), 1.0),
        )
    weights = counts / config.num_clients
    share = counts.sum(axis=-1) / config.num_clients
    return {
        "square": np.sum(weights * distances**2, axis=(2, 3)).mean(axis=1),
        "expected": np.sum(weights * expected, axis=(2, 3)).mean(axis=1),
        "worst": distances.max(axis=(2, 3)).mean(axis=1),
        "splits": np.sum(share * chosen.sum(axis=-1), axis=-1).mean(axis=1),
    }


def _use(
    counts: Float[np.ndarray, "trials rounds clusters models"],
) -> dict[str, np.ndarray]:
    """Models with a client in the last rounds, those without one in some round after
    the first few, and those of them that had one later."""
    active = counts.sum(axis=2)[:, SETTLED:] > 0  # [trials, rounds, models]
    waiting = np.logical_or.accumulate(~active, axis=1)
    return {
        "used": active[:, -LAST:].any(axis=1).sum(axis=1),
        "waited": waiting[:, -1].sum(axis=1),
        "revived": np.any(waiting[:, :-1] & active[:, 1:], axis=1).sum(axis=1),
    }


# Which number of models a held-out loss selects.


def select(
    config: Config, results: study.Results
) -> dict[str, Float[np.ndarray, "trials models"]]:
    """Mean held-out loss of every trial and number of models, exact in law, by two
    rules: "lowest" of the held-out samples, or of the model "chosen" by others. In
    common they have the label noise and the inputs along the truths; elsewhere inputs
    are drawn apart. `results` are those of the cells near a truth.
    """
    clients, samples = config.num_clients, config.num_held_out
    homes = np.repeat(_truths(config), clients // config.num_clusters, axis=0)
    losses = {rule: np.zeros((config.num_trials, len(results))) for rule in RULES}
    for trial in range(config.num_trials):
        random = study.generator(config.seed, 1, trial)
        folds = [
            (
                random.standard_normal((clients, samples, config.num_clusters)),
                config.noise * random.standard_normal((clients, samples)),
            )
            for _ in range(2)
        ]
        for index, arrays in enumerate(results):
            models = arrays["last"][trial]
            models = models[np.all(np.isfinite(models), axis=-1)]
            own, other = (_losses(homes, models, *fold, random) for fold in folds)
            picked = np.argmin(other, axis=1)[:, None]
            losses["lowest"][trial, index] = own.min(axis=1).mean()
            losses["chosen"][trial, index] = np.take_along_axis(own, picked, 1).mean()
    return losses


def _losses(
    homes: Float[np.ndarray, "clients clusters"],
    models: Float[np.ndarray, "models frame"],
    inputs: Float[np.ndarray, "clients samples clusters"],
    noise: Float[np.ndarray, "clients samples"],
    random: np.random.Generator,
) -> Float[np.ndarray, "clients models"]:
    """Mean squared residuals; inputs beyond the truths' span are drawn here."""
    clusters = homes.shape[1]
    along = homes[:, None] - models[None, :, :clusters]
    outside = random.standard_normal((*noise.shape, models.shape[1] - clusters))
    residuals = np.einsum("isc,ijc->isj", inputs, along) + noise[..., None]
    residuals -= outside @ models[:, clusters:].T
    return np.mean(residuals**2, axis=1)


def _joint(config: Config) -> study.Intervals:
    """All intervals: seven for each cell, two more for each number of models."""
    return study.jointly(config, 7 * len(cells(config)) + 2 * len(config.num_models))


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for each cell, with how often its number of models was selected."""
    joint, floor = _joint(config), oracle(config)
    table: list[study.Row] = []
    for cell, own in zip(cells, results, strict=True):
        number, splits = cell["models"], float(own["splits"].mean())
        law_of_splits = float(floor * np.sqrt(splits))
        error = joint.mean(own["square"]).root()
        row = {"models": number, "extra": cell["extra"], "trials": config.num_trials}
        row |= study.columns(error=error, worst=joint.mean(own["worst"]))
        row |= {"error_expected": float(np.sqrt(own["expected"].mean()))}
        row |= {"oracle": floor, "splits": splits, "error_of_splits": law_of_splits}
        row |= {"bias_bound": merged(config, number), "used": float(own["used"].mean())}
        row |= {name: int(own[name].sum()) for name in ("waited", "revived")}
        row |= study.columns(
            square_ratio=joint.ratio(own["square"], own["expected"]),
            all_used=joint.share(own["used"] == number),
            spare_empty=joint.share(own["used"] == config.num_clusters),
            splits_ratio=error.over(law_of_splits),
        )
        table.append(row)
    near = len(config.num_models)
    for rule, losses in select(config, results[:near]).items():
        best = np.argmin(losses, axis=1)
        for index, row in enumerate(table[:near]):
            row |= study.columns(**{f"selected_{rule}": joint.share(best == index)})
    return table


def merged(config: Config, models: int) -> float:
    """Least root-mean-square bias of fewer models than clusters, 0 otherwise: over the
    clients Delta^2 (k - models) / (2k), however equidistant truths are merged.
    """
    missing = max(0, config.num_clusters - models)
    return config.separation * math.sqrt(missing / (2 * config.num_clusters))


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The rules of the header, from the rows alone."""
    few = [row for row in table if row["models"] < config.num_clusters]
    enough = [row for row in table if row["models"] >= config.num_clusters]
    near = study.at(table, extra=NEAR)
    spare = [row for row in near if row["models"] > config.num_clusters]
    half = config.separation / 2

    def stay_empty(extra: str) -> study.Verdict:
        own = study.at(table, extra=extra)
        waited = sum(row["waited"] for row in own)
        if not waited:
            return "undecided"
        revived = _joint(config).chance(sum(row["revived"] for row in own), waited)
        return revived.within(0.0, MOST_REVIVED)

    return {
        "too many models cost the root of the splits": study.within(
            enough, "splits_ratio", 1 - MARGIN, 1 + MARGIN
        ),
        "too few models cost half a separation somewhere": study.within(
            few, "worst", half * (1 - MARGIN), math.inf
        ),
        "extra models near a truth are empty": study.within(
            spare, "spare_empty", 1 - MARGIN, 1.0
        ),
        "empty models near a truth never revive": stay_empty(NEAR),
        "random empty models never revive": stay_empty(RANDOM),
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """What too many and too few models cost, and what becomes of the extra ones."""
    splits, halves, empty, *revive = decisions.values()
    own, far = (study.at(table, extra=extra) for extra in (NEAR, RANDOM))
    (true,) = study.at(own, models=config.num_clusters)
    few = [row for row in own if row["models"] < config.num_clusters]
    above = [row for row in own if row["models"] > config.num_clusters]

    def with_models(rows: study.Rows, name: str) -> str:
        found = [f"{study.read(row, name)} with {row['models']}" for row in rows]
        return f"{study.listed(found)} models" if found else "not measured"

    first = study.told(
        splits,
        yes="Too many models split clusters, which costs the root of the number of "
        "models that serve a client's cluster and no more",
        no="Too many models do not cost the root of the number of models that serve a "
        "client's cluster, as was predicted",
        undecided="Whether too many models cost the root of the number of models that "
        "serve a client's cluster cannot be told",
    )
    second = study.told(
        halves,
        yes="too few merge clusters, which costs half the distance of the true models "
        "somewhere",
        no="too few do not cost half the distance of the true models, as was predicted",
        undecided="whether too few cost half the distance of the true models cannot be "
        "told",
    )
    third = study.told(
        empty,
        yes="As the paper says of FEMNIST, extra models that start near a true one end "
        "without clients",
        no="Unlike what the paper says of FEMNIST, extra models that start near a true "
        "one do not end without clients but split clusters",
        undecided="Whether extra models that start near a true one end without "
        "clients, as the paper says of FEMNIST, cannot be told",
    )
    returns = []
    places = ("there", "at random")
    for found, rows, place in zip(revive, (own, far), places, strict=True):
        again, once = (sum(row[n] for row in rows) for n in ("revived", "waited"))
        does = study.told(
            found,
            yes="never or hardly ever",
            no="again, against the prediction,",
            undecided="perhaps",
        )
        returns.append(f"{does} if started {place} ({again} of {once})")
    return (
        f"{first}; {second}. With {config.num_clusters} true clusters at distance "
        f"{config.separation:g}, a client's error is "
        f"{with_models([*few[-1:], true, *above[-1:]], 'error')}, and the largest one "
        f"{with_models(few[-1:], 'worst')}. {third} (all are in use with "
        f"chance {with_models(above[-1:], 'all_used')}, or, if they start at random, "
        f"{with_models(far[-1:], 'all_used')}), and a model that has lost its clients "
        f"has some {study.listed(returns)}. The least held-out loss selects the true "
        f"number with chance {study.read(true, 'selected_lowest')}, and with "
        f"{study.read(true, 'selected_chosen')} if models are chosen on other samples; "
        "all this is linear regression with fresh data in every round and first models "
        "near different truths, it says nothing of other starts, and "
        f"{study.legend(config.error_rate)}."
    )


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Errors, models in use and selection against the number of models."""
    extras = dict.fromkeys(row["extra"] for row in table)
    labels = {extra: f"extra models {extra}" for extra in extras}
    own, near = study.at(table, extra=NEAR), labels[NEAR]
    errors = study.curves(table, "extra", labels, "models", "error")
    used = []
    for extra, arm in labels.items():
        part = study.at(table, extra=extra)
        counts = study.column(part, "models")
        bound = [math.hypot(r["error_of_splits"], r["bias_bound"]) for r in part]
        errors.append(report.Curve(study.PREDICTED, counts, np.array(bound), like=arm))
        used.append(report.Curve(arm, counts, study.column(part, "used")))
    used.append(study.predicted(own, near, "models", "models", "all of them"))
    selected = [
        study.curve(own, f"least {text}", "models", f"selected_{rule}")
        for rule, text in RULES.items()
    ]
    free: dict[str, Any] = {"y_limits": None, "aside": False}
    level = {"levels": [report.Level("oracle", oracle(config), near)]}
    figure = report.curves(
        [
            study.panel(
                errors, "models", "error of a client |θ - θ*|", "", "y", **level, **free
            ),
            study.panel(used, "models", "models in use at the end", **free),
            study.panel(selected, "models", "share of trials that select it"),
        ],
        title=f"A wrong number of models: k = {config.num_clusters}, "
        f"m = {config.num_clients}, d = {config.num_features}, "
        f"n' = {config.num_samples}, σ = {config.noise:g}",
        legend_title=study.legend(config.error_rate),
    )
    return {"number_of_models": figure}


STUDY = study.Study("reviews.k", 1, cells, compute, rows, decide, answer, figures)
main = STUDY.main
