"""Algorithm 2: what its options divide by, and the price of folds and few clients."""

import functools
import itertools
import math

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax import law
from cfljax.statements import (
    Preset,
    Status,
    Step,
    Verdict,
    at_most,
    combine,
    equals,
    exactly,
    same_law,
    tally,
)
from theory.ifca.common.checks import (
    Events,
    PerPoint,
    median_within,
    row,
    slope_near,
)
from theory.ifca.common.linear import (
    Setting,
    first_factors,
    floor,
    follow_all,
    least_squares_errors,
    margins,
)
from theory.rows import columns, listed

SUM, AVERAGE = "ifca.alg2.line14", "ifca.alg2.line15"

_WHOLE = Setting(num_clients=1e8, num_features=30.0, noise=1e-6, step=0.25)
_DIVISION_FRACTIONS = np.array([0.5, 0.25, 0.125])

_DRAWS = ((8, 2, 2), (20, 4, 4), (100, 4, 10), (100, 2, 3))  # clients, clusters, M
_DRAWN = columns("m k participants", _DRAWS)


def check_line14(
    preset: Preset, *, statement: str = SUM, power: float = 0.0, margin: float = 1e-3
) -> Verdict:
    """A round's factor with |M_t| participants: 1 - 2 gamma p (|M_t| / m)^power. The
    power is 0 as if line 14 averaged over the participants, 1 as printed."""
    participants = tuple(_DIVISION_FRACTIONS * _WHOLE.num_clients)
    runs = follow_all(preset, SUM, (_WHOLE,) * 3, participants=participants)
    factors = first_factors(runs)
    claimed = 1 - _WHOLE.effective_steps[0] * _DIVISION_FRACTIONS**power
    pairs = zip(np.median(factors, axis=1), claimed, strict=True)
    return median_within(
        statement,
        factors,
        (claimed - margin, claimed + margin),
        coordinates={
            "m": _WHOLE.num_clients,
            "p": min(_WHOLE.shares),
            "participants": np.array(participants),
        },
        detail="factors "
        + ", ".join(f"{mean:.4f} (claimed {claim:.4f})" for mean, claim in pairs)
        + r" with $|M_t| / m = 1/2$, $1/4$, $1/8$ and $2 \gamma p = 1/2$",
    )


def absence_probability(num_clients: int, members: int, num_participants: int) -> float:
    """C(m - m_j, M) / C(m, M): no participant is of a cluster of m_j clients. By
    logarithms of the gamma function; 0 where M exceeds m - m_j."""
    others = num_clients - members
    if num_participants > others:
        return 0.0
    ways = [
        scipy.special.gammaln(total + 1)
        - scipy.special.gammaln(total - num_participants + 1)
        for total in (others, num_clients)
    ]
    return float(np.exp(ways[0] - ways[1]))


@functools.lru_cache(maxsize=1)
def _absent(preset: Preset) -> Events:
    """Whether M clients drawn without replacement miss the first cluster."""
    trials = preset.choose(quick=20_000, full=200_000)
    found = []
    for index, (clients, clusters, participants) in enumerate(_DRAWS):
        marks = preset.generator(AVERAGE, index).random((trials, clients))
        chosen = np.argpartition(marks, participants - 1, axis=1)[:, :participants]
        found.append(np.all(chosen >= clients // clusters, axis=1))
    return np.stack(found)


def check_defined(preset: Preset, *, share: float = 0.0) -> Verdict:
    """That line 15 divides 0 by 0 for the first cluster in a share of the rounds."""
    absent = _absent(preset)
    detail = _sizes(np.mean(absent, axis=1))
    return at_most(AVERAGE, tally(absent), share, coordinates=_DRAWN, detail=detail)


def prove_absence(*, replacement: bool = False) -> list[Step]:
    """$C(m - m_j, M)/C(m, M)$, for all $m$, $m_j$ and $M$.

    $M_t$ is equally likely to be any of the $C(m, M)$ sets of $M$ clients, and $C(m -
    m_j, M)$ of them are drawn from the $m - m_j$ clients of other clusters: then, the
    assignment being perfect, no participant selects $j$ and line 15 is $0/0$. The count
    is done by hand for all $m$ up to 8.
    """
    wrong = 0
    for clients, chosen in itertools.product(range(2, 9), range(1, 9)):
        if chosen > clients:
            continue
        sets = list(itertools.combinations(range(clients), chosen))
        for members in range(1, clients):
            absent = sum(min(one) >= members for one in sets)
            others = clients - members
            claimed = math.comb(others, chosen) * clients**chosen
            if replacement:  # (1 - m_j/m)^M of all sets
                claimed = len(sets) * others**chosen
            wrong += absent * clients**chosen != claimed
    return [exactly(r"sets without a client of the cluster, $m \le 8$", wrong == 0)]


def check_absence(preset: Preset, *, replacement: bool = False) -> Verdict:
    """The probability of 0 / 0 in line 15, under a perfect assignment. With
    `replacement` the claim is (1 - p_j)^M, as if clients were drawn so."""
    absent = _absent(preset)
    claimed = np.array(
        [
            (1 - 1 / clusters) ** participants
            if replacement
            else absence_probability(clients, clients // clusters, participants)
            for clients, clusters, participants in _DRAWS
        ]
    )
    return equals(
        f"{AVERAGE}.corrected",
        tally(absent),
        claimed,
        resolution=preset.choose(quick=0.04, full=0.015),
        coordinates=_DRAWN,
        detail=f"{_sizes(np.mean(absent, axis=1))}; claimed {listed(claimed, '.4f')}",
    )


def _sizes(shares: PerPoint) -> str:
    return "0 / 0 in " + ", ".join(
        f"{share:.4f} of the rounds $(m = {clients}, k = {clusters}, M = "
        f"{participants})$"
        for share, (clients, clusters, participants) in zip(shares, _DRAWS, strict=True)
    )


RESAMPLING, PARTICIPATION = "ifca.scale.resample", "ifca.scale.particip"

# 80,000 samples of each client, dealt out over 2 T folds
_NUM_ROUNDS = (5, 10, 20, 40)
_FOLDED = tuple(
    Setting(1e5, 80_000.0 / (2 * one), 3e4, step=0.5) for one in _NUM_ROUNDS
)

_PARTIAL = Setting(num_clients=1e8, step=0.5, alpha=0.5)
_SHARES = (1.0, 0.5, 0.25, 0.125)


@functools.lru_cache(maxsize=1)
def _price_of_folds(preset: Preset) -> Float[np.ndarray, "trials points"]:
    """Error of T rounds on 2 T folds, over that of least squares on all samples."""
    ratios, runs = [], follow_all(preset, RESAMPLING, _FOLDED)
    for index, (setting, rounds) in enumerate(zip(_FOLDED, _NUM_ROUNDS, strict=True)):
        last = runs[index].errors[:, rounds]
        whole = least_squares_errors(
            preset.generator(RESAMPLING, index, 1, 1),
            num_rows=float(setting.num_rows[0]) * 2 * rounds,
            num_features=setting.num_features,
            noise=setting.noise,
            size=last.shape,
        )
        squares = (np.mean(one**2, axis=1) for one in (last, whole))
        ratios.append(np.sqrt(np.divide(*squares)))
    return np.stack(ratios, axis=1)


def check_resampling(preset: Preset, *, folds: float = 2.0) -> Verdict:
    """Floor with T rounds' fresh folds over that with all samples: sqrt(2 T). `folds`
    are those of each round in the claim."""
    ratios, claimed = _price_of_folds(preset), np.sqrt(folds * np.array(_NUM_ROUNDS))
    detail = (
        f"ratios {listed(np.mean(ratios, axis=0), '.3f')} at $T = 5$, 10, 20, 40; "
        rf"$\sqrt{{{folds:g} T}} = {listed(claimed, '.3f')}$"
    )
    found = median_within(
        RESAMPLING,
        (ratios / claimed).T,
        (0.99, 1.01),
        coordinates={"rounds": np.array(_NUM_ROUNDS)},
        detail=detail,
    )
    parts = ["rounds", "few rows"]
    return combine(RESAMPLING, [found, _few_rows(preset)], parts=parts, detail=detail)


def _few_rows(preset: Preset) -> Verdict:
    """Least squares on 6 raw rows in 3 dimensions against the law that is used."""
    trials, noise = preset.choose(quick=60_000, full=200_000), 0.7
    generator = preset.generator(RESAMPLING, 0, 2)
    inputs = generator.standard_normal((trials, 6, 3))
    labels = noise * generator.standard_normal((trials, 6, 1))
    turned = inputs.swapaxes(1, 2)
    raw = np.linalg.solve(turned @ inputs, turned @ labels)[..., 0]
    sizes = {"num_rows": 6.0, "num_features": 3.0, "noise": noise, "size": (trials,)}
    drawn = least_squares_errors(generator, **sizes)
    return same_law(
        RESAMPLING,
        [np.linalg.norm(raw, axis=1)],
        [drawn],
        resolution=preset.choose(quick=0.06, full=0.02),
    )


def _partial_floors(preset: Preset, divisor: str) -> Float[np.ndarray, "trials points"]:
    """Floors with gamma / |M_t| ("participants") or with gamma / m ("all")."""
    # gamma / |M_t| = (gamma m / |M_t|) / m
    scales = [1 / one if divisor == "participants" else 1.0 for one in _SHARES]
    runs = follow_all(
        preset,
        f"{PARTICIPATION}.{divisor}",
        tuple(_PARTIAL._replace(step=_PARTIAL.step * scale) for scale in scales),
        participants=tuple(one * _PARTIAL.num_clients for one in _SHARES),
    )
    return np.stack([floor(run) for run in runs], axis=1)


def check_participation(preset: Preset, *, like_participants: bool = False) -> Verdict:
    """The floor falls with |M_t| only where gradients are divided by |M_t|.
    `like_participants` claims of line 14 what holds for gamma / |M_t|."""
    fractions, floors = np.array(_SHARES), _partial_floors(preset, "all")
    slope = slope_near(
        PARTICIPATION,
        fractions * _PARTIAL.num_clients,
        _partial_floors(preset, "participants"),
        -0.5,
        what="gamma / |M_t|",
    )
    rows = _PARTIAL.num_rows[0] * fractions
    step = _PARTIAL.effective_steps[0] * (1.0 if like_participants else fractions)
    predicted = law.stationary_floor(rows, _PARTIAL.num_features, _PARTIAL.noise, step)
    equal = median_within(
        PARTICIPATION,
        (floors / predicted).T,
        (0.98, 1.02),
        coordinates={"participants": fractions * _PARTIAL.num_clients},
        detail=lambda low, high: f"{np.min(low):.3f} to {np.max(high):.3f}",
    )
    relative = np.mean(floors, axis=0)
    relative = relative / relative[0]
    detail = (
        rf"{slope.detail}; $\gamma / m$: floors at $|M_t| / m = 1$, $1/2$, $1/4$, "
        f"$1/8$ are 1 : {' : '.join(f'{one:.3f}' for one in relative[1:])}, over "
        f"predicted {equal.detail}"
    )
    parts = ["slope", "floors"]
    return combine(PARTICIPATION, [slope, equal], parts=parts, detail=detail)


_PARTICIPATING = (
    "two balanced clusters, no client misassigned, noise negligible",
    r"$M_t$ drawn uniformly, $|M_t| = m / 2$, $m / 4$, $m / 8$; $2 \gamma p = 1/2$",
)

STATEMENTS = (
    row(
        id=SUM,
        place="Algorithm 2, line 14",
        text="option I averages the gradients of the participating devices $M_t$: a "
        r"round contracts as analysed, by $1 - 2 \gamma p$, whatever $|M_t|$",
        preconditions=_PARTICIPATING,
        constants={"margin": 1e-3},
        expected=Status.VIOLATED,
        fault="ours",
        check=check_line14,
        control={"power": 1.0},
        margins=functools.partial(margins, _WHOLE),
        note="The sum over $M_t$ is divided by $m$, though the option is named "
        "averaging. The authors do not claim it: they analyse $M_t = [m]$ alone "
        "(Section 5), where it makes no difference, and run option II with few "
        "participants. The control has the factor of line 14 as it stands.",
    ),
    row(
        id=f"{SUM}.corrected",
        place="Algorithm 2, line 14",
        text="with $|M_t|$ of $m$ clients participating, a round of option I "
        r"contracts by $1 - 2 \gamma p |M_t| / m$",
        preconditions=_PARTICIPATING,
        constants={"margin": 1e-3},
        check=functools.partial(check_line14, statement=f"{SUM}.corrected", power=1.0),
        control={"power": 0.9},
        margins=functools.partial(margins, _WHOLE),
        note=r"The median over rounds. Dividing by $|M_t|$ gives $1 - 2 \gamma p$ "
        "back. The control claims the power 0.9 of $|M_t| / m$.",
    ),
    row(
        id=AVERAGE,
        place="Algorithm 2, line 15",
        text="option II gives every cluster a new model in every round",
        preconditions=("perfect assignment, equal clusters, $M_t$ drawn uniformly",),
        expected=Status.VIOLATED,
        fault="ours",
        check=check_defined,
        control={"share": 0.35},
        note="Where no participant selects $j$, line 15, which is for all $j$, is $0 "
        "/ 0$; to keep the model is the obvious completion. No sentence of the paper "
        "says that every cluster is selected, and in its own runs it hardly ever "
        "fails to be. The control grants 35 rounds in a hundred.",
    ),
    row(
        id=f"{AVERAGE}.corrected",
        place="Algorithm 2, line 15",
        text="line 15 is $0 / 0$ for cluster $j$ with probability $C(m - m_j, M) / "
        "C(m, M)$",
        preconditions=("perfect assignment, $M_t$ drawn uniformly, $|M_t| = M$",),
        check=check_absence,
        control={"replacement": True},
        proof=prove_absence,
        proof_control={"replacement": True},
        note=r"$3.3 \cdot 10^{-7}$ a round and cluster for the paper's CIFAR runs "
        "$(m = 200, M = 20, k = 2)$. The controls draw with replacement.",
    ),
    row(
        id=RESAMPLING,
        place="Section 5, re-sampling",
        text="dealing $n$ samples out over $2 T$ folds multiplies the error floor by "
        r"$\sqrt{2 T}$",
        preconditions=(
            r"Assumptions 1 and 2, $\alpha_0 = 1/4$, $\gamma = 1 / (2 p)$, two "
            "clusters",
            r"$d \ll p m n / (2 T)$; least squares on all $n$ as the other side",
        ),
        constants={"margin": 0.01},
        check=check_resampling,
        control={"folds": 1.0},
        margins=functools.partial(margins, *_FOLDED),
        note="The control forgets the folds that only estimate identities: "
        r"$\sqrt{T}$.",
    ),
    row(
        id=PARTICIPATION,
        place="Algorithm 2, lines 4 and 14, against Section 5",
        text=r"with $|M_t|$ participants the floor is $\sigma \sqrt{x d / ((2 - x) p "
        r"|M_t| n')}$ for $\gamma / |M_t|$, and nearly free of $|M_t|$ for line 14's "
        r"$\gamma / m$",
        preconditions=(
            "Assumption 2 with $|M_t|$ for $m$; two balanced clusters",
            r"$x = 2 \gamma p$ for $\gamma / |M_t|$, and $x |M_t| / m$ for $\gamma / "
            "m$",
        ),
        constants={"exponent": -0.5, "margin": 0.05},
        check=check_participation,
        control={"like_participants": True},
        margins=functools.partial(
            margins, _PARTIAL._replace(num_clients=_SHARES[-1] * _PARTIAL.num_clients)
        ),
        note="The analysis has $M_t = [m]$. The control claims the first form of "
        "line 14.",
    ),
)
