"""Can there be too many clusters?

Reviewers: could there be a practical case with too many clusters, given that the
           experiments cover 2 to 4? A large k leads to a small p, so the algorithm
           would not scale well with k.
Command:   python -m experiments run reviews.largek --preset paper
Quick:     the same with --preset quick: random starts up to k = 8 only
Measured:  paper, 7 minutes of one core of an AMD EPYC: both rules hold; the slope is
           .509 [.509, .510], and 5 of 12,000 runs differ from the Voronoi condition
Predicted: at a fixed number of samples m n' the floor is that of least squares on
           N = m n' / k rows, near sigma sqrt(k d / (m n')): slope +1/2 in k, where the
           paper's bound (sigma / p) sqrt(d / (m n')) has slope 1. From a random start
           and with many samples a run succeeds iff the start is Voronoi-separating:
           every truth has another nearest model. The chance of that is k!/k^k for
           short random starts, near exp(-k): slope -1 of its logarithm for large k.
Rules:     the floor grows as the root of k iff its slope is 1/2 +- 0.05. Success with
           many samples is the Voronoi condition iff the two differ in at most 5 % of
           all runs (exact interval); McNemar's test is shown too.
Differs:   equidistant truths, normal starts as long as the truths. Two divisors of a
           model's summed gradients: its members, and all m clients as printed.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from cfljax import law, report
from cfljax.law import Divisor
from experiments.checks import configuration
from experiments.reviews import exact_law, study

EXPERIMENTS = {"reviews.largek": {"title": "can there be too many clusters?"}}

# A model's summed gradients are divided by its members, or by all m as printed.
ARMS: Mapping[str, Divisor] = {
    "averaged over members": "cluster",
    "divided by all clients": "all",
}
BATCH = 20  # Runs of one compiled call, so that memory has a bound.
MARGIN_OF_SLOPE = 0.05
MOST_DIFFERENT = 0.05  # Of all runs, between success and the Voronoi condition.


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    num_clusters: tuple[int, ...]  # k of the floors, each a divisor of `num_clients`.
    random_clusters: tuple[int, ...]
    """k of the random starts averaged over members, each a divisor of m."""
    printed_clusters: tuple[int, ...]
    """k of the random starts divided by all clients, each a divisor of m."""
    separated_clusters: tuple[int, ...]
    """k of the chance of a Voronoi-separating start."""
    num_trials: int  # Runs of each cell with `num_samples`.
    many_trials: int  # Runs of each cell with `many_samples`.
    num_starts: int  # Random starts for that chance.
    num_clients: int = 640  # m.
    num_features: int = 64  # d, at least the number of clusters.
    num_samples: int = 60  # n', fresh samples of a client for each use.
    many_samples: int = 100_000_000  # n' that stands for infinitely many.
    noise: float = 0.1  # Sigma.
    separation: float = 1.0  # Delta, distance between any two truths.
    num_rounds: int = 25  # T of each run; a floor is measured over the second half.
    step_size: float = 0.25  # Gamma of random starts, averaged over members.
    printed_step_size: float = 0.5  # Gamma of random starts, divided by all clients.
    seed: int = 0  # Of all runs.
    error_rate: float = 0.05  # Of all intervals together.

    def __post_init__(self) -> None:
        divisors = ("num_clusters", "random_clusters", "printed_clusters")
        names = (*divisors, "separated_clusters")
        study.check(
            self,
            several=("num_clusters", "separated_clusters"),
            different=("random_clusters", "printed_clusters"),
            at_least={
                0: ("noise",),
                1: ("num_samples", "many_samples", "num_starts"),
                2: (*names, "num_trials", "many_trials", "num_rounds"),
            },
        )
        for name in divisors:
            if any(self.num_clients % k for k in getattr(self, name)):
                raise ValueError(
                    f"`{name}` must divide `num_clients`, got {getattr(self, name)} "
                    f"and {self.num_clients}."
                )
        most = max(max(getattr(self, name)) for name in names)
        if self.num_features < most:
            raise ValueError(
                f"`num_features` must be at least the {most} clusters, got "
                f"{self.num_features}."
            )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            num_clusters=(2, 4, 8, 16, 32),
            random_clusters=(2, 4, 8),
            printed_clusters=(2, 4),
            separated_clusters=(2, 3, 4, 5, 6, 7, 8),
            num_trials=40,
            many_trials=60,
            num_starts=200_000,
        )
    return Config(
        num_clusters=(2, 4, 8, 16, 32, 64),
        random_clusters=(2, 3, 4, 6, 8, 12, 16),
        printed_clusters=(2, 3, 4, 6, 8),
        separated_clusters=(2, 3, 4, 5, 6, 7, 8, 9, 10),
        num_trials=200,
        many_trials=1000,
        num_starts=10_000_000,
        num_clients=1920,
        num_features=128,
    )


# Predictions.


def _predicted_floor(config: Config, clusters: int) -> float:
    """sigma sqrt(d / (N - d - 1)), N = m n' / k: what rounds of full steps keep."""
    rows = config.num_clients * config.num_samples / clusters
    return float(law.stationary_floor(rows, config.num_features, config.noise, 1.0))


def _paper_floor(config: Config, clusters: int) -> float:
    """(sigma / p) sqrt(d / (m n')), Theorem 1's noise term without its constant."""
    rows = config.num_clients * config.num_samples
    return clusters * config.noise * math.sqrt(config.num_features / rows)


def short_start_chance(clusters: int) -> float:
    """k!/k^k: k equidistant truths choose among k short random models at random."""
    return math.factorial(clusters) / clusters**clusters


def restarts(chance: float) -> float:
    """Random starts after which one has succeeded with probability 0.95."""
    if not 0 < chance < 1:
        return 1.0 if chance >= 1 else math.inf
    return float(math.ceil(math.log(0.05) / math.log1p(-chance)))


def cells(config: Config) -> list[study.Row]:
    """Floors, chances of separating starts, and runs from random starts."""
    same = {"config": dataclasses.asdict(config)}
    averaged, divided = (same | {"kind": "runs", "arm": arm} for arm in ARMS)
    return [
        *study.grid(same | {"kind": "floor"}, clusters=config.num_clusters),
        *study.grid(same | {"kind": "chance"}, clusters=config.separated_clusters),
        *study.grid(averaged, clusters=config.random_clusters),
        *study.grid(divided, clusters=config.printed_clusters),
    ]


def compute(cell: study.Cell) -> study.Arrays:
    """One cell of any kind."""
    config, clusters = Config(**cell["config"]), cell["clusters"]
    if cell["kind"] == "runs":
        return _runs(config, clusters, cell["arm"])
    return (_floor if cell["kind"] == "floor" else _chance)(config, clusters)


def _floor(config: Config, clusters: int) -> study.Arrays:
    """Mean square error of each trial, started at the truth with full steps; and of how
    many choices an error is expected, so that the true assignment may be IFCA's."""
    # All k share the largest one's compilation; its other clusters have no clients.
    width = max(config.num_clusters)
    members = np.where(np.arange(width) < clusters, config.num_clients // clusters, 0)
    population = exact_law.population(vars(config), width, members=members)
    square = []
    for first in range(0, config.num_trials, BATCH):
        late = exact_law.run(
            study.key(config.seed, 0, clusters, first),
            population,
            population.truths,
            vars(config),
            num_trials=BATCH,
            step_size=0.5,
            divisor="cluster",
            fixed_counts=np.diag(population.num_clients),
        ).models[:, 1 + config.num_rounds // 2 :, :clusters]
        errors = np.sum((late - population.truths[:clusters]) ** 2, axis=-1)
        square.append(errors.mean(axis=(1, 2)))
    kappa = config.separation / (2 * config.noise) if config.noise else math.inf
    wrong = law.misassignment_probability(kappa, config.num_samples)
    draws = config.num_trials * config.num_rounds * config.num_clients * (clusters - 1)
    kept = np.concatenate(square)[: config.num_trials]
    return {"square": kept, "wrong": np.asarray(wrong * draws)}


def _chance(config: Config, clusters: int) -> study.Arrays:
    """How many of many random starts are Voronoi-separating, also if infinitely short:
    distances then need a model's coordinates along the truths, not its length."""
    length = config.separation / math.sqrt(2)
    found = short = 0
    for along, rest in exact_law.random_starts(
        study.generator(config.seed, 1, clusters),
        config.num_starts,
        num_clusters=clusters,
        num_features=config.num_features,
        separation=config.separation,
    ):
        square = np.sum(along**2, axis=-1) + rest  # [starts, models]
        # Squared distances without the truths' own length: [starts, clusters, models].
        products = -2 * length * np.swapaxes(along, 1, 2)
        found += int(np.sum(exact_law.separating(square[:, None] + products)))
        short += int(np.sum(exact_law.separating(products)))
    return {"chance": np.asarray(found), "short": np.asarray(short)}


def _runs(config: Config, clusters: int, arm: str) -> study.Arrays:
    """Whether starts separate, and whether their runs succeed, at both n'."""
    trials = {"few": config.num_trials, "many": config.many_trials}
    models = exact_law.random_models(
        study.key(config.seed, 2, clusters),
        exact_law.population(vars(config), clusters),
        BATCH * -(-max(trials.values()) // BATCH),
        separation=config.separation,
    )
    printed = ARMS[arm] == "all"
    # As printed the error's factor is 1 - 2 gamma / k.
    longer = max(1, clusters // 8) if printed else 1
    outcomes: dict[str, np.ndarray] = {}
    for name, number in trials.items():
        samples = config.num_samples if name == "few" else config.many_samples
        population = exact_law.population(vars(config), clusters, num_samples=samples)
        success = []
        for first in range(0, number, BATCH):  # One size, and so one compilation.
            trace = law.simulate(
                study.key(config.seed, 3, clusters, first, samples),
                population,
                models[first : first + BATCH],
                num_trials=BATCH,
                num_rounds=config.num_rounds * longer,
                step_size=config.printed_step_size if printed else config.step_size,
                divisor=ARMS[arm],
            )
            success.append(exact_law.succeeded(population, trace, config.separation))
        distances = law.distances(population.truths, models[:number])
        outcomes[name] = np.concatenate(success)[:number]
        outcomes[f"{name}_separating"] = exact_law.separating(distances)
    return outcomes


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for each cell, then the runs in which success and the start's separation
    differ, and the slopes."""
    checks = len(config.num_clusters) + 2 * len(config.separated_clusters) + 2
    runs = len(config.random_clusters) + len(config.printed_clusters)
    joint = study.jointly(config, checks + 3 * runs)
    make = {"floor": _floor_row, "chance": _chance_row, "runs": _runs_row}
    table: list[study.Row] = []
    for cell, arrays in zip(cells, results, strict=True):
        own = {k: cell[k] for k in ("kind", "clusters", "arm") if k in cell}
        table.append(own | make[cell["kind"]](config, cell["clusters"], arrays, joint))
    own, names = study.at(table, kind="runs"), ("gained", "lost", "trials")
    gained, lost, trials = (sum(row[name] for row in own) for name in names)
    closing = {"kind": "all runs", "gained": gained, "lost": lost, "trials": trials}
    different = joint.chance(gained + lost, trials)
    closing |= study.columns(different=different) | {"mcnemar": mcnemar(gained, lost)}
    slopes = [_chance_slope(table, name) for name in ("chance", "short")]
    return [*table, closing, _floor_slope(config, results, joint), *slopes]


def _floor_row(
    config: Config, clusters: int, arrays: study.Arrays, joint: study.Intervals
) -> study.Row:
    row = study.columns(floor=joint.mean(arrays["square"]).root())
    row |= {"floor_predicted": _predicted_floor(config, clusters)}
    row |= {"floor_paper": _paper_floor(config, clusters)}
    return row | {"wrong_choices_at_most": float(arrays["wrong"])}


def _chance_row(
    config: Config, clusters: int, arrays: study.Arrays, joint: study.Intervals
) -> study.Row:
    """Of starts as long as the truths, and of infinitely short ones."""
    expected = short_start_chance(clusters)
    chance, short = (
        joint.chance(int(arrays[name]), config.num_starts)
        for name in ("chance", "short")
    )
    row = study.columns(chance=chance, short=short) | {"short_predicted": expected}
    row |= {"restarts": restarts(chance.value)}
    return row | {"short_restarts_predicted": restarts(expected)}


def _runs_row(
    config: Config, clusters: int, arrays: study.Arrays, joint: study.Intervals
) -> study.Row:
    start, many = arrays["many_separating"], arrays["many"]
    gained, lost = int(np.sum(many & ~start)), int(np.sum(start & ~many))
    shares = study.columns(
        separating=joint.share(start),
        few=joint.share(arrays["few"]),
        many=joint.share(many),
    )
    counts = {"gained": gained, "lost": lost, "mcnemar": mcnemar(gained, lost)}
    return shares | {"trials": start.size} | counts


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p-value: both kinds of difference are equally likely."""
    total = gained + lost
    tail = sum(math.comb(total, i) for i in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / 2**total)


def _floor_slope(
    config: Config, results: study.Results, joint: study.Intervals
) -> study.Row:
    """Slope of log floor against log k, over the trials."""
    counts = np.log(np.array(config.num_clusters, float))
    squares = [arrays["square"] for arrays in results[: len(counts)]]
    logs = np.log(np.stack(squares, axis=1)) / 2
    expected = [math.log(_predicted_floor(config, k)) for k in config.num_clusters]
    row = {"kind": "slope of log floor in log k"}
    row |= study.columns(slope=joint.slope(counts, logs))
    return row | {"slope_predicted": float(np.polyfit(counts, expected, 1)[0])}


def _chance_slope(table: study.Rows, name: str) -> study.Row:
    """Slope of a chance's logarithm against k, where a start was found, with the ends
    that the chances' joint intervals allow."""
    own = [row for row in study.at(table, kind="chance") if row[name] > 0]
    counts = study.column(own, "clusters")
    weights = (counts - counts.mean()) / np.sum((counts - counts.mean()) ** 2)
    names = (name, f"{name}_low", f"{name}_high", "short_predicted")
    logs, low, high, expected = (np.log(study.column(own, n)) for n in names)
    slope = study.Estimate(
        float(weights @ logs),
        float(np.sum(np.minimum(weights * low, weights * high))),
        float(np.sum(np.maximum(weights * low, weights * high))),
    )
    row = {"kind": f"slope of log {name} in k"} | study.columns(slope=slope)
    return row | {"slope_predicted": float(weights @ expected)}


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The two rules of the header, from the rows alone."""
    different, slope = (
        study.read(table[-4], "different"),
        study.read(table[-3], "slope"),
    )
    grows = slope.within(0.5 - MARGIN_OF_SLOPE, 0.5 + MARGIN_OF_SLOPE)
    same = different.within(0.0, MOST_DIFFERENT)
    return {
        "the floor grows as the root of k": grows,
        "success with many samples is the Voronoi condition": same,
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """What grows with k: the floor, and the number of random starts."""
    root, voronoi = decisions.values()
    floors, chances = (study.at(table, kind=kind) for kind in ("floor", "chance"))
    difference, slope, *_ = table[-4:]
    runs = study.at(table, kind="runs", arm=next(iter(ARMS)))
    floor = [
        f"{study.read(row, 'floor')} at k = {row['clusters']}"
        for row in (floors[0], floors[-1])
    ]
    success = [
        f"{study.read(row, 'few')} at k = {row['clusters']}"
        for row in (runs[0], runs[-1])
    ]
    needed = [
        f"{row['restarts']:g} random ones at k = {row['clusters']}"
        for row in (chances[0], chances[-1])
    ]
    fails = study.read(runs[0], "few").above(study.read(runs[-1], "few"))
    first = study.told(
        root,
        yes="Not for accuracy: once every client is in its cluster, the error grows "
        "only as the root of k",
        no="Even once every client is in its cluster, the error does not grow as the "
        "root of k, as was predicted",
        undecided="Whether the error grows only as the root of k once every client is "
        "in its cluster cannot be told",
    )
    second = study.told(
        fails,
        yes="But random starts fail more and more",
        no="Nor do random starts fail more",
        undecided="Whether random starts fail more cannot be told",
    )
    third = study.told(
        voronoi,
        yes="With ever more samples a run succeeds if every true model has a nearest "
        "first model of its own, and hardly otherwise",
        no="With ever more samples a run's success is not, as was predicted, that "
        "every true model has a nearest first model of its own",
        undecided="Whether, with ever more samples, a run's success is that every true "
        "model has a nearest first model of its own cannot be told",
    )
    return (
        f"{first} ({study.listed(floor)}, slope {study.read(slope, 'slope')} on "
        "logarithmic axes where 1/2 is predicted and the paper's bound has 1). "
        f"{second}: with n' = {config.num_samples} samples one run succeeds with "
        f"chance {study.listed(success)}. {third} (the two differ in a share "
        f"{study.read(difference, 'different')} of {difference['trials']} runs); to "
        f"find such a start in 95% of cases takes {study.listed(needed)}. This is "
        "linear regression with fresh data in every round, the same number of samples "
        "for every k and true models equally far from each other; it says nothing of "
        f"better starts than random ones, and {study.legend(config.error_rate)}."
    )


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Floors, success from random starts (where n' is large also the starts that
    separate) and the chance of such starts, against k."""
    free: dict[str, Any] = {"y_limits": None, "aside": False}
    k, floors = "clusters k", study.at(table, kind="floor")
    measured, rate = "IFCA started at the truth", "the paper's rate, constant 1"
    counts, paper = (study.column(floors, name) for name in ("clusters", "floor_paper"))
    lines = [
        study.curve(floors, measured, "clusters", "floor"),
        study.predicted(floors, measured, "clusters", "floor_predicted"),
        report.Curve(rate, counts, paper),
    ]
    title = f"m n' = {config.num_clients * config.num_samples}, d = "
    title += str(config.num_features)
    floor = study.panel(lines, k, "error floor |θ - θ*|", title, "xy", **free)
    runs, arm = study.at(table, kind="runs"), next(iter(ARMS))
    own = study.at(runs, arm=arm)
    few = {name: f"n' = {config.num_samples}, {name}" for name in ARMS}
    many = f"n' = {report.number(config.many_samples)}, {arm}"
    starts = "separating starts of these runs"
    lines = [
        *study.curves(runs, "arm", few, "clusters", "few"),
        study.curve(own, many, "clusters", "many"),
        study.predicted(own, many, "clusters", "separating", starts),
    ]
    title = f"m = {config.num_clients}, d = {config.num_features}"
    success = study.panel(lines, k, "success of one random start", title)
    own = [row for row in study.at(table, kind="chance") if row["chance"] > 0]
    short = "very short starts"
    lines = [
        study.curve(own, "starts as long as the truths", "clusters", "chance"),
        study.curve(own, short, "clusters", "short"),
        study.predicted(own, short, "clusters", "short_predicted", "k!/k^k"),
    ]
    chance = study.panel(lines, k, "chance to be Voronoi-separating", "", "y", **free)
    figure = report.curves(
        [floor, success, chance],
        title="Many clusters",
        legend_title=study.legend(config.error_rate),
    )
    return {"many_clusters": figure}


STUDY = study.Study("reviews.largek", 1, cells, compute, rows, decide, answer, figures)
main = STUDY.main
