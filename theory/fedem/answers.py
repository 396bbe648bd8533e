"""What a client answers: the mean of its components' answers by its weights."""

import numpy as np
from jaxtyping import Float
from scipy.special import expit, xlogy
from scipy.stats import norm

from cfljax.statements import (
    Evaluation,
    Grade,
    Margin,
    Preset,
    Step,
    Verdict,
    combine,
    exact,
    identity,
    never_exceeds,
)
from theory.fedem.common.gibbs import at_least_zero
from theory.glossary import parameter
from theory.rows import row

_PLACES = np.linspace(-12.0, 12.0, 4801)  # of inputs, by the trapezoidal rule
_WEIGHTS = np.array([0.05, 0.3, 0.5, 0.9])

Answers = Float[np.ndarray, " places"]


class Pair:
    """Two components: inputs N(0, 1) and N(shift, 1); targets of mean `separation` x
    or -`separation` x, up or down by 1; or of two classes with such log-odds."""

    def __init__(self, weight: float, separation: float, shift: float):
        self.chances = np.array([weight, 1 - weight])[:, None]
        laws = np.stack([norm.pdf(_PLACES), norm.pdf(_PLACES, shift)])
        self.joint = self.chances * laws
        self.means = separation * np.stack([_PLACES, -_PLACES])
        self.classes = expit(self.means)

    def mixed(
        self, each: Float[np.ndarray, "components places"], weight: float
    ) -> Answers:
        """The components' answers by the same weights everywhere."""
        return weight * each[0] + (1 - weight) * each[1]

    def best(self, each: Float[np.ndarray, "components places"]) -> Answers:
        """By the chances of the components at each input."""
        return np.sum(self.joint * each, axis=0) / np.sum(self.joint, axis=0)

    def squared(self, answer: Answers) -> float:
        """Expected squared error."""
        return self._expected(1 + (self.means - answer) ** 2)

    def entropy(self, answer: Answers) -> float:
        """Expected cross-entropy of the first class's chance."""
        # 1 - expit(x) has no digits left at large x.
        second = np.clip(1 - answer, np.finfo(float).tiny, None)
        both = xlogy(self.classes, answer) + xlogy(1 - self.classes, second)
        return self._expected(-both)

    def _expected(self, values: Float[np.ndarray, "components places"]) -> float:
        return float(np.trapezoid(np.sum(self.joint * values, axis=0), _PLACES))


def check_answers(_: Preset, name: str, *, shift: float = 0.0) -> Verdict:
    """No other weights, and no weights that depend on the input, have a lower error."""
    verdicts = []
    others = np.linspace(0.025, 0.975, 20)
    for kind in ("squared error", "cross-entropy"):
        errors, bounds = [], []
        for weight in _WEIGHTS:
            pair = Pair(weight, 1.0, shift)
            each = pair.means if kind == "squared error" else pair.classes
            risk = pair.squared if kind == "squared error" else pair.entropy
            errors.append(risk(pair.mixed(each, weight)))
            answers = [pair.mixed(each, other) for other in others]
            bounds.append([*map(risk, answers), risk(pair.best(each))])
        told = np.array([*(f"weight {one:.3g}" for one in others), "by input"])
        verdicts.append(
            never_exceeds(
                name,
                np.broadcast_to(np.array(errors)[:, None], np.shape(bounds)),
                np.array(bounds),
                rounding=1e-11,
                grade=Grade.EXACT,
                coordinates={"weight": _WEIGHTS[:, None], "other": told},
            )
        )
    return combine(
        name,
        verdicts,
        parts=["squared error", "cross-entropy"],
        detail=f"weights {_WEIGHTS[0]:g} to {_WEIGHTS[-1]:g} against {len(others)} "
        "others and weights that depend on the input",
    )


def prove_answers(*, mean: str = "1") -> list[Step]:
    r"""At every input, where the components' chances are $\pi$: with $m = \sum_j \pi_j
    h_j$ the error of an answer $a$ is $\sum_j \pi_j (h_j - a)^2$ and what no answer
    changes, and (1) summed over $j$ less its value at $a = m$ is (2) $(a - m)^2$. The
    cross-entropy of chances $a$ is that of $p = \sum_j \pi_j p_j$, and $KL(p \mid
    a)$."""
    import sympy

    weight, answer, other, total = sympy.symbols("pi a h m", real=True)
    part = sympy.Rational(mean)
    summed = 2 * part * total * (total - answer) + answer**2 - total**2
    return [
        identity(
            r"(1) $\pi (h - a)^2 - \pi (h - m)^2 = 2 \pi h (m - a) + \pi (a^2 - m^2)$",
            weight * (other - answer) ** 2
            - weight * (other - total) ** 2
            - 2 * weight * other * (total - answer)
            - weight * (answer**2 - total**2),
        ),
        identity(
            r"(2) $2 m (m - a) + a^2 - m^2 = (a - m)^2$",
            summed - (answer - total) ** 2,
        ),
        at_least_zero(),
    ]


def _errors(weight: float, separation: float, shift: float) -> tuple[float, float]:
    """Squared error of the client's answer, and the least."""
    pair = Pair(weight, separation / 2, shift)
    return (
        pair.squared(pair.mixed(pair.means, weight)),
        pair.squared(pair.best(pair.means)),
    )


STATEMENTS = (
    row(
        id="fedem.answers",
        place="Released code, `LearnersEnsemble.evaluate_iterator`",
        text=r"the mean $\sum_j \pi_j h_j(x)$ of the components' answers has the least "
        r"expected squared error of all answers, and $\sum_j \pi_j p_j(y \mid x)$ the "
        "least cross-entropy",
        preconditions=(
            "the law of inputs is the same in all components",
            r"components are the truth: $h_j(x) = E[y \mid x, j]$, $p_j$ the chances "
            r"of classes, $\pi$ the client's true weights",
        ),
        check=check_answers,
        control={"shift": 0.5},
        proof=prove_answers,
        proof_control={"mean": "9/10"},
        margins=lambda: (
            Margin("distance of the components' inputs", 0.0, 0.0, at_least=False),
        ),
        evaluation=Evaluation(
            quantity=r"squared error of $\sum_j \pi_j h_j(x)$, two components $h_{1, "
            r"2} = \pm \frac{\Delta}{2} x$, inputs $N(0, 1)$ and $N(s, 1)$",
            parameters=(
                parameter("weight", 0.3),
                parameter("separation", 2.0),
                parameter("shift", 0.0),
            ),
            bound=lambda weight, separation, shift: _errors(weight, separation, shift)[
                1
            ],
            truth=lambda **at: exact(_errors(**at)[0]),
            margins=lambda weight, separation, shift: (
                Margin(
                    "distance of the components' inputs",
                    abs(shift),
                    0.0,
                    at_least=False,
                ),
            ),
            note="by quadrature; the bound is the least of all answers",
        ),
        note="Where components differ in their inputs the best weights depend on the "
        "input, and the client's own are not they: the control has means of inputs "
        "half a deviation apart, and the proof's nine tenths of the mean.",
    ),
)
