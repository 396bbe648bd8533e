"""Does it matter that the theory draws fresh data in every round?

Reviewer:  the analysis assumes re-sampled data while the experiments may use all local
           data; which is it, and what does it change?
Command:   python -m experiments run reviews.resample --preset paper
Quick:     the same with --preset quick: d = 100 in place of 250, fewer data sets
Measured:  paper, 6 minutes of one core of an AMD EPYC: all rules hold; runs lock in at
           all of N/d = 1.6 and at .09 [.04, .19] of N/d = 8
Predicted: folds cost: with n samples dealt out over 2T folds the floor of T rounds is
           that of a fold, sqrt(2T) times least squares' on all data; exactly, for full
           steps gamma = 1/(2p), sqrt((N - d - 1) / (N/(2T) - d - 1)), N = m n / 2.
           Pilots: 3.26, 4.61, 6.51 for T = 5, 10, 20. Reuse costs too: from random
           starts models fit the clients that they have, who then stay; pilots saw
           .63-.81 of the runs locked in at N/d = 2.4 and at most .19 at N/d = 5.
Rule:      ratios within 5 % of sqrt(2T) by their whole intervals; lock-in falls where
           the intervals at the smallest and largest N/d are apart.
Differs:   floors of fresh folds come from the exact law, those of reused data from
           IFCA on drawn samples; starts a quarter of the way from each truth to the
           other. "Fresh data" for random starts are n new samples for the identity and
           n for the gradient in every round: more data, on purpose, so that only the
           reuse differs.
"""

import math
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int
from matplotlib.figure import Figure

from cfljax import law, report
from experiments.checks import configuration
from experiments.reviews import exact_law, fixed_data, study

EXPERIMENTS = {
    "reviews.resample": {
        "title": "fresh folds against reused data: floors, and runs that lock in"
    }
}
ARMS = {
    "fixed": "data drawn once",
    "fresh": "fresh data in every round",
    "from_truth": "data drawn once, from the truth",
}
OUTCOMES = ("recovered", "nearly recovered", "locked in", "collapsed", "moving")
STABLE = 20  # Rounds without a change of identity that make a run settled.
RATIO = "floor, fresh folds / reused data"


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    floor_rounds: tuple[int, ...]
    """T: a client's n samples are dealt out over 2T folds."""
    floor_samples: int  # n of the floors, a multiple of 2T for every T.
    num_samples: tuple[int, ...]  # n of the random starts.
    rho: tuple[float, ...]
    """Squared separation over noise variance of the random starts."""
    num_features: int  # d of the random starts.
    num_clients: int  # m of the random starts, even.
    num_trials: int  # Data sets with a random start each, in every cell.
    num_rounds: int = 150  # T of the random starts.
    step_size: float = 0.5  # Gamma of the random starts, divisor m.
    floor_rho: float = 4.0  # rho of the floors.
    floor_features: int = 20  # d of the floors.
    floor_clients: int = 100  # m of the floors, even.
    floor_trials: int = 2000  # Runs on fresh folds.
    fixed_trials: int = 200  # Data sets for the floor of reused data.
    margin: float = 0.05  # Relative deviation that the floor's law may have.
    seed: int = 0  # Of everything.
    error_rate: float = 0.05  # Of all intervals together.

    def __post_init__(self) -> None:
        twos = ("num_features", "num_clients", "floor_clients")
        study.check(
            self,
            different=("floor_rounds", "num_samples", "rho"),
            at_least={
                0: ("margin",),
                1e-9: ("step_size",),
                1e-6: ("rho", "floor_rho"),
                1: ("floor_rounds", "floor_samples", "num_samples", "num_trials"),
                2: (*twos, "floor_trials", "fixed_trials"),
                6: ("floor_features",),
                STABLE + 1: ("num_rounds",),
            },
        )
        for name in ("num_clients", "floor_clients"):
            if getattr(self, name) % 2:
                raise ValueError(f"`{name}` must be even, got {getattr(self, name)}.")
        if any(self.floor_samples % (2 * rounds) for rounds in self.floor_rounds):
            raise ValueError(
                "`floor_samples` must be a multiple of 2T for every T of "
                f"`floor_rounds`, got {self.floor_samples} for {self.floor_rounds}."
            )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    quick = name == "quick"
    return Config(
        floor_rounds=(5, 10, 20, 40),
        floor_samples=1600,
        num_samples=(8, 10, 12, 15, 18, 25, 40),
        rho=(4.0, 16.0),
        num_features=100 if quick else 250,
        num_clients=40 if quick else 100,
        num_trials=60 if quick else 200,
        fixed_trials=200 if quick else 1000,
    )


def cells(config: Config) -> list[study.Row]:
    """Floors on fresh folds by T, the floor on reused data, random starts."""
    floor = {
        "num_samples": config.floor_samples,
        "rho": config.floor_rho,
        "num_features": config.floor_features,
        "num_clients": config.floor_clients,
        "num_rounds": max(config.floor_rounds),
        "seed": config.seed,
    }
    fresh = floor | {"kind": "fresh", "num_trials": config.floor_trials}
    fixed = floor | {"kind": "fixed", "num_trials": config.fixed_trials}
    shared = ("num_features", "num_clients", "num_trials", "num_rounds", "step_size")
    starts = study.fields(config, *shared, "seed") | {"kind": "starts"}
    return [
        *study.grid(fresh, rounds=config.floor_rounds),
        fixed,
        *study.grid(starts, rho=config.rho, num_samples=config.num_samples),
    ]


def compute(cell: study.Cell) -> study.Arrays:
    """One cell of any kind."""
    kinds = {"fresh": _fresh_floor, "fixed": _fixed_floor, "starts": _random_ends}
    return kinds[cell["kind"]](cell)


def _near_models(truths: np.ndarray) -> np.ndarray:
    """A quarter of the way from each truth to the other one."""
    return 0.75 * truths + 0.25 * truths[::-1]


def _fresh_floor(cell: study.Cell) -> study.Arrays:
    """Mean square distance after T rounds of 2T folds, full steps gamma = 1/(2p)."""
    rounds, truths = cell["rounds"], exact_law.truths(2)
    samples = cell["num_samples"] / (2 * rounds)
    population = exact_law.population(cell, 2, num_samples=samples)
    starts = law.place(truths, _near_models(truths), num_features=cell["num_features"])
    # For as many rounds, and so by the same program, at every T.
    key = study.key(cell["seed"], 1, rounds)
    trace = exact_law.run(key, population, starts, cell, step_size=1.0)
    own = exact_law.own_distances(population, trace.models[:, rounds])
    wrong = exact_law.misassigned(trace.counts[:, rounds - 1])
    return {"square": np.mean(own**2, axis=1), "wrong": np.sum(wrong, axis=1)}


def _fixed_floor(cell: study.Cell) -> study.Arrays:
    """The same where every round uses all of the client's samples."""

    def one(trial: int) -> study.Row:
        generator = study.generator(cell["seed"], 2, trial)
        problem = fixed_data.problem_of(cell, generator, num_clusters=2)
        start, rounds = _near_models(problem.truths)[None], cell["num_rounds"]
        models = fixed_data.ifca_runs(problem.clients, start, np.ones(1), rounds)
        return {"square": np.mean(np.sum((models[0] - problem.truths) ** 2, axis=1))}

    return study.stacked(cell["num_trials"], one)


def outcome(
    assignment: Int[np.ndarray, "runs clients"],
    clusters: Int[np.ndarray, " clients"],
    settled: Bool[np.ndarray, " runs"],
) -> Int[np.ndarray, " runs"]:
    """Index into `OUTCOMES`: collapsed, if all chose one model; locked in, if settled
    at an adjusted Rand index of 1/2 or less with all models; moving, if not.
    """
    rand = fixed_data.rand_index(assignment, clusters)
    collapsed = np.all(assignment == assignment[:, :1], axis=1)
    right = np.all(assignment == clusters, axis=1)
    right |= np.all(assignment == 1 - clusters, axis=1)
    return np.select([right, collapsed, rand > 0.5], [0, 3, 1], np.where(settled, 2, 4))


def _random_ends(cell: study.Cell) -> study.Arrays:
    """Numbers of trials by outcome: on reused data, from a random start and from the
    truth, and on fresh data of the same size in every round."""
    sizes = (cell["num_samples"], int(1000 * cell["rho"]))

    def one(trial: int) -> study.Row:
        generator = study.generator(cell["seed"], 3, *sizes, trial)
        problem = fixed_data.problem_of(cell, generator, num_clusters=2)
        models = fixed_data.random_starts(generator, problem, 1)
        models = np.concatenate([models, problem.truths[None]])
        steps, calm = np.full(2, cell["step_size"]), np.zeros(2, int)
        last = np.full((cell["num_clients"], 2), -2)  # Which nobody chooses.
        for _ in range(cell["num_rounds"]):
            models, assignment = fixed_data.ifca_round(problem.clients, models, steps)
            calm = np.where(np.all(last == assignment, axis=0), calm + 1, 0)
            last = assignment
        return {"clusters": problem.clusters, "last": last, "settled": calm >= STABLE}

    found = study.stacked(cell["num_trials"], one)
    last, clusters = found["last"], found["clusters"][:, 0]
    fixed, from_truth = (
        _counts(last[:, start].T, clusters, found["settled"][start]) for start in (0, 1)
    )
    return {"fixed": fixed, "from_truth": from_truth, "fresh": _fresh_ends(cell)}


def _counts(
    assignment: Int[np.ndarray, "runs clients"],
    clusters: Int[np.ndarray, " clients"],
    settled: Bool[np.ndarray, " runs"],
) -> Int[np.ndarray, " outcomes"]:
    """Numbers of runs by outcome."""
    return np.bincount(outcome(assignment, clusters, settled), minlength=len(OUTCOMES))


def _fresh_ends(cell: study.Cell) -> Int[np.ndarray, " outcomes"]:
    """Numbers of trials by outcome; clients are told apart by their cluster only, so a
    run is settled where its last rounds have the same counts."""
    population, trials = exact_law.population(cell, 2), cell["num_trials"]
    starts = exact_law.random_models(study.key(cell["seed"], 4), population, trials)
    key = study.key(cell["seed"], 5, cell["num_samples"], int(1000 * cell["rho"]))
    trace = exact_law.run(key, population, starts, cell)
    last = trace.counts[:, -1].astype(int)
    settled = np.all(trace.counts[:, -STABLE:] == trace.counts[:, -1:], axis=(1, 2, 3))
    members = cell["num_clients"] // 2
    clusters = np.repeat([0, 1], members)
    ranks = np.tile(np.arange(members), 2)
    return _counts((ranks >= last[:, clusters, 0]).astype(int), clusters, settled)


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for each T, then one for each start, rho and n."""
    starts = sum(cell["kind"] == "starts" for cell in cells)
    joint = study.jointly(config, len(config.floor_rounds) + 1 + 2 * len(ARMS) * starts)
    pairs = list(zip(cells, results, strict=True))
    (reused,) = [own["square"] for cell, own in pairs if cell["kind"] == "fixed"]
    whole = joint.mean(reused)
    table: list[study.Row] = []
    for cell, own in pairs:
        if cell["kind"] == "fresh":
            table.append(_floor_row(cell, own, whole, joint))
        if cell["kind"] == "starts":
            table.extend(_ends_row(cell, arm, own[arm], joint) for arm in ARMS)
    return table


def _exact_ratio(cell: study.Cell, rounds: int | float) -> float:
    """sqrt((N - d - 1) / (N / 2T - d - 1)): full steps on a fold forget the past."""
    whole = cell["num_samples"] * cell["num_clients"] / 2
    own = (cell["num_features"], cell["rho"] ** -0.5)
    fold = law.stationary_floor(whole / (2 * rounds), *own, 1.0)
    return float(fold / np.sqrt(law.oracle_risk(whole, *own)))


def _floor_row(
    cell: study.Cell, own: study.Arrays, whole: study.Estimate, joint: study.Intervals
) -> study.Row:
    part = joint.mean(own["square"])
    ratio = study.Estimate(
        math.sqrt(part.value / whole.value),
        math.sqrt(max(part.low, 0.0) / whole.high),
        math.sqrt(part.high / whole.low) if whole.low > 0 else math.inf,
    )
    root, row = math.sqrt(2 * cell["rounds"]), {"kind": "floor"}
    names = ("rounds", "num_samples", "num_features", "num_clients", "rho")
    row |= {name: cell[name] for name in names} | study.columns(ratio=ratio)
    row |= {"ratio_predicted": root, "ratio_exact": _exact_ratio(cell, cell["rounds"])}
    row |= study.columns(to_root=ratio.over(root))
    row |= {"fresh_square": part.value, "reused_square": whole.value}
    return row | {"misassigned": float(np.mean(own["wrong"]))}


def _ends_row(
    cell: study.Cell, arm: str, counts: np.ndarray, joint: study.Intervals
) -> study.Row:
    trials = int(counts.sum())
    per_cluster = cell["num_samples"] * cell["num_clients"] / 2
    row = {"kind": "starts", "arm": ARMS[arm], "rho": cell["rho"]}
    row |= {"num_samples": cell["num_samples"]}
    row |= {"rows_per_feature": per_cluster / cell["num_features"], "trials": trials}
    row |= dict(zip(OUTCOMES, counts.tolist(), strict=True))
    shares = {
        name.replace(" ", "_") + "_share": joint.chance(row[name], trials)
        for name in ("locked in", "collapsed")
    }
    return row | study.columns(**shares)


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The rules of the header, from the rows alone."""

    falls, floors = [], study.at(table, kind="floor")
    for rho in config.rho:
        own = study.at(table, arm=ARMS["fixed"], rho=rho)
        few, many = (
            study.read(row, "locked_in_share")
            for end in (min, max)
            for row in study.at(own, num_samples=end(config.num_samples))
        )
        falls.append(few.above(many))
    fresh, near = (study.at(table, arm=ARMS[arm]) for arm in ("fresh", "from_truth"))
    rare = lambda own: study.within(own, "locked_in_share", -1.0, 0.25)
    return {
        "resampling costs sqrt(2T) in the floor": study.within(
            floors, "to_root", 1 - config.margin, 1 + config.margin
        ),
        "lock-in falls with N/d": study.all_of(falls),
        "fresh data lock in less often than 1 in 4 everywhere": rare(fresh),
        "from the truth reused data lock in less often than 1 in 4 everywhere": rare(
            near
        ),
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """What folds cost in the floor, and what reuse costs from random starts."""
    root, falls, fresh, near = decisions.values()
    floors = study.at(table, kind="floor")
    ratios = [
        f"{study.read(row, 'ratio')} at T = {row['rounds']}"
        for row in (floors[0], floors[-1])
    ]
    shares = []
    for rho in config.rho:
        own = study.at(table, arm=ARMS["fixed"], rho=rho)
        own = sorted(own, key=lambda row: row["num_samples"])
        few, many = (study.read(own[end], "locked_in_share") for end in (0, -1))
        shares.append(f"from {few} to {many} at ρ = {rho:g}")
    per_feature = [own[end]["rows_per_feature"] for end in (0, -1)]
    most = {
        how: max(row["locked_in_share_high"] for row in study.at(table, arm=ARMS[arm]))
        for how, arm in (
            ("on fresh data of the same size in every round", "fresh"),
            ("on reused data from the true models", "from_truth"),
        )
    }
    first = study.told(
        root,
        yes="Fresh data cost accuracy: dealing n samples out over the 2T folds of T "
        "rounds multiplies the error in the end by sqrt(2T), as predicted",
        no="Dealing n samples out over the 2T folds of T rounds does not multiply the "
        "error in the end by sqrt(2T), as was predicted",
        undecided="Whether dealing n samples out over the 2T folds of T rounds "
        "multiplies the error in the end by the predicted sqrt(2T) cannot be told",
    )
    second = study.told(
        falls,
        yes="Reused data make runs from random starts settle on a wrong partition, the "
        "more so the fewer there are",
        no="Reused data do not make more runs from random starts settle on a wrong "
        "partition where they are fewer",
        undecided="Whether reused data make more runs from random starts settle on a "
        "wrong partition where they are fewer cannot be told",
    )
    rarely = [
        study.told(
            found,
            yes=f"fewer than 1 in 4 do {how}",
            no=f"1 in 4 or more do somewhere {how}",
            undecided=f"it cannot be told whether fewer than 1 in 4 do {how}",
        )
        + f" (at most {most[how]:.0%} by every interval)"
        for found, how in zip((fresh, near), most, strict=True)
    ]
    return (
        f"{first}: {study.listed(ratios)}. {second}: their share goes "
        f"{study.listed(shares)} as the samples per cluster and feature go from "
        f"{per_feature[0]:.3g} to {per_feature[1]:.3g}. For comparison, "
        f"{study.listed(rarely)}. This is linear regression with d = "
        f"{config.num_features}, m = {config.num_clients}, two clusters and "
        f"{config.num_trials} random starts in every cell; a partition is wrong at an "
        "adjusted Rand index of 1/2 or less with both models in use, several restarts "
        f"are not tried, and {study.legend(config.error_rate)}."
    )


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """The floor's ratio against T, and lock-in against N/d."""
    floors = study.at(table, kind="floor")
    dense = np.geomspace(floors[0]["rounds"], floors[-1]["rounds"], 50)
    exact = np.array([_exact_ratio(floors[0], rounds) for rounds in dense])
    ratios = [
        study.curve(floors, RATIO, "rounds", "ratio"),
        report.Curve("√(2T)", dense, np.sqrt(2 * dense), like=RATIO),
        report.Curve("exactly", dense, exact, like=RATIO),
    ]
    title = f"n = {config.floor_samples}, ρ = {config.floor_rho:g}"
    free = {"y_limits": None, "aside": False}
    panels = [study.panel(ratios, "rounds T", "ratio of the floors", title, **free)]
    for rho in config.rho:
        lines = [
            study.curve(
                study.at(table, arm=ARMS[arm], rho=rho),
                f"{name}, {ARMS[arm]}",
                "rows_per_feature",
                f"{name.replace(' ', '_')}_share",
            )
            for name in ("locked in", "collapsed")
            for arm in ("fixed", "fresh")
        ]
        title = f"d = {config.num_features}, m = {config.num_clients}, ρ = {rho:g}"
        x, y = "samples per cluster and feature N/d", "share of random starts"
        panels.append(study.panel(lines, x, y, title, "x"))
    figure = report.curves(
        panels,
        title="The price of reusing data, and of not reusing them",
        legend_title=f"{config.num_trials} random starts; exact binomial and Student's "
        f"{study.legend(config.error_rate)}; shares moved aside",
    )
    return {"resampling": figure}


STUDY = study.Study(
    "reviews.resample", 1, cells, compute, rows, decide, answer, figures
)
main = STUDY.main
