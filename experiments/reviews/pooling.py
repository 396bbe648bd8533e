"""At which dissimilarity does pooling all clients beat clustering them?

Reviewer:  when are the clusters dissimilar enough for clustering to pay? With similar
           clusters one model for all clients should win.
Command:   python -m experiments run reviews.pool --preset paper
Quick:     the same with --preset quick: fewer settings and data sets
Measured:  paper, 70 s of one core of an AMD EPYC: all three rules hold; known clusters
           cross within 2 % of the prediction, IFCA at 1.03 to 19.7 times Delta*
Predicted: with known clusters, least squares for each beats one fit to all rows from
           Delta* = sigma sqrt(2 (k-1) d / (m n (1 - sum p^2))) on, which is
           sigma sqrt(2 k d / (m n)) for equal clusters; exact finite-sample errors
           put it a few per cent above. IFCA must find the clusters as well. With few
           clients, m << k d, no client is in doubt near Delta*, and IFCA crosses
           there. With many, m >> k d, two equal clusters cross at 1.75 sigma/sqrt(n),
           free of m and d: many times Delta*, and below
           Delta_id = sigma sqrt(8 log(m k / 2) / n), where the last client is found.
Rules:     known clusters cross where predicted iff measured over exact crossings are
           1 +- 0.05 in all settings. IFCA crosses there too with few clients iff the
           same ratio is 1 +- 0.05 wherever Delta_id < Delta*. It crosses at
           1.75 sigma/sqrt(n) with many iff that ratio is 1 +- 0.05 wherever two equal
           clusters have m >= 100 k d.
Differs:   data drawn once; IFCA started at the truths, with least squares for its
           models and run until no client moves. Errors are mean squared distances to
           the own truth, of the model that a client ends with.
"""

import dataclasses
import itertools
import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure

from cfljax import law, report
from experiments.checks import configuration
from experiments.reviews import exact_law, study

EXPERIMENTS = {
    "reviews.pool": {
        "title": "the dissimilarity from which clustering beats pooling all clients"
    }
}
MARGIN = 0.05  # Of a crossing.
MANY = 100  # Clients over k d from which the limit of many clients is asked for.
LABELS = {
    "oracle": "least squares, clusters known",
    "pooled": "least squares, one model for all",
    "clients": "IFCA, model that a client ends with",
    "models": "IFCA, model that started at the truth",
}

Gram = Float[np.ndarray, "clients features features"]
Moments = Float[np.ndarray, "clients features"]
Separations = Float[np.ndarray, " separations"]


class Setting(NamedTuple):
    """One point (d, m, n, k, p) of the study."""

    num_features: int
    num_clients: int
    num_samples: int
    num_clusters: int
    # Of the clients, in the first cluster; the others share the rest equally.
    share: float

    @property
    def members(self) -> Int[np.ndarray, " clusters"]:
        """Clients of each cluster."""
        first = round(self.share * self.num_clients)
        rest = (self.num_clients - first) // (self.num_clusters - 1)
        return np.array([first] + [rest] * (self.num_clusters - 1))

    @property
    def shares(self) -> Float[np.ndarray, " clusters"]:
        """p_j."""
        return self.members / self.num_clients

    @property
    def num_rows(self) -> int:
        """N = m n, all samples."""
        return self.num_clients * self.num_samples

    @property
    def balanced_pair(self) -> bool:
        """Whether there are two clusters of one size."""
        return self.num_clusters == 2 and len(set(self.members.tolist())) == 1

    @property
    def truths(self) -> Float[np.ndarray, "clusters features"]:
        """At distance 1."""
        return exact_law.truths(self.num_clusters, self.num_features)

    def __str__(self) -> str:
        return (
            f"d={self.num_features}, m={self.num_clients}, n={self.num_samples}, "
            f"k={self.num_clusters}, p={self.share:.2g}"
        )


@configuration
class Config:
    """Everything that the study depends on. One field, one flag; entry i of the
    first six belongs to setting i."""

    num_features: tuple[int, ...]  # d, above 1 and at least k.
    num_clients: tuple[int, ...]  # m.
    num_samples: tuple[int, ...]  # n of each client, drawn once.
    num_clusters: tuple[int, ...]  # k, with truths at one distance from each other.
    shares: tuple[float, ...]
    """Of the clients, in the first cluster; the others share the rest equally."""
    num_runs: tuple[int, ...]  # Data sets on which IFCA runs.
    num_trials: int  # Data sets of each setting with known clusters.
    noise: float = 1.0  # Sigma.
    num_rounds: int = 200
    """Most rounds of an IFCA run, which ends when no client moves."""
    seed: int = 0  # Of all data.
    error_rate: float = 0.05  # Of all intervals together.

    def __post_init__(self) -> None:
        counts = [len(column) for column in (*self._columns, self.num_runs)]
        if len(set(counts)) != 1 or 0 in counts:
            raise ValueError(
                "`shares` and the other settings must be as many as each other and at "
                f"least one, got {counts}."
            )
        twos = ("num_features", "num_clusters", "num_trials", "num_runs")
        study.check(self, at_least={1: ("num_samples", "num_rounds"), 2: twos})
        if not (self.noise > 0 and math.isfinite(self.noise)):
            raise ValueError(f"`noise` must be positive and finite, got {self.noise}.")
        for setting in self.settings:
            _check(setting)

    @property
    def _columns(self) -> tuple[tuple[Any, ...], ...]:
        sizes = (self.num_features, self.num_clients, self.num_samples)
        return (*sizes, self.num_clusters, self.shares)

    @property
    def settings(self) -> list[Setting]:
        """All points of the study."""
        return [Setting(*row) for row in zip(*self._columns, strict=True)]


def _check(setting: Setting) -> None:
    """Raises ValueError where a cluster is too small, or sizes do not add up."""
    if setting.num_clusters > setting.num_features:
        raise ValueError(
            "`num_clusters` must be at most `num_features`, got "
            f"{setting.num_clusters} and {setting.num_features}."
        )
    members = setting.members
    whole = math.isclose(members[0], setting.share * setting.num_clients)
    if not whole or members.sum() != setting.num_clients or members.min() < 1:
        raise ValueError(
            f"`shares` must leave whole clusters of one size, got sizes {members} of "
            f"{setting.num_clients} clients."
        )
    if members.min() * setting.num_samples <= setting.num_features + 3:
        raise ValueError(
            "`num_samples` must give each cluster more than d + 3 samples, got "
            f"{members.min() * setting.num_samples} and d = {setting.num_features}."
        )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    settings = [  # d, m, n, k, share of the first cluster, IFCA runs
        (40, 4, 400, 2, 0.5, 500),
        (20, 20, 40, 2, 0.5, 150),
        (20, 80, 40, 2, 0.5, 50),
        (10, 400, 80, 2, 0.5, 30),
        (5, 1000, 40, 2, 0.5, 80),
        (20, 40, 40, 2, 0.25, 80),
        (20, 60, 40, 3, 0.6, 80),
        (20, 40, 40, 4, 0.25, 80),
    ]
    if name == "paper":
        settings = [(*setting[:-1], 4 * setting[-1]) for setting in settings]
        settings += [
            (100, 4, 1000, 2, 0.5, 2000),
            (20, 8, 200, 2, 0.5, 2000),
            (20, 240, 40, 2, 0.5, 300),
            (4, 2000, 80, 2, 0.5, 100),
            (40, 80, 20, 2, 0.5, 300),
            (20, 160, 40, 2, 0.1, 300),
            (32, 64, 64, 8, 0.125, 300),
        ]
    num_trials = 3000 if name == "quick" else 10_000
    return Config(*zip(*settings, strict=True), num_trials=num_trials)


# Predictions.


def oracle_error(setting: Setting, noise: float) -> float:
    """Mean over clients of E|estimate - truth|^2, every cluster fitted alone."""
    rows = setting.members.astype(float) * setting.num_samples
    return float(setting.shares @ law.oracle_risk(rows, setting.num_features, noise))


def pooled_error(setting: Setting, noise: float, separation: float) -> float:
    """Mean over clients of E|estimate - own truth|^2 of one fit to all rows.

    Of one cluster it is exactly
    (1-b) |mean truth - own truth|^2 + b sum_l p_l |truth_l - own truth|^2
    + sigma^2 d / (N-d-1) for any number of clusters and any truths: the
    mean of A_l A^-2 A_l' is a multiple of the identity, which for l = l' is a
    quadratic a p^2 + b p of the share and, A_l + A_l' being a Gram matrix too,
    a p_l p_l' otherwise; a + b = 1, as with a share of 1 it is the identity.
    Two clusters of one size have a/4 + b/2 times separation^2. For equidistant truths
    the mean over clients is (1+b) separation^2 (1 - sum p^2) / 2 and the noise.
    """
    rows, features = float(setting.num_rows), setting.num_features
    half = float(law.pooled_risk(rows, features, 0.0, 1.0))  # (1 + b) / 4
    spread = separation**2 * (1 - float(np.sum(setting.shares**2))) / 2
    return 4 * half * spread + float(law.oracle_risk(rows, features, noise))


def leading_crossing(setting: Setting, noise: float) -> float:
    """Separation at which both errors agree as N/d grows.

    sigma sqrt(2 (k-1) d / (m n (1 - sum p^2))); sigma sqrt(2 k d / (m n)) if balanced.
    """
    rest = 1 - float(np.sum(setting.shares**2))
    square = 2 * (setting.num_clusters - 1) * setting.num_features
    return noise * math.sqrt(square / (setting.num_rows * rest))


def exact_crossing(setting: Setting, noise: float) -> float:
    """Separation at which the exact errors agree; pooling's is linear in its square."""
    start = pooled_error(setting, noise, 0.0)
    slope = pooled_error(setting, noise, 1.0) - start
    return math.sqrt((oracle_error(setting, noise) - start) / slope)


def identifiable(setting: Setting, noise: float) -> float:
    """Separation at which no client is expected in a wrong place at the truths:
    sigma sqrt(8 log(m k / 2) / n)."""
    total = setting.num_clients * setting.num_clusters / 2
    return noise * math.sqrt(8 * math.log(total) / setting.num_samples)


def crossing_of_many(
    setting: Setting, noise: float, *, of_clients: bool = True
) -> float:
    """IFCA's crossing for two equal clusters of ever more clients, n large; else NaN:
    by the error of the model that a client ends with, or by that of the models.

    A client sees the position along the line of the truths with deviation
    s = sigma / sqrt(n). IFCA's models go to the means of both halves of the line, +-c
    with c = E|x|, x ~ N(t, 1) in units of s, t = separation / 2s; pooling leaves t^2.
    A model has (c - t)^2 < t^2 iff c < 2 t. A client may be given the wrong one:
    E(c sign x - t)^2 < t^2 iff c < 2 t E sign x, that is
    sqrt(2/pi) exp(-t^2/2) < t erf(t / sqrt 2): t > 0.876.
    """
    if not setting.balanced_pair:
        return math.nan

    def excess(t: float) -> float:
        sign = math.erf(t / math.sqrt(2))
        mean = math.sqrt(2 / math.pi) * math.exp(-(t**2) / 2) + t * sign
        return mean - 2 * t * (sign if of_clients else 1.0)

    low, high = 0.0, 4.0  # One change of sign, from above 0 to below.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return 2 * low * noise / math.sqrt(setting.num_samples)


def grid(setting: Setting) -> Separations:
    """Separations over the leading crossing: from 0.4, 10 % apart, until beyond the
    crossing and what is identifiable."""
    last = 1.2 * identifiable(setting, 1.0) / leading_crossing(setting, 1.0)
    count = math.ceil(math.log(max(2.5, last) / 0.4) / math.log(1.1))
    return 0.4 * 1.1 ** np.arange(count + 1)


# Data sets, and IFCA's runs on them.


def cells(config: Config) -> list[study.Row]:
    """One for each setting."""
    pairs = zip(config.settings, config.num_runs, strict=True)
    same = {"config": dataclasses.asdict(config)}
    return [
        same | {"setting": list(setting), "runs": runs, "index": index}
        for index, (setting, runs) in enumerate(pairs)
    ]


def compute(cell: study.Cell) -> study.Arrays:
    """One setting: `errors` of data sets of clusters, which need not know the clients;
    then, from further ones, `ifca_errors` and the pooled error on the same data."""
    config, setting = Config(**cell["config"]), Setting(*cell["setting"])
    features, members = setting.num_features, setting.members
    separations = grid(setting) * leading_crossing(setting, config.noise)
    samples = np.full(setting.num_clients, setting.num_samples)
    starts = np.cumsum(members) - members

    def drawn(rows: np.ndarray, *place: int) -> tuple[Gram, Moments]:
        generator = study.generator(config.seed, cell["index"], *place)
        gram, moments = draw_gram(generator, rows, features)
        return gram, config.noise * moments

    known, pooled, ifca = [], [], []
    for trial in range(config.num_trials):
        gram, moments = drawn(members * setting.num_samples, 0, trial)
        known.append(errors(gram, moments, setting, separations))
    for trial in range(cell["runs"]):
        every = drawn(samples, 1, trial)
        gram, moments = (np.add.reduceat(own, starts) for own in every)
        pooled.append(errors(gram, moments, setting, separations)[1])
        ifca.append(_ifca_errors(*every, setting, separations, config.num_rounds))
    found = {"known": known, "ifca": ifca, "pooled": pooled}
    return {name: np.array(values) for name, values in found.items()}


def draw_gram(
    generator: np.random.Generator, rows: Int[np.ndarray, " groups"], num_features: int
) -> tuple[Gram, Moments]:
    """X'X and X'z, z normal noise, of groups of rows, exactly in law: by Bartlett
    (1933) free of n; groups of fewer than d rows, which must be equal, are drawn.
    """
    groups, least = len(rows), int(np.min(rows))
    if least < num_features and np.any(rows != least):
        raise ValueError(f"`rows` must be equal or at least d, got {rows}.")
    height = min(least, num_features)
    roots = generator.standard_normal((groups, height, num_features))
    if least >= num_features:
        diagonal = np.arange(num_features)
        roots = np.triu(roots, 1)
        roots[:, diagonal, diagonal] = np.sqrt(
            generator.chisquare(rows[:, None] - diagonal)
        )
    noise = generator.standard_normal((groups, height, 1))
    transposed = np.swapaxes(roots, 1, 2)
    return transposed @ roots, (transposed @ noise)[..., 0]


def errors(
    gram: Float[np.ndarray, "clusters features features"],
    noise_moments: Float[np.ndarray, "clusters features"],
    setting: Setting,
    separations: Separations,
) -> Float[np.ndarray, "2 separations"]:
    """Mean over clients of the squared distance to the own truth: oracle, pooled; from
    X'X and X' noise of each cluster."""
    unit = setting.truths
    alone = np.linalg.solve(gram, noise_moments[..., None])[..., 0]
    oracle = np.full(len(separations), setting.shares @ np.sum(alone**2, axis=1))
    signal = np.sum(gram @ unit[..., None], axis=0)[:, 0]
    right = np.stack([signal, noise_moments.sum(axis=0)], axis=1)
    slope, offset = np.linalg.solve(gram.sum(axis=0), right).T
    scale = separations[:, None, None]
    pooled = scale * slope + offset - scale * unit
    return np.array([oracle, np.sum(pooled**2, axis=2) @ setting.shares])


def _ifca_errors(
    gram: Gram,
    noise_moments: Moments,
    setting: Setting,
    separations: Separations,
    num_rounds: int,
) -> Float[np.ndarray, "3 separations"]:
    """IFCA started at the truths: mean over clients of the squared distance to their
    truth of the model they end with, and of the one that started there; and 1 where
    the run came to its end, else 0."""
    clusters = np.repeat(np.arange(setting.num_clusters), setting.members)
    unit, scale = setting.truths, separations[:, None, None]
    models, chosen, ended = alternate(
        gram,
        scale * (gram @ unit[clusters][..., None])[..., 0] + noise_moments,
        scale * unit,
        num_samples=setting.num_samples,
        num_rounds=num_rounds,
    )
    given = np.take_along_axis(models, chosen[..., None], axis=1)
    of_clients = np.sum((given - scale * unit[clusters]) ** 2, axis=2).mean(axis=1)
    of_models = np.sum((models - scale * unit) ** 2, axis=2) @ setting.shares
    return np.array([of_clients, of_models, ended])


def alternate(
    gram: Gram,
    moments: Float[np.ndarray, "runs clients features"],
    starts: Float[np.ndarray, "runs models features"],
    *,
    num_samples: int,
    num_rounds: int,
) -> tuple[
    Float[np.ndarray, "runs models features"],
    Int[np.ndarray, "runs clients"],
    Bool[np.ndarray, " runs"],
]:
    """IFCA run to its end on data drawn once: nearest model, then least squares, by the
    shortest step that fits a model's clients' rows; one without clients stays.

    Returns models, the assignment that made them, and whether a run ended before the
    last round, which costs two products of `[clients x d, d]` with moving models.
    """
    models = starts.copy()
    assignment = np.full(moments.shape[:2], -1)
    active = np.arange(len(starts))
    for _ in range(num_rounds):
        chosen = _nearest(gram, moments[active], models[active])
        moving = np.any(chosen != assignment[active], axis=1)
        active, chosen = active[moving], chosen[moving]
        if not active.size:
            break
        assignment[active] = chosen
        models[active] += _steps(
            gram, moments[active], models[active], chosen, num_samples
        )
    return models, assignment, ~np.isin(np.arange(len(starts)), active)


def _nearest(gram: Gram, moments: np.ndarray, models: np.ndarray) -> np.ndarray:
    """Model of least squared residuals, `[runs, clients]`."""
    clients, features = gram.shape[:2]
    runs, number = models.shape[:2]
    flat = gram.reshape(clients * features, features)
    products = flat @ models.reshape(-1, features).T
    products = products.reshape(clients, features, runs, number)
    quadratic = np.einsum("rkd,mdrk->rmk", models, products)
    return np.argmin(quadratic - 2 * moments @ np.swapaxes(models, 1, 2), axis=2)


def _steps(
    gram: Gram,
    moments: np.ndarray,
    models: np.ndarray,
    assignment: np.ndarray,
    num_samples: int,
) -> np.ndarray:
    """Step of every model to least squares on its own clients."""
    runs, number, features = models.shape
    marks = (assignment[:, None, :] == np.arange(number)[:, None]).astype(float)
    sums = marks.reshape(runs * number, -1) @ gram.reshape(len(gram), -1)
    sums = sums.reshape(runs, number, features, features)
    rest = marks @ moments - (sums @ models[..., None])[..., 0]
    full = marks.sum(axis=2) * num_samples >= features
    safe = np.where(full[..., None, None], sums, np.eye(features))
    steps = np.linalg.solve(safe, rest[..., None])[..., 0]
    for run, model in np.argwhere(~full):
        found = np.linalg.lstsq(sums[run, model], rest[run, model], rcond=1e-10)
        steps[run, model] = found[0]
    return steps


def crossing(
    at: Float[np.ndarray, " points"],
    pooled: Float[np.ndarray, "trials points"],
    other: Float[np.ndarray, "trials points"],
    joint: study.Intervals,
) -> study.Estimate:
    """Where the mean error of pooling passes another one for good, by the square of
    `at`. Student's interval of differences, over the slope (delta method: nominal). NaN
    unless pooling is the better one somewhere and the worse one at the end.
    """
    gaps = pooled - other
    mean, square = gaps.mean(axis=0), at**2
    better = np.flatnonzero(mean <= 0)
    if not better.size or better[-1] == len(at) - 1:
        return study.Estimate(math.nan, math.nan, math.nan)
    low = int(better[-1])
    rise = mean[low + 1] - mean[low]
    weight = -mean[low] / rise
    between = (1 - weight) * gaps[:, low] + weight * gaps[:, low + 1]
    step = square[low + 1] - square[low]
    middle = float(square[low] + weight * step)
    rest = joint.mean(between * step / rise)
    return study.Estimate(middle, middle + rest.low, middle + rest.high).root()


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for the crossings of each setting, then one for each separation."""
    # Each interval's: three crossings of a setting, four errors at every separation.
    checks = sum(3 + 4 * len(grid(setting)) for setting in config.settings)
    joint = study.jointly(config, checks)
    pairs = list(zip(config.settings, results, strict=True))
    crossings = [_crossing_row(config.noise, *pair, joint) for pair in pairs]
    measured = [_error_rows(config.noise, *pair, joint) for pair in pairs]
    return crossings + list(itertools.chain.from_iterable(measured))


def _crossing_row(
    noise: float, setting: Setting, arrays: study.Arrays, joint: study.Intervals
) -> study.Row:
    """Crossings over the leading one."""
    known, ifca, pooled = arrays["known"], arrays["ifca"], arrays["pooled"]
    leading, at = leading_crossing(setting, noise), grid(setting)
    row: study.Row = {"kind": "crossing", "setting": str(setting)}
    unknowns = setting.num_clusters * setting.num_features
    row |= setting._asdict() | {"clients_over_kd": setting.num_clients / unknowns}
    row |= {"leading": leading} | study.columns(
        oracle=crossing(at, known[:, 1], known[:, 0], joint),
        clients=crossing(at, pooled, ifca[:, 0], joint),
        models=crossing(at, pooled, ifca[:, 1], joint),
    )
    return row | {
        "exact": exact_crossing(setting, noise) / leading,
        "identifiable": identifiable(setting, noise) / leading,
        "many": crossing_of_many(setting, noise) / leading,
        "many_models": crossing_of_many(setting, noise, of_clients=False) / leading,
        "ended": float(np.mean(ifca[:, 2])),
    }


def _error_rows(
    noise: float, setting: Setting, arrays: study.Arrays, joint: study.Intervals
) -> list[study.Row]:
    known, ifca = arrays["known"], arrays["ifca"]
    measured = (known[:, 0], known[:, 1], ifca[:, 0], ifca[:, 1])
    leading = leading_crossing(setting, noise)
    table = []
    for index, at in enumerate(grid(setting).tolist()):
        row = {"kind": "error", "setting": str(setting), "at": at}
        found = (joint.mean(own[:, index]) for own in measured)
        row |= study.columns(**dict(zip(LABELS, found, strict=True)))
        row["oracle_predicted"] = oracle_error(setting, noise)
        row["pooled_predicted"] = pooled_error(setting, noise, at * leading)
        table.append(row)
    return table


def _ratios(table: study.Rows) -> dict[str, list[study.Estimate]]:
    """Measured over predicted crossings: of known clusters; of IFCA with few clients,
    and with many."""
    own = study.at(table, kind="crossing")
    few = [row for row in own if row["identifiable"] < 1]
    many = [row for row in own if row["clients_over_kd"] >= MANY and row["many"] > 0]
    return {
        "known": [study.read(row, "oracle").over(row["exact"]) for row in own],
        "few": [study.read(row, "clients").over(row["exact"]) for row in few],
        "many": [study.read(row, "clients").over(row["many"]) for row in many],
    }


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The three rules of the header, from the rows alone; "undecided" where no
    setting is asked for."""
    near: dict[str, study.Verdict] = {
        name: study.all_of(ratio.within(1 - MARGIN, 1 + MARGIN) for ratio in ratios)
        for name, ratios in _ratios(table).items()
    }
    return {
        "known clusters cross where predicted": near["known"],
        "IFCA of few clients crosses there too": near["few"],
        "IFCA of many clients crosses at 1.75 sigma/sqrt(n)": near["many"],
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """Up to where pooling wins: with known clusters, and against IFCA."""
    known, few, many = decisions.values()
    own, ratios = study.at(table, kind="crossing"), _ratios(table)
    first = study.told(
        known,
        yes="With known clusters one model for all wins up to the separation Δ* of the "
        "true models that theory predicts",
        no="Even with known clusters one model for all does not win up to the "
        "separation Δ* of the true models that theory predicts, but up to another",
        undecided="Whether, with known clusters, one model for all wins up to the "
        "separation Δ* of the true models that theory predicts cannot be told",
    )
    found = [row for row in own if math.isfinite(row["clients"])]
    found.sort(key=lambda row: row["clients"])
    places = [f"{study.read(r, 'clients')} Δ* ({r['setting']})" for r in found]
    ends = " to ".join(dict.fromkeys([*places[:1], *places[-1:]]))
    third = study.told(
        few,
        yes="It needs no more than Δ* where few clients leave none in doubt",
        no="It needs another separation than Δ* even where few clients leave none in "
        "doubt",
        undecided="Whether it needs no more than Δ* where few clients leave none in "
        "doubt cannot be told",
    )
    fourth = study.told(
        many,
        yes="it needs 1.75 σ/sqrt(n), whatever m and d",
        no="it does not need the predicted 1.75 σ/sqrt(n)",
        undecided="whether it needs the predicted 1.75 σ/sqrt(n) cannot be told",
    )
    return (
        f"{first}, about σ sqrt(2 k d / (m n)) for k equal clusters: measured over "
        f"predicted is {study.farthest(ratios['known'])} where they differ most of "
        f"{len(own)} settings. IFCA, which has to find the clusters, beats one model "
        f"for all in {len(found)} of them, from {ends or 'nowhere'} on. {third} "
        f"(measured over predicted {study.farthest(ratios['few'])}), and with {MANY} k "
        f"d clients or more in two equal clusters {fourth} "
        f"({study.farthest(ratios['many'])}). This is linear regression with d "
        "features, m clients of n samples drawn once, a share p of them in the first "
        "cluster, noise σ and IFCA started at the true models; it says nothing of "
        "other starts or of networks, and "
        f"{study.legend(config.error_rate)}."
    )


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Errors of two equal clusters of fewest and most clients; crossings of all, where
    pooling stops to win, against clients per unknown."""
    pairs = [setting for setting in config.settings if setting.balanced_pair]
    pairs = sorted(pairs or config.settings, key=lambda s: s.num_clients / s[0] / s[3])
    free: dict[str, Any] = {"y_limits": None, "aside": False}
    panels = []
    for index in sorted({0, len(pairs) - 1}):
        title = str(pairs[index])
        own = study.at(table, kind="error", setting=title)
        lines = [study.curve(own, label, "at", name) for name, label in LABELS.items()]
        lines += [
            study.predicted(own, LABELS[name], "at", f"{name}_predicted")
            for name in ("oracle", "pooled")
        ]
        log, error = "xy" if lines[0].x[-1] > 5 else "y", "squared error |θ - θ*|²"
        panels.append(study.panel(lines, "separation Δ/Δ*", error, title, log, **free))
    every = {row["setting"]: row for row in study.at(table, kind="crossing")}
    own, x = [every[str(pair)] for pair in pairs], "clients_over_kd"
    lines, laws = [], ("exact", "many", "many_models")
    for name, expected in zip(("oracle", "clients", "models"), laws, strict=True):
        lines.append(study.curve(own, LABELS[name], x, name))
        lines.append(study.predicted(own, LABELS[name], x, expected))
    name, at = "no client in doubt, predicted", study.column(own, x)
    lines.append(report.Curve(name, at, study.column(own, "identifiable")))
    wins, title = "pooling wins below Δ/Δ*", "two equal clusters"
    panels.append(study.panel(lines, "clients m/(k d)", wins, title, "xy", **free))
    figure = report.curves(
        panels,
        title="Pooling against clustering",
        legend_title=study.legend(config.error_rate),
    )
    return {"pooling": figure}


STUDY = study.Study("reviews.pool", 1, cells, compute, rows, decide, answer, figures)
main = STUDY.main
