"""Strongly convex losses of Section 5.2: settings and families of them.

Every hidden constant is explicit here. Theorem 2's are those of its own proof in
Appendix C, in the paper's normalisation max |theta_j*| <= 1 (so Delta <= 2).
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float, Num

from cfljax.base import Numbers
from cfljax.statements import Margin
from theory.ifca.common.checks import Broadcast, copies, least
from theory.ifca.common.heavy_tails import RareJump, flipping_jump, jump_tail

Models = Float[np.ndarray, "trials clusters features"]
Counts = Num[np.ndarray, "trials clusters clusters"]  # clients of a truth at a model

# Of the three terms of eps0: 2 * 4; 3 * 8 * 4; sqrt(8) * 4 * 2.
FLOOR_CONSTANTS = (8.0, 96.0, 16 * np.sqrt(2))

PRECONDITIONS = (
    "Assumptions 3-6, the hidden constants as in `ifca.asm6`",
    r"$\gamma = 1/L$, fresh folds of $n'$ samples for identities and for gradients",
)

# Two truths at distance 1, with a direction to spare for each.
PAIR = np.array([[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]])


def start_length(low: Any, high: Any, separation: Any, root: Any = np.sqrt) -> Any:
    """sqrt(lambda / L) Delta, in numbers or symbols."""
    return root(low / high) * separation


class ConvexSetting(NamedTuple):
    """The constants of one problem; every field may be an array."""

    num_clusters: Numbers  # k
    num_clients: Numbers  # m
    share: Numbers  # p, of the smallest cluster
    num_samples: Numbers  # n', per fold
    strong_convexity: Numbers  # lambda
    smoothness: Numbers  # L
    loss_variance: Numbers  # eta^2 of Assumption 4
    gradient_variance: Numbers  # v^2 of Assumption 5
    separation: Numbers  # Delta
    alpha: Numbers  # |theta_j - theta_j*| <= (1/2 - alpha) sqrt(lambda / L) Delta
    failure: Numbers  # delta, probability that the claim may fail
    largest_truth: Numbers = 1.0  # max |theta_j*|

    @property
    def progress(self) -> Numbers:
        """p lambda / (8 L): what Theorem 2 promises to gain in a step."""
        return self.share * self.strong_convexity / (8 * self.smoothness)

    @property
    def unit(self) -> Numbers:
        """sqrt(lambda / L) Delta: the length that initial errors are measured in."""
        low, high = self.strong_convexity, self.smoothness
        return start_length(low, high, self.separation)


def misassignment_scale(setting: ConvexSetting) -> Broadcast:
    """eta^2 / (alpha^2 lambda^2 Delta^4 n'), the scale of Lemma 3."""
    gap = setting.alpha * setting.strong_convexity * np.square(setting.separation)
    return np.asarray(setting.loss_variance / (np.square(gap) * setting.num_samples))


def floor_terms(
    setting: ConvexSetting,
    *,
    constants: tuple[float, float, float] = FLOOR_CONSTANTS,
    samples_power: float = 1.0,
) -> tuple[Broadcast, ...]:
    """The three terms of Theorem 2's eps0, with these constants in front. The power of
    n' below the third term is 1 for sqrt(m) n', what the proof gives, and 1/2 for
    sqrt(m n'), as the text at hand has it."""
    s = setting
    first = np.sqrt(s.gradient_variance) / (
        s.failure * s.smoothness * np.sqrt(s.share * s.num_clients * s.num_samples)
    )
    second = misassignment_scale(s) / s.failure
    gap = s.alpha * s.strong_convexity * np.square(s.separation)
    third = (
        np.sqrt(s.gradient_variance * s.loss_variance * np.power(s.num_clusters, 3.0))
        / (np.power(s.failure, 1.5) * gap * s.smoothness * np.sqrt(s.num_clients))
        / np.power(s.num_samples, samples_power)
    )
    one, two, three = constants
    return np.asarray(one * first), np.asarray(two * second), np.asarray(three * third)


def error_floor(setting: ConvexSetting, *, samples_power: float = 1.0) -> Broadcast:
    """eps0 of Theorem 2 with the constants of its proof."""
    return np.asarray(sum(floor_terms(setting, samples_power=samples_power)))


def assumption6(setting: ConvexSetting) -> tuple[Margin, ...]:
    """By how much Assumption 6 is met, hidden constants explicit. The condition on
    Delta is what it is for: eps0 small enough that the error stays below max(1/2 -
    alpha0, 1/4) in units of sqrt(lambda / L) Delta, and that it falls below 1/4
    (Appendix D, (b))."""
    s = setting
    k = float(np.max(s.num_clusters))
    needed = 4 * (2 * k - 3) * misassignment_scale(s) * s.num_samples
    floor = float(error_floor(s) / s.progress)
    members, enough = s.share * s.num_clients, float(8 * np.log(8 / s.failure))
    samples = r"$n' \ge 4 (2k - 3) \eta^2 / (\alpha_0^2 \lambda^2 \Delta^4)$"
    apart = r"$8 L \varepsilon_0 / (p \lambda) \le \sqrt{\lambda / L} \Delta / 8$"
    return (
        Margin(
            r"ifca.asm6: $\max |\theta_j^*| \le 1$", float(s.largest_truth), 1.0, False
        ),
        Margin(
            r"ifca.asm6: $\alpha_0 > 0$", float(s.alpha), float(np.finfo(float).tiny)
        ),
        Margin(r"ifca.asm6: $\alpha_0 < 1/2$", float(s.alpha), 0.5 - 2.0**-54, False),
        Margin(f"ifca.asm6: {samples}", float(s.num_samples), float(needed)),
        Margin(r"ifca.asm6: $p m \ge 8 \log(8 / \delta)$", float(members), enough),
        Margin(f"ifca.asm6: {apart}", floor, float(s.unit / 8), False),
    )


def random_setting(generator: np.random.Generator, size: int) -> ConvexSetting:
    """Settings on logarithmic scales, for checks of algebra: nothing is assumed."""
    draw = lambda low, high: 10 ** generator.uniform(low, high, size)
    strong_convexity = draw(-2, 1)
    clusters = generator.integers(2, 20, size).astype(float)
    return ConvexSetting(
        num_clusters=clusters,
        num_clients=draw(2, 5),
        share=generator.uniform(0.1, 1, size) / clusters,
        num_samples=draw(1, 8),
        strong_convexity=strong_convexity,
        smoothness=strong_convexity * draw(0, 2),
        loss_variance=draw(-4, 2),
        gradient_variance=draw(-4, 2),
        separation=generator.uniform(0.05, 2, size),
        alpha=generator.uniform(0.001, 0.499, size),
        failure=draw(-6, -0.31),
    )


class Draws(NamedTuple):
    """Samples z."""

    directions: Float[np.ndarray, "*batch samples features"]  # omega
    phases: Float[np.ndarray, "*batch samples"]  # phi
    offsets: Float[np.ndarray, "*batch samples"]  # zeta


@dataclasses.dataclass(frozen=True)
class CosineFamily:
    """The problem of one instance.

    Raises:
      ValueError: if `hessian` is not symmetric and positive definite.
    """

    truths: Float[np.ndarray, "clusters features"]  # the minimisers theta_j*
    hessian: Float[np.ndarray, "features features"]  # H, positive definite
    amplitude: float  # A
    frequency: float  # w
    offset: float = 0.0  # standard deviation of zeta, which is normal

    def __post_init__(self):
        symmetric = np.array_equal(self.hessian, self.hessian.T)
        if not symmetric or np.linalg.eigvalsh(self.hessian)[0] <= 0:
            raise ValueError(
                "`hessian` must be symmetric and positive definite, got "
                f"{self.hessian}."
            )

    @property
    def strong_convexity(self) -> float:
        """lambda."""
        return float(np.linalg.eigvalsh(self.hessian)[0])

    @property
    def smoothness(self) -> float:
        """L."""
        return float(np.linalg.eigvalsh(self.hessian)[-1])

    @property
    def loss_variance(self) -> float:
        """eta^2, the variance of f at every theta."""
        return self.amplitude**2 / 2 + self.offset**2

    @property
    def gradient_variance(self) -> float:
        """v^2, the mean squared gradient noise at every theta."""
        return (self.amplitude * self.frequency) ** 2 / 2

    def draw(self, generator: np.random.Generator, *shape: int) -> Draws:
        """`shape` samples z; the last axis is the one that losses average over."""
        normal = generator.standard_normal((*shape, self.truths.shape[1]))
        length = np.linalg.norm(normal, axis=-1, keepdims=True)
        return Draws(
            self.frequency * normal / length,
            generator.uniform(0, 2 * np.pi, shape),
            self.offset * generator.standard_normal(shape),
        )

    def population_loss(
        self,
        models: Float[np.ndarray, "*batch features"],
        truths: Float[np.ndarray, "*others features"],
    ) -> Broadcast:
        """F^j at each model, for the clusters of these truths; the two broadcast."""
        errors = models - truths
        return np.asarray(np.sum(errors @ self.hessian * errors, axis=-1) / 2)

    def population_gradient(
        self,
        models: Float[np.ndarray, "*batch features"],
        truths: Float[np.ndarray, "*others features"],
    ) -> Float[np.ndarray, "*both features"]:
        """Gradient of F^j at each model."""
        return (models - truths) @ self.hessian

    def noise(
        self, models: Float[np.ndarray, "*batch features"], draws: Draws
    ) -> Broadcast:
        """f - F^j, `[..., samples]`, one model `[..., features]` per set of samples."""
        inner = np.einsum("...nd,...d->...n", draws.directions, models)
        return self.amplitude * np.cos(inner + draws.phases) + draws.offsets

    def gradient_noise(
        self, models: Float[np.ndarray, "*batch features"], draws: Draws
    ) -> Broadcast:
        """Mean over the samples of grad f - grad F^j, `[..., features]`."""
        inner = np.einsum("...nd,...d->...n", draws.directions, models)
        weight = -self.amplitude * np.sin(inner + draws.phases)
        weight = weight / weight.shape[-1]
        return np.einsum("...n,...nd->...d", weight, draws.directions)

    def losses(
        self,
        models: Float[np.ndarray, "models features"],
        truth: Float[np.ndarray, " features"],
        draws: Draws,
    ) -> Float[np.ndarray, "*batch models"]:
        """Mean losses over the samples of a client of that truth, at each model."""
        noise = [np.mean(self.noise(model, draws), axis=-1) for model in models]
        return np.stack(noise, axis=-1) + self.population_loss(models, truth)


def train_cosine(
    family: CosineFamily,
    generator: np.random.Generator,
    models: Models,
    *,
    sizes: tuple[int, ...],
    num_samples: int,
    num_rounds: int,
) -> Float[np.ndarray, "rounds trials clusters features"]:
    """IFCA on raw samples, step 1/L and the gamma / m average: models after each round.
    Every round draws two folds of n' samples for each client, of whom `sizes` are in
    each true cluster. Cost: O(trials clients n' (features + clusters)) per round."""
    history = []
    step = 1 / (family.smoothness * sum(sizes))
    for _ in range(num_rounds):
        total = np.zeros_like(models)
        for truth, size in zip(family.truths, sizes, strict=True):
            total += _answers(family, generator, models, truth, size, num_samples)
        models = models - step * total
        history.append(models)
    return np.array(history)


def _answers(
    family: CosineFamily,
    generator: np.random.Generator,
    models: Models,
    truth: Float[np.ndarray, " features"],
    size: int,
    num_samples: int,
) -> Models:
    """Sums over one cluster's clients of the gradients sent to each model."""
    trials, num_clusters, _ = models.shape
    draws = family.draw(generator, trials, size, num_samples)
    losses = [
        np.mean(family.noise(models[:, None, j], draws), axis=-1)
        + family.population_loss(models[:, None, j], truth)
        for j in range(num_clusters)
    ]
    choice = least(np.stack(losses, axis=-1))
    chosen = np.take_along_axis(models, choice[..., None], axis=1)
    fresh = family.draw(generator, trials, size, num_samples)
    gradients = family.population_gradient(chosen, truth)
    gradients = gradients + family.gradient_noise(chosen, fresh)
    member = (choice[..., None] == np.arange(num_clusters)).astype(float)
    return np.einsum("rik,rid->rkd", member, gradients)


# Expected misassignments per draw below which identities count as certain.
_NEGLIGIBLE = 1e-15


class Pieces(NamedTuple):
    """The parts of one step, `[trials, clusters, features]` each, display (21).
    theta_j+ - theta_j* = pull + own_noise - foreign."""

    pull: Models  # T11 = theta_j - theta_j* - gammahat grad F^j(theta_j)
    own_noise: Models  # T12, of the clients that belong to the cluster
    foreign: Models  # T2, of those that do not

    @property
    def errors(self) -> Models:
        """theta_j+ - theta_j*."""
        return self.pull + self.own_noise - self.foreign


@dataclasses.dataclass(frozen=True)
class WaveFamily:
    """The problem of one instance.

    Raises:
      ValueError: if `smoothness` is below the largest curvature.
    """

    truths: Float[np.ndarray, "clusters features"]  # theta_j*
    sizes: tuple[int, ...]  # clients of each true cluster
    curvatures: Float[np.ndarray, " features"]  # the diagonal of H
    loss_deviation: float  # s
    frequency: float  # w
    # L of the step 1/L; the largest curvature if None. It must not be smaller than
    # that, and may be larger: L is an upper bound.
    smoothness: float = np.nan

    def __post_init__(self):
        top = float(np.max(self.curvatures))
        if np.isnan(self.smoothness):
            object.__setattr__(self, "smoothness", top)
        if self.smoothness < top:
            raise ValueError(
                "`smoothness` must be at least the largest curvature, got "
                f"{self.smoothness} below {top}."
            )

    @property
    def num_clients(self) -> int:
        """m."""
        return sum(self.sizes)

    def setting(
        self, *, num_samples: float, alpha: float, failure: float
    ) -> ConvexSetting:
        """Its constants, as the statements ask for them."""
        apart = np.linalg.norm(self.truths[:, None] - self.truths, axis=-1)
        np.fill_diagonal(apart, np.inf)
        return ConvexSetting(
            num_clusters=len(self.sizes),
            num_clients=self.num_clients,
            share=min(self.sizes) / self.num_clients,
            num_samples=num_samples,
            strong_convexity=float(np.min(self.curvatures)),
            smoothness=self.smoothness,
            loss_variance=self.loss_deviation**2,
            gradient_variance=(self.frequency * self.loss_deviation) ** 2,
            separation=float(np.min(apart)),
            alpha=alpha,
            failure=failure,
            largest_truth=float(np.max(np.linalg.norm(self.truths, axis=-1))),
        )


def assign(
    family: WaveFamily,
    generator: np.random.Generator,
    models: Models,
    num_samples: float,
) -> Counts:
    """How many clients of each true cluster (second axis) choose each model (third).
    Two models: binomial, with the exact probability. More: by the clients' own draws,
    or certain where fewer than 1e-15 misassignments are expected. Cost: O(trials) for
    two models, else O(trials clients clusters features)."""
    trials, num_clusters, _ = models.shape
    counts = np.zeros((trials, num_clusters, num_clusters))
    for own, (truth, size) in enumerate(zip(family.truths, family.sizes, strict=True)):
        losses = np.sum(family.curvatures * (models - truth) ** 2, axis=-1) / 2
        wrong = _pairwise(family, models, losses, own, num_samples)
        if num_clusters == 2:
            counts[:, own, 1 - own] = generator.binomial(size, wrong[:, 1 - own])
            counts[:, own, own] = size - counts[:, own, 1 - own]
        elif size * np.max(np.sum(wrong, axis=-1)) < _NEGLIGIBLE:
            counts[:, own, own] = size
        else:
            choice = _choices(family, generator, models, losses, size, num_samples)
            member = choice[..., None] == np.arange(num_clusters)
            counts[:, own] = np.sum(member, axis=1)
    return counts


def _pairwise(
    family: WaveFamily,
    models: Models,
    losses: Float[np.ndarray, "trials clusters"],
    own: int,
    num_samples: float,
) -> Float[np.ndarray, "trials clusters"]:
    """P(the loss of model j is below that of the own one), 0 for j = own."""
    apart = family.frequency * (models - models[:, own : own + 1])
    # Var of the difference of two waves, per sample: 2 s^2 mean(1 - cos).
    variance = 4 * family.loss_deviation**2 * np.mean(np.sin(apart / 2) ** 2, axis=-1)
    gap = losses - losses[:, own : own + 1]
    spread = np.sqrt(variance / num_samples)
    # No spread: the sign of the gap decides, and a tie is a mistake.
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(spread > 0, -gap / spread, np.where(gap > 0, -np.inf, np.inf))
    wrong = scipy.special.ndtr(score)
    wrong[:, own] = 0
    return wrong


def _choices(
    family: WaveFamily,
    generator: np.random.Generator,
    models: Models,
    losses: Float[np.ndarray, "trials clusters"],
    size: int,
    num_samples: float,
) -> Num[np.ndarray, "trials clients"]:
    """The model each client of one cluster chooses, from its coefficients."""
    trials, _, num_features = models.shape
    scale = family.loss_deviation / np.sqrt(num_features * num_samples)
    waves = scale * generator.standard_normal((2, trials, size, num_features))
    angles = family.frequency * models
    noise = np.einsum("rmd,rkd->rmk", waves[0], np.cos(angles))
    noise += np.einsum("rmd,rkd->rmk", waves[1], np.sin(angles))
    return least(losses[:, None] + noise)


def gradient_step(
    family: WaveFamily,
    generator: np.random.Generator,
    models: Models,
    counts: Counts,
    num_samples: float,
) -> Pieces:
    """One step of length 1/L from these models, given who chose which. The noise of a
    group of c clients is N(0, c v^2 / (d n') I), exactly."""
    _, num_clusters, num_features = models.shape
    scale = family.frequency * family.loss_deviation / np.sqrt(num_features)
    scale /= np.sqrt(num_samples)
    step = 1 / (family.smoothness * family.num_clients)
    errors = models - family.truths
    own = np.diagonal(counts, axis1=1, axis2=2)[..., None]
    normal = generator.standard_normal(models.shape)
    pull = errors - step * own * family.curvatures * errors
    noise = -step * scale * np.sqrt(own) * normal
    foreign = counts * (1 - np.eye(num_clusters))
    if not np.any(foreign):
        return Pieces(pull, noise, np.zeros_like(models))
    # [trials, true cluster, model, features]
    pulls = family.curvatures * (models[:, None] - family.truths[:, None])
    pulls = foreign[..., None] * pulls
    normal = generator.standard_normal(pulls.shape)
    pulls += scale * np.sqrt(foreign)[..., None] * normal
    return Pieces(pull, noise, step * np.sum(pulls, axis=1))


def train_waves(
    family: WaveFamily,
    generator: np.random.Generator,
    models: Models,
    *,
    num_samples: float,
    num_rounds: int,
) -> Float[np.ndarray, "rounds trials clusters"]:
    """Errors |theta_j - theta_j*| after each of `num_rounds` rounds of IFCA."""
    distances = []
    for _ in range(num_rounds):
        counts = assign(family, generator, models, num_samples)
        pieces = gradient_step(family, generator, models, counts, num_samples)
        models = family.truths + pieces.errors
        distances.append(np.linalg.norm(pieces.errors, axis=-1))
    return np.array(distances)


_ALPHA = 0.25
_GAP = _ALPHA  # alpha lambda Delta^2
_JUMP_FREQUENCY = np.pi / (2 * _ALPHA)
_WAVE_FREQUENCY = 2 * np.pi / (2 * _ALPHA)


class WorstPair(NamedTuple):
    """One instance."""

    family: WaveFamily  # normal; its truths, sizes and curvatures are the problem's
    models: Float[np.ndarray, "clusters features"]
    jump: RareJump  # law of X over the gap
    num_samples: float  # n'

    @property
    def chance(self) -> float:
        """P(a client chooses the wrong model)."""
        half = self.num_samples / 2
        return float(jump_tail(self.jump, self.num_samples, half))

    def setting(self, *, failure: float) -> ConvexSetting:
        """Its constants: suprema over all theta, not values at the models."""
        waves = self.family.setting(
            num_samples=self.num_samples, alpha=_ALPHA, failure=failure
        )
        jumps = float(self.jump.variance) * _GAP**2
        return waves._replace(
            loss_variance=waves.loss_variance + jumps,
            gradient_variance=waves.gradient_variance + jumps * _JUMP_FREQUENCY**2,
        )

    def counts(self, generator: np.random.Generator, trials: int) -> Counts:
        """How many clients of each cluster choose each model: binomial, exactly."""
        sizes = np.array(self.family.sizes)
        wrong = generator.binomial(sizes, self.chance, (trials, 2)).astype(float)
        return np.where(np.eye(2) > 0, (sizes - wrong)[..., None], wrong[..., None])

    def step(self, generator: np.random.Generator, trials: int) -> Pieces:
        """One step from its models, in independent trials."""
        models = copies(self.models, trials)
        counts = self.counts(generator, trials)
        return gradient_step(self.family, generator, models, counts, self.num_samples)


def worst_pair(
    *,
    sizes: tuple[int, int],
    num_samples: float,
    scale: float,
    wave_gradient: float,
    num_features: int = 2,
) -> WorstPair:
    """The instance in which eta^2 / (alpha^2 lambda^2 Delta^4 n') of jumps is `scale`.
    Lemma 3 allows P(E) up to four times this. `wave_gradient` is the root mean square
    of the normal gradient noise; the line is the first coordinate."""
    axis = np.eye(1, num_features)
    truths = np.array([[-0.5], [0.5]]) * axis
    deviation = wave_gradient / _WAVE_FREQUENCY
    family = WaveFamily(
        truths, sizes, np.ones(num_features), deviation, _WAVE_FREQUENCY
    )
    models = truths + (0.5 - _ALPHA) * np.array([[1.0], [-1.0]]) * axis
    return WorstPair(family, models, flipping_jump(scale, num_samples), num_samples)
