"""The shares of samples and the weights of clients: each is the best of its kind."""

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from cfljax.federated import expectation
from cfljax.statements import (
    Evaluation,
    Grade,
    Preset,
    Step,
    Verdict,
    combine,
    exact,
    identity,
    never_exceeds,
)
from theory.fedem.common.gibbs import (
    at_least_zero,
    client_loss,
    divergence,
    responsibilities,
    surrogate,
)
from theory.glossary import parameter
from theory.rows import row

_SCALES = np.array([0.1, 1.0, 10.0, 100.0])  # of losses
_SAMPLES, _COMPONENTS = 40, 3


class _Drawn(NamedTuple):
    """Clients with losses of one scale each, and what the library makes of them.

    weights: before the round, losses: of each sample, both as the library reads them.
    other_shares, other_weights: of sum 1, drawn.
    shares, new_weights: the library's.
    """

    weights: Float[np.ndarray, "clients components"]
    losses: Float[np.ndarray, "clients samples components"]
    other_shares: Float[np.ndarray, "clients samples components"]
    other_weights: Float[np.ndarray, "clients components"]
    shares: Float[np.ndarray, "clients samples components"]
    new_weights: Float[np.ndarray, "clients components"]


@functools.cache  # the same for checks and controls
def _drawn(preset: Preset) -> _Drawn:
    generator = preset.generator("fedem.expectation")
    samples, every = (len(_SCALES), _SAMPLES), np.ones(_COMPONENTS)
    losses = generator.standard_exponential((*samples, _COMPONENTS))
    losses = (_SCALES[:, None, None] * losses).astype(np.float32)
    weights = generator.dirichlet(every, len(_SCALES)).astype(np.float32)
    logs, new = expectation(
        jnp.log(weights), jnp.asarray(losses), jnp.ones(samples, bool)
    )
    return _Drawn(
        weights.astype(float),
        losses.astype(float),
        generator.dirichlet(every, samples),
        generator.dirichlet(every, len(_SCALES)),
        _of_sum_1(np.exp(np.asarray(logs, float))),
        np.exp(np.asarray(new, float)),
    )


def _of_sum_1(
    shares: Float[np.ndarray, "*points components"],
) -> Float[np.ndarray, "*points components"]:
    return shares / np.sum(shares, axis=-1, keepdims=True)


def check_shares(preset: Preset, name: str, *, temperature: float = 1.0) -> Verdict:
    """The surrogate is the client's loss at the library's q, and at others the loss and
    KL(q | best); `temperature` multiplies the losses in what is said to be best."""
    found = _drawn(preset)
    weights, losses = found.weights[:, None], found.losses
    best = responsibilities(weights, losses, temperature)
    least = client_loss(weights, losses)
    size = 1 + np.max(losses, axis=-1) + np.max(-np.log(weights), axis=-1)
    places = {"scale": _SCALES[:, None], "sample": np.arange(_SAMPLES)}
    reached = never_exceeds(
        name,
        surrogate(found.shares, weights, losses),
        least,
        # What single precision leaves of q is squared in the surrogate.
        rounding=(8 * np.finfo(np.float32).eps * size) ** 2 + 1e-14 * size,
        grade=Grade.SEARCHED,
        coordinates=places,
    )
    others = surrogate(found.other_shares, weights, losses)
    apart = divergence(found.other_shares, best)
    equal = never_exceeds(
        name,
        np.abs(others - least - apart),
        0.0,
        rounding=1e-14 * size,
        grade=Grade.SEARCHED,
        coordinates=places,
    )
    return combine(
        name,
        [reached, equal],
        parts=["the library's", "others"],
        detail=f"{least.size} samples: others lie {np.min(apart):.2g} to "
        f"{np.max(apart):.3g} above the least",
    )


def check_weights(preset: Preset, name: str, *, power: float = 1.0) -> Verdict:
    """Other weights have a surrogate larger by KL(new | other), the library's are the
    new ones; these are means of the shares, to a `power` and then of sum 1."""
    found = _drawn(preset)
    shares = responsibilities(found.weights[:, None], found.losses)
    means = np.mean(shares, axis=1)
    new = _of_sum_1(means**power)
    gaps = [
        np.mean(divergence(shares, one[:, None]), axis=1)
        - np.mean(divergence(shares, new[:, None]), axis=1)
        - divergence(new, one)
        for one in (found.other_weights, found.weights)
    ]
    equal = never_exceeds(
        name,
        np.abs(gaps),
        0.0,
        rounding=1e-13,
        grade=Grade.SEARCHED,
        coordinates={
            "others": np.array(["drawn", "before"])[:, None],
            "scale": _SCALES,
        },
    )
    rounding = np.finfo(np.float32).eps * (8 + np.max(found.losses, axis=(1, 2)))
    computed = never_exceeds(
        name,
        np.abs(found.new_weights - new),
        0.0,
        rounding=rounding[:, None],
        grade=Grade.SEARCHED,
        coordinates={
            "scale": _SCALES[:, None],
            "component": 1 + np.arange(_COMPONENTS),
        },
    )
    return combine(
        name,
        [equal, computed],
        parts=["others", "the library's"],
        detail=f"{len(new)} clients of {_SAMPLES} samples: the weights before lie "
        f"{np.min(divergence(new, found.weights)):.2g} or more above the least",
    )


def prove_shares(*, temperature: str = "1") -> list[Step]:
    r"""For any number of components: with $Z = \sum_j \pi_j e^{-\ell_j}$ and $r_j =
    \pi_j e^{-\ell_j}/Z$ every summand of the surrogate is $q_j \log(q_j/r_j) - q_j \log
    Z$, and their sum $KL(q \mid r) - \log Z$."""
    import sympy

    q, weight, loss, total = sympy.symbols("q pi l Z", positive=True)
    best = weight * sympy.exp(-sympy.Rational(temperature) * loss) / total
    summand = q * (loss + sympy.log(q / weight))
    rest = summand - q * sympy.log(q / best) + q * sympy.log(total)
    return [
        identity(
            r"$q (\ell + \log(q/\pi)) = q \log(q/r) - q \log Z$, $r = \pi e^{-\ell}/Z$",
            sympy.expand_log(rest, force=True),
        ),
        at_least_zero(),
    ]


def prove_weights(*, power: str = "1") -> list[Step]:
    r"""For any number of components and samples: the surrogate has of the weights but
    $-\sum_j a_j \log \pi_j$, $a_j$ the mean of $q_j$; less its value at $\pi = a$ this
    is $KL(a \mid \pi)$."""
    import sympy

    mean, other = sympy.symbols("a pi", positive=True)
    new = mean ** sympy.Rational(power)
    gained = mean * (sympy.log(new) - sympy.log(other))
    rest = gained - mean * sympy.log(mean / other)
    return [
        identity(
            r"$-a \log \pi + a \log a = a \log(a/\pi)$",
            sympy.expand_log(rest, force=True),
        ),
        at_least_zero(),
    ]


def _least(weight: float, loss_gap: float) -> float:
    """The least surrogate of two components, found by search."""

    def value(share: float) -> float:
        shares = np.array([[share, 1 - share]])
        weights = np.array([[weight, 1 - weight]])
        return float(surrogate(shares, weights, np.array([[0.0, loss_gap]]))[0])

    found = minimize_scalar(
        value, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12}
    )
    return float(found.fun)


STATEMENTS = (
    row(
        id="fedem.shares",
        place="Released code, `MixtureClient.update_sample_weights`",
        text=r"$q_j \propto \pi_j e^{-\ell_j}$ makes $\sum_j q_j (\ell_j + "
        r"\log(q_j/\pi_j))$ least, which is then $-\log \sum_j \pi_j e^{-\ell_j}$, the "
        "sample's loss under the mixture; any other $q'$ lies above it by $KL(q' "
        r"\mid q)$",
        preconditions=(
            r"losses $\ell_j$ are negative logarithms of likelihoods, but for a "
            "constant",
            r"$\pi$ and $q'$ are of sum 1",
        ),
        check=check_shares,
        control={"temperature": 1.1},
        proof=prove_shares,
        proof_control={"temperature": "11/10"},
        evaluation=Evaluation(
            quantity=r"least surrogate of two components, $\ell_1 = 0$",
            parameters=(
                parameter("weight", 0.3),
                parameter("loss_gap", 2.0),
            ),
            bound=lambda weight, loss_gap: (
                -math.log(weight + (1 - weight) * math.exp(-loss_gap))
            ),
            truth=lambda **at: exact(_least(**at)),
            relation="=",
            note="by search over $q_1$",
        ),
        note="The library's kernel in single precision, losses up to some hundreds. "
        "The controls have 1.1 times the losses in $q$.",
    ),
    row(
        id="fedem.weights",
        place="Released code, `MixtureClient.update_learners_weights`",
        text=r"$\pi_j$, the mean of $q_j$ over a client's samples, makes its mean "
        r"surrogate least; any other weights $\pi'$ lie above it by $KL(\pi \mid "
        r"\pi')$",
        preconditions=(r"$\pi'$ and all $q$ are of sum 1",),
        check=check_weights,
        control={"power": 1.1},
        proof=prove_weights,
        proof_control={"power": "11/10"},
        note="So the old weights are given up for a gain that is known without "
        "another pass. The controls have means to the power 1.1.",
    ),
)
