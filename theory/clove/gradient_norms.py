"""Lemma A.13, its ingredients: |N I - H'H| and |H' xi| for N standard normal rows.

All singular values of H lie in sqrt(N) -+ (sqrt(d) + t), each end except with
probability exp(-t^2/2) (Davidson and Szarek); with t = sqrt(d), |H'H - N I| <= 4 sqrt(d
N) + 4 d, which is at most 6 sqrt(d N) from N = 4 d on. |H' xi| = sigma chi_N chi'_d in
law.
"""

import functools

import numpy as np
from jaxtyping import Float

from cfljax import law
from theory.judges import at_most, never_exceeds, tally
from theory.statement import Margin, Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "check_identity", "check_noise", "check_operator"]

OPERATOR, NOISE, IDENTITY = "clove.opnorm", "clove.noisenorm", "clove.gradid"

_SHAPES = ((8, 2), (12, 3), (20, 5), (40, 10), (200, 10))  # N, d
_FEATURES = (1, 2, 3, 5, 10, 30, 100, 1000, 10_000)
_ROWS_PER_FEATURE = (4, 5, 10, 100, 10_000)


@functools.lru_cache(maxsize=1)
def _deviations(preset: Preset) -> Float[np.ndarray, "points trials"]:
    """|N I - H'H|_op / sqrt(d N) on raw H."""
    trials = preset.choose(quick=2000, full=40_000)
    found = []
    for index, (rows, features) in enumerate(_SHAPES):
        generator = preset.generator(OPERATOR, index)
        parts = []
        for start in range(0, trials, 1000):
            size = (min(1000, trials - start), rows, features)
            inputs = generator.standard_normal(size)
            values = np.linalg.eigvalsh(inputs.swapaxes(1, 2) @ inputs) - rows
            parts.append(np.max(np.abs(values), axis=1) / np.sqrt(rows * features))
        found.append(np.concatenate(parts))
    return np.array(found)


def check_operator(preset: Preset, *, constant: float = 6.0) -> Verdict:
    """P(|N I - H'H| > `constant` sqrt(d N)) <= 2 exp(-d/2) on raw H, N >= 4 d."""
    deviations = _deviations(preset)
    features = np.array([shape[1] for shape in _SHAPES], float)
    high = np.quantile(deviations, 0.99, axis=1)
    return at_most(
        OPERATOR,
        tally(deviations > constant),
        2 * np.exp(-features / 2),
        detail=f"{len(_SHAPES)} shapes, N >= 4 d: 99 % of |N I - H'H| / sqrt(d N) are "
        f"below {np.min(high):.2f} to {np.max(high):.2f}",
    )


def check_noise(preset: Preset, *, constant: float = 3.0) -> Verdict:
    """P(chi_N chi'_d > `constant` sqrt(d N)) <= 2 exp(-d/2), exactly, N >= 4 d."""
    del preset
    features, ratio = (
        axis.ravel() for axis in np.meshgrid(_FEATURES, _ROWS_PER_FEATURE)
    )
    rows = features * ratio
    exact = law.log_product_tail(rows, features, constant**2 * rows * features)
    bound = np.log(2) - features / 2
    return never_exceeds(
        NOISE,
        exact,
        bound,
        rounding=1e-11 + 2e-13 * np.abs(exact),
        logarithmic=True,
        detail=f"exact law at {len(rows)} shapes, N from 4 d to 10^4 d: log P - log "
        f"bound is at most {np.max(exact - bound):.3g}",
    )


def check_identity(preset: Preset, *, factor: float = 2.0) -> Verdict:
    """theta_k - theta* = (I - `factor` eta S) e + (`factor` eta/N) H' xi, S = H'H/N.

    Against theta - (eta/m) sum of the clients' gradients, each taken sample by sample.
    """
    generator = preset.generator(IDENTITY)
    gaps, scales = [], []
    for clients, samples, features in ((1, 1, 1), (3, 4, 2), (5, 2, 7), (2, 30, 10)):
        inputs = generator.standard_normal((clients, samples, features))
        noise = 0.3 * generator.standard_normal((clients, samples))
        truth, model = generator.standard_normal((2, features))
        step, rows = 0.4, clients * samples
        labels = inputs @ truth + noise
        gradients = np.zeros((clients, features))
        for client in range(clients):
            for x, y in zip(inputs[client], labels[client], strict=True):
                gradients[client] += 2 * (x @ model - y) * x / samples
        found = model - step / clients * np.sum(gradients, axis=0) - truth
        flat = inputs.reshape(rows, features)
        error = model - truth
        pull = flat.T @ (flat @ error) - flat.T @ noise.ravel()
        formula = error - factor * step / rows * pull
        gaps.append(np.max(np.abs(found - formula)))
        scales.append(1 + np.max(np.abs(found)))
    return never_exceeds(
        IDENTITY,
        np.array(gaps),
        np.zeros(len(gaps)),
        rounding=1e-13 * np.array(scales),
        detail=f"{len(gaps)} random data sets, largest difference {np.max(gaps):.1g}",
    )


def _margins() -> tuple[Margin, ...]:
    return tuple(
        Margin("clove.lemA13: N >= 4 d", float(rows), 4.0 * features)
        for rows, features in _SHAPES
    )


_row = functools.partial(Statement, paper="clove", place="Lemma A.13, proof")

STATEMENTS = (
    _row(
        id=OPERATOR,
        text="|E H'H - H'H| <= 6 sqrt(d N) with probability >= 1 - 2 exp(-d/2)",
        preconditions=("H in R^{N x d} standard normal, N = m_k n_k", "N >= 4 d"),
        constants={"N / d at least": 4.0},
        claimed="d << m_k n_k",
        check=check_operator,
        control=functools.partial(check_operator, constant=2.5),
        margins=_margins,
        note="Without N >= 4 d it does not follow. Says nothing for d = 1, little for "
        "d up to 5, and 6 is twice what is needed. The control has 2.5.",
    ),
    _row(
        id=NOISE,
        text="|H' xi| <= c1 sigma sqrt(d N) with probability >= 1 - c4 exp(-c5 d)",
        preconditions=("H and xi normal, independent", "N >= 4 d"),
        constants={"c1": 3.0, "c4": 2.0, "c5": 0.5},
        claimed="c1, c4, c5, unnamed",
        check=check_noise,
        control=functools.partial(check_noise, constant=1.75),
        note="By the exact law sigma chi_N chi_d. The control has c1 = 1.75.",
    ),
    _row(
        id=IDENTITY,
        text="theta_k - theta_k* = (I - 2 eta H'H/N) (theta - theta_k*) + (2 eta/N) H' "
        "xi",
        preconditions=("theta_k = theta - (eta/m_k) sum of the clients' gradients",),
        check=check_identity,
        control=functools.partial(check_identity, factor=2.001),
        note="The control has 2.001 eta.",
    ),
)
