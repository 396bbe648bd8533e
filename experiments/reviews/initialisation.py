"""Is the clustering already done by the assumed initialisation?

Reviewer:  the analysis assumes initial models that are very close to their clusters;
           if models were initialised this way, then clustering by the initial models
           should already give the right clusters.
Command:   python -m experiments run reviews.init --preset paper
Quick:     the same with --preset quick: fewer alpha0, n', starts and trials
Measured:  paper, 3.4 minutes of one core of an AMD EPYC: the complaint can be neither
           upheld nor refused, as the errors' intervals are as wide as what is allowed;
           re-assignment helps in 28 of 58 cases; success and the Voronoi condition do
           not differ in any of 2,600 runs
Predicted: started within (1/2 - alpha0) Delta of the truths, a client's first choice
           is wrong with chance at most q = P(t_n' >= sqrt(n') kappa*), with Lemma 1's
           exact worst kappa*. Assumption 2, with the constant that a proof gives,
           n' >= 2 (1 + rho) / (alpha0^2 rho) log(m k / (2 delta)), and already the
           least n' with m (k - 1) q <= delta, make the whole first assignment exact
           with chance 1 - delta. From worse starts (1 - s) theta* + s random a run
           succeeds, as n' grows, iff the start is Voronoi-separating.
Rules:     the complaint is upheld iff, at all n' from that least one on, the chance of
           any wrong first choice is at most delta, and the error with the first
           assignment frozen is 0.98 to 1.02 times IFCA's (whole intervals).
           Re-assignment helps where IFCA's error is below 0.95 times the frozen one.
           Success with the most samples is the Voronoi condition iff the two differ
           in at most 5 % of all runs.
Differs:   equidistant truths and equal clusters, fresh data drawn exactly in law. Two
           kinds of first models at the same distance: in random directions, and
           shifted as Lemma 1 fears most. Arms: IFCA; the first assignment frozen; the
           true one (oracle).
"""

import bisect
import dataclasses
import itertools
import math
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from cfljax import law, report
from experiments.checks import configuration
from experiments.reviews import exact_law, study

EXPERIMENTS = {
    "reviews.init": {
        "title": "is the clustering already done by the assumed initialisation?"
    }
}
ARMS = ("IFCA", "frozen", "oracle")
GEOMETRIES = ("random", "least favourable")
BATCH = 40  # Runs of one compiled call.
RATIO_OF_FROZEN = (0.98, 1.02)
GAIN = 0.95  # IFCA's error over the frozen one's, below which re-assignment helps.
MOST_DIFFERENT = 0.05  # Of all runs, between success and the Voronoi condition.


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    margins: tuple[float, ...]
    """alpha0: first models are (1/2 - alpha0) Delta from their truths."""
    num_samples: tuple[int, ...]
    """n' of the arms; Assumption 2's two n' are added for each alpha0."""
    shares: tuple[float, ...]  # s of the starts (1 - s) theta* + s random, increasing.
    basin_samples: tuple[int, ...]
    """n' of the runs from these starts; the largest stands for infinitely many."""
    num_trials: int  # Runs of each cell, rounded up to a multiple of 40.
    num_first: int
    """Draws of all first choices, for the chance of a wrong one; a tenth of it below
    the least n' that suffices."""
    num_starts: int  # Starts for the chance to be Voronoi-separating.
    shown_margin: float = 0.05  # alpha0 of the figure, one of `margins`.
    num_rounds: int = 20  # T of each run; an error is the mean over the second half.
    num_clients: int = 200  # m, a multiple of the number of clusters.
    num_clusters: int = 4
    """k, of equal sizes; at most 6, because all matchings are tried."""
    num_features: int = 30  # d, at least k.
    noise: float = 0.5  # Sigma, above 0.
    separation: float = 1.0  # Delta, distance between any two truths.
    step_size: float = 2.0  # Gamma of the arms; k/2 is a full step of every cluster.
    basin_step_size: float = 0.5
    """Gamma from other starts, where one model may get all clients; below 1."""
    failure: float = 0.01
    """delta of Assumption 2: chance that any first choice is wrong."""
    seed: int = 0  # Of all runs.
    error_rate: float = 0.05  # Of all intervals together.

    def __post_init__(self) -> None:
        study.check(
            self,
            different=("margins", "num_samples", "shares", "basin_samples"),
            at_least={
                0: ("shares",),
                1: ("num_first", "num_starts"),
                2: ("num_trials", "num_rounds", "num_clusters"),
            },
        )
        # Bartlett's factors need as many samples as there are models.
        wide = ("num_samples", "basin_samples", "num_features")
        study.check(self, at_least={self.num_clusters: wide})
        if not all(0 < margin < 0.5 for margin in self.margins):
            raise ValueError(f"`margins` must be in (0, 1/2), got {self.margins}.")
        if list(self.shares) != sorted(self.shares):
            raise ValueError(f"`shares` must increase, got {self.shares}.")
        if self.shown_margin not in self.margins:
            raise ValueError(
                f"`shown_margin` must be one of {self.margins}, got "
                f"{self.shown_margin}."
            )
        if not (self.noise > 0 and self.separation > 0 and 0 < self.failure < 1):
            raise ValueError(
                "`noise` and `separation` must be above 0 and `failure` in (0, 1), got "
                f"{self.noise}, {self.separation} and {self.failure}."
            )
        if self.num_clusters > 6 or self.num_clients % self.num_clusters:
            raise ValueError(
                "`num_clusters` must be at most 6 and divide `num_clients`, got "
                f"{self.num_clusters} and {self.num_clients}."
            )

    @property
    def rho(self) -> float:
        """(Delta / sigma)^2."""
        return (self.separation / self.noise) ** 2

    def sufficient_samples(self, margin: float) -> int:
        """Assumption 2 with a proved constant, 2 (1 + rho) / (alpha0^2 rho)
        log(m k / (2 delta)): by Lemma 1's bound exp(-n' alpha^2 rho / (2 (1 + rho))) /
        2 the chance that any client chooses wrongly is then at most delta."""
        rate = 2 * (1 + self.rho) / (margin**2 * self.rho)
        rivals = self.num_clients * self.num_clusters
        return math.ceil(rate * math.log(rivals / (2 * self.failure)))

    def minimal_samples(self, margin: float) -> int:
        """Least n' with m (k - 1) q <= delta, q the exact worst chance of Lemma 1."""
        tried = range(1, self.sufficient_samples(margin))
        enough = lambda samples: self.union_bound(margin, samples) <= self.failure
        return 1 + bisect.bisect_left(tried, True, key=enough)

    def union_bound(self, margin: float, samples: int) -> float:
        """m (k - 1) q: at least the chance that any first choice is wrong."""
        kappa = law.worst_kappa(margin, self.rho)
        chance = float(law.misassignment_probability(kappa, samples))
        return self.num_clients * (self.num_clusters - 1) * chance


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            margins=(0.05, 0.2),
            num_samples=(5, 10, 20, 40, 160),
            shares=(0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
            basin_samples=(20, 60, 100_000_000),
            num_trials=40,
            num_first=4000,
            num_starts=20_000,
        )
    return Config(
        margins=(0.02, 0.05, 0.1, 0.2, 0.3),
        num_samples=(5, 10, 20, 40, 80, 160, 640),
        shares=(0.0, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0),
        basin_samples=(10, 20, 60, 200, 1000, 100_000_000),
        num_trials=200,
        num_first=20_000,
        num_starts=200_000,
        num_rounds=40,
    )


def cells(config: Config) -> list[study.Row]:
    """Arms by kind of start, alpha0 and n'; runs from other starts by n' and s."""
    same, found = {"config": dataclasses.asdict(config)}, []
    for geometry, margin in itertools.product(GEOMETRIES, config.margins):
        own = same | {"kind": "arms", "geometry": geometry, "margin": margin}
        enough = config.minimal_samples(margin), config.sufficient_samples(margin)
        found += study.grid(own, samples=sorted({*config.num_samples, *enough}))
    basin = {"samples": config.basin_samples, "share": config.shares}
    return found + study.grid(same | {"kind": "basin"}, **basin)


def compute(cell: study.Cell) -> study.Arrays:
    """The three arms from one kind of start, or runs from starts at one s."""
    config = Config(**cell["config"])
    if cell["kind"] == "arms":
        return _arms(config, cell["geometry"], cell["margin"], cell["samples"])
    return _basin(config, cell["samples"], cell["share"])


# Starts and first choices.


def starts(
    config: Config, geometry: str, margin: float, random: np.random.Generator, size: int
) -> Float[np.ndarray, "trials models features"]:
    """First models at distance (1/2 - alpha0) Delta of their truths: "random", in
    independent uniform directions, or "least favourable", both of a pair shifted from
    the second truth towards the first, which has Lemma 1's smallest kappa, alpha0
    sqrt(rho), wherever (1/4 - alpha0^2) rho <= 1; without a partner, at the truth.
    """
    clusters, features = config.num_clusters, config.num_features
    truths = exact_law.truths(clusters, features, separation=config.separation)
    if geometry == "random":
        along = random.standard_normal((size, clusters, features))
        along /= np.linalg.norm(along, axis=-1, keepdims=True)
    else:
        along = np.zeros((size, clusters, features))
        for first in range(0, clusters - 1, 2):
            shift = (truths[first] - truths[first + 1]) / config.separation
            along[:, first : first + 2] = shift
    return truths + (0.5 - margin) * config.separation * along


def first_mistakes(
    random: np.random.Generator,
    truths: Float[np.ndarray, "clusters features"],
    models: Float[np.ndarray, "trials models features"],
    *,
    members: int,
    num_samples: int,
    noise: float,
) -> Int[np.ndarray, " trials"]:
    """Clients that do not choose their own model, in one choice of every client. Its
    losses are the diagonal of a Wishart matrix with n' degrees of freedom, by
    Bartlett's factor, in NumPy, so that the engine's choices are not judged by
    themselves.
    """
    trials, width = models.shape[:2]
    degrees = num_samples - np.arange(width)
    below = np.tri(width, k=-1)
    mistakes = np.zeros(trials, int)
    for cluster, truth in enumerate(truths):
        offsets = np.concatenate(
            [truth - models, np.full((trials, width, 1), noise)], axis=-1
        )
        upper = np.linalg.qr(np.swapaxes(offsets, -1, -2), mode="r")
        factor = random.standard_normal((trials, members, width, width)) * below
        roots = np.sqrt(random.chisquare(degrees, (trials, members, width)))
        factor[..., np.arange(width), np.arange(width)] = roots
        rows = np.swapaxes(upper, -1, -2)[:, None] @ factor
        chosen = np.argmin(np.sum(rows**2, axis=-1), axis=-1)
        mistakes += np.sum(chosen != cluster, axis=1)
    return mistakes


def closeness(
    distances: Float[np.ndarray, "trials clusters models"], separation: float
) -> Float[np.ndarray, " trials"]:
    """alpha0 = 1/2 - max_j |theta_j - theta_j*| / Delta under the best matching."""
    width = distances.shape[-1]
    every = np.arange(width)
    farthest = [
        distances[:, every, list(order)].max(axis=-1)
        for order in itertools.permutations(range(width))
    ]
    return 0.5 - np.min(farthest, axis=0) / separation


def separating_chance(
    config: Config, shares: Float[np.ndarray, " shares"]
) -> Float[np.ndarray, " shares"]:
    """Chance that a start is Voronoi-separating at each s, from the same draws."""
    truths = exact_law.truths(config.num_clusters, separation=config.separation)
    found = np.zeros(len(shares))
    for inside, rest in exact_law.random_starts(
        study.generator(config.seed, 4),
        config.num_starts,
        num_clusters=config.num_clusters,
        num_features=config.num_features,
        separation=config.separation,
    ):
        for index, share in enumerate(shares):
            models = (1 - share) * truths + share * inside
            square = law.distances(truths, models) ** 2 + share**2 * rest[:, None]
            found[index] += np.sum(exact_law.separating(square))
    return found / config.num_starts


def _arms(config: Config, geometry: str, margin: float, samples: int) -> study.Arrays:
    """Errors of all arms, which share their keys, shares misassigned at both ends, and
    wrong first choices."""
    place = (GEOMETRIES.index(geometry), int(1e6 * margin), samples)
    random = study.generator(config.seed, 0, *place)
    features, clusters = config.num_features, config.num_clusters
    truths = exact_law.truths(clusters, features, separation=config.separation)
    population = exact_law.population(vars(config), clusters, num_samples=samples)
    members = config.num_clients // clusters
    true_counts = np.tile(members * np.eye(clusters), (BATCH, 1, 1))
    parts: dict[str, list[np.ndarray]] = {}
    for batch in range(-(-config.num_trials // BATCH)):
        models = starts(config, geometry, margin, random, BATCH)
        first = None
        for arm in ARMS:
            trace = exact_law.run(
                study.key(config.seed, 1, *place, batch),
                population,
                law.place(truths[:, :clusters], models, num_features=features),
                vars(config),
                num_trials=BATCH,
                fixed_counts={"IFCA": None, "frozen": first}.get(arm, true_counts),
            )
            late = trace.models[:, 1 + config.num_rounds // 2 :]
            own = exact_law.own_distances(population, late)
            parts.setdefault(arm, []).append(own.mean(axis=(1, 2)))
            if arm == "IFCA":
                first = trace.counts[:, 0]
                right = np.trace(trace.counts, axis1=-2, axis2=-1) / config.num_clients
                parts.setdefault("before", []).append(1 - right[:, 0])
                parts.setdefault("after", []).append(1 - right[:, -1])
    # Where a wrong choice is likely, its chance needs fewer draws.
    assumed = samples >= config.minimal_samples(margin)
    any_wrong, draws = 0, config.num_first if assumed else -(-config.num_first // 10)
    for begin in range(0, draws, 500):
        mistakes = first_mistakes(
            random,
            truths,
            starts(config, geometry, margin, random, min(500, draws - begin)),
            members=members,
            num_samples=samples,
            noise=config.noise,
        )
        any_wrong += int(np.sum(mistakes > 0))
    found = {name: np.concatenate(values) for name, values in parts.items()}
    return found | {"any_wrong": np.asarray(any_wrong), "draws": np.asarray(draws)}


def _basin(config: Config, samples: int, share: float) -> study.Arrays:
    """Whether runs succeed and their starts separate; the same starts for all n'."""
    clusters, separation = config.num_clusters, config.separation
    population = exact_law.population(vars(config), clusters, num_samples=samples)
    success, start = [], []
    for batch in range(-(-config.num_trials // BATCH)):
        key = study.key(config.seed, 2, batch)
        random = exact_law.random_models(key, population, BATCH, separation=separation)
        models = (1 - share) * population.truths + share * random
        trace = exact_law.run(
            study.key(config.seed, 3, batch, samples, int(1e6 * share)),
            population,
            models,
            vars(config),
            num_trials=BATCH,
            step_size=config.basin_step_size,
        )
        success.append(exact_law.succeeded(population, trace, separation))
        start.append(law.distances(population.truths, models))
    distances = np.concatenate(start)
    return {
        "success": np.concatenate(success),
        "separating": exact_law.separating(distances),
        "closeness": closeness(distances, separation),
    }


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for each cell, then the runs that differ from the Voronoi condition."""
    kinds = [cell["kind"] for cell in cells]
    checks = 6 * kinds.count("arms") + 2 * kinds.count("basin") + 1
    joint = study.jointly(config, checks)
    make = {"arms": _arms_row, "basin": _basin_row}
    table: list[study.Row] = []
    for cell, arrays in zip(cells, results, strict=True):
        case = {name: value for name, value in cell.items() if name != "config"}
        table.append(case | make[case["kind"]](config, case, arrays, joint))
    most = max(config.basin_samples)
    own = study.at(table, kind="basin", samples=most)
    different, trials = (sum(row[name] for row in own) for name in ("differ", "trials"))
    closing = {"kind": "all starts", "samples": most, "differ": different}
    share = joint.chance(different, trials)
    return [*table, closing | {"trials": trials} | study.columns(different=share)]


def _arms_row(
    config: Config, case: study.Cell, arrays: study.Arrays, joint: study.Intervals
) -> study.Row:
    margin, samples = case["margin"], case["samples"]
    ifca, frozen, oracle = (arrays[arm] for arm in ARMS)
    row: study.Row = {"assumed": samples >= config.minimal_samples(margin)}
    row |= {"any_wrong_bound": min(1.0, config.union_bound(margin, samples))}
    row |= study.columns(
        any_wrong=joint.chance(int(arrays["any_wrong"]), int(arrays["draws"])),
        before=joint.mean(arrays["before"]),
        after=joint.mean(arrays["after"]),
        ifca_to_oracle=joint.ratio(ifca, oracle),
        frozen_to_oracle=joint.ratio(frozen, oracle),
        frozen_to_ifca=joint.ratio(frozen, ifca),
    )
    return row | {f"error_{arm}": float(np.mean(arrays[arm])) for arm in ARMS}


def _basin_row(
    config: Config, case: study.Cell, arrays: study.Arrays, joint: study.Intervals
) -> study.Row:
    success, start = arrays["success"], arrays["separating"]
    row: study.Row = {"closeness": float(np.mean(arrays["closeness"]))}
    row |= study.columns(success=joint.share(success), separating=joint.share(start))
    chance = separating_chance(config, np.array([case["share"]]))
    row |= {"separating_predicted": float(chance[0]), "trials": success.size}
    return row | {"differ": int(np.sum(success != start))}


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The rules of the header, from the rows alone."""
    assumed = study.at(table, kind="arms", assumed=True)
    exact = study.within(assumed, "any_wrong", 0.0, config.failure)
    equal = study.within(assumed, "frozen_to_ifca", *RATIO_OF_FROZEN)
    return {
        "the first assignment is exact": exact,
        "nothing is gained afterwards": equal,
        "the complaint is upheld": study.all_of((exact, equal)),
        "success with many samples is the Voronoi condition": study.within(
            table[-1:], "different", 0.0, MOST_DIFFERENT
        ),
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """What is left to do under the assumptions, with fewer samples, and from afar."""
    _, _, upheld, voronoi = decisions.values()
    arms, last = study.at(table, kind="arms"), table[-1]
    assumed, fewer = (study.at(arms, assumed=known) for known in (True, False))
    helped = [row for row in fewer if row["frozen_to_ifca_low"] > 1 / GAIN]
    worst = max(row["any_wrong_high"] for row in assumed)
    kept = study.farthest(study.read(row, "frozen_to_ifca") for row in assumed)
    first = study.told(
        upheld,
        yes="Yes, where the theorem's assumptions hold: the first choices of all "
        "clients are right, and nothing is gained afterwards",
        no="No: even where the theorem's assumptions hold, first choices are wrong or "
        "later ones still help",
        undecided="Whether the first choices of all clients are right where the "
        "theorem's assumptions hold, and nothing is gained afterwards, cannot be told",
    )
    second = "With fewer samples choosing again is not seen to help"
    if helped:
        best = max(helped, key=lambda row: row["frozen_to_ifca"])
        second = (
            f"With fewer samples choosing again is seen to help, in {len(helped)} of "
            f"{len(fewer)} cases: keeping the first choices makes the error up to "
            f"{study.read(best, 'frozen_to_ifca')} times as large, at n' = "
            f"{best['samples']} and α0 = {best['margin']:g} where the assumptions take "
            f"n' = {config.minimal_samples(best['margin'])}"
        )
    third = study.told(
        voronoi,
        yes="From worse starts, with ever more samples, a run succeeds if every true "
        "model has a nearest first model of its own, and hardly otherwise",
        no="From worse starts, with ever more samples, a run's success is not, as was "
        "predicted, that every true model has a nearest first model of its own",
        undecided="Whether, from worse starts and with ever more samples, a run's "
        "success is that every true model has a nearest first model of its own cannot "
        "be told",
    )
    return (
        f"{first} (any of m = {config.num_clients} clients is wrong at first with "
        f"chance at most {worst:.2g}, where {config.failure:g} is allowed, and the "
        f"error with the first choices kept differs most by a factor of {kept}). "
        f"{second}. {third}: the two differ in a share "
        f"{study.read(last, 'different')} of {last['trials']} runs. This is linear "
        f"regression with fresh data in every round, {config.num_clusters} true models "
        "equally far from each other, and first models (1/2 - α0) of that distance "
        f"away; it says nothing of how to find such models, and "
        f"{study.legend(config.error_rate)}."
    )


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Misassigned clients and errors against n'; success against s."""
    margin = config.shown_margin
    title = (
        f"k = {config.num_clusters}, m = {config.num_clients}, "
        f"d = {config.num_features}, ρ = {config.rho:g}"
    )

    def panel(ifca: str, frozen: str, label: str) -> report.CurvePanel:
        lines = []
        for geometry in GEOMETRIES:
            own = study.at(table, kind="arms", geometry=geometry, margin=margin)
            for arm, name in (("IFCA", ifca), ("first choice kept", frozen)):
                lines.append(study.curve(own, f"{arm}, {geometry}", "samples", name))
        options = {"y_limits": None, "aside": False}
        return study.panel(lines, "samples per use n'", label, "", "x", **options)

    rounded = {n: report.number(float(f"{n:.3g}")) for n in config.basin_samples}
    labels = {samples: f"n' = {text}" for samples, text in rounded.items()}
    own = study.at(table, kind="basin")
    lines = study.curves(own, "samples", labels, "share", "success")
    dense = np.linspace(min(config.shares), max(config.shares), 41)
    chance = separating_chance(config, dense)
    lines.append(report.Curve("chance of a Voronoi-separating start", dense, chance))
    place, between = "place of the start s: truth 0, random 1", "(1 - s) θ* + s random"
    basin = study.panel(
        lines, place, "success of one run", f"starts {between}", aside=False
    )
    panels = [
        panel("after", "before", "share misassigned at the end"),
        panel("ifca_to_oracle", "frozen_to_oracle", "error over the oracle's"),
    ]
    good, worse = f"Good starts: α0 = {margin:g}, {title}", f"Worse starts: {title}"
    legend = study.legend(config.error_rate)
    return {
        "initialisation": report.curves(panels, title=good, legend_title=legend),
        "basin": report.curves([basin], title=worse, legend_title=legend),
    }


STUDY = study.Study("reviews.init", 1, cells, compute, rows, decide, answer, figures)
main = STUDY.main
