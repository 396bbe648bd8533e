"""How many samples should a client spend on finding its cluster?

Reviewer:  the size of the mini-batch on which losses are evaluated to find the cluster
           adds noise that prevents finding it; was the full data set used, and is
           there an effect on the convergence?
Command:   python -m experiments run reviews.idbatch --preset paper
Quick:     the same with --preset quick: fewer clients, runs and batch sizes
Measured:  paper, 1.8 minutes of one core of an AMD EPYC: 1 and 4 hold; of 2 the first
           form is off by up to 22 %, that to second order by at most 1.4 %
Predicted: Delta = 1, rho = (Delta / sigma)^2, two clusters, b samples for the identity
           and n' for the gradient.
           1. At the true models a client errs with q = P(t_b >= sqrt(b rho) / 2).
           2. With gradients averaged over a cluster's members the models are drawn
           together, but their bisector stays, and with it q: floor^2 = (q Delta)^2 +
           oracle^2. To second order, with v = q (1-q) ((1-q)^2 + q^2) 2/m the variance
           of a model's share of foreign clients, N = m n'/2 and c = (d+1)/N,
           floor^2 (1 - c) = (q^2 + v + c q (1 - 2q)) Delta^2 + sigma^2 d / N.
           3. The least b with q <= 1e-3 is at most log(1 / (2 * 1e-3)) / E, with
           E = log(1 + rho/4) / 2 (Chernoff).
           4. From random starts few samples help: near-random identities feed both
           models, exact ones let one model take all clients, and a model without
           clients never moves.
Rule:      1 by all intervals and chi-square; 2 by floors within 5 % for either form; 4
           where the intervals of success with b doubled from 1 and with the last b
           from the start are apart, first stages differing only.
Differs:   the paper uses all local data for the identity (so its released code), and
           its theory starts near the truth. Misassignments of 1 are counted on
           clients' drawn residuals; floors and random starts follow the exact law.
"""

import math
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from cfljax import law, report
from experiments.checks import configuration
from experiments.reviews import exact_law, study

EXPERIMENTS = {
    "reviews.idbatch": {
        "title": "what the batch size of the identity estimate does, near and far"
    }
}
BURN_IN = 5  # Rounds from the truth until nothing of the start is left (step x = 1).
MARGIN = 0.05
BATCH = "samples for the identity b"
BATCHES = "identity_samples"


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    rho: tuple[float, ...] = (1.0, 4.0, 16.0)
    """Squared separation over noise variance; at most 3 values fit the figure."""
    identity_samples: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
    """b, samples for the identity."""
    num_clients: int = 200  # m, half of them in each cluster.
    num_samples: int = 100  # n', samples for the gradient.
    num_features: int = 20  # d.
    num_raw_clients: int = 200_000
    """Clients whose residuals are drawn, for each rho and b."""
    num_trials: int = 200  # Of the stationary runs.
    num_rounds: int = 25  # T of the stationary runs, of which the first are left out.
    target: float = 1e-3  # Misassignment that the least b has to reach.
    escape_clusters: tuple[int, ...] = (2, 4)  # k of the runs from random starts.
    escape_samples: tuple[int, ...] = (2, 32, 100, 1000)
    """b of their first stage; the last one is the second stage's b for all."""
    escape_features: int = 200  # d of the runs from random starts.
    escape_clients: int = 200
    """m of the runs from random starts, a multiple of every k."""
    escape_rho: float = 4.0  # rho of the runs from random starts.
    escape_rounds: int = 48  # Rounds of each of the two stages, a multiple of 8.
    escape_trials: int = 60  # Random starts, the same ones for every b.
    seed: int = 0  # Of everything.
    error_rate: float = 0.05  # Of all intervals of each figure together.

    def __post_init__(self) -> None:
        tuples = ("rho", "identity_samples", "escape_clusters", "escape_samples")
        ones = ("identity_samples", "num_samples", "num_raw_clients", "escape_samples")
        twos = ("num_clients", "num_features", "num_trials", "escape_clusters")
        twos += ("escape_features", "escape_clients", "escape_trials")
        study.check(
            self,
            different=tuples,
            at_least={
                1e-6: ("rho", "escape_rho"),
                1: ones,
                2: twos,
                BURN_IN + 1: ("num_rounds",),
                8: ("escape_rounds",),
            },
        )
        if len(self.rho) > 3 or len(self.escape_clusters) > 3:
            raise ValueError(
                "`rho` and `escape_clusters` must hold at most 3 values, got "
                f"{self.rho} and {self.escape_clusters}."
            )
        if not 0 < self.target < 0.5:
            raise ValueError(f"`target` must lie in (0, 1/2), got {self.target}.")
        if self.escape_rounds % 8:
            raise ValueError(
                f"`escape_rounds` must be a multiple of 8, got {self.escape_rounds}."
            )
        for clients, clusters in (
            (self.num_clients, (2,)),
            (self.escape_clients, self.escape_clusters),
        ):
            if any(clients % k for k in clusters):
                raise ValueError(
                    "`num_clients` must be even and `escape_clients` a multiple of "
                    f"each of `escape_clusters`, got {clients} for {clusters}."
                )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config()
    return Config(
        num_raw_clients=2_000_000,
        num_trials=1000,
        num_rounds=45,
        escape_samples=(1, 2, 4, 8, 16, 32, 64, 100, 300, 1000, 100_000),
        escape_trials=400,
    )


def cells(config: Config) -> list[study.Row]:
    """All cells, stationary ones first."""
    same = study.fields(config, "num_samples", "seed")
    sizes = ("num_clients", "num_features", "num_raw_clients", "num_trials")
    near = {"kind": "stationary"} | study.fields(config, *sizes, "num_rounds")
    far = {
        "kind": "escape",
        "last_samples": config.escape_samples[-1],
        "rho": config.escape_rho,
        "num_clients": config.escape_clients,
        "num_features": config.escape_features,
        "num_trials": config.escape_trials,
        "num_rounds": config.escape_rounds,
    }
    doubled = 0  # Stands for that schedule.
    return [
        *study.grid(same | near, rho=config.rho, samples=config.identity_samples),
        *study.grid(
            same | far,
            clusters=config.escape_clusters,
            samples=(*config.escape_samples, doubled),
        ),
    ]


def compute(cell: study.Cell) -> study.Arrays:
    """One cell of either kind."""
    return _stationary(cell) if cell["kind"] == "stationary" else _escape(cell)


def misassigned_raw(
    generator: np.random.Generator, rho: float, samples: int, clients: int
) -> int:
    """Clients, out of so many, whose residuals on the other cluster's true model are
    the smaller: y - <x, own> = sigma z and y - <x, other> = sigma z + Delta x_1."""
    wrong = 0
    block = max(1, 2_000_000 // samples)
    for start in range(0, clients, block):
        size = (min(block, clients - start), samples)
        own = generator.standard_normal(size)
        other = own + math.sqrt(rho) * generator.standard_normal(size)
        wrong += int(np.sum(np.sum(other**2, axis=1) <= np.sum(own**2, axis=1)))
    return wrong


def _stationary(cell: study.Cell) -> study.Arrays:
    """Mean square distance and misassigned share of runs that start at the truth."""
    rho, samples = cell["rho"], cell["samples"]
    population = exact_law.population(cell, 2)
    trace = exact_law.run(
        study.key(cell["seed"], 1, samples),
        population,
        population.truths,
        cell,
        step_size=0.5,
        divisor="cluster",
        identity_samples=float(samples),
    )
    own = exact_law.own_distances(population, trace.models[:, 1 + BURN_IN :])
    wrong = exact_law.misassigned(trace.counts[:, BURN_IN:])
    generator = study.generator(cell["seed"], 2, samples, int(1000 * rho))
    raw = misassigned_raw(generator, rho, samples, cell["num_raw_clients"])
    return {
        "square": np.mean(own**2, axis=(1, 2)),
        "wrong_share": np.mean(wrong, axis=(1, 2)) / (cell["num_clients"] / 2),
        "raw_wrong": np.array(raw),
    }


def _escape(cell: study.Cell) -> study.Arrays:
    """Largest final distance over clusters, models matched one to one, and clusters
    without clients, from random starts."""
    import scipy.optimize  # Slow to import.

    k, trials = cell["clusters"], cell["num_trials"]
    population = exact_law.population(cell, k)
    models = exact_law.random_models(study.key(cell["seed"], 3, k), population, trials)
    # b of every eighth of the two stages: fixed, or doubled from 1 on.
    last = cell["last_samples"]
    first = [cell["samples"] or min(2**i, last) for i in range(8)]
    counts = np.zeros((trials, k, k))
    for index, samples in enumerate(first + [last] * 8):
        trace = exact_law.run(
            study.key(cell["seed"], 4, k, index),
            population,
            models,
            cell,
            num_rounds=cell["num_rounds"] // 8,
            step_size=k / 4,  # Effective step 2 gamma p = 1/2.
            identity_samples=float(samples),
        )
        models, counts = trace.models[:, -1], trace.counts[:, -1]
    apart = law.distances(population.truths, models)
    matched = [table[scipy.optimize.linear_sum_assignment(table)] for table in apart]
    return {
        "distance": np.max(matched, axis=1),
        "empty": np.sum(np.sum(counts, axis=1) == 0, axis=1),
    }


def _second_order(q: float, rho: float, cell: study.Cell) -> float:
    """Predicted floor^2 in units of Delta^2, see the header."""
    rows = cell["num_samples"] * cell["num_clients"] / 2
    ratio = (cell["num_features"] + 1) / rows
    spread = q * (1 - q) * ((1 - q) ** 2 + q**2) * 2 / cell["num_clients"]
    bias = q**2 + spread + ratio * q * (1 - 2 * q)
    return (bias + cell["num_features"] / rows / rho) / (1 - ratio)


def least_samples(rho: float, target: float) -> int:
    """Least b with P(t_b >= sqrt(b rho) / 2) <= target; the law falls in b."""
    bound = math.ceil(math.log(1 / (2 * target)) / (math.log1p(rho / 4) / 2))
    counts = np.arange(1, bound + 1)
    law_values = law.misassignment_probability(math.sqrt(rho) / 2, counts)
    return int(counts[np.argmax(law_values <= target)])


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row per cell; intervals of each kind hold together at the error rate."""
    kinds = [cell["kind"] for cell in cells]
    make = {"stationary": (_near_row, 3), "escape": (_far_row, 1)}
    names = ("num_clients", "num_samples", "num_features", "num_rounds", "num_trials")
    table = []
    for kind, cell, own in zip(kinds, cells, results, strict=True):
        row, checks = make[kind]
        joint = study.jointly(config, checks * kinds.count(kind))
        found = row(cell, own, joint) | {"interval_error_rate": joint.error_rate}
        table.append(found | {name: cell[name] for name in names})
    return table


def _near_row(cell: study.Cell, own: study.Arrays, joint: study.Intervals) -> study.Row:
    rho, samples, clients = cell["rho"], cell["samples"], cell["num_raw_clients"]
    q = float(law.misassignment_probability(math.sqrt(rho) / 2, samples))
    wrong = int(own["raw_wrong"])
    raw = joint.chance(wrong, clients)
    share = joint.mean(own["wrong_share"])
    floor = joint.mean(own["square"]).root()
    rows = cell["num_samples"] * cell["num_clients"] / 2
    oracle = float(law.oracle_risk(rows, cell["num_features"], rho**-0.5))
    return (
        {"kind": "stationary", "rho": rho, BATCHES: samples}
        | {"law": q, "raw_clients": clients, "raw_wrong": wrong}
        | study.columns(misassigned=raw, stationary_misassigned=share, floor=floor)
        | {"floor_first_order": math.sqrt(q**2 + oracle)}
        | {"floor_second_order": math.sqrt(_second_order(q, rho, cell))}
        | {"oracle": math.sqrt(oracle)}
    )


def _far_row(cell: study.Cell, own: study.Arrays, joint: study.Intervals) -> study.Row:
    k, rho = cell["clusters"], cell["rho"]
    rows = cell["num_samples"] * cell["num_clients"] / k
    limit = 2 * float(law.stationary_floor(rows, cell["num_features"], rho**-0.5, 0.5))
    good = own["distance"] <= limit
    return (
        {"kind": "escape", "rho": rho, BATCHES: cell["samples"]}
        | {"clusters": k, "schedule": "fixed" if cell["samples"] else "doubled"}
        | {"last_samples": cell["last_samples"], "successes": int(np.sum(good))}
        | study.columns(success=joint.share(good))
        | {"collapsed": int(np.sum(own["empty"] > 0)), "success_distance": limit}
    )


def _far(table: study.Rows, clusters: int) -> tuple[study.Rows, study.Cell]:
    """Rows of fixed b, and that of the doubled schedule."""
    own = study.at(table, kind="escape", clusters=clusters)
    (doubled,) = study.at(own, schedule="doubled")
    return study.at(own, schedule="fixed"), doubled


def _p_value(table: study.Rows) -> float:
    """Of Pearson's chi-square of the raw counts against the law, over the cells in
    which at least 5 of either kind are expected."""
    import scipy.stats  # Slow to import.

    near, names = study.at(table, kind="stationary"), ("raw_clients", "raw_wrong")
    clients, wrong, q = (study.column(near, name) for name in (*names, "law"))
    kept = clients * np.minimum(q, 1 - q) >= 5
    terms = (wrong - clients * q) ** 2 / (clients * q * (1 - q))
    return float(scipy.stats.chi2.sf(terms[kept].sum(), kept.sum()))


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The rules of the header, from the rows alone."""
    own = study.at(table, kind="stationary")
    held = all(r["misassigned_low"] <= r["law"] <= r["misassigned_high"] for r in own)
    fits = held and _p_value(table) > 1e-3

    def follows(form: str) -> study.Verdict:
        return study.all_of(
            study.read(row, "floor").over(row[form]).within(1 - MARGIN, 1 + MARGIN)
            for row in own
        )

    rules: dict[str, study.Verdict] = {
        "misassignment follows the law": "yes" if fits else "no",
        "floor^2 = (q Delta)^2 + oracle^2 within 5 %": follows("floor_first_order"),
        "the second-order form within 5 %": follows("floor_second_order"),
    }
    for clusters in sorted(config.escape_clusters):
        fixed, doubled = _far(table, clusters)
        few, full = (study.read(row, "success") for row in (doubled, fixed[-1]))
        rules[f"few samples help random starts, k = {clusters}"] = few.above(full)
    return rules


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """What the samples for the identity do near the truth and from random starts."""
    follows, simple, _, *helps = decisions.values()
    near = study.at(table, kind="stationary")
    rho = min({row["rho"] for row in near}, key=lambda value: abs(value - 4))
    shown = sorted(study.at(near, rho=rho), key=lambda row: row[BATCHES])
    few, many = shown[0], shown[-1]
    wrong, floor = (
        [study.read(row, name) for row in (few, many)]
        for name in ("misassigned", "floor")
    )
    off = [
        max(abs(row["floor"] / row[form] - 1) for row in near)
        for form in ("floor_first_order", "floor_second_order")
    ]
    least = [
        f"{least_samples(value, config.target)} at ρ = {value:g}"
        for value in sorted(config.rho)
    ]
    escapes = []
    for clusters, helped in zip(sorted(config.escape_clusters), helps, strict=True):
        fixed, doubled = _far(table, clusters)
        does = study.told(helped, yes="help", no="harm", undecided="may help or harm")
        escapes.append(
            f"{does} at k = {clusters} (success {study.read(doubled, 'success')} with "
            f"b doubled from 1, {study.read(fixed[-1], 'success')} with b = "
            f"{fixed[-1][BATCHES]} throughout)"
        )
    first = study.told(
        study.all_of(one.above(other) for one, other in (wrong, floor)),
        yes="Near the true models the more the better, for fewer clients are then in a "
        "wrong cluster and the final error is smaller",
        no="Near the true models more samples are not better",
        undecided="Whether more samples are better near the true models cannot be told",
    )
    second = study.told(
        follows,
        yes="Clients err as Student's law has it",
        no="Clients do not err as Student's law has it",
        undecided="Whether clients err as Student's law has it cannot be told",
    )
    third = study.told(
        simple,
        yes=f"is the final one within {MARGIN:.0%}",
        no=f"is not the final one within {MARGIN:.0%}",
        undecided=f"may or may not be the final one within {MARGIN:.0%}",
    )
    return (
        f"{first} (at ρ = (Δ/σ)² = {rho:g} a share of {wrong[0]} with b = "
        f"{few[BATCHES]} and {wrong[1]} with b = {many[BATCHES]}, and errors of "
        f"{floor[0]} and {floor[1]} Δ). {second}, by which a share of "
        f"{config.target:g} takes b = {study.listed(least)}; the predicted error "
        f"sqrt((q Δ)² + oracle²), q that share, {third} (up to {off[0]:.1%} off, "
        f"{off[1]:.1%} with terms of second order). From random starts, few samples at "
        f"first {study.listed(escapes)}. The paper uses all local data for this, and "
        "so does its released code; these runs are linear regression with fresh data "
        "in every round and tell where they end, not how fast, and "
        f"{study.legend(config.error_rate)} in each of both parts."
    )


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Misassignment, floor and least b, beside what the laws say of them; success from
    random starts against b of the first stage."""
    together = f"{100 * (1 - config.error_rate):g} % for all points together"
    return {
        "floor": report.curves(
            _floor_panels(config, table),
            title="How many samples should estimate a client's identity?",
            legend_title=f"intervals: exact binomial or Student's, {together}",
        ),
        "escape": report.curves(
            [_escape_panel(config, table)],
            title="Random starts against samples for the identity",
            legend_title=f"intervals: exact binomial, {together};\n"
            f"{config.escape_trials} random starts, the same at every b",
        ),
    }


def _floor_panels(config: Config, table: study.Rows) -> list[report.CurvePanel]:
    values = sorted(config.rho)
    batches = sorted(map(float, config.identity_samples))
    dense = np.unique(np.geomspace(batches[0], batches[-1], 200).round())
    errors, floors = [], []
    for rho in values:
        own = study.at(table, kind="stationary", rho=rho)
        own, name = sorted(own, key=lambda row: row[BATCHES]), f"ρ = {rho:g}"
        errors.append(study.curve(own, name, BATCHES, "misassigned"))
        q = law.misassignment_probability(math.sqrt(rho) / 2, dense)
        errors.append(report.Curve("law P(t_b ≥ √(bρ)/2)", dense, q, like=name))
        floors.append(study.curve(own, name, BATCHES, "floor"))
        prediction = np.sqrt(q**2 + own[0]["oracle"] ** 2)
        floors.append(report.Curve("√((qΔ)² + oracle²)", dense, prediction, like=name))
    grid = np.geomspace(values[0] / 4, values[-1] * 4, 60)
    least = np.array([least_samples(rho, config.target) for rho in grid], float)
    bound = math.log(1 / (2 * config.target)) / (np.log1p(grid / 4) / 2)
    needed = report.Curve("least b of the law", grid, least)
    needs = [needed, report.Curve("Chernoff's bound", grid, bound, like=needed.label)]
    wrong, raw = "misassigned clients q", "At the true models, counted on raw residuals"
    floor, stationary = "floor / separation Δ", "Stationary error of IFCA"
    ratio = "squared separation over noise variance ρ = (Δ/σ)²"
    title = f"Least b for q ≤ {config.target:g}"
    return [
        study.panel(errors, BATCH, wrong, raw, "xy", y_limits=(1e-6, 1.0)),
        study.panel(floors, BATCH, floor, stationary, "xy", y_limits=None),
        study.panel(needs, ratio, BATCH, title, "xy", y_limits=None),
    ]


def _escape_panel(config: Config, table: study.Rows) -> report.CurvePanel:
    lines, levels = [], []
    for clusters in sorted(config.escape_clusters):
        fixed, doubled = _far(table, clusters)
        own, name = sorted(fixed, key=lambda row: row[BATCHES]), f"k = {clusters}, "
        lines.append(study.curve(own, f"{name}fixed b", BATCHES, "success"))
        success, like = doubled["success"], lines[-1].label
        levels.append(report.Level(f"{name}b doubled from 1", success, like=like))
    title = (
        f"Then b = {config.escape_samples[-1]} for {config.escape_rounds} rounds; "
        f"success: error ≤ 2 × floor\nρ = {config.escape_rho:g}, "
        f"d = {config.escape_features}, m = {config.escape_clients}, "
        f"n' = {config.num_samples}"
    )
    b = f"{BATCH} in the first {config.escape_rounds} rounds"
    return study.panel(lines, b, "success probability", title, "x", levels=levels)


STUDY = study.Study("reviews.idbatch", 1, cells, compute, rows, decide, answer, figures)
main = STUDY.main
