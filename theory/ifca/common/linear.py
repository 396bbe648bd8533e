"""Mixtures of linear regressions, Section 5.1: settings, runs, Assumptions 1 and 2.

Runs are exactly in law, with fresh data, around two true models, for scaling laws over
many decades; in units of the separation, Delta = 1. Where there are more than two
clusters, two of them are followed: the others reach their models only by misassigned
clients, whom Assumption 2 makes rare, so that m counts everybody and the followed
clusters' shares add up to less than 1.
"""

import functools
import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from cfljax import law
from cfljax.base import Numbers
from cfljax.statements import Margin, Preset
from theory.ifca.common.checks import Broadcast, PerTrial

# One compiled shape serves every row: all but these two numbers is traced.
TRIALS, ROUNDS = 200, 40
_SETTLED = 10  # last rounds that the floor is measured in
_FAILURE = 1e-3  # delta of the explicit constants


class Setting(NamedTuple):
    """One point of a scaling law; Delta = 1."""

    num_clients: float = 1e6  # m
    num_samples: float = 1e4  # n'
    num_features: float = 1e3  # d
    noise: float = 0.1  # sigma
    # p_1 and p_2 of the two clusters that are followed; the smaller is p.
    shares: tuple[float, float] = (0.5, 0.5)
    step: float = 0.375  # c1 = gamma p
    alpha: float = 0.25  # of Assumption 1, at the start

    @property
    def gamma(self) -> float:
        """Step size c1 / p."""
        return self.step / min(self.shares)

    @property
    def effective_steps(self) -> Float[np.ndarray, " clusters"]:
        """x_j = 2 gamma p_j."""
        return 2 * self.gamma * np.array(self.shares)

    @property
    def num_rows(self) -> Float[np.ndarray, " clusters"]:
        """N_j = p_j m n', rows of a cluster in one fold."""
        return np.array(self.shares) * self.num_clients * self.num_samples


class Run(NamedTuple):
    """Independent trials at one setting."""

    errors: Float[np.ndarray, "trials steps 2"]  # |theta_j - theta_j*|, the start first
    # Clients with the other cluster's model.
    misassigned: Float[np.ndarray, "trials rounds"]


def start(
    setting: Setting,
) -> tuple[Float[np.ndarray, "2 2"], Float[np.ndarray, "2 2"]]:
    """Truths and the least favourable models that Assumption 1 allows, in a plane. The
    second model is moved straight towards the first truth. The first one is moved so
    far out of the line that a client of the first cluster meets two independent losses,
    or along it where no angle achieves that (see `cfljax.law.worst_kappa`)."""
    radius, rho = 0.5 - setting.alpha, setting.noise**-2
    reach = rho * radius * (0.5 + setting.alpha)
    along = 1 / max(reach, 1.0)
    across = math.sqrt(1 - along**2)
    truths = np.array([[-0.5, 0.0], [0.5, 0.0]])
    moved = radius * np.array([[along, across], [1.0, 0.0]])
    return truths, truths - moved


def follow(
    preset: Preset,
    name: str,
    index: int,
    setting: Setting,
    *,
    batches: int = 1,
    num_participants: float | None = None,
) -> Run:
    """Run 200 `batches` trials of 40 rounds, exactly in law, from `start`.

    On the random stream of that name and index, some 30 ms a batch once compiled. With
    `num_participants`, |M_t|, so many clients are drawn without replacement for each
    round, the same ones for all trials of a batch; as in line 14 of Algorithm 2 the sum
    of their gradients is divided by m.
    """
    truths, models = start(setting)
    clients = np.rint(np.array(setting.shares) * setting.num_clients)
    population = law.population(
        truths,
        num_models=2,
        num_clients=clients,
        num_samples=setting.num_samples,
        num_features=setting.num_features,
        noise=setting.noise,
    )
    placed = law.place(truths, models, num_features=setting.num_features)
    errors, misassigned = [], []
    for batch in range(batches):
        generator = preset.generator(name, index, batch)
        seed = int(generator.integers(2**31))
        present = None
        if num_participants is not None:
            first, second = int(clients[0]), int(clients[1])
            draws = generator.hypergeometric(
                first, second, int(num_participants), size=ROUNDS
            )
            present = np.stack([draws, num_participants - draws], axis=1).astype(float)
        trace = law.simulate(
            jax.random.key(seed),
            population,
            placed,
            num_trials=TRIALS,
            num_rounds=ROUNDS,
            # The law divides by the clients it knows, the algorithm by all m.
            step_size=setting.gamma * np.sum(clients) / setting.num_clients,
            participants=present,
        )
        distances = law.distances(np.asarray(population.truths), trace.models)
        errors.append(np.diagonal(distances, axis1=-2, axis2=-1))
        misassigned.append(np.sum(trace.counts * (1 - np.eye(2)), axis=(-2, -1)))
    return Run(np.concatenate(errors), np.concatenate(misassigned))


@functools.lru_cache(maxsize=8)
def follow_all(
    preset: Preset,
    name: str,
    settings: tuple[Setting, ...],
    *,
    batches: int = 1,
    participants: tuple[float, ...] | None = None,
) -> tuple[Run, ...]:
    """`follow` at each of the settings, kept for a check and its control."""
    numbers = participants or (None,) * len(settings)
    return tuple(
        follow(preset, name, index, one, batches=batches, num_participants=number)
        for index, (one, number) in enumerate(zip(settings, numbers, strict=True))
    )


def first_factors(runs: Iterable[Run]) -> PerTrial:
    """The first round's |e+| / |e|, averaged over both clusters, of every run."""
    ratios = [run.errors[:, 1] / run.errors[:, 0] for run in runs]
    return np.stack([np.mean(ratio, axis=1) for ratio in ratios])


def floor(run: Run) -> Float[np.ndarray, " trials"]:
    """Root-mean-square error of each trial over its last rounds and both clusters."""
    return np.sqrt(np.mean(run.errors[:, -_SETTLED:] ** 2, axis=(1, 2)))


def least_squares_errors(
    generator: np.random.Generator,
    *,
    num_rows: float,
    num_features: float,
    noise: float,
    size: tuple[int, ...],
) -> Broadcast:
    """|estimate - truth| of least squares on N rows, exactly in law. Given X the error
    is N(0, sigma^2 (X'X)^-1), and z' (X'X)^-1 z for an independent normal z is chi2_d /
    chi2_(N-d+1), independent (Hotelling's T^2). N is at least d."""
    top = generator.chisquare(num_features, size)
    bottom = generator.chisquare(num_rows - num_features + 1, size)
    return noise * np.sqrt(top / bottom)


def log_worst_chance(alpha: Numbers, rho: Numbers, num_samples: Numbers) -> Broadcast:
    """log P(a client chooses wrongly) at the least favourable models of Lemma 1."""
    return law.log_misassignment_probability(law.worst_kappa(alpha, rho), num_samples)


def needed_samples(setting: Setting) -> float:
    """n' that makes misassignment of any client rarer than delta, by Lemma 1. 2 (1 +
    rho) / (alpha^2 rho) log(m k / (2 delta)): the explicit form of Assumption 2's
    condition, gained from P <= exp(-n' alpha^2 rho / (2 (1 + rho))) / 2."""
    rho, clusters = setting.noise**-2, 1 / min(setting.shares)
    union = math.log(setting.num_clients * clusters / (2 * _FAILURE))
    return 2 * (1 + rho) / (setting.alpha**2 * rho) * union


def margins(*settings: Setting) -> tuple[Margin, ...]:
    """Assumptions 1 and 2 with explicit constants, each where it is met least. Failure
    probability 1e-3 for each condition; the condition on Delta keeps twice the error
    floor of Theorem 1's explicit form below Delta / 8."""
    return tightest(*(_explicit_margins(one) for one in settings))


def _explicit_margins(setting: Setting) -> tuple[Margin, ...]:
    share, features = min(setting.shares), setting.num_features
    rows = float(setting.num_rows[int(np.argmin(setting.shares))])
    noise = 2 * np.max(setting.effective_steps) * setting.noise
    floor = 16 * noise * np.sqrt(features / rows)
    samples, needed = float(setting.num_samples), needed_samples(setting)
    least_features = 2 * math.log(2 * (1 / share) / _FAILURE) + 1
    clients, least_clients = share * setting.num_clients, 8 * math.log(2 / _FAILURE)
    asked = (
        (
            r"$n' \ge 2 (1 + \rho) / (\alpha_0^2 \rho) \log(m k / (2 \delta))$",
            samples,
            needed,
        ),
        (r"$d \ge 2 \log(2 k / \delta) + 1$", features, least_features),
        (r"$p m \ge 8 \log(2 / \delta)$", clients, least_clients),
        (r"$p m n' \ge 19.8 d$", rows, 19.8 * features),
        (r"$\Delta \ge 32 x \sigma \sqrt{d / (p m n')}$", 1.0, float(floor)),
    )
    return (
        Margin(
            r"ifca.asm1: $\alpha_0 > 0$", setting.alpha, float(np.finfo(float).tiny)
        ),
        *(Margin(f"ifca.asm2: {text}", have, need) for text, have, need in asked),
    )


def tightest(*points: tuple[Margin, ...]) -> tuple[Margin, ...]:
    """Each condition at the point where the least is left of it."""
    found: dict[str, Margin] = {}
    for margin in itertools.chain(*points):
        known = found.get(margin.assumption, margin)
        found[margin.assumption] = min(known, margin, key=lambda one: one.factor)
    return tuple(found.values())


def as_printed(*points: tuple[Margin, ...]) -> tuple[Margin, ...]:
    """The `tightest` of what is printed: p_max <= 3 p is no condition there."""
    found = tightest(*points)
    return tuple(one for one in found if not one.assumption.startswith("missing"))


_MOST_MODELS = 8


class Hidden(NamedTuple):
    """Explicit values of what Assumption 2 hides in its inequalities."""

    size: float = 1.0  # C of max |theta_j*| <= C and of sigma <= C
    samples: float = 2.0  # C of n' >= C ((rho + 1)/(alpha0 rho))^2 log(m k/(2 delta))
    features: float = 6.52  # C of d >= C log(2 k/delta), from exp(-0.1534 d)
    clients: float = 8.0  # C of p m >= C log(2/delta), by Hoeffding's inequality
    rows: float = 144.0  # C of p m n' >= C d, from 6 sqrt(d/N) <= 1/2
    # C of Delta >= C ((sigma/p) sqrt(d/(m n')) + exp(-rate (...)^2 n')).
    floor: float = 32.0
    rate: float = 0.5  # c in that exponential
    failure: float | None = None  # delta; 1/m if None


class Situation(NamedTuple):
    """What Assumption 2 is about."""

    num_clients: tuple[float, ...]  # clients of each cluster
    num_samples: float  # n'
    num_features: float  # d
    noise: float  # sigma
    separation: float  # Delta
    alpha: float  # alpha0
    radius: float  # max |theta_j*|


def closeness(
    truths: Float[np.ndarray, "*trials models features"],
    models: Float[np.ndarray, "*trials models features"],
) -> Float[np.ndarray, "*trials"]:
    """The largest alpha0 of Assumption 1, under the matching that suits it best.

    1/2 - min over matchings of max_j |theta_pi(j) - theta_j*| / Delta: below 1/2, and
    not positive where the assumption fails.

    Raises:
      ValueError: on more than 8 models, of which all k! matchings are tried.
    """
    count = truths.shape[-2]
    if not 2 <= count <= _MOST_MODELS:
        raise ValueError(
            f"`truths` must hold 2 to {_MOST_MODELS} models, got {count}: all matchings"
            " are tried."
        )
    apart = np.linalg.norm(truths[..., :, None, :] - truths[..., None, :, :], axis=-1)
    separation = np.min(np.where(np.eye(count) > 0, np.inf, apart), axis=(-2, -1))
    away = np.linalg.norm(truths[..., :, None, :] - models[..., None, :, :], axis=-1)
    own = np.arange(count)
    furthest = [
        np.max(away[..., own, list(order)], axis=-1)
        for order in itertools.permutations(range(count))
    ]
    return np.asarray(0.5 - np.min(furthest, axis=0) / separation)


def assumption1(
    truths: Float[np.ndarray, "models features"],
    models: Float[np.ndarray, "models features"],
) -> tuple[Margin, ...]:
    """Whether a start is admitted, labels matched."""
    alpha = float(closeness(truths, models))
    tiny = float(np.finfo(float).tiny)
    return (Margin(r"ifca.asm1: $\alpha_0 > 0$", alpha, tiny),)


def assumption2(
    situation: Situation, hidden: Hidden | None = None
) -> tuple[Margin, ...]:
    """Every inequality of Assumption 2, and p_max <= 3 p."""
    hidden = hidden or Hidden()
    sizes = np.array(situation.num_clients, float)
    clients, clusters = float(np.sum(sizes)), len(sizes)
    share, largest = float(np.min(sizes)) / clients, float(np.max(sizes)) / clients
    failure = hidden.failure or 1 / clients
    samples, features = situation.num_samples, situation.num_features
    rho = (situation.separation / situation.noise) ** 2
    form = (situation.alpha * rho / (rho + 1)) ** 2
    floor = situation.noise / share * math.sqrt(features / (clients * samples))
    floor += math.exp(-hidden.rate * form * samples)
    needed = float(
        enough_samples(clients, clusters, situation.alpha, rho, failure, hidden.samples)
    )
    least_features = hidden.features * math.log(2 * clusters / failure)
    least_clients, delta = hidden.clients * math.log(2 / failure), situation.separation
    rest = r"(\sigma/p) \sqrt{d/(m n')} + \exp(-c (\ldots)^2 n')"
    asked = (
        (
            r"$n' \ge C ((\rho + 1)/(\alpha_0 \rho))^2 \log(m k/(2 \delta))$",
            samples,
            needed,
        ),
        (r"$d \ge C \log(2 k/\delta)$", features, least_features),
        (r"$p m \ge C \log(2/\delta)$", share * clients, least_clients),
        (r"$p m n' \ge C d$", share * clients * samples, hidden.rows * features),
        (rf"$\Delta \ge C ({rest})$", delta, hidden.floor * floor),
    )
    return (
        Margin(
            r"ifca.asm2: $\max |\theta_j^*| \le C$",
            situation.radius,
            hidden.size,
            False,
        ),
        Margin(r"ifca.asm2: $\sigma \le C$", situation.noise, hidden.size, False),
        *(Margin(f"ifca.asm2: {text}", have, need) for text, have, need in asked),
        Margin(
            r"missing from ifca.asm2: $p_{\max} \le 3 p$", largest, 3 * share, False
        ),
    )


def enough_samples(
    num_clients: Numbers,
    num_clusters: Numbers,
    alpha: Numbers,
    rho: Numbers,
    failure: Numbers,
    constant: float = 2.0,
    *,
    sharpened: bool = False,
) -> Broadcast:
    """n' = C ((rho + 1)/(alpha rho))^2 log(m k/(2 delta)), Assumption 2's form.
    `sharpened` has (rho + 1)/(alpha^2 rho) in place of the square: with C = 2 both are
    enough that nobody is misassigned, except with probability delta."""
    union = np.log(np.asarray(num_clients) * num_clusters / (2 * np.asarray(failure)))
    power = (1 + rho) / (alpha**2 * rho)
    return np.asarray(
        constant * union * power * (1.0 if sharpened else (1 + rho) / rho)
    )


def start_margins(
    *settings: Setting, failure: float | None = None
) -> tuple[Margin, ...]:
    """Assumptions 1 and 2 where runs of `follow` are started, where they are met least.
    With a `failure` probability of its own d >= 2 log(2 k/delta) is asked for, which is
    enough with Lemma 2's exact tail."""
    hidden = Hidden() if failure is None else Hidden(features=2.0, failure=failure)
    return tightest(
        *(
            (*assumption1(*start(one)), *assumption2(_situation(one), hidden))
            for one in settings
        )
    )


def _situation(setting: Setting) -> Situation:
    _, samples, features, noise, shares, _, alpha = setting
    sizes = tuple(share * setting.num_clients for share in shares)
    return Situation(sizes, samples, features, noise, 1.0, alpha, radius=0.5)
