"""Lemmas A.6 and A.7: covariance of a square-root loss vector, and the norm of X.

X has the rows a_i - c_s(i). The covariance is known exactly (a hypergeometric function
of the cosines), so that (4) and (5) need no draws. (5) bounds the trace by what (4)
bounds the largest eigenvalue with; hence |X| <= |X|_F, whose mean square is at most
gamma^2 M, already gives Lemma A.7 by Markov's inequality.
"""

import functools

import numpy as np
from jaxtyping import Float

from cfljax import law
from theory.clove.loss_means import random_units
from theory.judges import at_most, never_exceeds, tally
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "check_covariance", "check_norm"]

SPECTRAL, TRACE, NORM = "clove.lemA6", "clove.eq5", "clove.lemA7"

_COUNTS = (1, 5, 20, 100)
_NOISES = (0.0, 0.1, 1.0)
_SHAPES = ((10, 20, 5), (10, 20, 50), (20, 15, 30))  # d, n, M


def _collections(
    generator: np.random.Generator, num_features: int
) -> list[tuple[Float[np.ndarray, "_ features"], Float[np.ndarray, " features"]]]:
    """Models and a truth: orthonormal, proximal, and as bad as |theta| <= 2 allows."""
    truth, other = random_units(generator, (2, num_features))
    if num_features > 1:  # a truth -theta* is the furthest from theta*
        other = -truth
    pair = np.stack([truth + other / 2, other * 1.5])
    worst = np.tile(-2 * truth, (num_features, 1))
    return [(np.eye(num_features), truth), (pair, truth), (worst, truth)]


@functools.lru_cache(maxsize=1)
def _covariances(preset: Preset) -> Float[np.ndarray, "points 4"]:
    """Largest eigenvalue, trace, N/(2n) and sigma^2 of exact covariances."""
    found = []
    for num_features in preset.choose(quick=(1, 2, 10, 60), full=(1, 2, 10, 100, 400)):
        generator = preset.generator(SPECTRAL, num_features)
        for models, truth in _collections(generator, num_features):
            for noise in _NOISES:
                factor = law.loss_factor(models, truth, noise)
                for count in _COUNTS:
                    matrix = law.root_loss_covariance(factor, count)
                    largest = np.linalg.eigvalsh(matrix)[-1]
                    half = len(models) / (2 * count)
                    found.append([largest, np.trace(matrix), half, noise**2])
    return np.array(found)


def check_covariance(preset: Preset, *, name: str, square: float = 9.0) -> Verdict:
    """Largest eigenvalue, or trace, of Cov(X_i) <= N (`square` + sigma^2)/(2n)."""
    largest, trace, half, variance = _covariances(preset).T
    value = largest if name == SPECTRAL else trace
    bound = half * (square + variance)
    ratio = value / bound
    return never_exceeds(
        name,
        value,
        bound,
        rounding=1e-12 * bound,
        detail=f"{len(value)} exact covariances, n to {_COUNTS[-1]}: ratio to the "
        f"bound {np.min(ratio):.3f} to {np.max(ratio):.5f}",
    )


@functools.lru_cache(maxsize=1)
def _norms(preset: Preset) -> Float[np.ndarray, "2 points trials"]:
    """|X|_op and |X|_F over gamma sqrt(M), orthonormal models, sigma = 0.1."""
    trials = preset.choose(quick=2000, full=20_000)
    found = []
    for index, (num_features, count, clients) in enumerate(_SHAPES):
        generator = preset.generator(NORM, index)
        truth = random_units(generator, (num_features,))
        factor = law.loss_factor(np.eye(num_features), truth, 0.1)
        mean = np.linalg.norm(factor, axis=0) * law.chi_mean_ratio(count)
        gamma = np.sqrt(num_features * (9 + 0.1**2) / (2 * count))
        grams = []
        for _ in range(0, trials, 100):
            losses = law.loss_vectors(
                generator, factor, num_samples=count, num_clients=100 * clients
            )
            rows = (np.sqrt(losses) - mean).reshape(100, clients, num_features)
            grams.append(rows.swapaxes(1, 2) @ rows / (gamma**2 * clients))
        gram = np.concatenate(grams)
        operator = np.sqrt(np.linalg.eigvalsh(gram)[:, -1])
        found.append([operator, np.sqrt(np.trace(gram, axis1=1, axis2=2))])
    return np.array(found).swapaxes(0, 1)


def check_norm(preset: Preset, *, name: str, polylog: float = 1.0) -> Verdict:
    """P(|X| > gamma sqrt(M) `polylog`) <= 1/100, operator norm or Frobenius'."""
    operator, frobenius = _norms(preset)
    ratios = operator if name == NORM else frobenius
    return at_most(
        name,
        tally(ratios > polylog),
        np.full(len(ratios), 0.01),
        detail="(d, n, M) = "
        + ", ".join(str(shape) for shape in _SHAPES)
        + ": |X|/(gamma sqrt(M)) at most "
        + ", ".join(f"{np.max(one):.3f}" for one in ratios),
    )


_row = functools.partial(Statement, paper="clove")
_NINE = "9 = (2 + 1)^2 from |theta_j| <= 2"


def _norm_rows() -> tuple[Statement, ...]:
    row = functools.partial(
        _row,
        place="Lemma A.7",
        preconditions=("N = d orthonormal models", "independent clients"),
        constants={"polylog": 1.0, "probability": 0.01},
        claimed="polylog(M), unnamed, with probability >= 1 - 1/polylog(M)",
    )
    return (
        row(
            id=NORM,
            text="|X(Theta)| <= gamma sqrt(M) polylog(M) with high probability, gamma "
            "= sqrt(N (9 + sigma^2)/(2n))",
            check=functools.partial(check_norm, name=NORM),
            control=functools.partial(check_norm, name=NORM, polylog=0.35),
            note="A polylog of 1 is enough. The control has 0.35.",
        ),
        row(
            id=f"{NORM}.frobenius",
            text="|X(Theta)|_F <= gamma sqrt(M) with high probability, as E|X|_F^2 <= "
            "gamma^2 M",
            check=functools.partial(check_norm, name=f"{NORM}.frobenius"),
            control=functools.partial(
                check_norm, name=f"{NORM}.frobenius", polylog=0.45
            ),
            note="One line of proof by (5) and Markov's inequality, for any M and N: "
            "as gamma has the factor N in it, nothing is gained by Lemma A.8. The "
            "control has 0.45.",
        ),
    )


STATEMENTS = (
    _row(
        id=SPECTRAL,
        place="Lemma A.6, (4)",
        text="max over |v| = 1 of E <X_i, v>^2 <= N (9 + sigma^2)/(2 n_k)",
        preconditions=("|theta_j| <= 2", "|theta_k*| = 1"),
        check=functools.partial(check_covariance, name=SPECTRAL),
        control=functools.partial(check_covariance, name=SPECTRAL, square=8.9),
        note=f"Strictly, for every n; {_NINE}, nearly reached by N equal models "
        "opposite to the truth. Order N is genuine for orthonormal models, too: their "
        "losses share theta*. The control has 8.9.",
    ),
    _row(
        id=TRACE,
        place="Lemma A.6, (5)",
        text="E|X_i|^2 <= N (9 + sigma^2)/(2 n_k)",
        preconditions=("|theta_j| <= 2", "|theta_k*| = 1"),
        check=functools.partial(check_covariance, name=TRACE),
        control=functools.partial(check_covariance, name=TRACE, square=8.9),
        note=f"Strictly, for every n; {_NINE}. The same bound as for the largest "
        "eigenvalue. The control has 8.9.",
    ),
    *_norm_rows(),
)
