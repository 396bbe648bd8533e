"""How does IFCA compare with the methods that the paper leaves out?

Reviewer:  the evaluation compares with very simple baselines only; clustering on the
           central machine, fine-tuning of a global model and the earlier clustered
           federated learning (Sattler et al., 2019) are missing.
Command:   python -m experiments run reviews.baselines --preset paper
Quick:     the same with --preset quick: m = 40 only and fewer data sets
Measured:  paper, 8 minutes of one core of an AMD EPYC: no rule holds. IFCA beats
           one-shot clustering up to n = d as well, other methods beat it in 9 of 72
           settings, all with n <= 15, and restarts by the truth are better at n >= d/2
Predicted: IFCA gains at small n only; where a client alone can tell its cluster (n of
           the order of d) one-shot clustering finds the same partition, and all of them
           end at the oracle, sigma sqrt(d / (m n / k - d - 1)). Restarts chosen by the
           training loss are as good as chosen by the truth for n >= d/2. A local model
           has risk (1 - n/d) / 2 + sigma^2 n / (d - n - 1) below d - 1 samples, truths
           of length^2 1/2, and sigma^2 d / (n - d - 1) above d + 1: it peaks at n = d.
Rule:      one arm beats another where the mean log ratio of their errors is beyond 1 %
           by the paired bootstrap, with Holm's correction over all arms and cells.
Arms:      IFCA, the best of random starts by training loss, and by the truth; one-shot
           (Algorithm 1 of the paper: k-means on local solutions, the shortest where
           n < d, or ridge solutions with the Bayes penalty); recursive bipartition by
           the gradients' cosines, as published (the largest similarity across is least)
           and as in its released code (complete linkage); one global model; that model
           after local steps, their number chosen by the truth; local models; and the
           oracle, which knows the clusters.
Differs:   these arms are the least versions that linear regression needs, trained to
           their end by least squares within clusters except IFCA; k is known to all,
           also to the bipartition, which in its paper stops by thresholds. Data are
           drawn once, as in the paper's experiments. A client's error is the distance
           of the model that it uses to its own truth; the figure shows the root mean
           square over clients.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure

from cfljax import law, report
from experiments.checks import configuration
from experiments.reviews import fixed_data, study

EXPERIMENTS = {
    "reviews.baselines": {
        "title": "IFCA against one-shot clustering, bipartition, fine-tuning and more"
    }
}
BOUND = "IFCA, restart by truth"  # No method: it needs the truth.
PARTITIONS = (
    "IFCA",
    BOUND,
    "one-shot",
    "one-shot, ridge",
    "bipartition, published",
    "bipartition, released",
)
ARMS = ("oracle", *PARTITIONS, "global", "global, fine-tuned", "local")
RIVALS = tuple(arm for arm in ARMS if arm not in ("oracle", "IFCA"))
DRAWN = tuple(arm for arm in ARMS if arm not in ("oracle", "global", BOUND))

Models = Float[np.ndarray, "clients features"]
Labels = Int[np.ndarray, " clients"]
Linkage = Literal["single", "complete"]


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    num_samples: tuple[int, ...]  # n, samples per client.
    num_clients: tuple[int, ...]  # m, each a multiple of the number of clusters.
    rho: tuple[float, ...]  # Squared separation over noise variance.
    num_trials: int  # Data sets per cell.
    num_features: int = 40  # d.
    num_clusters: int = 2  # k, known to every arm.
    num_restarts: int = 10  # Random starts of IFCA.
    num_rounds: int = 200  # T of IFCA.
    step_size: float = 0.5  # Gamma of IFCA, divisor m.
    local_steps: tuple[int, ...] = (0, 1, 3, 10, 30, 100, 300)
    """Steps of local fine-tuning, the best of which is chosen by the truth."""
    margin: float = 0.01  # Relative difference of errors below which arms are the same.
    num_resamples: int = 20_000  # Of the bootstrap; at least 2 tests / error rate.
    seed: int = 0  # Of everything.
    error_rate: float = 0.05
    """Of all intervals of a figure, and of all comparisons, together."""

    def __post_init__(self) -> None:
        study.check(
            self,
            different=("num_samples", "num_clients", "rho", "local_steps"),
            at_least={
                0: ("local_steps", "margin"),
                1e-9: ("step_size",),
                1e-6: ("rho",),
                1: ("num_samples", "num_restarts", "num_rounds", "num_resamples"),
                2: ("num_clients", "num_trials", "num_features", "num_clusters"),
            },
        )
        if self.num_clusters > self.num_features:
            raise ValueError(
                f"`num_clusters` must be at most `num_features`, got "
                f"{self.num_clusters} > {self.num_features}."
            )
        if any(clients % self.num_clusters for clients in self.num_clients):
            raise ValueError(
                f"`num_clients` must be multiples of {self.num_clusters} clusters, got "
                f"{self.num_clients}."
            )
        tests = math.prod(map(len, (self.num_samples, self.num_clients, self.rho)))
        tests *= len(RIVALS)
        least = math.ceil(2 * tests / self.error_rate) - 1
        if self.num_resamples < least:
            raise ValueError(
                f"`num_resamples` must be at least {least} for {tests} comparisons at "
                f"an error rate of {self.error_rate}, got {self.num_resamples}: no "
                "p-value could be small enough, and nothing would ever be separated."
            )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    quick = name == "quick"
    return Config(
        num_samples=(5, 10, 15, 20, 30, 40, 80, 120),
        num_clients=(40,) if quick else (20, 40, 80),
        rho=(1.0, 4.0, 16.0),
        num_trials=24 if quick else 100,
        num_resamples=20_000 if quick else 100_000,
    )


def cells(config: Config) -> list[study.Row]:
    """All cells of the grid, samples fastest."""
    shared = ("num_trials", "num_features", "num_clusters", "num_restarts")
    shared += ("num_rounds", "step_size", "local_steps", "seed")
    axes = study.fields(config, "num_clients", "rho", "num_samples")
    return study.grid(study.fields(config, *shared), **axes)


# The arms: the least versions that mixed linear regression needs.


def ridge_models(clients: fixed_data.Clients, penalty: float) -> Models:
    """Each client alone: least |y - X theta|^2 + penalty |theta|^2."""
    transposed = np.swapaxes(clients.inputs, 1, 2)
    gram = transposed @ clients.inputs + penalty * np.eye(transposed.shape[1])
    return np.linalg.solve(gram, transposed @ clients.targets[..., None])[..., 0]


def split_in_two(
    similarity: Float[np.ndarray, "members members"], linkage: Linkage
) -> Int[np.ndarray, " members"]:
    """Two groups, by joining the most similar ones until two are left: "single" linkage
    as published (Sattler et al., 2019), "complete" as in its released code.
    """
    from sklearn.cluster import AgglomerativeClustering  # Slow to import.

    tree = AgglomerativeClustering(2, metric="precomputed", linkage=linkage)
    return np.asarray(tree.fit(1 - similarity).labels_, int)


def recursive_bipartition(
    clients: fixed_data.Clients, num_clusters: int, linkage: Linkage
) -> Labels:
    """Split the group that disagrees most, by root mean square of gradients where its
    joint training ends, by their cosines (Sattler-style), until there are k groups.
    """
    labels = np.zeros(len(clients.inputs), int)
    for new in range(1, num_clusters):
        worst, members, slopes = -1.0, np.arange(0), np.zeros((0, 0))
        for label in range(new):
            group = np.flatnonzero(labels == label)
            inputs, targets = clients.inputs[group], clients.targets[group]
            residuals = inputs @ fixed_data.least_squares(clients, group) - targets
            own = np.matmul(residuals[:, None], inputs)[:, 0]
            spread = float(np.mean(np.sum(own**2, axis=1)))
            if len(group) > 1 and spread > worst:
                worst, members, slopes = spread, group, own
        length = np.linalg.norm(slopes, axis=1, keepdims=True)
        slopes = slopes / np.where(length > 0, length, 1.0)
        labels[members[split_in_two(slopes @ slopes.T, linkage) == 1]] = new
    return labels


def fine_tuned(
    clients: fixed_data.Clients, start: Models, steps: Sequence[int]
) -> Float[np.ndarray, "settings clients features"]:
    """Models after so many local gradient steps from a common start, half the stable
    one of n normal samples, 1 / (2 (1 + sqrt(d/n))^2), for the loss without 1/2.
    """
    edge = (1 + np.sqrt(clients.inputs.shape[-1] / clients.num_samples)) ** 2
    scale = 1 / (edge * clients.num_samples)
    models, seen = start, {0: start}
    for step in range(1, max(steps) + 1):
        residuals = (clients.inputs @ models[..., None])[..., 0] - clients.targets
        models = models - scale * np.matmul(residuals[:, None], clients.inputs)[:, 0]
        seen[step] = models
    return np.stack([seen[step] for step in steps])


def _client_error(
    problem: fixed_data.Problem, models: Float[np.ndarray, "*runs clients features"]
) -> Float[np.ndarray, "*runs"]:
    """Root mean square over clients of the distance to their own truth."""
    difference = models - problem.truths[problem.clusters]
    return np.asarray(np.sqrt(np.mean(np.sum(difference**2, axis=-1), axis=-1)))


def _all_arms(
    cell: study.Cell, problem: fixed_data.Problem, generator: np.random.Generator
) -> tuple[dict[str, Models], dict[str, Labels]]:
    """Every arm's model of each client, and the partitions of those that have one."""
    clients, k = problem.clients, cell["num_clusters"]
    starts = fixed_data.random_starts(generator, problem, cell["num_restarts"])
    steps = np.full(len(starts), cell["step_size"])
    runs = fixed_data.ifca_runs(clients, starts, steps, cell["num_rounds"])
    choice = fixed_data.assign(fixed_data.all_losses(clients, runs)).T
    told = np.stack(
        [own[np.maximum(c, 0)] for own, c in zip(runs, choice, strict=True)]
    )
    errors = _client_error(problem, told)
    by_loss = int(np.argmin(fixed_data.training_loss(clients, runs)))
    by_truth = int(np.argmin(np.where(np.isfinite(errors), errors, np.inf)))
    alone = fixed_data.local_models(clients)
    whole = fixed_data.by_clusters(clients, np.zeros(len(clients.inputs), int))
    tuned = fine_tuned(clients, whole, cell["local_steps"])
    # The posterior mean for truths of this length and noise, an advantage no one has.
    ridge = ridge_models(clients, 2 * cell["num_features"] / cell["rho"])
    seed = int(generator.integers(2**31))
    labels = {
        "one-shot": fixed_data.k_means(alone, k, seed),
        "one-shot, ridge": fixed_data.k_means(ridge, k, seed),
        "bipartition, published": recursive_bipartition(clients, k, "single"),
        "bipartition, released": recursive_bipartition(clients, k, "complete"),
    }
    models = {
        "oracle": fixed_data.by_clusters(clients, problem.clusters),
        "IFCA": told[by_loss],
        BOUND: told[by_truth],
        "global": whole,
        "global, fine-tuned": tuned[int(np.argmin(_client_error(problem, tuned)))],
        "local": alone,
    } | {arm: fixed_data.by_clusters(clients, own) for arm, own in labels.items()}
    return models, labels | {"IFCA": choice[by_loss], BOUND: choice[by_truth]}


def compute(cell: study.Cell) -> study.Arrays:
    """Errors of all arms, `error` `[arms, trials]`, root mean square over clients, and
    `rand` `[partitions, trials]`, agreement of their partitions with the true one.
    """
    sizes = (cell["num_clients"], cell["num_samples"], int(1000 * cell["rho"]))

    def one(trial: int) -> study.Row:
        generator = study.generator(cell["seed"], *sizes, trial)
        problem = fixed_data.problem_of(cell, generator)
        models, labels = _all_arms(cell, problem, generator)
        found = np.stack([labels[arm] for arm in PARTITIONS])
        return {
            "error": np.stack([_client_error(problem, models[arm]) for arm in ARMS]),
            "rand": fixed_data.rand_index(found, problem.clusters),
        }

    return study.stacked(cell["num_trials"], one)


# Which of two arms is better.


def paired_p_value(
    differences: Float[np.ndarray, " trials"],
    generator: np.random.Generator,
    *,
    margin: float,
    num_resamples: int,
) -> float:
    """p-value of "the mean difference is at most `margin` in absolute value".

    The studentised bootstrap: t = (|mean| - margin) / s.e. against the law of
    (mean* - mean) / s.e.* over resampled trials, on the side of the mean and doubled.
    Nominal: right to second order in the number of trials, at least 2 / (resamples+1).

    Raises:
      ValueError: on fewer than 2 trials.
    """
    trials = len(differences)
    if trials < 2:
        raise ValueError(f"`differences` must hold at least 2 trials, got {trials}.")
    mean = float(np.mean(differences))
    excess = abs(mean) - margin
    if not excess > 0:  # NaN is no evidence either.
        return 1.0
    if np.ptp(differences) == 0:
        return 2 / (num_resamples + 1)
    drawn = differences[generator.integers(trials, size=(num_resamples, trials))]
    means, errors = drawn.mean(axis=1), drawn.std(axis=1, ddof=1)
    error = float(np.std(differences, ddof=1))
    # Compared as products: a resample of equal values has no spread to divide by.
    further = np.sign(mean) * (means - mean) * error >= excess * errors
    further &= (np.ptp(drawn, axis=1) > 0) | (means != mean)
    return min(1.0, 2 * (1 + int(further.sum())) / (num_resamples + 1))


def holm(
    p_values: Float[np.ndarray, " tests"], *, error_rate: float
) -> Bool[np.ndarray, " tests"]:
    """Which hypotheses are rejected, with at most `error_rate` chance of any false one,
    by Holm (1979): the i-th smallest p-value against error_rate / (tests + 1 - i).
    """
    order = np.argsort(p_values)
    limits = error_rate / np.arange(len(p_values), 0, -1)
    passed = np.logical_and.accumulate(p_values[order] <= limits)
    rejected = np.zeros(len(p_values), bool)
    rejected[order] = passed
    return rejected


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for each cell and arm, with the comparison of the arm with IFCA.

    Errors are averaged as logarithms; intervals are Student's. `better` is the better
    arm where Holm's correction over all rows lets a difference beyond the margin stand.
    """
    joint = study.jointly(config, len(cells) * (len(ARMS) - 1))
    table: list[study.Row] = []
    for cell, arrays in zip(cells, results, strict=True):
        logs = dict(zip(ARMS, np.log(arrays["error"]), strict=True))
        for index, arm in enumerate(ARMS[1:]):
            row = {name: cell[name] for name in ("num_clients", "rho", "num_samples")}
            row |= {"samples_per_feature": cell["num_samples"] / config.num_features}
            row |= {"arm": arm, "error": float(np.exp(logs[arm].mean()))}
            row |= study.columns(to_oracle=joint.geometric(logs[arm] - logs["oracle"]))
            if arm in PARTITIONS:
                rand = arrays["rand"][PARTITIONS.index(arm)]
                row |= study.columns(rand=joint.mean(rand))
                row["rand_high"] = min(row["rand_high"], 1.0)
            if arm in RIVALS:
                change = logs[arm] - logs["IFCA"]
                row |= study.columns(to_ifca=joint.geometric(change))
                row["p_value"] = paired_p_value(
                    change,
                    study.generator(config.seed, len(table), index),
                    margin=np.log1p(config.margin),
                    num_resamples=config.num_resamples,
                )
            table.append(row)
    tested = [row for row in table if "p_value" in row]
    stands = holm(study.column(tested, "p_value"), error_rate=config.error_rate)
    for row, found in zip(tested, stands, strict=True):
        better = "IFCA" if row["to_ifca"] > 1 else row["arm"]
        row["better"] = better if found else "not separated"
    return table


def _groups(config: Config) -> list[study.Row]:
    """Settings that share a panel."""
    return study.grid({}, num_clients=config.num_clients, rho=config.rho)


def _won(table: study.Rows, arm: str, group: Mapping[str, Any]) -> list[int]:
    """The n at which IFCA is better than an arm."""
    own = study.at(table, arm=arm, better="IFCA", **group)
    return [row["num_samples"] for row in own]


def _lost(table: study.Rows, group: Mapping[str, Any]) -> dict[int, list[str]]:
    """The n at which other methods are better than IFCA, and which."""
    found: dict[int, list[str]] = {}
    for arm in RIVALS:
        if arm != BOUND:
            for row in study.at(table, arm=arm, better=arm, **group):
                found.setdefault(row["num_samples"], []).append(arm)
    return found


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The rules of the header, from the rows alone."""
    half = config.num_features / 2
    late = [row for row in study.at(table, arm=BOUND) if row["num_samples"] >= half]

    def confined(arm: str) -> study.Verdict:
        won = [n for group in _groups(config) for n in _won(table, arm, group)]
        if not won:
            return "undecided"  # Nothing to confine.
        return "yes" if max(won) <= half else "no"

    beaten = any(_lost(table, group) for group in _groups(config))
    least, most = 1 / (1 + config.margin), 1 + config.margin
    return {
        "IFCA beats one-shot only at n <= d/2": confined("one-shot"),
        "IFCA beats one-shot with ridge only at n <= d/2": confined("one-shot, ridge"),
        "no method beats IFCA anywhere": "no" if beaten else "yes",
        "for n >= d/2 the training loss chooses restarts as well as the truth": (
            study.within(late, "to_ifca", least, most)
        ),
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """How often each method beats IFCA or is beaten, and what was predicted of that."""
    confined, _, best, _ = decisions.values()
    groups, methods = _groups(config), [arm for arm in RIVALS if arm != BOUND]
    number = len(groups) * len(config.num_samples)
    counts = [
        f"{len(study.at(table, arm=arm, better='IFCA'))} and "
        f"{len(study.at(table, arm=arm, better=arm))} against {_short(arm)}"
        for arm in methods
    ]
    lost = [n for group in groups for n in _lost(table, group)]
    late = {n for group in groups for n in _won(table, "one-shot", group)}
    late = sorted(n for n in late if n > config.num_features / 2)
    middle = min(groups, key=lambda group: abs(np.log(group["rho"] / 4)))
    few = config.num_samples[min(1, len(config.num_samples) - 1)]
    example = [
        f"{study.read(row, 'to_ifca')} by {_short(row['arm'])}"
        for row in study.at(table, num_samples=few, **middle)
        if row["arm"] in ("one-shot", "bipartition, published", "global, fine-tuned")
    ]
    first = study.told(
        best,
        yes=f"No other method is seen to beat IFCA in any of {number} settings",
        no=f"IFCA is not always the best: in {len(lost)} of {number} settings another "
        f"method has the smaller error, always with n = {max(lost, default=0)} samples "
        "per client or fewer",
        undecided="Whether another method beats IFCA anywhere cannot be told",
    )
    second = study.told(
        confined,
        yes="It beats one-shot clustering only up to n = d/2, as was predicted",
        no="It beats one-shot clustering not only up to n = d/2, as was predicted, but "
        f"also at n = {study.listed(late or ['none'])}",
        undecided="It is nowhere seen to beat one-shot clustering",
    )
    return (
        f"{first}. The settings in which its error is seen to be smaller, and larger, "
        f"by {config.margin:.0%} or more are {study.listed(counts)}. {second}; at ρ = "
        f"{middle['rho']:g}, m = {middle['num_clients']} and n = {few}, errors over "
        f"IFCA's are {study.listed(example)}. This is linear regression with d = "
        f"{config.num_features} on data drawn once, {config.num_clusters} clusters as "
        f"every method knows, and {config.num_trials} data sets per setting; smaller "
        "differences are not seen, of networks it says nothing, and "
        f"{study.legend(config.error_rate)}, nominally."
    )


def _short(arm: str) -> str:
    """A method's name without a comma, for lists."""
    name, *kind = arm.split(", ")
    return f"{name} ({kind[0]})" if kind else name


def local_risk(
    samples: Float[np.ndarray, " points"], features: int, rho: float
) -> Float[np.ndarray, " points"]:
    """Mean square error of the shortest solution, truths of length^2 1/2; NaN near d.

    Below d - 1 samples the solution is the truth's projection on the span of n random
    rows, and noise: (1 - n/d) / 2 + (n / (d - n - 1)) / rho.
    """
    safe = np.where(samples < features - 1, features - samples - 1, np.nan)
    short = (1 - samples / features) / 2 + samples / safe / rho
    freedom = np.where(samples > features + 1, samples - features - 1, np.nan)
    return np.where(samples < features, short, features / freedom / rho)


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Errors over the oracle's against n, with the exact risk of local models; and the
    adjusted Rand index of every partition."""

    def lines(group: study.Row, arms: Sequence[str], name: str) -> list[report.Curve]:
        own = study.at(table, **group)
        return study.curves(own, "arm", {arm: arm for arm in arms}, "num_samples", name)

    dense = np.geomspace(min(config.num_samples), max(config.num_samples), 400)
    errors, partitions = [], []
    for group in _groups(config):
        pooled = group["num_clients"] * dense / config.num_clusters
        risk = law.oracle_risk(pooled, config.num_features, group["rho"] ** -0.5)
        alone = np.sqrt(local_risk(dense, config.num_features, group["rho"]) / risk)
        exact = report.Curve("local, exact risk", dense, alone, like="local")
        over = [*lines(group, DRAWN, "to_oracle"), exact]
        rand = lines(group, [arm for arm in PARTITIONS if arm != BOUND], "rand")
        x, title = "samples per client n", f"ρ = {group['rho']:g}"
        title += f", m = {group['num_clients']}"
        options = {"y_limits": (0.9, 30.0), "aside": False}
        name = "error / oracle's error"
        errors.append(study.panel(over, x, name, title, "xy", **options))
        name = "adjusted Rand index"
        partitions.append(study.panel(rand, x, name, title, "x", aside=False))
    title = f"k = {config.num_clusters}, d = {config.num_features}"
    title = f"IFCA and other methods on fixed data, {title}"
    legend = f"{config.num_trials} data sets; Student's "
    legend += study.legend(config.error_rate)
    agreement = "Agreement with the true clusters"
    return {
        "errors": report.curves(errors, title=title, legend_title=legend),
        "partitions": report.curves(partitions, title=agreement, legend_title=legend),
    }


STUDY = study.Study(
    "reviews.baselines", 1, cells, compute, rows, decide, answer, figures
)
main = STUDY.main
