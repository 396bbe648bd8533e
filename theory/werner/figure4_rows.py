"""Figure 4: the rows, whose checks are in `figure4`."""

import functools

from theory.statement import Statement
from theory.verdict import Status
from theory.werner import figure4

__all__ = ["STATEMENTS"]

_BLOBS = "90 points, 10 clusters, d = 10, sigma = 0.5, 1, 2, 4 in each coordinate"
_RULE = "tau = 10 % quantile of the distances to the centre"
_row = functools.partial(
    Statement, paper="werner", place="Section 4.3, Figure 4", preconditions=(_BLOBS,)
)
_between = functools.partial(figure4.check_deviation, between=True)
_within = functools.partial(figure4.check_deviation, between=False)

STATEMENTS = (
    _row(
        id=figure4.ROUNDS,
        text="the number of rounds that Theorem 1 asks for grows with sigma, l >= c "
        "log(sigma)",
        claimed="l >~ log sigma, a lower bound of Theorem 1",
        expected=Status.VIOLATED,
        check=figure4.check_rounds_printed,
        control=functools.partial(figure4.check_rounds_printed, num_clusters=5),
        note="It is log(sigma/Delta)/log(1 - delta/2), with a negative denominator: it "
        "falls, and is what suffices, not what is needed. Total deviation sigma "
        "sqrt(10). The control has 5 clusters.",
    ),
    _row(
        id=f"{figure4.ROUNDS}.corrected",
        text="the number of rounds that Theorem 1 asks for falls by log(2)/|log(1 - "
        "delta/2)| where sigma doubles; elbows of runs from members are within 3 "
        "rounds for all sigma, of runs from a fixed distance they do not rise",
        preconditions=(_BLOBS, _RULE, "means of 10 data sets, 80 rounds"),
        constants={"rounds": 3.0},
        check=figure4.check_rounds,
        control=functools.partial(figure4.check_rounds, base=2.1),
        note="A quantile q contracts by 1 - q whatever sigma is; the start, which the "
        "paper does not name, decides the rest. The control claims log(2.1).",
    ),
    _row(
        id=figure4.ELBOW,
        text="(f(l) - f(l-1))/(f(l-1) - min f) tells the elbow: it is smaller in size "
        "after it, where the curve is flat, than in the first round",
        preconditions=(_BLOBS, _RULE, "also f(l) = 1 + 5 r^l, r = 0.5 to 0.95"),
        claimed="a formula without a threshold",
        expected=Status.VIOLATED,
        check=figure4.check_elbow_printed,
        control=functools.partial(figure4.check_elbow_printed, backwards=True),
        note="It is negative for a falling curve, about -(1 - r) throughout for a "
        "geometric decay, -1 in the round that reaches the minimum, and 0/0 after it. "
        "The control compares with half of the way.",
    ),
    _row(
        id=f"{figure4.ELBOW}.corrected",
        text="the first l with (f(l-1) - f(l))/(f(0) - min f) < 0.01 is the elbow: for "
        "a decay r it is at 2 + floor(log(0.01/(1 - r))/log r), up to the curve's end, "
        "and at most 0.01 r/(1 - r) of the drop is left there",
        preconditions=("f(l) = 1 + 5 r^l, r = 0.5, 0.8, 0.85, l up to 80",),
        constants={"threshold": 0.01},
        check=figure4.check_elbow,
        control=functools.partial(figure4.check_elbow, threshold=0.007),
        note="The control has a threshold of 0.007 in the claim.",
    ),
    _row(
        id=figure4.DEVIATION,
        place="Section 4.3, the caption of Figure 4 and section 3.2, note 4",
        text="sigma is the standard deviation between clusters, to 10 %",
        claimed="inter-cluster standard deviation, inter-cluster variance",
        expected=Status.VIOLATED,
        check=_between,
        control=functools.partial(_between, scale=2.0),
        note="The centres are the same for all sigma, with a deviation of 20/sqrt(12) "
        "here. The control claims 2 sigma.",
    ),
    _row(
        id=f"{figure4.DEVIATION}.corrected",
        place="Section 4.3, the caption of Figure 4 and section 3.2, note 4",
        text="sigma is the standard deviation within clusters, to 10 %",
        check=_within,
        control=functools.partial(_within, scale=1.2),
        note="The control claims 1.2 sigma.",
    ),
)
