"""What the paper says of its rates in n_i and T, and of messages."""

import functools
from typing import Any

import numpy as np

from cfljax.statements import (
    Grade,
    Preset,
    Status,
    Step,
    Verdict,
    identity,
    never_exceeds,
    within,
)
from theory.rows import listed, row
from theory.werner.common.claims import exactly
from theory.werner.common.one_client import (
    Cluster,
    Level,
    banded,
    family,
    margins,
    mean_square,
)

_SIZES = 4.0 ** np.arange(5, 12)  # n_i
_TIMES = 10.0 ** np.arange(4, 9)  # T


def check_bound(_: Preset, name: str, *, apart: bool, **judged: Any) -> Verdict:
    """The right side of (3), beta = 0, over sqrt(sigma^2/(n T)): along n with Delta =
    48 sigma, or with Delta = n sigma if `apart`."""
    ratios = []
    for size in _SIZES:
        separation = size if apart else 48.0
        cluster = Cluster(int(size), int(size), separation=separation)
        ratios.append(np.sqrt(cluster.printed * size))
    found = exactly("n", _SIZES, np.array(ratios), members=_SIZES)
    return banded(name, [found], **judged)


def best_mean(members: float, rounds: float) -> float:
    """(1/T) sum E|grad f|^2 of descent on L x^2/2 along the mean of `members` gradients
    with |B| = 1, from |grad f(x_0)| = sigma, with the best of 4001 constant steps from
    1e-8/L to 1/L."""
    steps = np.logspace(-8, 0, 4001)
    return float(np.min(mean_square(1.0, steps, 0.0, 1 / members, rounds)))


def check_rate(
    _: Preset, name: str, *, exponents: tuple[float, float] = (-0.5, -0.5)
) -> Verdict:
    """The exponents of n and T, within 0.01."""
    sizes = 4.0 ** np.arange(0, 5)
    over_sizes = np.array([best_mean(size, 1e8) for size in sizes])
    over_times = np.array([best_mean(16.0, rounds) for rounds in _TIMES])
    slopes = [
        exactly("n", sizes, over_sizes).slope,
        exactly("T", _TIMES, over_times).slope,
    ]
    low, high = np.array(slopes).T
    claimed = np.array(exponents)
    return within(
        name,
        (low, high),
        (claimed - 0.01, claimed + 0.01),
        num_trials=len(sizes) + len(_TIMES),
        error_rate=0.0,
        grade=Grade.SEARCHED,
        coordinates={"part": np.array(["exponent of n", "exponent of T"])},
        detail=f"exponents of $n$ and $T$: {listed(np.mean(slopes, axis=1), '.4f')}",
    )


def check_batch(_: Preset, name: str, *, exponent: float = -0.5) -> Verdict:
    """With |B| = V T the exponent of n is `exponent`, within 0.05."""
    levels, rounds = [], 1e10
    for size in _SIZES:
        cluster = Cluster(int(size), int(size), separation=size)
        batch = cluster.printed * rounds
        run = Level(size, cluster._replace(batch=batch), 1.0, rounds=rounds)
        levels.append(run._replace(by_batch=True))
    slope = family("n", levels, lambda level: 1.0).slope
    return within(
        name,
        slope,
        (exponent - 0.05, exponent + 0.05),
        num_trials=len(levels),
        error_rate=0.0,
        grade=Grade.EXACT,
        detail=f"$n = {_SIZES[0]:g}$ to {_SIZES[-1]:g}, $T = 10^{{10}}$: exponent "
        f"{np.mean(slope):.3f}",
    )


def rounds_needed(members: float, level: float) -> float:
    """The least T at which `best_mean` is at most `level`, to 1e-6 relative."""
    low, high = 1.0, 1e16
    while high / low > 1 + 1e-6:
        middle = float(np.sqrt(low * high))
        if best_mean(members, middle) <= level:
            high = middle
        else:
            low = middle
    return high


def check_linear(_: Preset, name: str, *, power: float = 1.0) -> Verdict:
    """T to a mean square gradient of 1e-4 sigma^2, times n^`power`, is the same for n =
    1 to 64, to 5 %."""
    sizes = 2.0 ** np.arange(0, 7)
    needed = np.array([rounds_needed(size, 1e-4) for size in sizes])
    ratios = needed * sizes**power / needed[0]
    return within(
        name,
        (ratios, ratios),
        (0.95, 1.05),
        num_trials=len(sizes),
        error_rate=0.0,
        grade=Grade.SEARCHED,
        coordinates={"members": sizes},
        detail="$n = 1$ to 64: $T n/T(1)$ is "
        f"{listed(needed * sizes / needed[0], '.4f')}",
    )


def messages(clients: int, *, algorithm: int) -> int:
    """Sent in one step, line by line: Algorithm 1 or 4, by way of a server, or 2."""
    everyone = range(clients)
    if algorithm == 2:
        gradients = sum(1 for i in everyone for j in everyone if i != j)  # line 4
        models = sum(1 for i in everyone for j in everyone if i != j)  # line 7
        return gradients + models
    up = sum(1 for _ in everyone)  # gradients or momenta
    down = sum(1 for _ in everyone)  # the centre of each client's cluster
    return up + down


def check_messages(_: Preset, name: str, *, power: int = 2) -> Verdict:
    """Algorithm 2 sends at most 2 N^`power` messages in a step and at least N^`power`,
    Algorithms 1 and 4 send 2 N."""
    sizes = [2, 3, 4, 8, 16, 64, 256]
    quadratic = np.array([messages(size, algorithm=2) for size in sizes], float)
    linear = np.array(
        [messages(size, algorithm=one) for one in (1, 4) for size in sizes], float
    )
    claimed = np.array(sizes, float) ** power
    twice = 2 * np.tile(np.array(sizes, float), 2)
    return never_exceeds(
        name,
        np.concatenate([quadratic, -quadratic, linear, -linear]),
        np.concatenate([2 * claimed, -claimed, twice, -twice]),
        rounding=1e-9,
        grade=Grade.EXACT,
        coordinates={
            "m": np.tile(np.array(sizes, float), 6),
            "algorithm": np.repeat([2, 2, 1, 4, 1, 4], len(sizes)),
            "part": np.repeat(
                ["at most", "at least", "at most", "at least"],
                np.array([1, 1, 2, 2]) * len(sizes),
            ),
        },
        detail=f"$N = 2$ to 256: {quadratic[0]:g} to {quadratic[-1]:g} messages, and "
        f"{linear[0]:g} to {linear[-1]:g}",
    )


def prove_messages(*, most: int = 2) -> list[Step]:
    r"""In Algorithm 2 each of $N$ clients sends a gradient (line 4) and its model (line
    7) to each of the $N - 1$ others: $N (N - 1) + N (N - 1)$ messages, at most $2 N^2$,
    and at least $N^2$ for $N \ge 2$. In Algorithms 1 and 4 each client sends one
    message to the server and gets one."""
    import sympy

    clients = sympy.Symbol("N", positive=True)
    return [
        identity(
            "$N (N - 1) + N (N - 1) = 2 N^2 - 2 N$",
            2 * clients * (clients - 1) - (2 * clients**2 - 2 * clients),
        ),
        identity(
            rf"${most} N^2 - (2 N^2 - 2 N) = 2 N \ge 0$",
            most * clients**2 - (2 * clients**2 - 2 * clients) - 2 * clients,
        ),
        identity(
            r"$2 N^2 - 2 N - N^2 = N (N - 2) \ge 0$",
            clients**2 - 2 * clients - clients * (clients - 2),
        ),
    ]


_remark = functools.partial(row, place="Remark 2 on Theorem 3")
_RUN = (
    r"$L x^2/2$, the mean of the cluster's gradients, $|B| = 1$, $|\nabla f(x_0)| = "
    r"\sigma$, the best constant step size, $\beta = 0$, $\Delta$ so large that "
    "nobody is confused"
)

STATEMENTS = (
    row(
        id="werner.rate",
        place="Section 1, contributions; after Theorem 4",
        text=r"the rate of (3) is $O(1/\sqrt{n_i T})$, for every $\Delta \gtrsim "
        r"\sigma/\delta_i$",
        preconditions=(
            r"$\beta = 0$, $A = 0$",
            r"$\Delta = 48 \sigma$, $\delta = 1/2$",
        ),
        claimed=r"the optimal $O(1/\sqrt{n_i T})$ rate",
        expected=Status.VIOLATED,
        fault="reading",
        other_reading="werner.rate.apart",
        check=functools.partial(check_bound, apart=False, constant=float("inf")),
        control={"relief": 0.5, "constant": 4.8, "least": 4.6},
        margins=functools.partial(margins, Cluster(separation=48.0)),
        note=r"$\sigma^3/\Delta$ does not fall with $n_i$: from $n_i = \Delta/\sigma$ "
        r"on more clients do not help. Read as for $\Delta \ge n_i \sigma$ it is "
        r"true. The control allows $\sqrt{n_i}$ more, with a constant between 4.6 "
        "and 4.8.",
    ),
    row(
        id="werner.rate.apart",
        place="Section 1, contributions; after Theorem 4",
        text=r"for $\Delta \ge n_i \sigma$ the right side of (3) is at most "
        r"$\sqrt{2} \sqrt{\sigma^2/(n_i T)}$, and $\sqrt{2}$ is needed",
        preconditions=(
            r"$\beta = 0$, $A = 0$",
            r"$\Delta = n_i \sigma$, $\delta = 1/2$",
        ),
        constants={"C": float(np.sqrt(2))},
        check=functools.partial(check_bound, apart=True, constant=1.4143, least=1.4142),
        control={"apart": False},
        note=r"The control has $\Delta = 48 \sigma$.",
    ),
    row(
        id="werner.rate.linear",
        place="Section 1, contributions",
        text="linearly in $n_i$: $T$ to a given mean square gradient is in inverse "
        "proportion to $n_i$",
        preconditions=(
            _RUN,
            "$n_i = 1$ to 64, mean square gradient $10^{-4} "
            r"\sigma^2$",
        ),
        constants={"margin": 0.05},
        claimed="linearly scale with $n_i$",
        check=check_linear,
        control={"power": 0.9},
        note="Of descent along the mean of $n_i$ gradients, which is what clustering "
        "gives at its best. The control claims $n_i^{0.9}$.",
    ),
    _remark(
        id="werner.thm3.remark2",
        text="with $|B| = 1$ the mean square gradient falls like $n_i^{-1/2}$ and "
        "like $T^{-1/2}$",
        preconditions=(_RUN,),
        constants={"margin": 0.01},
        claimed=r"the dependence on $\sqrt{\sigma^2/n_i}$ is intuitive, and optimal",
        check=check_rate,
        control={"exponents": (-1.0, -0.5)},
        note="That no algorithm does better is Even et al.'$s (2022)$, and not "
        "checked here. The control claims $n_i^{-1}$.",
    ),
    _remark(
        id="werner.thm3.remark2.batch",
        text="with the batches of the theorem the mean square gradient falls like "
        "$n_i^{-1/2}$",
        preconditions=(
            r"$|B| = V T$, $T = 10^{10}$, $\eta = 1/(2 L)$, $|\nabla f(x_0)| = "
            r"\sigma$",
            r"$\beta = 0$, $A = 0$, $\Delta = n_i \sigma$, noise $-\rho$ or $\rho$",
        ),
        constants={"margin": 0.05},
        claimed=r"the dependence on $\sqrt{\sigma^2/n_i}$ is intuitive, and optimal",
        expected=Status.VIOLATED,
        fault="reading",
        other_reading="werner.thm3.remark2",
        check=check_batch,
        control={"exponent": 0.0},
        note="It does not depend on $n_i$ at all, as $|B|$ falls with $V$: what "
        "$n_i$ saves is samples. Read for $|B| = 1$ the remark is true. The control "
        "claims an exponent of 0.",
    ),
    row(
        id="werner.communication",
        place="Section 3.2, Communication Overhead; Section 3.3",
        text="a step of Algorithm 2 takes $2 N (N - 1)$ messages, which is $O(N^2)$, "
        "one of Algorithms 1 and 4 takes $2 N$, which is $O(N)$",
        preconditions=(r"$N \ge 2$", "a server, or every client knows all others"),
        claimed="$O(N^2)$ and $O(N)$ rounds of communication",
        check=check_messages,
        control={"power": 1},
        proof=prove_messages,
        proof_control={"most": 1},
        note="Messages rather than rounds: they can all be sent at the same time. "
        "The control claims $O(N)$ of Algorithm 2, that of the proof $N^2$.",
    ),
)
