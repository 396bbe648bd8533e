"""Rounds of FedEM: by how much each lowers the loss, and how fast gradients vanish.

f is the mean over all samples of the clients' losses -log of sum_j pi_j exp(-l_j),
Theta all models together. What is said of rounds with steps is our own: the paper's
theorem on them could not be read.
"""

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

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
    never_falls_below,
)
from theory.fedem.common.gibbs import (
    at_least_zero,
    client_loss,
    divergence,
    responsibilities,
)
from theory.glossary import parameter
from theory.rows import columns, row

_CLIENTS, _SAMPLES, _FEATURES = 5, 20, 3
# Constants of fedem.rate: of the fall of f, and of the drift of local steps.
_FALL, _DRIFT = Fraction(2), Fraction(1, 2)


class Regressions(NamedTuple):
    """Clients with as many samples each, of mixtures of linear regressions."""

    inputs: Float[np.ndarray, "clients samples features"]
    targets: Float[np.ndarray, "clients samples"]

    def losses(
        self, models: Float[np.ndarray, "components features"]
    ) -> Float[np.ndarray, "clients samples components"]:
        """Squared errors."""
        return (self.inputs @ models.T - self.targets[:, :, None]) ** 2

    def gradients(
        self,
        models: Float[np.ndarray, "*clients components features"],
        shares: Float[np.ndarray, "clients samples components"],
    ) -> Float[np.ndarray, "clients components features"]:
        """Of each client's mean of losses that count by `shares`, at models of its own
        or at the same for all."""
        errors = self.inputs @ np.swapaxes(models, -1, -2) - self.targets[:, :, None]
        weighted = np.swapaxes(2 * shares * errors, -1, -2) @ self.inputs
        return weighted / self.targets.shape[1]

    @property
    def smoothness(self) -> float:
        """L of every client's surrogate, whatever its responsibilities."""
        squares = np.swapaxes(self.inputs, 1, 2) @ self.inputs
        most = np.max(np.linalg.eigvalsh(squares))
        return float(2 * most / self.targets.shape[1])


def draw(generator: np.random.Generator, components: int, noise: float) -> Regressions:
    """Truths and inputs are standard normal, and weights Dirichlet(1/2)."""
    truths = generator.standard_normal((components, _FEATURES))
    inputs = generator.standard_normal((_CLIENTS, _SAMPLES, _FEATURES))
    weights = generator.dirichlet(np.full(components, 0.5), _CLIENTS)
    own = generator.random((_CLIENTS, _SAMPLES, 1)) > np.cumsum(weights, 1)[:, None]
    chosen = truths[np.minimum(np.sum(own, axis=2), components - 1)]
    errors = noise * generator.standard_normal((_CLIENTS, _SAMPLES))
    return Regressions(inputs, np.sum(inputs * chosen, axis=2) + errors)


class Gains(NamedTuple):
    """By what a round lowers f: all, and the parts, each `[rounds]`.

    fallen: f before less f after.
    weights: mean KL(pi after | pi before) of the clients.
    models: mean loss at the responsibilities before less after.
    shares: mean KL(q before | q after) of the samples.
    """

    fallen: Float[np.ndarray, " rounds"]
    weights: Float[np.ndarray, " rounds"]
    models: Float[np.ndarray, " rounds"]
    shares: Float[np.ndarray, " rounds"]


def maximised(
    data: Regressions,
    models: Float[np.ndarray, "components features"],
    num_rounds: int,
    temperature: float = 1.0,
) -> Gains:
    """Rounds in which models become least squares, from equal weights; `temperature`
    times the losses in the responsibilities."""
    weights = np.full((_CLIENTS, len(models)), 1 / len(models))
    found = []
    for _ in range(num_rounds):
        before, losses = weights, data.losses(models)
        shares = responsibilities(before[:, None], losses, temperature)
        weights = np.mean(shares, axis=1)
        left = np.einsum("isj,isf,isg->jfg", shares, data.inputs, data.inputs)
        right = np.einsum("isj,isf,is->jf", shares, data.inputs, data.targets)
        models = np.linalg.solve(left, right[:, :, None])[:, :, 0]
        after = data.losses(models)
        new = responsibilities(weights[:, None], after, temperature)
        old_loss = client_loss(before[:, None], losses)
        parts = (
            old_loss - client_loss(weights[:, None], after),
            divergence(weights, before),
            np.sum(shares * (losses - after), axis=2),
            divergence(shares, new),
        )
        found.append([np.mean(part) for part in parts])
    return Gains(*np.array(found).T)


def check_descent(preset: Preset, name: str, *, temperature: float = 1.0) -> Verdict:
    """f falls by the sum of the three gains, and none of them is below 0."""
    rounds, starts = 30, preset.choose(quick=3, full=30)
    every, places = [], []
    for components in (1, 2, 4):
        for noise in (0.0, 0.3):
            for start in range(starts):
                generator = preset.generator(name, components, int(10 * noise), start)
                data = draw(generator, components, noise)
                models = generator.standard_normal((components, _FEATURES))
                every.append(maximised(data, models, rounds, temperature))
                places += [(components, noise, start, t) for t in range(1, rounds + 1)]
    gains = Gains(*np.concatenate(every, axis=1))
    judged = {
        "rounding": 1e-12,
        "grade": Grade.SEARCHED,
        "coordinates": columns("k noise start rounds", places),
    }
    parts = np.array(gains[1:])
    equal = never_exceeds(name, np.abs(gains.fallen - np.sum(parts, 0)), 0.0, **judged)
    falls = [never_falls_below(name, part, 0.0, **judged) for part in parts]
    told = ", ".join(f"{share:.0%}" for share in np.sum(parts, 1) / np.sum(parts))
    return combine(
        name,
        [equal, *falls],
        detail=f"{len(places)} rounds of {len(every)} runs, 1 to 4 components: f falls "
        f"by {told} for weights, models and responsibilities",
    )


def prove_descent(*, kept: str = "1") -> list[Step]:
    r"""With $G$ the mean surrogate: $f = G(q, \Theta, \Pi)$ at the responsibilities $q$
    of $\Theta, \Pi$, and $f' = G(q, \Theta', \Pi') - KL(q \mid q')$ at the next ones,
    by fedem.shares. $G(q, \Theta, \Pi) - G(q, \Theta', \Pi')$ is, summand by summand,
    what the models gain and $q \log(\pi'/\pi)$, whose mean is $KL(\pi' \mid \pi)$ as
    $\pi'$ is the mean of $q$. The models gain something as they make $G$ least."""
    import sympy

    q, old, new, loss, after = sympy.symbols("q pi pi' l l'", positive=True)
    factor = sympy.Rational(kept)
    before = q * (loss + sympy.log(q) - sympy.log(old))
    then = q * (after + sympy.log(q) - sympy.log(new))
    gained = q * (loss - after) + factor * q * (sympy.log(new) - sympy.log(old))
    return [
        identity(
            r"$q (\ell + \log(q/\pi)) - q (\ell' + \log(q/\pi')) = q (\ell - \ell') + "
            r"q \log(\pi'/\pi)$",
            before - then - gained,
        ),
        at_least_zero(),
    ]


class Path(NamedTuple):
    """What rounds with local steps went through.

    squares: `[rounds]`, squared norms of the gradient of f in Theta, before each.
    fallen: `[rounds]`, f at the start less f after each.
    most: `[rounds]`, largest norm of a client's gradient at its local models so far.
    """

    squares: Float[np.ndarray, " rounds"]
    fallen: Float[np.ndarray, " rounds"]
    most: Float[np.ndarray, " rounds"]

    def average(self) -> Float[np.ndarray, " rounds"]:
        """Mean of `squares` over the rounds up to each."""
        return np.cumsum(self.squares) / np.arange(1, len(self.squares) + 1)

    def bound(
        self,
        smoothness: float,
        step_size: float,
        num_steps: int,
        *,
        factor: Fraction = _FALL,
    ) -> Float[np.ndarray, " rounds"]:
        """What is claimed of `average`."""
        moved = num_steps * step_size * np.arange(1, len(self.squares) + 1)
        drift = float(_DRIFT) * smoothness * step_size * (num_steps - 1) * self.most
        return float(factor) * self.fallen / moved + drift**2


def stepped(
    data: Regressions,
    models: Float[np.ndarray, "components features"],
    *,
    step_size: float,
    num_steps: int,
    num_rounds: int,
) -> Path:
    """Rounds as in the algorithm, with whole batches, from equal weights."""
    weights = np.full((len(data.targets), len(models)), 1 / len(models))
    squares, losses, norms, most = [], [], [], 0.0
    for _ in range(num_rounds):
        each = data.losses(models)
        losses.append(np.mean(client_loss(weights[:, None], each)))
        shares = responsibilities(weights[:, None], each)
        local = np.repeat(models[None], len(data.targets), axis=0)
        for step in range(num_steps):
            gradients = data.gradients(local, shares)
            if step == 0:
                squares.append(np.sum(np.mean(gradients, axis=0) ** 2))
            own = np.sqrt(np.sum(gradients**2, axis=(1, 2)))
            most = max(most, float(np.max(own)))
            local = local - step_size * gradients
        norms.append(most)
        weights, models = np.mean(shares, axis=1), np.mean(local, axis=0)
    last = np.mean(client_loss(weights[:, None], data.losses(models)))
    fallen = losses[0] - np.append(losses[1:], last)
    return Path(np.array(squares), fallen, np.array(norms))


_STEPS = (1, 2, 5, 20)


class Run(NamedTuple):
    """Rounds of mixtures of so many components, with E local steps."""

    num_steps: int
    components: int
    smoothness: float
    step_size: float
    path: Path


@functools.cache  # the same for checks and controls
def _runs(preset: Preset) -> list[Run]:
    """With E eta L = 1 or 1/10."""
    rounds = preset.choose(quick=40, full=5000)
    found = []
    for components in (1, 3):
        generator = preset.generator("fedem.rate", components)
        data = draw(generator, components, 0.3)
        models = generator.standard_normal((components, _FEATURES))
        for num_steps in _STEPS:
            for share in (1.0, 0.1):
                step = share / (num_steps * data.smoothness)
                path = stepped(
                    data, models, step_size=step, num_steps=num_steps, num_rounds=rounds
                )
                found.append(Run(num_steps, components, data.smoothness, step, path))
    return found


def _isotropic() -> Regressions:
    """One sample each and one feature: all have the same curvature."""
    return Regressions(np.ones((2, 1, 1)), np.array([[1.0], [-1.0]]))


def check_rate(preset: Preset, name: str, *, factor: Fraction = _FALL) -> Verdict:
    """The mean square of gradients is at most `factor` (f_0 - f_K)/(E eta K) and the
    drift of local steps, and just that after one step to the least of a quadratic."""
    values, bounds, places = [], [], []
    for steps, components, smoothness, size, path in _runs(preset):
        values.append(path.average())
        bounds.append(path.bound(smoothness, size, steps, factor=factor))
        places += [(steps, components, size, t + 1) for t in range(len(path.squares))]
    names = "num_steps k step_size rounds"
    drawn = never_exceeds(
        name,
        np.concatenate(values),
        np.concatenate(bounds),
        rounding=1e-12,
        grade=Grade.SEARCHED,
        coordinates=columns(names, places),
    )
    data = _isotropic()
    step = 1 / data.smoothness
    path = stepped(data, np.array([[3.0]]), step_size=step, num_steps=1, num_rounds=1)
    bound = path.bound(data.smoothness, step, 1, factor=factor)
    tight = never_exceeds(
        name,
        np.abs(path.average() - bound),
        0.0,
        rounding=1e-12,
        grade=Grade.SEARCHED,
        coordinates=columns(names, [(1, 1, step, 1)]),
    )
    ratios = [np.max(v / b) for v, b in zip(values, bounds, strict=True)]
    return combine(
        name,
        [drawn, tight],
        parts=["drawn", "one step"],
        detail=f"{len(values)} runs of mixtures, 1 to {_STEPS[-1]} local steps: up to "
        f"{np.max(ratios):.2g} of the bound, all of it by one step on a quadratic",
    )


def check_fixed(
    preset: Preset, name: str, *, limit: Callable[..., float] | None = None
) -> Verdict:
    """After many rounds of fixed step sizes the squared gradient of two clients is
    what `limit` says, that of the row if None."""
    steps = [(n, share / n) for n in (1, 2, 5, 20) for share in (0.3, 1.0)]
    rounds = preset.choose(quick=200, full=2000)  # the error shrinks by 0.8 in each
    found = [_two(size, n, rounds, 1.0, 2.0)[0].squares[-1] for n, size in steps]
    claimed = [(limit or left_over)(size, n, 1.0, 2.0) for n, size in steps]
    return never_exceeds(
        name,
        np.abs(np.array(found) - claimed),
        0.0,
        rounding=1e-13,
        grade=Grade.EXACT,
        coordinates=columns("num_steps step_size", steps),
        detail=f"{len(steps)} step sizes, {rounds} rounds: up to {np.max(found):.3g}, "
        f"of {_two(0.1, 1, 1, 1.0, 2.0)[0].squares[0]:.3g} at the start",
    )


def left_over(
    step_size: float, num_steps: int, smoothness: float, separation: float
) -> float:
    """Squared gradient where the mean of two clients' local ends does not move."""
    kept = [1 - step_size * smoothness * share for share in (1.0, 0.5)]
    first, second = (1 - one**num_steps for one in kept)
    place = separation / 2 * (first - second) / (first + second)
    own = smoothness / 2 * (place - separation / 2)
    return (own + smoothness / 4 * (place + separation / 2)) ** 2


def prove_fixed(*, factor: str = "1") -> list[Step]:
    r"""A client whose loss is $L_i (x - b_i)^2/2$ ends a round at $b_i + (1 - r_i) (x -
    b_i)$, $r_i = 1 - (1 - \eta L_i)^E$. The mean of two ends with $b = \pm \Delta/2$
    is $x$ if and only if $r_1 (x - \Delta/2) + r_2 (x + \Delta/2) = 0$, (1), and else
    comes nearer by the factor $1 - (r_1 + r_2)/2$. The gradient there, (2), is 0 if and
    only if $r_1/r_2 = L_1/L_2$, as with $E = 1$."""
    import sympy

    first, second, left, right = sympy.symbols("r1 r2 L1 L2", positive=True)
    apart = sympy.Symbol("Delta", positive=True)
    place = sympy.Rational(factor) * apart / 2 * (first - second) / (first + second)
    gradient = left / 2 * (place - apart / 2) + right / 2 * (place + apart / 2)
    ratio = (first * right - second * left) / (first + second)
    return [
        identity(
            r"(1) $x = \frac{\Delta}{2} (r_1 - r_2)/(r_1 + r_2)$ does not move",
            sympy.cancel(first * (place - apart / 2) + second * (place + apart / 2)),
        ),
        identity(
            r"(2) its gradient is $\frac{\Delta}{2} (r_1 L_2 - r_2 L_1)/(r_1 + r_2)$",
            sympy.cancel(gradient - apart / 2 * ratio),
        ),
    ]


def _two(
    step_size: float,
    num_steps: int,
    rounds: int,
    smoothness: float,
    separation: float,
) -> tuple[Path, Float[np.ndarray, " rounds"]]:
    """Path and bound of two clients with one component and losses L (x - D/2)^2/2 and
    L (x + D/2)^2/4, from 0."""
    inputs = np.sqrt(smoothness * np.array([0.5, 0.25]))
    places = separation * np.array([0.5, -0.5])
    data = Regressions(inputs[:, None, None], (inputs * places)[:, None])
    path = stepped(
        data,
        np.zeros((1, 1)),
        step_size=step_size,
        num_steps=num_steps,
        num_rounds=rounds,
    )
    return path, path.bound(smoothness, step_size, num_steps)


def prove_rate(*, factor: Fraction = _FALL, mean: Fraction = _DRIFT) -> list[Step]:
    r"""For any losses whose surrogates are $L$-smooth in $\Theta$, $h = E \eta \le
    1/L$.

    In a round $\Theta$ moves by $-h v$, $v$ the mean over clients and local steps of
    their gradients. By (1) $G(q, \Theta - h v) \le G(q, \Theta) - \frac{h}{2}
    |\nabla G|^2 + \frac{h}{2} |v - \nabla G|^2$, as the term with $|v|^2$ is not above
    0. $\nabla G = \nabla_\Theta f$ at the responsibilities of $\Theta$ and $\Pi$: $f$
    is the least $G$ there. A client is at most $\eta D e$ from $\Theta$ after $e$
    steps, its gradient at most $L \eta D e$ off, and (2) $|v - \nabla G| \le L \eta D
    (E - 1)/2$. $f$ falls at least as $G$ does (fedem.descent), and summed over $K$
    rounds $f_0 - f_K \ge \frac{h}{2} \sum |\nabla_\Theta f|^2 - \frac{h}{2} K (L \eta
    D (E - 1)/2)^2$."""
    import sympy

    square, gradient, inner, size, smooth = sympy.symbols("v g i h L", real=True)
    steps = sympy.Symbol("E", positive=True, integer=True)
    number = sympy.Symbol("e", integer=True)
    part = 1 / sympy.Rational(factor)
    apart = square - 2 * inner + gradient  # |v - g|^2
    return [
        identity(
            r"(1) $-h \langle g, v \rangle + \frac{L h^2}{2} |v|^2 = \frac{h}{2} |v - "
            r"g|^2 - \frac{h}{2} |g|^2 - \frac{h}{2} (1 - L h) |v|^2$",
            -size * inner
            + smooth * size**2 / 2 * square
            - size * (apart / 2 - part * gradient - (1 - smooth * size) / 2 * square),
        ),
        identity(
            r"(2) $\frac{1}{E} \sum_{e < E} e = (E - 1)/2$",
            sympy.summation(number, (number, 0, steps - 1)) / steps
            - sympy.Rational(mean) * (steps - 1),
        ),
    ]


def _margins(preset: Preset) -> tuple[Margin, ...]:
    """Of the step sizes that are tried, which rounding may carry over 1/L."""
    return tuple(
        Margin(
            rf"$E \eta L \le 1$, $E = {steps}$, $k = {components}$",
            round(steps * size * smoothness, 12),
            1.0,
            at_least=False,
        )
        for steps, components, smoothness, size, _ in _runs(preset)
    )


_MIXTURE = r"losses $\ell_j$ are negative logarithms of likelihoods, whole batches"

STATEMENTS = (
    row(
        id="fedem.descent",
        place="Released code, `MixtureClient`",
        text=r"a round whose models make $\sum q_j \ell_j$ least lowers the loss of "
        r"all samples by the means of $KL(\pi' \mid \pi)$ over clients, of $\sum_j q_j "
        r"(\ell_j - \ell_j')$ and of $KL(q \mid q')$ over samples, exactly; none of "
        "them is negative",
        preconditions=(
            r"losses $\ell_j$ are negative logarithms of likelihoods",
            r"models are fitted to the $q$ of before the round, to the end",
        ),
        check=check_descent,
        control={"temperature": 1.1},
        proof=prove_descent,
        proof_control={"kept": "9/10"},
        note="On mixtures of linear regressions by least squares. The control has 1.1 "
        r"times the losses in $q$, that of the proof nine tenths of $KL(\pi' \mid "
        r"\pi)$.",
    ),
    row(
        id="fedem.rate",
        place="not in the paper: rounds with local steps",
        text=r"$\frac{1}{K} \sum_{k < K} |\nabla_\Theta f_k|^2 \le \frac{2 (f_0 - "
        r"f_K)}{E \eta K} + (L \eta D (E - 1)/2)^2$ for $E$ local steps of $\eta$ in "
        r"each of $K$ rounds; with $\eta = a/\sqrt{K}$ a rate of $1/\sqrt{K}$, with "
        r"$E = 1$ and any $\eta \le 1/L$ of $1/K$",
        preconditions=(
            _MIXTURE,
            r"losses are $L$-smooth in a component's model, $E \eta \le 1/L$",
            "all clients take part, models are averaged by samples",
            r"$D$ is the largest norm of a client's gradient at its local models",
        ),
        check=check_rate,
        control={"factor": Fraction(99, 100) * _FALL},
        proof=prove_rate,
        proof_control=({"factor": Fraction(99, 50)}, {"mean": Fraction(49, 100)}),
        margins=lambda: _margins(Preset()),
        evaluation=Evaluation(
            quantity=r"$\frac{1}{K} \sum |\nabla_\Theta f_k|^2$, two clients with "
            r"losses $L (x - \Delta/2)^2/2$ and $L (x + \Delta/2)^2/4$, from 0",
            parameters=(
                parameter("rounds", 100, least=1, most=10_000),
                parameter("num_steps", 5, most=100),
                parameter("step_size", 0.02),
                parameter("smoothness", 1.0),
                parameter("separation", 2.0),
            ),
            bound=lambda rounds, num_steps, step_size, smoothness, separation: float(
                _two(step_size, num_steps, rounds, smoothness, separation)[1][-1]
            ),
            truth=lambda rounds, num_steps, step_size, smoothness, separation: exact(
                _two(step_size, num_steps, rounds, smoothness, separation)[0].average()[
                    -1
                ]
            ),
            margins=lambda rounds, num_steps, step_size, smoothness, separation: (
                Margin(
                    r"$E \eta L \le 1$",
                    num_steps * step_size * smoothness,
                    1.0,
                    at_least=False,
                ),
            ),
            note="round by round",
        ),
        note="Of our own: the abstract says that convergence is analysed by "
        "surrogates, the theorem could not be read. Stochastic gradients are in "
        "fedem.rate.stochastic. The 2 is sharp, by one step on quadratics of one "
        "curvature. The controls have 1.98, and 0.49 for the half of the second term.",
    ),
    row(
        id="fedem.fixed",
        place="not in the paper: rounds with local steps",
        text=r"with a fixed step size and $E > 1$ local steps gradients need not "
        r"vanish: of losses $L_i (x \mp \Delta/2)^2/2$ of two clients $\nabla f_k \to "
        r"\frac{\Delta}{2} (r_1 L_2 - r_2 L_1)/(r_1 + r_2)$, $r_i = 1 - (1 - \eta "
        "L_i)^E$",
        preconditions=(
            "one component, as many samples of both clients, whole batches",
            r"$\eta L_i \le 1$; checked for $L_2 = L_1/2$",
        ),
        check=check_fixed,
        control={"limit": lambda *_: 0.0},
        proof=prove_fixed,
        proof_control={"factor": "9/10"},
        evaluation=Evaluation(
            quantity=r"$|\nabla f|^2$ after many rounds, two clients with losses $(x - "
            r"\Delta/2)^2/2$ and $(x + \Delta/2)^2/4$",
            parameters=(
                parameter("num_steps", 5, least=2, most=100),
                parameter("step_size", 0.1, least=0.01, most=1.0, open=False),
                parameter("separation", 2.0),
            ),
            bound=lambda num_steps, step_size, separation: left_over(
                step_size, num_steps, 1.0, separation
            ),
            truth=lambda num_steps, step_size, separation: exact(
                _two(step_size, num_steps, 3000, 1.0, separation)[0].squares[-1]
            ),
            relation="=",
            note="3000 rounds",
        ),
        note="So step sizes must fall as rounds grow, see fedem.rate. 0 for $E = 1$. "
        "The control has 0 for all $E$, that of the proof nine tenths of the place.",
    ),
)
