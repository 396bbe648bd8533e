"""What does it cost to send k models in every round, and how could it cost less?

Reviewer:  unlike Sattler et al., all k models are broadcast to all participating
           clients in every round; how could this be reduced?
Command:   python -m experiments run reviews.comm --preset paper
Quick:     the same with --preset quick: fewer data sets
Measured:  paper, 2.7 minutes of one core of an AMD EPYC: all rules hold but that
           freezing is free: from random starts it costs up to 28 % in error
Predicted: a client of IFCA receives k models and sends one, with known clusters it
           receives one: (k + 1)/2 times the cost in as many rounds. Freezing identities
           that have not changed for several rounds (section 4.3) saves all but the
           first rounds of that; it costs accuracy only where an identity would still
           have changed. One-shot clustering sends one solution, then works as with
           known clusters, from its clusters' mean solutions. On fresh data a share q
           errs anew in every round: freezing keeps one round's errors where IFCA
           averages over several, so that its excess is the variance of their number.
Rule:      until the error is 1.1 times the oracle's: IFCA over known clusters within
           10 % of (k + 1)/2 at the most samples; frozen over unfrozen final errors at
           most 1.02 by their whole intervals; one-shot cheaper than frozen IFCA where
           their medians' intervals are apart.
Differs:   data drawn once, gradient steps of an effective 2 gamma / k = 0.1 and the
           divisor m, 32 bits a number; the error is the matched mean distance to the
           truths. Near starts are 0.4 of the separation away, as the theory allows;
           random starts pay for all restarts. The server is told when to stop.
"""

import math
from typing import Literal

import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure

from cfljax import law, report
from experiments.checks import configuration
from experiments.reviews import exact_law, fixed_data, study

EXPERIMENTS = {
    "reviews.comm": {
        "title": "bits until near the oracle: IFCA, frozen identities, one-shot"
    }
}
ARMS = ("IFCA", "IFCA, then frozen", "one-shot", "known clusters")
IFCA, FROZEN, ONE_SHOT, KNOWN = ARMS
FLOAT_BITS = 32
TARGET = 1.1  # Times the oracle's error.
STEP = 0.5  # x on fresh data, effective: gradients are averaged over a model's clients.
SAMPLES = "samples per client n"


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    num_samples: tuple[int, ...]  # n, samples per client, drawn once.
    num_clusters: tuple[int, ...]  # k of the runs from near starts.
    num_trials: int  # Data sets per cell.
    fresh_samples: tuple[int, ...]  # n' of the runs on fresh data.
    fresh_trials: int  # Runs on fresh data.
    clients_per_cluster: int = 10  # m / k.
    num_features: int = 40  # d.
    rho: float = 4.0  # Squared separation over noise variance.
    start_distance: float = 0.4
    """Of near starts to their truths, over the separation, in random directions."""
    num_restarts: int = 10  # Random starts at k = 2, all of them paid for.
    num_rounds: int = 150  # T.
    step: float = 0.1  # Effective step 2 gamma / k.
    patience: int = 3
    """Rounds without a change of any identity after which identities are frozen."""
    fresh_clients: int = 200  # m of the runs on fresh data, even.
    fresh_features: int = 20  # d of the runs on fresh data.
    margin: float = 0.02  # Relative excess error that counts as none.
    seed: int = 0  # Of everything.
    error_rate: float = 0.05  # Of all intervals together.

    def __post_init__(self) -> None:
        ones = ("num_samples", "fresh_samples", "clients_per_cluster", "num_restarts")
        study.check(
            self,
            different=("num_samples", "num_clusters", "fresh_samples"),
            at_least={
                0: ("start_distance", "margin"),
                1e-9: ("step",),
                1e-6: ("rho",),
                1: (*ones, "patience"),
                2: (
                    *("num_clusters", "num_trials", "fresh_trials", "num_features"),
                    *("num_rounds", "fresh_clients"),
                ),
                6: ("fresh_features",),
            },
        )
        if max(self.num_clusters) > self.num_features:
            raise ValueError(
                "`num_clusters` must be at most `num_features`, got "
                f"{self.num_clusters} > {self.num_features}."
            )
        if self.fresh_clients % 2:
            raise ValueError(f"`fresh_clients` must be even, got {self.fresh_clients}.")


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    quick = name == "quick"
    return Config(
        num_samples=(10, 20, 30, 60, 120),
        num_clusters=(2, 4, 8),
        num_trials=20 if quick else 100,
        fresh_samples=(2, 4, 8, 12, 16, 32),
        fresh_trials=1200 if quick else 8000,
    )


def cells(config: Config) -> list[study.Row]:
    """Near starts by k and n, random starts by n, fresh data by n'."""
    same = study.fields(config, "num_rounds", "rho", "patience", "seed")
    reused = same | study.fields(config, "num_trials", "num_features", "step")
    near = [(clusters, config.start_distance, 1) for clusters in config.num_clusters]
    table: list[study.Row] = []
    for clusters, distance, restarts in (*near, (2, None, config.num_restarts)):
        own = {"kind": "reused", "num_clusters": clusters}
        own |= {"num_clients": clusters * config.clients_per_cluster}
        own |= {"start_distance": distance, "num_restarts": restarts}
        table += study.grid(reused | own, num_samples=config.num_samples)
    fresh = same | {
        "kind": "fresh",
        "num_clients": config.fresh_clients,
        "num_features": config.fresh_features,
        "num_trials": config.fresh_trials,
    }
    return table + study.grid(fresh, num_samples=config.fresh_samples)


def compute(cell: study.Cell) -> study.Arrays:
    """One cell of either kind."""
    return _reused_data(cell) if cell["kind"] == "reused" else _fresh_data(cell)


# Data drawn once: runs until the target.


def bits(
    arm: str, *, rounds: int, frozen_from: int, num_clusters: int, num_features: int
) -> int:
    """Bits that a client receives and sends, 32 a number: k models of IFCA down, one
    and its name up; known or frozen, one each; one-shot, first one up as well.
    """
    model = FLOAT_BITS * num_features
    full = (num_clusters + 1) * model + math.ceil(math.log2(num_clusters))
    if arm == IFCA:
        return rounds * full
    if arm == FROZEN:
        searching = min(rounds, frozen_from)
        return searching * full + (rounds - searching) * 2 * model
    return rounds * 2 * model + (model if arm == ONE_SHOT else 0)


def _starts(
    cell: study.Cell, problem: fixed_data.Problem, generator: np.random.Generator
) -> Float[np.ndarray, "restarts clusters features"]:
    if cell["start_distance"] is None:
        return fixed_data.random_starts(generator, problem, cell["num_restarts"])
    away = generator.standard_normal((cell["num_restarts"], *problem.truths.shape))
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    return problem.truths + cell["start_distance"] * away


def _descend(
    cell: study.Cell,
    problem: fixed_data.Problem,
    models: Float[np.ndarray, "runs clusters features"],
    held: Int[np.ndarray, "clients runs"],
    freezes: Bool[np.ndarray, " runs"],
) -> tuple[Float[np.ndarray, "rounds runs"], np.ndarray, np.ndarray]:
    """Errors after each round, rounds until identities were stable, T if never, and
    training losses of runs that keep those held from the start, or, where -1 is held
    and the run freezes, those that have been stable."""
    clients, runs, num_rounds = problem.clients, len(models), cell["num_rounds"]
    steps = np.full(runs, cell["step"] * cell["num_clusters"] / 2)
    stable, calm = np.full(runs, num_rounds), np.zeros(runs, int)
    frozen, last = held[0] >= 0, held
    errors = np.empty((num_rounds, runs))
    for index in range(num_rounds):
        choice = fixed_data.assign(fixed_data.all_losses(clients, models))
        choice = np.where(frozen, last, choice)
        calm = np.where(np.all(last == choice, axis=0), calm + 1, 0)
        last = choice
        models, _ = fixed_data.ifca_round(clients, models, steps, choice)
        errors[index] = fixed_data.centre_errors(problem, models)
        settled = (calm >= cell["patience"]) & (stable == num_rounds)
        stable[settled] = index + 1
        frozen = frozen | (settled & freezes)
    return errors, stable, fixed_data.training_loss(clients, models)


def _reused_data(cell: study.Cell) -> study.Arrays:
    """Of all arms, `[arms, trials]`: rounds to the target, T + 1 if it is not reached;
    bits of a client until then, restarts included, infinite if it is not reached; last
    errors. And rounds until identities of IFCA's chosen run were stable, T if never."""
    k, restarts, length = (
        cell[name] for name in ("num_clusters", "num_restarts", "num_rounds")
    )
    place = (cell["seed"], 1, k, cell["num_samples"])

    def one(trial: int) -> study.Row:
        generator = study.generator(*place, int(cell["start_distance"] is None), trial)
        problem = fixed_data.problem_of(cell, generator)
        first = _starts(cell, problem, generator)
        solutions = fixed_data.local_models(problem.clients)
        labels = fixed_data.k_means(solutions, k, int(generator.integers(2**31)))
        # Means of the clients' own solutions, which the server already has.
        found = [solutions[labels == label].mean(axis=0) for label in range(k)]
        models = np.concatenate([first, first, [found], first[:1]])
        held = np.full((len(labels), len(models)), -1)
        held[:, -2], held[:, -1] = labels, problem.clusters
        freezes = np.arange(len(models)) >= restarts
        errors, calm, losses = _descend(cell, problem, models, held, freezes)
        target = TARGET * fixed_data.oracle_error(problem)
        groups = (slice(restarts), slice(restarts, 2 * restarts), [-2], [-1])
        runs = [np.arange(len(models))[group] for group in groups]
        chosen = [own[np.argmin(losses[own])] for own in runs]
        good = errors[:, chosen] <= target
        reached = np.any(good, axis=0)
        rounds = np.where(reached, np.argmax(good, axis=0), length) + 1
        sizes = {"num_clusters": k, "num_features": cell["num_features"]}
        paid = [
            sum(
                bits(arm, rounds=int(n), frozen_from=int(calm[i]), **sizes) for i in own
            )
            for arm, n, own in zip(ARMS, rounds, runs, strict=True)
        ]
        return {
            "rounds": rounds,
            "bits": np.where(reached, np.array(paid, float), np.inf),
            "final": errors[-1, chosen],
            "stable": calm[chosen[0]],
        }

    return study.stacked(cell["num_trials"], one)


# Fresh data in every round, exactly in law.


def frozen_square(
    counts: Float[np.ndarray, "*trials clusters models"],
    *,
    num_samples: int | float,
    num_features: int,
    rho: float,
    step: float = STEP,
) -> Float[np.ndarray, "*trials"]:
    """Stationary mean-square distance where two clusters' identities never change.

    With w a model's share of foreign clients, N its rows and x the step, the mean is at
    w from the truth, and V, the spread around it, solves V (1 - (1-x)^2 - x^2 (d+1)/N)
    = x^2 ((d+1) w (1-w) + d / rho) / N. In units of the squared separation.
    """
    members = np.sum(counts, axis=-2)
    foreign = np.stack([counts[..., 1, 0], counts[..., 0, 1]], axis=-1) / members
    rows, d = num_samples * members, num_features
    noise = step**2 * ((d + 1) * foreign * (1 - foreign) + d / rho) / rows
    spread = noise / (1 - (1 - step) ** 2 - step**2 * (d + 1) / rows)
    return np.asarray(np.mean(spread + foreign**2, axis=-1))


def _fresh_data(cell: study.Cell) -> study.Arrays:
    """IFCA from the truth on fresh data: its floor, that of the identities of one of
    its rounds frozen, and the first time that identities are stable."""
    samples, num_rounds = cell["num_samples"], cell["num_rounds"]
    sizes = {name: cell[name] for name in ("num_samples", "num_features", "rho")}
    population = exact_law.population(cell, 2)
    trace = exact_law.run(
        study.key(cell["seed"], 2, samples),
        population,
        population.truths,
        cell,
        step_size=STEP / 2,
        divisor="cluster",
    )
    half = num_rounds // 2
    own = exact_law.own_distances(population, trace.models[:, half:])
    wrong = exact_law.misassigned(trace.counts)
    # Identities are known up to the order of a cluster's clients, all equally likely: B
    # of M clients are the same ones in two rounds with probability 1 / C(M, B).
    same = np.all(wrong[:, 1:] == wrong[:, :-1], axis=-1)
    members = cell["num_clients"] / 2
    log_ways = scipy.special.gammaln(members + 1) - scipy.special.gammaln(wrong + 1)
    log_ways -= scipy.special.gammaln(members - wrong + 1)
    chance = np.exp(-np.sum(log_ways[:, 1:], axis=-1))
    same &= study.generator(cell["seed"], 3, samples).random(same.shape) < chance
    calm, stable = np.zeros(len(same), int), np.full(len(same), num_rounds + 1)
    for index in range(same.shape[1]):
        calm = np.where(same[:, index], calm + 1, 0)
        stable[(calm >= cell["patience"]) & (stable > num_rounds)] = index + 2
    frozen = frozen_square(trace.counts[:, half], **sizes)
    return {"square": np.mean(own**2, axis=(1, 2)), "frozen": frozen, "stable": stable}


def median(
    values: Float[np.ndarray, " trials"], *, error_rate: float
) -> study.Estimate:
    """The median and its exact interval by order statistics, the r-th ones with
    P(Bin(trials, 1/2) < r) at most half the error rate; else infinite.
    """
    import scipy.stats  # Slow to import.

    ordered, trials = np.sort(values), len(values)
    ranks = np.arange(1, trials + 1)
    allowed = scipy.stats.binom.cdf(ranks - 1, trials, 0.5) <= error_rate / 2
    rank = int(ranks[allowed].max()) if allowed.any() else 0
    low, high = (
        (ordered[rank - 1], ordered[trials - rank]) if rank else (-math.inf, math.inf)
    )
    middle = ordered[[(trials - 1) // 2, trials // 2]]
    value = float(middle[0]) if middle[0] == middle[1] else float(middle.mean())
    return study.Estimate(value, float(low), float(high))


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for each cell and arm on data drawn once, then one for each n'."""
    reused = sum(cell["kind"] == "reused" for cell in cells)
    number = 3 * len(ARMS) * reused + 2 * reused + 2 * (len(cells) - reused)
    joint = study.jointly(config, number)
    table: list[study.Row] = []
    for cell, own in zip(cells, results, strict=True):
        if cell["kind"] == "fresh":
            table.append(_fresh_row(cell, own, joint))
        else:
            table += [_reused_row(cell, own, arm, joint) for arm in ARMS]
    return table


def _reused_row(
    cell: study.Cell, own: study.Arrays, arm: str, joint: study.Intervals
) -> study.Row:
    index = ARMS.index(arm)
    spent, known = own["bits"][index], own["bits"][-1]
    reached, trials = int(np.sum(np.isfinite(spent))), len(spent)
    row = {"kind": "reused", "num_clusters": cell["num_clusters"]}
    row |= {"start": "random" if cell["start_distance"] is None else "near"}
    row |= {"num_samples": cell["num_samples"], "arm": arm, "trials": trials}
    transfers = spent / (FLOAT_BITS * cell["num_features"])
    row |= study.columns(
        reached=joint.chance(reached, trials),
        transfers=median(transfers, error_rate=joint.error_rate),
    )
    row["rounds"] = float(np.median(own["rounds"][index]))
    logs = np.log(own["final"][index] / own["final"][0])
    row |= study.columns(final_to_ifca=joint.geometric(logs))
    if arm == IFCA:
        stable = own["stable"].astype(float)
        row |= study.columns(stable=median(stable, error_rate=joint.error_rate))
    both = np.isfinite(spent) & np.isfinite(known)
    if np.sum(both) >= 2:
        logs = np.log(spent[both] / known[both])
        row |= study.columns(to_known=joint.geometric(logs))
    return row


def _fresh_row(
    cell: study.Cell, own: study.Arrays, joint: study.Intervals
) -> study.Row:
    trials, samples = len(own["stable"]), cell["num_samples"]
    fired = int(np.sum(own["stable"] <= cell["num_rounds"]))
    row = {"kind": "fresh", "num_samples": samples, "trials": trials}
    row |= study.columns(
        excess=joint.ratio(own["frozen"], own["square"]).root(),
        stable_share=joint.chance(fired, trials),
    )
    q = float(law.misassignment_probability(math.sqrt(cell["rho"]) / 2, samples))
    return row | {"misassigned_law": q, "floor": float(np.sqrt(own["square"].mean()))}


def _groups(config: Config) -> list[study.Row]:
    """Settings that share a panel."""
    near = [{"num_clusters": k, "start": "near"} for k in config.num_clusters]
    return [*near, {"num_clusters": 2, "start": "random"}]


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The rules of the header, from the rows alone."""
    last = study.at(table, num_samples=max(config.num_samples), kind="reused")
    costs = []
    for row in study.at(last, arm=IFCA, start="near"):
        factor = (row["num_clusters"] + 1) / 2
        if row.get("to_known") is not None:
            costs.append(study.read(row, "to_known").within(0.9 * factor, 1.1 * factor))
    cheaper = []
    for group in _groups(config):
        one, frozen = (
            study.read(row, "transfers")
            for arm in (ONE_SHOT, FROZEN)
            for row in study.at(last, arm=arm, **group)
        )
        cheaper.append(frozen.above(one))
    most, free = 1 + config.margin, "freezing stable identities costs no accuracy from "
    harmless: dict[str, study.Verdict] = {
        f"{free}{start} starts": study.within(
            study.at(table, arm=FROZEN, start=start), "final_to_ifca", 0.0, most
        )
        for start in ("near", "random")
    }
    return {
        "at the most samples IFCA costs (k + 1)/2 times known clusters": study.all_of(
            costs
        ),
        **harmless,
        "at the most samples one-shot needs the fewest bits": study.all_of(cheaper),
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """What each arm costs at the most samples, and what freezing loses."""
    factor, *harmless, fewest = decisions.values()
    few, many = min(config.num_samples), max(config.num_samples)
    k, margin = max(config.num_clusters), f"{config.margin:.0%}"
    spent = [
        f"{study.read(row, 'transfers')} by {row['arm'].replace(',', '')}"
        for row in study.at(table, num_samples=many, num_clusters=k, start="near")
    ]
    ratio = study.farthest(
        study.read(row, "to_known").over((row["num_clusters"] + 1) / 2)
        for row in study.at(table, arm=IFCA, num_samples=many, start="near")
        if row.get("to_known") is not None
    )
    freezing = []
    for start, found in zip(("near", "random"), harmless, strict=True):
        own = study.at(table, arm=FROZEN, start=start)
        most = study.farthest(study.read(row, "final_to_ifca") for row in own)
        does = study.told(
            found,
            yes=f"costs at most {margin} in error from {start} starts",
            no=f"costs more than {margin} in error from some {start} starts",
            undecided=f"cannot be told to cost at most {margin} in error from {start} "
            "starts",
        )
        freezing.append(f"{does} (errors differ most by a factor of {most})")
    reached = [row["reached"] for row in study.at(table, arm=ONE_SHOT, num_samples=few)]
    first = study.told(
        fewest,
        yes="One-shot clustering of the clients' own models costs least",
        no="One-shot clustering of the clients' own models does not always cost least",
        undecided="Whether one-shot clustering of the clients' own models costs least "
        "cannot be told",
    )
    second = study.told(
        factor,
        yes="IFCA costs (k + 1)/2 times what known clusters cost, as predicted",
        no="IFCA does not cost the predicted (k + 1)/2 times what known clusters cost",
        undecided="Whether IFCA costs (k + 1)/2 times what known clusters cost cannot "
        "be told",
    )
    return (
        f"{first} where samples are many (n = {many}), but at n = {few} it reaches the "
        f"target, {TARGET:g} times the oracle's error, in {min(reached):.0%} to "
        f"{max(reached):.0%} of the runs. At n = {many} and k = {k}, started near the "
        "truths, a client receives and sends these many models until the target: "
        f"{study.listed(spent)}. {second} (measured over predicted {ratio}); freezing "
        f"identities that were stable for {config.patience} rounds "
        f"{study.listed(freezing)}. This is linear regression with d = "
        f"{config.num_features} on data drawn once, medians and means of "
        f"{config.num_trials} data sets, told by the server when to stop; of networks "
        f"it says nothing, and {study.legend(config.error_rate)}, nominally."
    )


def predicted_excess(
    config: Config, samples: Float[np.ndarray, " folds"]
) -> Float[np.ndarray, " folds"]:
    """Error with one round's identities kept over IFCA's, to second order.

    The bias q and the spread V of `frozen_square` are shared. The share w of foreign
    clients has variance v = q (1-q) ((1-q)^2 + q^2) 2/m; kept, it counts whole, while
    IFCA of step x averages rounds and keeps x / (2-x) of it.
    """
    q = law.misassignment_probability(math.sqrt(config.rho) / 2, samples)
    v = q * (1 - q) * ((1 - q) ** 2 + q**2) * 2 / config.fresh_clients
    exact = config.fresh_clients / 2 * np.array([[1 - q, q], [q, 1 - q]])
    sizes = {"num_features": config.fresh_features, "rho": config.rho}
    shared = np.array(
        [
            frozen_square(counts, num_samples=float(number), **sizes)
            for counts, number in zip(np.moveaxis(exact, -1, 0), samples, strict=True)
        ]
    )
    return np.sqrt((shared + v) / (shared + v * STEP / (2 - STEP)))


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Transfers to the target against n, by arm; and freezing."""
    return {
        "bits": report.curves(
            [_bits_panel(config, table, group) for group in _groups(config)],
            title=f"Communication until the error is {TARGET:g} × the oracle's, "
            f"d = {config.num_features}, ρ = {config.rho:g}",
            legend_title=f"medians of {config.num_trials} data sets, missing where "
            "half of them or more do not reach it;\nintervals by order statistics hold "
            f"jointly at {1 - config.error_rate:.0%}; points moved aside",
            panels_per_row=2,
        ),
        "freezing": report.curves(
            _freezing_panels(config, table),
            title="Freezing the identities",
            legend_title="medians by order statistics, ratios by Student's; "
            f"{study.legend(config.error_rate)}; points moved aside",
        ),
    }


def _bits_panel(
    config: Config, table: study.Rows, group: study.Row
) -> report.CurvePanel:
    restarts, start = 1, f"{config.start_distance:g} Δ from the truths"
    if group["start"] == "random":
        restarts = config.num_restarts
        start = f"random, {restarts} restarts"
    lines = []
    for arm in ARMS:
        own = study.at(table, arm=arm, **group)
        names = ("num_samples", "transfers", "transfers_low", "transfers_high")
        x, y, low, high = (study.column(own, name) for name in names)
        # Open intervals end beyond the axis; there is none where the median is open.
        y, low, high = (
            np.where(np.isfinite(y), np.clip(end, 1e-9, 1e9), np.nan)
            for end in (y, low, high)
        )
        lines.append(report.Curve(arm, x, y, low, high))
    known, factor = lines[-1], (group["num_clusters"] + 1) / 2 * restarts
    label = "known × (k + 1)/2 × restarts"
    lines.append(report.Curve(label, known.x, factor * known.y, like=IFCA))
    title = f"k = {group['num_clusters']}, start {start}"
    y = "model transfers per client"
    return study.panel(lines, SAMPLES, y, title, "xy", y_limits=(1.0, 3000.0))


def _freezing_panels(config: Config, table: study.Rows) -> list[report.CurvePanel]:
    """When identities are stable, and what freezing them costs."""

    def lines(arm: str, name: str) -> list[report.Curve]:
        return [
            study.curve(
                study.at(table, arm=arm, **group),
                f"k = {group['num_clusters']}, {group['start']} start",
                "num_samples",
                name,
            )
            for group in _groups(config)
        ]

    fresh, own = "frozen at once, fresh data", study.at(table, kind="fresh")
    folds = np.geomspace(min(config.fresh_samples), max(config.fresh_samples), 60)
    excess = [
        study.curve(own, fresh, "num_samples", "excess"),
        report.Curve(
            study.PREDICTED, folds, predicted_excess(config, folds), like=fresh
        ),
    ]
    calm, lost = "rounds until identities are stable", "error frozen / not frozen"
    once = f"no change for {config.patience} rounds, data drawn once"
    kept, anew = "frozen when stable, data drawn once", "one round's identities kept, "
    return [
        study.panel(lines, x, y, title, "x", y_limits=None)
        for lines, x, y, title in (
            (lines(IFCA, "stable"), SAMPLES, calm, once),
            (lines(FROZEN, "final_to_ifca"), SAMPLES, lost, kept),
            (excess, "samples per fold n'", lost, f"{anew}fresh data"),
        )
    ]


STUDY = study.Study("reviews.comm", 1, cells, compute, rows, decide, answer, figures)
main = STUDY.main
