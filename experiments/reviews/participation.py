"""Does the number of participating clients enter the rate?

Reviewer:  the convergence rate seems not to address the number of participating
           workers (line 4 of Algorithm 1); that should be discussed.
Command:   python -m experiments run reviews.particip --preset paper
Quick:     the same with --preset quick: fewer rounds and draws
Measured:  paper, 4.7 minutes of one core of an AMD EPYC: both rules hold, the slope is
           -.50505 [-.50521, -.50489]
Predicted: averaged over the M participants the infinite-data factor of a cluster is
           |1 - x|, x = 2 gamma p, whatever M, and the floor is that of M clients,
           sigma sqrt(x d / ((2 - x) p M n')), slope -1/2 in M. Divided by all m, as
           in line 14 of Algorithm 2, x is M/m times that: slower, and the floor tends
           to sigma sqrt(gamma d / (m n')), free of M. A cluster of m_j clients is
           absent from a round with chance C(m - m_j, M) / C(m, M).
Rule:      M replaces m in the rate iff the slope of the floor is -1/2 +- 0.05; the
           printed divisor removes M from the floor iff measured over predicted floors
           are 1 +- 0.05 for all M.
Differs:   the analysis has all clients take part, with fresh data; so have these runs,
           drawn exactly in law, with a new uniform subset in each round.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from cfljax import law, report
from cfljax.base import Numbers
from cfljax.law import Divisor
from experiments.checks import configuration
from experiments.reviews import exact_law, study

EXPERIMENTS = {
    "reviews.particip": {
        "title": "does the number of participating clients enter the rate?"
    }
}
ARMS: Mapping[str, Divisor] = {
    "averaged over participants": "participants",
    "divided by all clients": "all",
}
AVERAGED, DIVIDED = ARMS
ABSENT = "a cluster is absent"
MARGIN = 0.05  # Of the slope, and of the floors.


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    num_participants: tuple[int, ...]  # M, clients drawn in each round.
    few_participants: tuple[int, ...]  # M of the study of absent clusters.
    num_rounds: int  # T of each run; the floor is the mean over the last `num_last`.
    num_last: int  # Rounds at the end that count as stationary.
    num_draws: int  # Independent sequences of participants.
    num_trials: int  # Runs for each of them.
    num_subsets: int  # Subsets drawn to count absent clusters.
    num_clients: int = 800  # m, a multiple of the number of clusters.
    num_clusters: int = 4  # k, of equal sizes.
    num_features: int = 40  # d.
    num_samples: int = 100  # n', fresh samples of a client for each use.
    noise: float = 0.1  # Sigma.
    separation: float = 1.0  # Delta, distance between any two true models.
    start: float = 0.2
    """Distance of every first model from its truth, towards the next truth."""
    step_size: float = 1.0  # Gamma.
    seed: int = 0  # Of all runs.
    error_rate: float = 0.05  # Of all intervals together.

    def __post_init__(self) -> None:
        ones = ("num_participants", "few_participants", "num_last", "num_trials")
        study.check(
            self,
            several=("num_participants",),
            different=("few_participants",),
            at_least={
                0: ("noise",),
                1: (*ones, "num_subsets", "num_samples"),
                2: ("num_draws", "num_clusters"),
            },
        )
        if self.num_clients % self.num_clusters:
            raise ValueError(
                "`num_clients` must be a multiple of `num_clusters`, got "
                f"{self.num_clients} and {self.num_clusters}."
            )
        most = max(*self.num_participants, *self.few_participants)
        if most > self.num_clients:
            raise ValueError(
                f"`num_participants` must be at most `num_clients`, got {most}."
            )
        if self.num_last >= self.num_rounds:
            raise ValueError(
                "`num_last` must be below `num_rounds`, got "
                f"{self.num_last} and {self.num_rounds}."
            )

    @property
    def members(self) -> int:
        """Clients of one cluster."""
        return self.num_clients // self.num_clusters


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    quick = name == "quick"
    return Config(
        num_participants=(50, 100, 200, 400, 800),
        few_participants=(2, 4, 8, 12, 16, 20),
        num_rounds=400 if quick else 1200,
        num_last=100 if quick else 600,
        num_draws=12 if quick else 40,
        num_trials=2 if quick else 10,
        num_subsets=20_000 if quick else 1_000_000,
    )


def _effective_step(config: Config, arm: str, participants: Numbers) -> float:
    """x, the mean step of a cluster in units of its infinite-data optimum."""
    total = participants if ARMS[arm] == "participants" else config.num_clients
    return float(2 * config.step_size * participants / (config.num_clusters * total))


def _predicted_factor(config: Config, arm: str, participants: Numbers) -> float:
    """|1 - x|: what is left of a mean error after one round."""
    return abs(1 - _effective_step(config, arm, participants))


def predicted_floor(config: Config, arm: str, participants: Numbers) -> float:
    """Stationary root-mean-square error with hypergeometric numbers of members: M_j of
    M with mean M/k and Var M/k (1 - 1/k) (m-M)/(m-1), N = n' M_j, beta N the step, in
    E|e+|^2 = E[(1 - beta N)^2 + beta^2 N (d + 1)] |e|^2 + beta^2 E[N] d sigma^2.
    """
    share = 1 / config.num_clusters
    clients = config.num_clients
    step = _effective_step(config, arm, participants)
    rows = config.num_samples * participants * share
    rest = (clients - participants) / max(clients - 1, 1)
    spread = (1 - share) * rest / (participants * share)  # Var of M_j / mean^2
    kept = (1 - step) ** 2 + step**2 * spread
    kept += step**2 * (config.num_features + 1) / rows
    square = step**2 * config.num_features / rows / (1 - kept)
    return config.noise * math.sqrt(square) if square > 0 else math.inf


def absence(config: Config, participants: int) -> float:
    """C(m - m_j, M) / C(m, M): no client of one cluster takes part."""
    others = config.num_clients - config.members
    return math.comb(others, participants) / math.comb(config.num_clients, participants)


def cells(config: Config) -> list[study.Row]:
    """Every arm at every M."""
    same = {"config": dataclasses.asdict(config)}
    return study.grid(same, arm=ARMS, participants=config.num_participants)


def compute(cell: study.Cell) -> study.Arrays:
    """One arm at one M: factor and mean square floor of every draw, and strays."""
    config, arm = Config(**cell["config"]), cell["arm"]
    clusters, members = config.num_clusters, config.members
    population = exact_law.population(vars(config), clusters)
    truths = exact_law.truths(clusters, separation=config.separation)
    towards = (np.roll(truths, -1, axis=0) - truths) / config.separation
    starts = truths + config.start * towards
    models = law.place(truths, starts, num_features=config.num_features)

    def one(draw: int) -> study.Row:
        present = study.generator(config.seed, 0, draw).multivariate_hypergeometric(
            [members] * clusters, cell["participants"], size=config.num_rounds
        )
        trace = exact_law.run(
            study.key(config.seed, 1, draw),
            population,
            models,
            vars(config),
            divisor=ARMS[arm],
            participants=present.astype(float),
        )
        errors = trace.models - population.truths
        along = np.sum(errors[:, :2] * errors[:, :1], axis=-1)
        return {
            "factor": np.mean(along[:, 1] / along[:, 0]),
            "square": np.mean(np.sum(errors[:, -config.num_last :] ** 2, axis=-1)),
            "strays": trace.counts.sum() - np.trace(trace.counts.sum(axis=(0, 1))),
        }

    found = study.stacked(config.num_draws, one)
    return found | {"strays": np.sum(found["strays"])}


def _joint(config: Config) -> study.Intervals:
    """All intervals: factors, floors, slopes, absences."""
    arms = len(ARMS) * (2 * len(config.num_participants) + 1)
    return study.jointly(config, arms + len(config.few_participants))


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for each arm and M, for each M of the absent clusters, each slope."""
    joint = _joint(config)
    table: list[study.Row] = []
    for cell, arrays in zip(cells, results, strict=True):
        arm, count = cell["arm"], cell["participants"]
        floor = joint.mean(arrays["square"]).root()
        expected = predicted_floor(config, arm, count)
        row = {"kind": "run", "arm": arm, "participants": count}
        row |= study.columns(factor=joint.mean(arrays["factor"]))
        row |= {"factor_predicted": _predicted_factor(config, arm, count)}
        row |= study.columns(floor=floor) | {"floor_predicted": expected}
        row |= study.columns(floor_ratio=floor.over(expected))
        row |= {"misassigned": float(arrays["strays"])}
        sent = (config.num_clusters + 1) * config.num_features * count
        table.append(row | {"numbers_sent": sent})
    # How often the first cluster is absent from a random subset of clients.
    for index, count in enumerate(config.few_participants):
        random = study.generator(config.seed, 2, index)
        absent = 0
        for first in range(0, config.num_subsets, 1000):
            size = min(1000, config.num_subsets - first)
            marks = random.random((size, config.num_clients))
            chosen = np.argpartition(marks, count - 1, axis=1)[:, :count]
            absent += int(np.sum(np.all(chosen >= config.members, axis=1)))
        share = joint.chance(absent, config.num_subsets)
        row = {"kind": "absence", "participants": count} | study.columns(absent=share)
        table.append(row | {"absent_predicted": absence(config, count)})
    return [*table, *_slope_rows(config, results, joint)]


def _slope_rows(
    config: Config, results: study.Results, joint: study.Intervals
) -> list[study.Row]:
    """Slope of log floor against log M, over the draws, of each arm."""
    counts = np.log(np.array(config.num_participants, float))
    logs = np.log(np.stack([arrays["square"] for arrays in results], axis=1)) / 2
    return [
        {"kind": "slope", "arm": arm} | study.columns(slope=joint.slope(counts, part))
        for arm, part in zip(ARMS, np.split(logs, len(ARMS), axis=1), strict=True)
    ]


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The two rules of the header, from the rows alone."""
    slope = study.at(table, kind="slope", arm=AVERAGED)
    divided = study.at(table, kind="run", arm=DIVIDED)
    return {
        "M replaces m in the rate": study.within(
            slope, "slope", -0.5 - MARGIN, -0.5 + MARGIN
        ),
        "the printed divisor slows the rate, not the floor": study.within(
            divided, "floor_ratio", 1 - MARGIN, 1 + MARGIN
        ),
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """Rate and floor with each divisor, and how often a cluster is absent."""
    replaces, slows = decisions.values()
    few, many = min(config.num_participants), max(config.num_participants)

    def ends(arm: str, name: str) -> str:
        found = [
            f"{study.read(row, name)} at M = {count}"
            for count in (few, many)
            for row in study.at(table, kind="run", arm=arm, participants=count)
        ]
        return study.listed(found)

    (slope,) = study.at(table, kind="slope", arm=AVERAGED)
    fewest = min(config.few_participants)
    (absent,) = study.at(table, kind="absence", participants=fewest)
    first = study.told(
        replaces,
        yes="Yes: averaged over the M participants of a round, M takes the place of "
        "the m clients in the rate",
        no="Not as predicted: averaged over the M participants of a round, M does not "
        "take the place of the m clients in the rate",
        undecided="Whether, averaged over the M participants of a round, M takes the "
        "place of the m clients in the rate cannot be told",
    )
    second = study.told(
        slows,
        yes="Divided by all m clients, as Algorithm 2 is printed, M changes the speed "
        "instead, and the final error is the predicted one, nearly free of M",
        no="Divided by all m clients, as Algorithm 2 is printed, the final error is "
        "not the predicted one, which is nearly free of M",
        undecided="Whether, divided by all m clients as Algorithm 2 is printed, the "
        "final error is the predicted one, nearly free of M, cannot be told",
    )
    return (
        f"{first} (the final error is {ends(AVERAGED, 'floor')} of "
        f"{config.num_clients} clients, slope {study.read(slope, 'slope')} on "
        "logarithmic axes where -1/2 is predicted; one round multiplies an error by "
        f"{ends(AVERAGED, 'factor')}). {second} ({ends(DIVIDED, 'floor')}; one round "
        f"multiplies an error by {ends(DIVIDED, 'factor')}). Few participants "
        f"also miss clusters: {fewest} have none of a given one with chance "
        f"{study.read(absent, 'absent')}. This is linear regression near the true "
        "models, with fresh data and a uniform subset of clients in every round; it "
        "says nothing of clients who stay away for reasons of their own, and "
        f"{study.legend(config.error_rate)}."
    )


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Floors, factors and absent clusters against M, with what was predicted."""
    dense = np.geomspace(min(config.num_participants), max(config.num_participants), 50)
    x, free = "participants per round M", {"y_limits": None}

    def lines(
        name: str, predict: Callable[[Config, str, Numbers], float]
    ) -> list[report.Curve]:
        found = []
        for arm in ARMS:
            measured = study.at(table, kind="run", arm=arm)
            found.append(study.curve(measured, arm, "participants", name))
            expected = np.array([predict(config, arm, count) for count in dense])
            found.append(report.Curve(study.PREDICTED, dense, expected, like=arm))
        return found

    own = study.at(table, kind="absence")
    absent = [
        study.curve(own, ABSENT, "participants", "absent"),
        study.predicted(own, ABSENT, "participants", "absent_predicted"),
    ]
    floor, factor = lines("floor", predicted_floor), lines("factor", _predicted_factor)
    error, chance = "error floor |θ - θ*|", "chance per round and cluster"
    figure = report.curves(
        [
            study.panel(floor, x, error, "", "xy", aside=False, **free),
            study.panel(
                factor, x, "factor of the error per round", "", "x", aside=False
            ),
            study.panel(absent, x, chance, "", "xy", **free),
        ],
        title=f"Partial participation: k = {config.num_clusters}, "
        f"m = {config.num_clients}, d = {config.num_features}, "
        f"n' = {config.num_samples}, σ = {config.noise:g}, γ = {config.step_size:g}",
        legend_title=study.legend(config.error_rate),
    )
    return {"participation": figure}


STUDY = study.Study(
    "reviews.particip", 1, cells, compute, rows, decide, answer, figures
)
main = STUDY.main
