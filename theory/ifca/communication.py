"""Section 4.3: weight sharing and stable identities save communication."""

import functools

import numpy as np
from jaxtyping import Bool

from cfljax.statements import (
    Grade,
    Preset,
    Step,
    Verdict,
    at_most,
    combine,
    identity,
    never_exceeds,
    tally,
)
from theory.ifca.common.checks import grid, row
from theory.ifca.common.fixed_data import draw_clients, pattern, train
from theory.polynomials import no_negative_term

SHARING, STABLE = "ifca.comm.sharing", "ifca.comm.stable"


def check_sharing(_: Preset, *, factor: float = 1.0) -> Verdict:
    """d_s + k d_u <= k d numbers are sent to a client in a round, d = d_s + d_u; the
    saving is (k - 1) d_s / (k d), times `factor`."""
    clusters, shared, own = grid([1.0, 2, 4, 64], [0.0, 1, 1e3, 1e6], [1.0, 1e3, 1e6])
    features = shared + own
    sent, plain = shared + clusters * own, clusters * features
    saving = factor * (clusters - 1) * shared / plain
    judged = functools.partial(
        never_exceeds,
        SHARING,
        grade=Grade.EXACT,
        coordinates={"k": clusters, "d": features, "shared": shared},
    )
    return combine(
        SHARING,
        [
            judged(sent, plain, rounding=1e-9),
            judged(np.abs(1 - sent / plain - saving), 0.0, rounding=1e-12),
        ],
        parts=["numbers", "saving"],
        detail=f"saves {np.min(saving):.0%} to {np.max(saving):.1%} of what is sent "
        "to a client",
    )


def prove_sharing(*, factor: str = "1") -> list[Step]:
    r"""For all $k \ge 1$, $d_s$ and $d_u$: sharing $d_s$ weights saves $(k - 1) d_s/(k
    d)$ of the $k d$ numbers that a client is sent in a round, which is at least 0."""
    import sympy

    k, shared, own = sympy.symbols("k d_s d_u", positive=True)
    more = sympy.Symbol("k - 1", nonnegative=True)
    plain = k * (shared + own)
    saving = sympy.Rational(factor) * (k - 1) * shared / plain
    return [
        identity("$1 - (d_s + k d_u)/(k d) = (k - 1) d_s/(k d)$",
                 1 - (shared + k * own) / plain - saving),
        no_negative_term(r"$(k - 1) d_s \ge 0$ for $k \ge 1$",
                         ((k - 1) * shared).subs(k, 1 + more)),
    ]  # fmt: skip


_ROUNDS, _WATCHED = 80, 5  # rounds in all; rounds without a change that count as stable
_FEATURES, _CLIENTS = 20, 20


@functools.lru_cache(maxsize=2)
def _changed(preset: Preset, samples: int) -> Bool[np.ndarray, " stable"]:
    """Whether an identity changes after the first 5 rounds that all identities stay."""
    generator = preset.generator(STABLE, samples)
    trials = preset.choose(quick=400, full=4000)
    truths = pattern(generator, trials, 2, _FEATURES, norm=1.0)
    data = draw_clients(
        generator, truths, num_clients=_CLIENTS, num_samples=samples, noise=0.3
    )
    models = pattern(generator, trials, 1, 2, _FEATURES, norm=1.0)
    choices = []
    for _ in range(_ROUNDS):
        outcome = train(data, models, step_size=0.5, num_rounds=1)
        models = outcome.models
        choices.append(outcome.choice[:, 0])
    found = np.array(choices)
    return changes_later(np.all(found[1:] == found[:-1], axis=-1))


def changes_later(
    same: Bool[np.ndarray, "rounds trials"],
) -> Bool[np.ndarray, " stable"]:
    """Whether a round that is not the `same` as the one before follows the first 5 that
    are; of trials that have such a run."""
    last = len(same) - _WATCHED
    runs = np.array([np.all(same[t : t + _WATCHED], axis=0) for t in range(last + 1)])
    stable = np.any(runs, axis=0)
    first = np.argmax(runs, axis=0)
    after = np.arange(len(same))[:, None] >= first + _WATCHED
    return np.any(~same & after, axis=0)[stable]


def check_stable(preset: Preset, *, samples: int = 400) -> Verdict:
    """After 5 rounds without a change identities change in one run of 20 or fewer."""
    changed = _changed(preset, samples)
    return at_most(
        STABLE,
        tally(changed),
        0.05,
        detail=f"$n = {samples}$: identities change after {_WATCHED} rounds without a "
        f"change in {np.sum(changed)} of {len(changed)} runs",
    )


STATEMENTS = (
    row(
        id=SHARING,
        place="Section 4.3, weight sharing",
        text="instead of sending $k$ models to all the worker machines, the center "
        "only needs to send $k$ versions of a subset of the weights and one copy of "
        "the shared layers: less communication",
        preconditions=("$k$ models of $d = d_s + d_u$ weights, $d_s$ of them shared",),
        check=check_sharing,
        control={"factor": 1.01},
        proof=prove_sharing,
        proof_control={"factor": "101/100"},
        note="Saves $(k - 1) d_s / (k d)$ of what a client is sent, nothing of what "
        "it sends. The controls claim 1 % more.",
    ),
    row(
        id=STABLE,
        place="Section 4.3, stable identities",
        text="when the identities do not change for several rounds, the center can "
        "stop sending $k$ models, and send each worker machine its own",
        preconditions=(
            f"mixed linear regressions on fixed data, $k = 2$, $d = {_FEATURES}$, $m "
            rf"= {_CLIENTS}$, $n = 400$, $\sigma = 0.3$, $\gamma = 1/2$, random starts",
            f"several: {_WATCHED}; the run has {_ROUNDS} rounds",
        ),
        constants={"share": 0.05},
        check=check_stable,
        control={"samples": 10},
        note="Read as: they would not have changed later, but for one run of 20. It "
        "then sends $1/k$. With few samples they often would have: the control has "
        "$n = d / 2$.",
    ),
)
