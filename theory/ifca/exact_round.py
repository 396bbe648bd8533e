"""What one round does to the models: exact laws, against raw data."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from cfljax import law
from cfljax.statements import (
    ERROR_RATE,
    Grade,
    Preset,
    Step,
    Verdict,
    combine,
    identity,
    never_exceeds,
    same_law,
)
from theory.ifca.common.checks import (
    PerPoint,
    PerTrial,
    copies,
    mean_within,
    row,
)
from theory.ifca.common.moments import square_moments
from theory.ifca.common.raw_data import Problem, draw_gradients, train

GROUP = "ifca.exact.group"


class _Group(NamedTuple):
    num_rows: int
    num_features: int
    error: float  # |e|
    noise: float


_GROUPS = (
    _Group(1, 2, 1.0, 0.5),
    _Group(2, 3, 1.0, 0.1),
    _Group(5, 3, 0.3, 1.0),
    _Group(12, 8, 0.7, 0.4),
)
_MANY = 1  # index of the first group whose mean square is judged


class _Views(NamedTuple):
    """Numbers that X'w is compared by, one per draw."""

    along: Float[np.ndarray, " trials"]  # component along e
    beside: Float[np.ndarray, " trials"]  # one component across e
    square: Float[np.ndarray, " trials"]  # |X'w|^2
    # Component along e times the squared length across it, which tells whether both
    # share their chi-square.
    joint: Float[np.ndarray, " trials"]


def _views(
    along: Float[np.ndarray, " trials"],
    beside: Float[np.ndarray, " trials"],
    further: Float[np.ndarray, " trials"],
) -> _Views:
    across = beside**2 + further
    return _Views(along, beside, along**2 + across, along * across)


def _raw_views(generator: np.random.Generator, group: _Group, trials: int) -> _Views:
    """From N rows of features and noise, e in a random direction."""
    frame, _ = np.linalg.qr(generator.standard_normal((group.num_features, 2)))
    shape = (trials, group.num_rows, group.num_features)
    inputs = generator.standard_normal(shape)
    noise = group.noise * generator.standard_normal(shape[:2])
    weights = group.error * inputs @ frame[:, 0] - noise
    total = (np.swapaxes(inputs, 1, 2) @ weights[:, :, None])[..., 0]
    along, beside = (total @ frame).T
    return _views(along, beside, np.sum(total**2, axis=1) - along**2 - beside**2)


class _Draws(NamedTuple):
    """The law's sampler: two coordinates held, the others by their spread."""

    inside: Float[np.ndarray, "trials 2"]  # the first along e
    spread: Float[np.ndarray, " trials"]  # sqrt(tau^2 chi2_N)
    further: Float[np.ndarray, " trials"]  # squared length of what is not held


def _law_draws(generator: np.random.Generator, group: _Group, trials: int) -> _Draws:
    key = jax.random.key(int(generator.integers(2**31)))
    with jax.enable_x64(True):
        inside, spread = law.aggregated_gradient(
            key,
            jnp.tile(jnp.array([group.error, 0.0]), (trials, 1)),
            jnp.full(trials, float(group.num_rows)),
            jnp.asarray(group.noise),
        )
    spread = np.asarray(spread)
    rest = generator.standard_normal((trials, group.num_features - 2))
    return _Draws(np.asarray(inside), spread, spread**2 * np.sum(rest**2, axis=1))


def _law_views(
    generator: np.random.Generator, group: _Group, draws: _Draws, wrong: str
) -> _Views:
    """What the law says of the views; `wrong` gives the mean a chi-square of its own
    ("split"), or zeta the same spread along e as across ("round")."""
    along, beside = draws.inside.T
    energy = draws.spread**2 / (group.error**2 + group.noise**2)
    if wrong == "split":
        other = generator.chisquare(group.num_rows, len(along))
        along = along + (other - energy) * group.error
    if wrong == "round":
        normal = generator.standard_normal(len(along))
        along = energy * group.error + draws.spread * normal
    return _views(along, beside, draws.further)


def check_group(preset: Preset, *, wrong: str = "") -> Verdict:
    """Four views of X'w and its mean square, raw data against the law's sampler."""
    (raw, draws), claimed = _groups(preset), []
    for index, (group, drawn) in enumerate(zip(_GROUPS, draws, strict=True)):
        claimed += _law_views(preset.generator(GROUP, index, 2), group, drawn, wrong)
    laws = same_law(
        GROUP,
        [view for views in raw for view in views],
        claimed,
        resolution=preset.choose(quick=0.06, full=0.02),
        error_rate=ERROR_RATE / 2,
        coordinates={
            "rows": np.repeat([one.num_rows for one in _GROUPS], len(_Views._fields)),
            "part": np.tile(_Views._fields, len(_GROUPS)),
        },
        detail=f"{len(_GROUPS)} groups of up to {_GROUPS[-1].num_rows} rows, "
        f"{len(raw[0].along)} raw data sets each, four views of $X'w$",
    )
    rows, features, error, noise = np.array(_GROUPS[_MANY:]).T
    exact = rows * ((rows + features + 1) * error**2 + features * noise**2)
    ratio = np.array([views.square for views in raw[_MANY:]]) / exact[:, None]
    margin = preset.choose(quick=0.06, full=0.025)
    seconds = np.array([square_moments(*group)[1] for group in _GROUPS[_MANY:]])
    moments = mean_within(
        GROUP,
        ratio,
        (1 - margin, 1 + margin),
        error_rate=ERROR_RATE / 2,
        deviation=np.sqrt(seconds / exact**2 - 1),
        detail=lambda low, high: (
            r"raw mean square over $N ((N + d + 1) |e|^2 + d \sigma^2)$ within "
            f"[{np.min(low):.3f}, {np.max(high):.3f}]"
        ),
    )
    return combine(GROUP, [laws, moments], detail=f"{laws.detail}; {moments.detail}")


@functools.lru_cache(maxsize=1)
def _groups(preset: Preset) -> tuple[list[_Views], list[_Draws]]:
    """Raw views of every group, and the law's draws for it."""
    trials = preset.choose(quick=100_000, full=500_000)
    raw, drawn = [], []
    for index, group in enumerate(_GROUPS):
        raw.append(_raw_views(preset.generator(GROUP, index, 0), group, trials))
        drawn.append(_law_draws(preset.generator(GROUP, index, 1), group, trials))
    return raw, drawn


def prove_group(*, share: str = "1") -> list[Step]:
    r"""$X'w = g e + \tau \sqrt{g} \zeta$ in law, and its mean square.

    1. Rows $x_i \sim N(0, I)$ and $w_i = \langle x_i, e \rangle - \varepsilon_i$ are
       normal together: $\operatorname{Var} w_i = |e|^2 + \sigma^2 = \tau^2$,
       $\operatorname{Cov}(x_i, w_i) = e$. So $x_i = (e/\tau^2) w_i + z_i$ with $z_i$
       independent of $w_i$, of covariance $I - e e'/\tau^2$: along $e$ that is $1 -
       |e|^2/\tau^2 = \sigma^2/\tau^2$, across it 1.
    2. $X'w = \sum x_i w_i = (e/\tau^2) |w|^2 + \sum w_i z_i$. Given $w$ the sum is $|w|
       \zeta$, and $|w|^2 = \tau^2 g$ with $g$ a $\chi_N^2$: $g e + \tau \sqrt{g}
       \zeta$, $\zeta$ independent of $g$.
    3. $E|X'w|^2 = E g^2 |e|^2 + \tau^2 E g (d - |e|^2/\tau^2) = N ((N + d + 1) |e|^2 +
       d \sigma^2)$, $E g = N$, $E g^2 = N (N + 2)$. `share` is that of $E g^2$.
    """
    import sympy

    rows, d, e, sigma = sympy.symbols("N d e sigma", positive=True)
    tau2 = e**2 + sigma**2
    square = sympy.Rational(share) * rows * (rows + 2) * e**2
    square += tau2 * rows * (d - e**2 / tau2)
    return [
        identity(
            r"$1 - |e|^2/\tau^2 = \sigma^2/\tau^2$", 1 - e**2 / tau2 - sigma**2 / tau2
        ),
        identity(
            r"$E|X'w|^2 = N ((N + d + 1) |e|^2 + d \sigma^2)$",
            square - rows * ((rows + d + 1) * e**2 + d * sigma**2),
        ),
    ]


RMS, FLOOR, EQUIV = "ifca.exact.rms", "ifca.exact.floor", "ifca.exact.equiv"

_BATCHES = 200


def _measured(
    statement: str,
    squares: PerTrial,
    exact: PerPoint,
    *,
    margin: float,
    detail: str,
    coordinates: dict[str, PerPoint],
    deviation: PerPoint | None = None,
) -> Verdict:
    """Judge the claim that mean squares are the exact ones to a share `margin`. Without
    a bound on their standard `deviation` by averages of batches, close to normal."""
    ratios = squares / exact[:, None]
    if deviation is None:
        ratios = np.mean(ratios.reshape(len(exact), _BATCHES, -1), axis=-1)
    return mean_within(
        statement,
        ratios,
        (1 - margin, 1 + margin),
        num_trials=squares.size,
        coordinates=coordinates,
        deviation=None if deviation is None else deviation / exact,
        detail=lambda low, high: (
            f"{detail}; measured over exact in [{np.min(low):.3f}, {np.max(high):.3f}]"
        ),
    )


class _Round(NamedTuple):
    """A round with a given assignment: clients of each cluster in order."""

    problem: Problem
    models: Float[np.ndarray, "models features"]
    choices: Int[np.ndarray, " clients"]
    step_size: float


def _rounds() -> tuple[_Round, ...]:
    """Two and three clusters, some clients astray, every model used."""
    two = np.array([[0.5, 0.0], [-0.5, 0.0]])
    three = np.eye(3)
    return (
        _Round(
            Problem(two, (2, 2), 3, 0.3),
            two + np.array([[0.1, 0.2], [0.0, -0.3]]),
            np.array([0, 1, 1, 1]),
            0.8,
        ),
        _Round(
            Problem(three, (2, 3, 1), 2, 1.0),
            three[::-1] / 2,
            np.array([0, 2, 1, 1, 0, 2]),
            1.0,
        ),
    )


def check_rms(preset: Preset, *, missing: float = 0.0) -> Verdict:
    """E|theta_j+ - theta_j*|^2 after a raw round with misassigned clients. `missing` is
    taken from d + 1, the factor of |e|^2; anything but 0 is wrong."""
    exact, reach = [], []
    for one in _rounds():
        truths, clients, samples, noise = one.problem
        counts = np.zeros((len(truths), len(one.models)))
        np.add.at(counts, (np.repeat(np.arange(len(truths)), clients), one.choices), 1)
        square = law.expected_square_error(
            truths,
            one.models,
            counts,
            num_samples=samples,
            num_features=truths.shape[1],
            noise=noise,
            step_size=one.step_size,
            total=float(sum(clients)),
        )
        beta = 2 * one.step_size / (sum(clients) * samples)
        error = np.linalg.norm(one.models[None] - truths[:, None], axis=-1)
        lost = missing * beta**2 * np.sum(samples * counts * error**2, axis=0)
        exact.append(np.diagonal(square) - lost)
        reach.append(
            [
                _round_deviation(one, counts[:, j], error[:, j], beta, j)
                for j in range(len(one.models))
            ]
        )
    return _measured(
        RMS,
        _round_squares(preset),
        np.concatenate(exact),
        margin=preset.choose(quick=0.08, full=0.02),
        deviation=np.concatenate(reach),
        coordinates={
            "k": np.array([len(one) for one in exact for _ in one], float),
            "model": np.concatenate([np.arange(len(one)) for one in exact]),
        },
        detail="5 models of two raw rounds, 4 of 10 clients misassigned",
    )


def _round_deviation(
    one: _Round,
    counts: Float[np.ndarray, " clusters"],
    error: Float[np.ndarray, " clusters"],
    beta: float,
    index: int,
) -> float:
    """At least the standard deviation of |e_j+|^2 = |D + Y|^2, D its mean vector and Y
    the sum of the groups' parts Y_l, independent and of mean 0.

    It is at most 2 sd(<D, Y>) + sd(|Y|^2). A group's covariance has no eigenvalue above
    beta^2 N (2 |e|^2 + sigma^2), and E|Y|^4 <= sum E|Y_l|^4 + 3 sum over l != h of
    E|Y_l|^2 E|Y_h|^2.
    """
    truths, _, samples, noise = one.problem
    rows = samples * counts
    away = one.models[index] - truths
    drift = away[index] - beta * rows @ away
    moments = [
        square_moments(*group, noise, kept=beta * group[0], step=beta)
        for group in zip(rows, [truths.shape[1]] * len(rows), error, strict=True)
    ]
    first, second = np.array(moments).T
    fourth = np.sum(second) + 3 * (np.sum(first) ** 2 - np.sum(first**2))
    top = beta**2 * np.sum(rows * (2 * error**2 + noise**2))
    spread = np.sqrt(fourth - np.sum(first) ** 2)
    return float(2 * np.linalg.norm(drift) * np.sqrt(top) + spread)


@functools.lru_cache(maxsize=1)
def _round_squares(preset: Preset) -> PerTrial:
    num_trials = preset.choose(quick=60_000, full=1_000_000)
    found = []
    for index, one in enumerate(_rounds()):
        gradients = draw_gradients(
            preset.generator(RMS, index),
            one.problem,
            copies(one.models, num_trials),
            choices=one.choices,
        )
        after = one.models - one.step_size * gradients.mean
        found.append(np.sum((after - one.problem.truths) ** 2, axis=-1).T)
    return np.concatenate(found)


# Rows, features and effective step of one cluster's round.
_CHAINS = ((20, 3, 1.0), (30, 4, 0.6), (16, 2, 1.2))
_BURN_IN, _ROUNDS = 6, 14  # the first 6 leave less than 1e-3 of the start


def check_floor(preset: Preset, *, missing: float = 0.0) -> Verdict:
    """The mean square after many raw rounds, against the fixed point. `missing` is
    taken from d + 1 in the fixed point; anything but 0 is wrong."""
    rows, features, step = np.array(_CHAINS).T
    floor = law.stationary_floor(rows, features, 1.0, step)
    left = step * features / floor**2
    return _measured(
        FLOOR,
        _chains(preset),
        step * features / (left + step * missing),
        margin=preset.choose(quick=0.065, full=0.015),
        coordinates={"rows": rows, "d": features, "step": step},
        deviation=np.array([_chain_deviation(*map(float, chain)) for chain in _CHAINS]),
        detail=f"{len(_CHAINS)} raw chains of {_ROUNDS} rounds from the truth",
    )


def _chain_deviation(rows: float, features: float, step: float) -> float:
    """At least the standard deviation of the mean of |e_t|^2 over a chain's rounds.
    Moments of |e+|^2 are polynomials of |e|^2, here through three points."""
    lengths = np.array([0.0, 1.0, 2.0])
    moments = np.array(
        [
            square_moments(rows, features, one, 1.0, kept=1.0, step=step / rows)
            for one in lengths
        ]
    )
    powers = np.vander(lengths**2, 3, increasing=True)
    first, second = np.linalg.solve(powers, moments).T
    now, found = np.array([1.0, 0.0, 0.0]), []
    for _ in range(_ROUNDS):
        now = np.array([1.0, first @ now, second @ now])
        found.append(np.sqrt(now[2] - now[1] ** 2))
    return max(found[_BURN_IN:])


def prove_rms(*, more: int = 1) -> list[Step]:
    r"""$E|\theta_j^+ - \theta_j^*|^2$ given who chose what, with $d + \mathtt{more}$
    before $|e_{lj}|^2$.

    $e_j^+ = e_j - \beta \sum_l X_l' w_l$, the sums over clusters independent
    (ifca.exact. group with $N_{lj}$ rows and $e_{lj} = \theta_j - \theta_l^*$). $E X_l'
    w_l = N_{lj} e_{lj}$, and the trace of its covariance is $E|X_l' w_l|^2 - N_{lj}^2
    |e_{lj}|^2 = N_{lj} ((d + 1) |e_{lj}|^2 + d \sigma^2)$, as claimed. Mean squares are
    squared means and traces.
    """
    import sympy

    rows, d, e, sigma = sympy.symbols("N d e sigma", positive=True)
    square = rows * ((rows + d + 1) * e**2 + d * sigma**2)
    claimed = rows * ((d + more) * e**2 + d * sigma**2)
    return [
        *prove_group(),
        identity(
            r"$E|X'w|^2 - N^2 |e|^2 = N ((d + 1) |e|^2 + d \sigma^2)$",
            square - rows**2 * e**2 - claimed,
        ),
    ]


def prove_floor(*, more: int = 1) -> list[Step]:
    r"""The fixed point of the mean square without misassignment.

    $E|e^+|^2 = f E|e|^2 + x^2 d \sigma^2/N$ with $f = (1 - x)^2 + x^2 (d + 1)/N$ (ifca.
    exact.rms with one group, $\beta N = x$), as the new fold is independent of $e$. $f
    < 1$ iff $x < 2 N/(N + d + 1)$, and then $E|e_t|^2$ tends to $x^2 d \sigma^2/(N (1 -
    f))$, which is $\sigma^2 x d/((2 - x) N - x (d + \mathtt{more}))$.
    """
    import sympy

    x, rows, d, sigma = sympy.symbols("x N d sigma", positive=True)
    factor = (1 - x) ** 2 + x**2 * (d + 1) / rows
    floor = x**2 * d * sigma**2 / (rows * (1 - factor))
    claimed = sigma**2 * x * d / ((2 - x) * rows - x * (d + more))
    edge = 2 * rows / (rows + d + 1)
    return [
        *prove_rms(),
        identity("$f = 1$ at $x = 2 N/(N + d + 1)$", factor.subs(x, edge) - 1),
        identity("the fixed point", floor - claimed),
    ]


def prove_equivariance(*, power: int = 1) -> list[Step]:
    r"""Scaling $\theta^*$, $\sigma$ and $\theta$ by $s$ scales a round by $s$.

    With the same features and standard normal noises every residual $y - \langle x,
    \theta \rangle$ (`residual`) is scaled by $s$, every loss by $s^2 > 0$, so that no
    choice changes, and every gradient $2 x (\langle x, \theta \rangle - y)$, so that
    the next model is scaled by $s^{\text{power}}$, the power being `power`; by
    induction all are.
    """
    import sympy

    s, model, step, x, residual = sympy.symbols("s model step x residual", real=True)
    move = lambda model, residual: model + 2 * step * x * residual
    return [
        identity(
            r"$\operatorname{move}(s \cdot \text{model}, s \cdot "
            r"\text{residual}) = s \operatorname{move}(\text{model}, "
            r"\text{residual})$",
            move(s * model, s * residual) - s**power * move(model, residual),
        ),
        identity("loss", (s * residual) ** 2 - s**2 * residual**2),
    ]


@functools.lru_cache(maxsize=1)
def _chains(preset: Preset) -> PerTrial:
    num_trials = preset.choose(quick=48_000, full=300_000)
    found = []
    for place, (rows, features, step) in enumerate(_CHAINS):
        generator = preset.generator(FLOOR, place)
        problem = Problem(np.zeros((1, features)), (1,), rows, 1.0)
        models = np.zeros((num_trials, 1, features))
        total = np.zeros(num_trials)
        for index in range(_ROUNDS):
            gradients = draw_gradients(
                generator, problem, models, choices=np.zeros(1, int)
            )
            models = models - step / 2 * gradients.mean
            if index >= _BURN_IN:
                total += np.sum(models**2, axis=(1, 2))
        found.append(total / (_ROUNDS - _BURN_IN))
    return np.array(found)


_SCALES = (2.0**-40, 3.0, 1e5)


def check_equivariance(preset: Preset, *, noise_factor: float = 1.0) -> Verdict:
    """Whole runs on the same random numbers, scaled and not. `noise_factor` multiplies
    the scaled noise; anything but 1 falsifies the claim."""
    truths = np.array([[0.6, 0.0, 0.2], [-0.3, 0.5, 0.0], [0.0, -0.5, 0.4]])
    problem = Problem(truths, (5, 8, 7), 12, 0.3)
    num_trials, rounds = preset.choose(quick=20, full=500), 15
    start = preset.generator(EQUIV, 0).standard_normal((num_trials, *truths.shape))

    def run(scale: float, factor: float):
        path, counts = train(
            preset.generator(EQUIV, 1),
            Problem(scale * truths, (5, 8, 7), 12, factor * scale * 0.3),
            scale * start,
            step_size=0.5,
            num_rounds=rounds,
        )
        return path / scale, counts

    path, counts = run(1.0, 1.0)
    # Every round adds errors of inner products of m n' terms and halves none of them.
    operations = sum(problem.num_clients) * problem.num_samples + truths.shape[1]
    error = 16 * np.finfo(float).eps * operations * rounds * np.max(np.abs(path))
    apart, moved = [], 0.0
    for scale in _SCALES:
        scaled_path, scaled_counts = run(scale, noise_factor)
        apart.append(np.max(np.abs(scaled_path - path)))
        moved += float(np.sum(scaled_counts != counts))
    return combine(
        EQUIV,
        [
            never_exceeds(
                EQUIV,
                np.array(apart),
                0.0,
                rounding=float(error),
                grade=Grade.SAMPLED,
                coordinates={"scale": np.array(_SCALES)},
            ),
            never_exceeds(
                EQUIV, moved, 0.0, rounding=np.finfo(float).eps, grade=Grade.SAMPLED
            ),
        ],
        parts=["models", "assignments"],
        detail=f"{num_trials} raw runs of {rounds} rounds at scales $2^{{-40}}$, 3 "
        f"and $10^5$: models off by {max(apart):.2g}, {moved:.0f} counts differ",
    )


POOLING = "ifca.exact.pooling"

# Rows in all, features, separation over noise; both clusters have half of the rows.
_FITS = ((12, 1, 10.0), (16, 2, 2.0))


def approximate_risk(
    num_rows: PerPoint, num_features: PerPoint, separation: PerPoint
) -> PerPoint:
    """D^2/4 + (1 + D^2/4) d/(N-d-1): as if the labels' spread were plain noise."""
    bias = separation**2 / 4
    return bias + (1 + bias) * num_features / (num_rows - num_features - 1)


def check_pooling(preset: Preset, *, approximate: bool = False) -> Verdict:
    """Squared distances of fits to raw data, in units of the exact risk. Also, without
    data, that the oracle's risk, of half of the rows, is the pooled one at D = 2 sigma
    sqrt(d/N) but for a share of about 1/N."""
    rows, features, separation = np.array(_FITS).T
    # Nominal: no closed form of the squares' deviation is at hand.
    fits = _measured(
        POOLING,
        _fit_squares(preset),
        approximate_risk(rows, features, separation)
        if approximate
        else law.pooled_risk(rows, features, 1.0, separation),
        margin=preset.choose(quick=0.02, full=0.006),
        coordinates={"rows": rows, "d": features, "separation": separation},
        detail=f"fits to {len(_FITS)} kinds of raw data of {rows.min():.0f} to "
        f"{rows.max():.0f} rows",
    )
    many = np.array([1e3, 1e5, 1e7])
    pooled = law.pooled_risk(many, 20.0, 1.0, 2 * np.sqrt(20 / many))
    apart = pooled / law.oracle_risk(many / 2, 20.0, 1.0) - 1
    return combine(
        POOLING,
        [
            fits,
            never_exceeds(
                POOLING, np.abs(apart), 30 / many, rounding=1e-12, grade=Grade.EXACT
            ),
        ],
        detail=rf"{fits.detail}; pooled over oracle risk at $D = 2 \sigma "
        rf"\sqrt{{d/N}}$, $d = 20$: 1 {apart[0]:+.2g} at $N = 1000$",
    )


@functools.lru_cache(maxsize=1)
def _fit_squares(preset: Preset) -> PerTrial:
    """|fit - own truth|^2, the own truth at 0."""
    trials = preset.choose(quick=300_000, full=3_000_000)
    found = []
    for index, (num_rows, num_features, separation) in enumerate(_FITS):
        generator = preset.generator(POOLING, index)
        inputs = generator.standard_normal((trials, num_rows, num_features))
        labels = generator.standard_normal((trials, num_rows))
        direction = generator.standard_normal(num_features)
        direction *= separation / np.linalg.norm(direction)
        labels[:, num_rows // 2 :] += inputs[:, num_rows // 2 :] @ direction
        across = np.swapaxes(inputs, 1, 2)
        fit = np.linalg.solve(across @ inputs, across @ labels[:, :, None])
        found.append(np.sum(fit**2, axis=(1, 2)))
    return np.array(found)


STATEMENTS = (
    row(
        id=GROUP,
        place="Appendix A, the law behind (2) and (6)",
        text=r"$X'(X e - \text{noise}) = \chi_N^2 e + \sqrt{\tau^2 \chi_N^2} "
        r"\zeta$ in law, one $\chi_N^2$, $\zeta \sim N(0, I - e e'/\tau^2)$, $\tau^2 "
        r"= |e|^2 + \sigma^2$",
        preconditions=(
            "standard normal features and normal noise",
            "$N$ rows of one cluster at one model, drawn after $e$",
        ),
        check=check_group,
        control={"wrong": "split"},
        proof=prove_group,
        proof_control={"share": "1.001"},
        note="Not in the paper. $(n'/2)$ times the sum of a group's gradients has "
        "this law, so that a round costs the same for every $n'$. The control draws "
        r"two $\chi$-squares where there is one.",
    ),
    row(
        id=RMS,
        place="Appendix A, the exact form of (2) and (8)",
        text=r"$E|\theta_j^+ - \theta_j^*|^2 = |e_j - \beta \sum_l N_{lj} "
        r"e_{lj}|^2 + \beta^2 \sum_l N_{lj} ((d + 1) |e_{lj}|^2 + d \sigma^2)$, "
        "given who chose what",
        preconditions=("a gradient fold independent of the choices",),
        check=check_rms,
        control={"missing": 1.0},
        proof=prove_rms,
        proof_control={"more": 0},
        note=r"Not in the paper. $e_{lj} = \theta_j - \theta_l^*$, $N_{lj} = n'$ "
        r"times the clients of cluster $l$ at model $j$, $\beta = 2 \gamma/(m n')$. "
        "The control has $d$ for $d + 1$.",
    ),
    row(
        id=FLOOR,
        place="Theorem 1, the exact form of its second term",
        text=r"without misassignment the mean-square error tends to $\sigma^2 x d / "
        r"((2 - x) N - x (d + 1))$, $x = 2 \gamma p_j$, $N = p_j m n'$",
        preconditions=("$0 < x < 2 N/(N + d + 1)$", "fresh data in every round"),
        check=check_floor,
        control={"missing": 1.0},
        proof=prove_floor,
        proof_control={"more": 0},
        note=r"Not in the paper. With $x = 1$ it is $\sigma^2 d/(N - d - 1)$, the "
        "risk of least squares on one round's data. The control has $d$ for $d + 1$.",
    ),
    row(
        id=EQUIV,
        place="Section 5.1, the linear model",
        text=r"$(\theta^*, \sigma, \theta^{(0)}) \to s (\theta^*, \sigma, "
        r"\theta^{(0)})$ scales the whole run by $s$ and changes no assignment",
        preconditions=("$s > 0$", "the same features and noise up to scale"),
        check=check_equivariance,
        control={"noise_factor": 1.001},
        proof=prove_equivariance,
        proof_control={"power": 2},
        note=r"Success therefore depends on $R/\sigma$ and on the start over $R$ "
        r"only. At $\sigma = 0$ a smaller $R$ is the same problem with a larger "
        "start. The control scales the noise by 0.1 % more than the rest.",
    ),
    row(
        id=POOLING,
        place="Section 2, one global model for all clients",
        text=r"$E|\text{pooled fit }- \theta_j^*|^2 = (D^2/4) ((N+4)/(N+2) + N "
        r"(N+1) (d-1) / ((N-1) (N+2) (N-d-1))) + \sigma^2 d/(N-d-1)$, $k = 2$, $N$ "
        "rows, $D$ apart",
        preconditions=("two clusters with half of the rows each", "$N > d + 1$"),
        check=check_pooling,
        control={"approximate": True},
        note="Not in the paper. Least squares on the own cluster's $N/2$ rows has "
        r"$\sigma^2 d/(N/2-d-1)$: below $D = 2 \sigma \sqrt{d/N}$ pooling is "
        r"better. The control treats the labels' spread as noise, $D^2/4 + (\sigma^2 "
        "+ D^2/4) d/(N-d-1)$, which is 1 to 4 % off here.",
    ),
)
