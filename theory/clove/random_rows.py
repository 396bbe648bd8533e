"""Lemma A.8, quoted from Kumar and Kannan (Fact 6.1): norms of matrices of bounded
independent rows.

As printed nothing is said of a probability, and an undefined p is under the root. Rows
that are gamma sqrt(n) e_1 with probability 1/n, and 0 otherwise, meet both conditions;
all n of them may come at once, and |Y| is then gamma n. What holds is the matrix
Chernoff bound (Tropp, 2012): P(|Y|^2 >= (1 + tau) gamma^2 n) <= d e^tau/(1 +
tau)^(1 + tau).
"""

import functools

import numpy as np
from jaxtyping import Float

from theory.judges import at_most, never_exceeds, tally
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = ["STATEMENTS", "check_chernoff", "check_printed", "spike_norms"]

FACT = "clove.lemA8"

_ROWS = (100, 1000)
_FEATURES = (1, 2, 10, 50)
_EXCESSES = (1.0, 2.0, 3.0, 4.0, 5.0)  # tau


def spike_norms(
    generator: np.random.Generator, num_rows: int, num_features: int, trials: int
) -> Float[np.ndarray, " trials"]:
    """|Y|^2/(gamma^2 n) of rows gamma sqrt(n) e_j, each j with probability 1/n, else 0.

    Y'Y is diagonal with the counts of each j times gamma^2 n, E Y'Y = gamma^2 n I.
    """
    chances = np.full(num_features + 1, 1 / num_rows)
    chances[-1] = max(0.0, 1 - num_features / num_rows)
    counts = generator.multinomial(num_rows, chances, size=trials)
    return np.max(counts[:, :-1], axis=1).astype(float)


def check_printed(preset: Preset, *, power: float = 4.0) -> Verdict:
    """|Y| <= gamma sqrt(n) log(n)^`power` for a Y that has a positive probability."""
    del preset
    rows = 10.0 ** np.arange(2, 25)
    norm = np.sqrt(rows)  # |Y|/(gamma sqrt(n)), all n rows being gamma sqrt(n) e_1
    bound = np.log(rows) ** power
    first = rows[norm > bound]
    return never_exceeds(
        FACT,
        norm,
        bound,
        rounding=1e-12 * norm,
        detail=f"all rows gamma sqrt(n) e_1, of probability n^-n: |Y| above gamma "
        f"sqrt(n) log(n)^{power:g} from n = {first[0] if len(first) else np.inf:g} on",
    )


def check_chernoff(preset: Preset, *, prefactor: float = 1.0) -> Verdict:
    """P(|Y|^2 >= (1 + tau) gamma^2 n) <= `prefactor` d e^tau/(1 + tau)^(1 + tau)."""
    trials = preset.choose(quick=20_000, full=400_000)
    events, bounds = [], []
    excess = np.array(_EXCESSES)
    for num_rows in _ROWS:
        for num_features in _FEATURES:
            generator = preset.generator(FACT, num_rows, num_features)
            norms = spike_norms(generator, num_rows, num_features, trials)
            # Counts are whole numbers, as is 1 + tau: nothing is lost to rounding.
            events.append(norms >= 1 + excess[:, None])
            logarithm = excess - (1 + excess) * np.log1p(excess)
            bounds.append(prefactor * num_features * np.exp(logarithm))
    counted, claimed = np.concatenate(events), np.concatenate(bounds)
    shares = np.mean(counted[: len(excess)], axis=1)
    return at_most(
        f"{FACT}.corrected",
        tally(counted),
        claimed,
        detail=f"rows gamma sqrt(n) e_j with probability 1/n each, {len(claimed)} (n, "
        "d, tau), d = 1, n = 100 beyond tau = 1, 2, 3: "
        + ", ".join(f"{share:.3g}" for share in shares[:3])
        + ", bounds "
        + ", ".join(f"{bound:.3g}" for bound in claimed[:3]),
    )


_row = functools.partial(
    Statement,
    paper="clove",
    place="Lemma A.8",
    preconditions=(
        "independent rows, max |Y_i| <= gamma sqrt(n)",
        "|E Y'Y| <= gamma^2 n",
        "n >= d",
    ),
)

STATEMENTS = (
    _row(
        id=FACT,
        text="|Y| <= gamma sqrt(n) polylog(n)",
        constants={"polylog(n)": 4.0},
        claimed="gamma sqrt(n p) polylog(n), p undefined, with no probability",
        expected=Status.VIOLATED,
        check=check_printed,
        control=functools.partial(check_printed, power=1.0),
        note="As printed, for every Y, with p read as 1 and polylog(n) as log(n)^4; a "
        'larger power fails at larger n. What is missing is "with high probability". '
        "The control has log(n).",
    ),
    _row(
        id=f"{FACT}.corrected",
        text="P(|Y|^2 >= (1 + tau) gamma^2 n) <= d e^tau/(1 + tau)^(1 + tau)",
        check=check_chernoff,
        control=functools.partial(check_chernoff, prefactor=0.3),
        note="The matrix Chernoff bound: tau of order log d is enough. Lemma A.7's "
        "rows have no bound, and it must be applied given their lengths. The control "
        "has 0.3 of it.",
    ),
)
