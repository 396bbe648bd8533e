"""ifca.exact.tlaw: the exact law of a misassignment, against raw data."""

import functools

import numpy as np

from cfljax import law
from theory.ifca.linear_model import Client, place_pair, wrong_choices
from theory.judges import Tally, equals, tally
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "check_law"]

LAW = "ifca.exact.tlaw"

# num_features, num_samples, |a|, |b|, cos(a, b), noise
_GEOMETRIES = (
    (1, 1, 0.25, 0.75, -1.0, 1.0),
    (1, 10, 0.2, 0.9, 1.0, 0.7),
    (2, 1, 0.0, 1.0, 0.0, 0.5),
    (2, 3, 0.4, 0.8, 0.0, 0.0),
    (3, 2, 0.9, 0.5, 0.5, 0.3),
    (5, 5, 0.3, 0.7, -0.8, 0.4),
    (5, 30, 0.3, 0.7, -0.5, 1.0),
    (10, 3, 0.1, 1.0, 0.7, 2.0),
    (20, 10, 0.5, 0.6, -0.9, 0.2),
    (20, 30, 0.3, 0.5, -0.2, 0.5),
    (50, 1, 0.2, 0.9, 0.3, 0.1),
    (50, 5, 0.0, 1.0, 0.0, 1.0),
)
_LARGE_GEOMETRIES = (
    (64, 60, 0.4, 0.6, -0.3, 1.0),
    (300, 10, 0.3, 0.6, 0.1, 0.5),
)


def check_law(
    preset: Preset, *, kappa_factor: float = 1.0, extra_freedom: int = 0
) -> Verdict:
    """Compare misassignment frequencies in raw data with the Student law.

    Args:
      preset: 12 geometries with 2e5 data sets each, or 14 with 1e6.
      kappa_factor: multiplies kappa; anything but 1 falsifies the law.
      extra_freedom: added to the degrees of freedom; anything but 0 falsifies it.
    """
    clients, counts = _misassignments(preset)
    kappa = np.array(
        [
            law.misassignment_kappa(one.truth, one.models[0], one.models[1], one.noise)
            for one in clients
        ]
    )
    freedom = np.array([one.num_samples for one in clients]) + extra_freedom
    # P(t >= sqrt(n) kappa): the threshold keeps the true n, the law may not.
    threshold = np.sqrt((freedom - extra_freedom) / freedom) * kappa * kappa_factor
    return equals(
        LAW,
        counts,
        law.misassignment_probability(threshold, freedom),
        resolution=preset.choose(quick=0.012, full=0.006),
        detail=f"{len(clients)} geometries, {counts.trials[0]:.0f} raw data sets each",
    )


@functools.lru_cache(maxsize=1)
def _misassignments(preset: Preset) -> tuple[list[Client], Tally]:
    num_trials = preset.choose(quick=200_000, full=1_000_000)
    rows = preset.choose(quick=_GEOMETRIES, full=_GEOMETRIES + _LARGE_GEOMETRIES)
    clients = []
    for index, (features, samples, own, other, cosine, noise) in enumerate(rows):
        clients.append(
            place_pair(
                preset.generator(LAW, index),
                num_features=features,
                num_samples=samples,
                own_error=own,
                other_error=other,
                cosine=cosine,
                noise=noise,
            )
        )
    events = [
        wrong_choices(preset, LAW, index, client, num_trials=num_trials)
        for index, client in enumerate(clients)
    ]
    return clients, tally(np.array(events))


STATEMENTS = (
    Statement(
        id=LAW,
        paper="ifca",
        place="Appendix A.1, the law behind (13)",
        text="P(F_i(theta_j') <= F_i(theta_j)) = P(t_n' >= sqrt(n') kappa), exactly",
        preconditions=(
            "standard normal features and normal noise",
            "a fold independent of the models, of n' >= 1 samples",
            "theta_j != theta_j'",
        ),
        check=check_law,
        control=functools.partial(check_law, kappa_factor=1.05),
        note="Not in the paper, which bounds both sides by a fixed threshold instead. "
        "The control moves kappa by 5 %.",
    ),
)
