"""The exact probability that a client prefers the wrong of two linear models.

Setting: Ghosh, Chung, Yin, Ramchandran, "An Efficient Framework for Clustered
Federated Learning", Section 4.1 and Lemma 1. A client holds n samples
y = <x, truth> + noise * z with standard normal x and z, independent of the models, and
picks the model of smaller mean squared residual. Everything here is exact for every
n >= 1, dimension and geometry; nothing is hidden in constants. All in float64 NumPy.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray

from cfljax.base.types import Numbers
from cfljax.law.chi import choice_kappa, student_tail
from cfljax.law.gradients import binomial, chi_square

_FAR = 30.0  # num_samples kappa^2 from which the continued fraction is used
_FRACTION_DEPTH = 120  # enough there for full precision, whatever num_samples


def misassignment_kappa(
    truth: Num[np.ndarray, "..."],
    own_model: Num[np.ndarray, "..."],
    other_model: Num[np.ndarray, "..."],
    noise: Numbers,
) -> Float[np.ndarray, "..."]:
    """Signal-to-noise ratio of the choice between two models.

    With h the signed distance of `truth` from the hyperplane halfway between the two
    models (positive on the side of `own_model`) and w its distance from the line
    through them, kappa = h / sqrt(w^2 + noise^2).

    With a = truth - own_model, b = truth - other_model, A = |a|^2 + noise^2,
    B = |b|^2 + noise^2 and C = <a, b> + noise^2 this is (B - A) / (2 sqrt(AB - C^2)):
    B - A = 2 h |a - b|, and AB - C^2 = |a|^2 |b|^2 - <a, b>^2 + noise^2 |a - b|^2, the
    first two terms being the squared area of a parallelogram of base |a - b| and
    height w. This form loses no digits when the models nearly coincide.

    Args:
      truth: `[..., features]`, the model that made the client's data.
      own_model: `[..., features]`, the model the client should pick.
      other_model: `[..., features]`, the rival.
      noise: `[...]`, standard deviation of the label noise, at least 0.

    Returns:
      `[...]`, kappa; infinite where noise and w are both 0, and NaN where nothing
      decides: where the models coincide, or such a client is right between them.

    Raises:
      ValueError: if `noise` is negative.
    """
    noise = np.asarray(noise, float)
    if np.any(noise < 0):
        raise ValueError(f"`noise` must be at least 0, got {noise}.")
    truth, own_model, other_model = (
        np.asarray(vector, float) for vector in (truth, own_model, other_model)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        direction = own_model - other_model
        direction = direction / np.linalg.norm(direction, axis=-1, keepdims=True)
        # The midpoint of the differences: exact when a model is close to the truth.
        offset = ((truth - own_model) + (truth - other_model)) / 2
        height = np.sum(offset * direction, axis=-1)
        width = np.linalg.norm(offset - height[..., None] * direction, axis=-1)
        return np.asarray(height / np.hypot(width, noise))


def misassignment_probability(
    kappa: Numbers, num_samples: Numbers
) -> Float[np.ndarray, "..."]:
    """P(the other model's loss <= the own model's loss) = P(t_n >= sqrt(n) kappa).

    Derivation: the residuals u, v of one sample on the two models are jointly normal,
    so u - v and u + v are too, with correlation r = (A - B) / sqrt((A+B)^2 - 4 C^2).
    The event sum u^2 >= sum v^2 reads sum (u - v)(u + v) >= 0; regressing u + v on
    u - v over n samples turns it into a Student ratio t_n >= -sqrt(n) r / sqrt(1-r^2)
    = sqrt(n) kappa, of which P = I_{1/(1+kappa^2)}(n/2, 1/2) / 2 when kappa >= 0.

    Args:
      kappa: signal-to-noise ratio of `misassignment_kappa`.
      num_samples: n, at least 1, broadcast against `kappa`.

    Returns:
      Probability of the broadcast shape; NaN where `kappa` is.

    Raises:
      ValueError: if `num_samples` is below 1.
    """
    return np.asarray(np.exp(log_misassignment_probability(kappa, num_samples)))


def log_misassignment_probability(
    kappa: Numbers, num_samples: Numbers
) -> Float[np.ndarray, "..."]:
    """Natural logarithm of `misassignment_probability`, far beyond underflow.

    For n kappa^2 > 30 the incomplete beta function is written as
    (1 + kappa^2)^(-(n-1)/2) F / (kappa n B(n/2, 1/2)) with
    F = 2F1(1/2, 1; n/2 + 1; -1/kappa^2), by Pfaff's transformation, and F is Gauss's
    continued fraction. Its coefficients are positive, so that nothing cancels.
    Elsewhere SciPy's function is used.

    Args:
      kappa: signal-to-noise ratio of `misassignment_kappa`.
      num_samples: n, at least 1, broadcast against `kappa`.

    Returns:
      Log-probability of the broadcast shape; NaN where `kappa` is.

    Raises:
      ValueError: if `num_samples` is below 1.
    """
    kappa, num_samples = np.broadcast_arrays(
        np.asarray(kappa, float), np.asarray(num_samples, float)
    )
    if not np.all(num_samples >= 1):
        raise ValueError(f"`num_samples` must be at least 1, got {num_samples}.")
    size, count = np.abs(kappa).ravel(), num_samples.ravel()
    far = np.sqrt(count) * size > np.sqrt(_FAR)
    log_tail = np.where(
        far,
        _log_far_tail(np.where(far, size, np.sqrt(_FAR)), count),
        _log_near_tail(np.where(far, 0.0, size), count),
    ).reshape(kappa.shape)
    return np.where(kappa >= 0, log_tail, np.log1p(-np.exp(log_tail)))


def _log_near_tail(
    kappa: Float[np.ndarray, " points"], num_samples: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    share = kappa**2 / (1 + kappa**2)
    centre = 1 - scipy.special.betainc(0.5, num_samples / 2, share)
    tail = scipy.special.betaincc(0.5, num_samples / 2, share)
    return np.log(np.where(num_samples * share < 1, centre, tail) / 2)


def _log_far_tail(
    kappa: Float[np.ndarray, " points"], num_samples: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    finite = np.where(np.isinf(kappa), 1.0, kappa)
    inverse = (1 / finite) ** 2
    top = num_samples / 2 + 1
    fraction = np.ones_like(finite)
    for step in range(_FRACTION_DEPTH, 0, -1):
        half = step // 2
        if step % 2:
            factor = (0.5 + half) * (top - 1 + half)
        else:
            factor = half * (top - 1.5 + half)
        factor = factor / ((top + step - 2) * (top + step - 1))
        fraction = 1 + factor * inverse / fraction
    log_probability = (
        -(num_samples - 1) / 2 * np.logaddexp(0.0, 2 * np.log(finite))
        - np.log(finite)
        - np.log(num_samples)
        - _log_beta_half(num_samples / 2)
        - np.log(fraction)
    )
    return np.where(np.isinf(kappa), -np.inf, log_probability)


def _log_beta_half(
    a: Float[np.ndarray, " points"],
) -> Float[np.ndarray, " points"]:
    """log B(a, 1/2), by Stirling's series where SciPy subtracts large logarithms."""
    large = np.maximum(a, 30.0)
    series = -1 / 8 / large + 1 / 192 / large**3 - 1 / 640 / large**5
    series = series + 17 / 14336 / large**7
    log_ratio = np.log(large) / 2 + series  # of Gamma(a + 1/2) to Gamma(a)
    stirling = np.log(np.pi) / 2 - log_ratio
    return np.where(a < 30, scipy.special.betaln(np.minimum(a, 30), 0.5), stirling)


def error_exponent(kappa: Numbers) -> Float[np.ndarray, "..."]:
    """Rate E = log(1 + kappa^2) / 2 at which misassignment dies out in n.

    For kappa >= 0, probability <= exp(-n E) / 2 for every n, because I_x(a, 1/2) <= x^a
    (a Beta(a, 1/2) variable is stochastically larger than a Beta(a, 1) one), and
    -log(probability) / n tends to E: the exponent cannot be improved.

    Returns:
      Exponent per sample, of the shape of `kappa`.
    """
    return np.asarray(np.log1p(np.asarray(kappa, float) ** 2) / 2)


def worst_kappa(
    alpha: Numbers, rho: Numbers, *, one_dimensional: bool = False
) -> Float[np.ndarray, "..."]:
    """Smallest kappa that the assumptions of Lemma 1 allow.

    The infimum over all truths at least D apart and models within (1/2 - alpha) D of
    their truths, where rho = (D / noise)^2; it is attained. Derivation, with lengths
    |a|, |b| of `misassignment_kappa` held fixed: AB - C^2 is concave in cos(a, b) and
    largest at C = 0, or at cos = -1 if C = 0 is out of reach. There kappa is
    (sqrt(B/A) - sqrt(A/B)) / 2, or (|b| - |a|) / (2 noise); both fall in |a| and grow
    in |b|, so the worst lengths are |a| = (1/2 - alpha) D and |b| = (1/2 + alpha) D,
    and C = 0 can be reached iff (1/4 - alpha^2) rho >= 1.

    Args:
      alpha: margin, in (0, 1/2).
      rho: squared separation over noise variance, above 0; broadcast against `alpha`.
      one_dimensional: true for a single feature, where only cos = -1 is possible.

    Returns:
      Kappa of the broadcast shape.

    Raises:
      ValueError: on `alpha` outside (0, 1/2) or `rho` not positive.
    """
    alpha, rho = np.asarray(alpha, float), np.asarray(rho, float)
    if not np.all((alpha > 0) & (alpha < 0.5)):
        raise ValueError(f"`alpha` must lie in (0, 1/2), got {alpha}.")
    if not np.all(rho > 0):
        raise ValueError(f"`rho` must be positive, got {rho}.")
    collinear = alpha * np.sqrt(rho)
    if one_dimensional:
        return np.asarray(collinear)
    near = (0.5 - alpha) ** 2 * rho + 1
    far = (0.5 + alpha) ** 2 * rho + 1
    independent = alpha * rho / np.sqrt(near * far)
    return np.where((0.25 - alpha**2) * rho >= 1, independent, collinear)


def pair_factors(
    offsets: Float[Array, "models frame"],
    nearest: Int[Array, ""],
    noise: Float[Array, ""],
) -> Float[Array, "rivals models models"]:
    """For every rival j the matrix G_j whose G_j T has a client's residuals as rows.

    Args:
      offsets: `[models, frame]`, truth - model.
      nearest: index of the model that rivals are compared with.
      noise: sigma.
    """
    models = offsets.shape[0]
    rows = jnp.concatenate([offsets, jnp.full((models, 1), noise)], axis=1)

    def factor(rival: Int[Array, ""]) -> Float[Array, "models models"]:
        # The pair first, then all others in order.
        rank = jnp.where(jnp.arange(models) == rival, -1, jnp.arange(models))
        order = jnp.argsort(jnp.where(jnp.arange(models) == nearest, -2, rank))
        sorted_rows = rows[order]
        first, second = sorted_rows[0], sorted_rows[1]
        mixed = sorted_rows.at[0].set(first - second).at[1].set(first + second)
        wide = jnp.pad(mixed, ((0, 0), (0, max(0, models - mixed.shape[1]))))
        upper = jnp.linalg.qr(wide.T, mode="r")
        signs = jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0)
        lower = (upper * signs[:, None]).T
        own, other = (lower[1] + lower[0]) / 2, (lower[1] - lower[0]) / 2
        unmixed = lower.at[0].set(own).at[1].set(other)
        return jnp.zeros_like(unmixed).at[order].set(unmixed)

    return jax.vmap(factor)(jnp.arange(models))


def free_losses(
    key: PRNGKeyArray,
    factor: Float[Array, "models models"],
    num_samples: Float[Array, ""],
    *,
    block: int,
    num_rows: int | None,
) -> Float[Array, "block models"]:
    """n' times the losses of `block` independent clients.

    Args:
      key: of this draw.
      factor: any one of `pair_factors`.
      num_samples: n'.
      block: how many clients.
      num_rows: n' as a static number where it is below the number of models, to draw
        rows instead of Bartlett's factor; None otherwise.
    """
    models = len(factor)
    if num_rows is None:
        chi_key, below_key = jax.random.split(key)
        freedom = num_samples - jnp.arange(models, dtype=float)
        chi = jnp.sqrt(chi_square(chi_key, jnp.broadcast_to(freedom, (block, models))))
        columns = _triangles(below_key, chi)
    else:
        columns = jax.random.normal(key, (block, models, num_rows))
    return jnp.sum(jnp.einsum("ij,bjc->bic", factor, columns) ** 2, axis=-1)


def beaten_losses(
    key: PRNGKeyArray,
    factors: Float[Array, "rivals models models"],
    kappa: Float[Array, " rivals"],
    chances: Float[Array, " rivals"],
    num_samples: Float[Array, ""],
    *,
    block: int,
) -> Float[Array, "block models"]:
    """n' times the losses of independent clients, each given that a rival wins.

    Args:
      key: of this draw.
      factors: from `pair_factors`.
      kappa: `[rivals]`, above 0 wherever `chances` is.
      chances: `[rivals]`, a client's rival is drawn in proportion; one at least is
        above 0.
      num_samples: n', at least the number of models.
      block: how many clients.
    """
    models = factors.shape[-1]
    rival_key, pair_key, chi_key, below_key = jax.random.split(key, 4)
    until = jnp.cumsum(chances)
    place = jax.random.uniform(rival_key, (block,)) * until[-1]
    rival = jnp.sum((place[:, None] >= until[None]).astype(int), axis=1)
    rival = jnp.minimum(rival, models - 1)
    # The first column's length and the free diagonal below it.
    freedom = num_samples - jnp.arange(models, dtype=float)
    freedom = freedom.at[0].set(num_samples + 1)
    chi = jnp.sqrt(chi_square(chi_key, jnp.broadcast_to(freedom, (block, models))))
    own, mixed = _given_win(pair_key, kappa[rival], num_samples)
    columns = _triangles(below_key, chi.at[:, 0].multiply(own))
    columns = columns.at[:, 1, 0].set(chi[:, 0] * mixed)
    residuals = jnp.einsum("bij,bjc->bic", factors[rival], columns)
    return jnp.sum(residuals**2, axis=-1)


def _triangles(
    key: PRNGKeyArray, diagonal: Float[Array, "block models"]
) -> Float[Array, "block models models"]:
    """Lower-triangular matrices with standard normal entries below the diagonal."""
    block, models = diagonal.shape
    rows, places = np.tril_indices(models, -1)
    # Twice as fast as of this shape, and the same numbers.
    below = jax.random.normal(key, (block * len(rows),)).reshape(block, len(rows))
    columns = diagonal[:, :, None] * jnp.eye(models)[None]
    return columns.at[:, rows, places].set(below)


def _given_win(
    key: PRNGKeyArray, kappa: Float[Array, " block"], num_samples: Float[Array, ""]
) -> tuple[Float[Array, " block"], Float[Array, " block"]]:
    """T_11 and T_21 over their common length, given T_21 >= kappa T_11, kappa > 0:
    proposed by y^(n/2 - 1), accepted by (1 - y)^(-1/2) relative to the edge."""
    kappa = jnp.where(jnp.isfinite(kappa), kappa, 1.0)  # of a rival without a chance
    edge = 1 / (1 + kappa**2)
    beyond = kappa**2 / (1 + kappa**2)  # 1 - edge, without its cancellation

    def propose(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        index, share, rest, done = carry
        uniforms = jax.random.uniform(jax.random.fold_in(key, index), (2, *edge.shape))
        log_ratio = 2 / num_samples * jnp.log(uniforms[0])
        new_rest = beyond - edge * jnp.expm1(log_ratio)  # 1 - edge exp(log_ratio)
        accept = uniforms[1] ** 2 * new_rest < beyond
        fresh = accept & ~done
        share = jnp.where(fresh, edge * jnp.exp(log_ratio), share)
        return index + 1, share, jnp.where(fresh, new_rest, rest), done | accept

    start = (jnp.asarray(0), edge, beyond, jnp.zeros(edge.shape, bool))
    _, share, rest, _ = jax.lax.while_loop(lambda c: ~jnp.all(c[3]), propose, start)
    return jnp.sqrt(share), jnp.sqrt(rest)


_CANDIDATES = 32  # drawn at a time, at most; they are few
_RARE = 0.1  # largest probability of one rival for which candidates are drawn


def assign(
    key: PRNGKeyArray,
    offsets: Float[Array, "clusters models frame"],
    num_clients: Float[Array, " clusters"],
    num_samples: Float[Array, ""],
    noise: Float[Array, ""],
    *,
    num_rows: int | None = None,
    block: int = 256,
) -> Float[Array, "clusters models"]:
    """How many clients of each cluster choose each model.

    Ties go to the lowest index; a model that is not finite, or equals one of lower
    index, is chosen by nobody; without a finite model nobody chooses.

    Args:
      key: of this draw.
      offsets: `[clusters, models, frame]`, truth - model.
      num_clients: `[clusters]`.
      num_samples: n'.
      noise: sigma.
      num_rows: n' as a static number where it is below the number of models, so that
        rows are drawn instead of Bartlett's factor; None otherwise.
      block: clients drawn at a time where each of them is.

    Returns:
      `[clusters, models]`, rows sum to `num_clients`.
    """
    finite = jnp.all(jnp.isfinite(offsets), axis=(0, 2))
    open_models = finite & ~_repeats(offsets[0])
    offsets = jnp.where(finite[None, :, None], offsets, 0.0)
    clusters, models, _ = offsets.shape
    num_clients = jnp.where(jnp.any(open_models), num_clients, 0.0)
    if models == 1:
        return num_clients[:, None]
    if models == 2:
        return _between_two(key, offsets, num_clients, num_samples, noise, open_models)
    keys = jax.random.split(key, clusters)

    def one_cluster(arguments: tuple[Array, Array, Array]) -> Array:
        return _among_many(
            *arguments, num_samples, noise, open_models, num_rows=num_rows, block=block
        )

    # One after the other: what a cluster costs depends on how many rivals win there.
    return jax.lax.map(one_cluster, (keys, offsets, num_clients))


def _repeats(offsets: Float[Array, "models frame"]) -> Bool[Array, " models"]:
    """Whether a model equals one of lower index."""
    equal = jnp.all(offsets[:, None] == offsets[None], axis=-1)
    return jnp.any(jnp.tril(equal, -1), axis=1)


def _between_two(
    key: PRNGKeyArray,
    offsets: Float[Array, "clusters models frame"],
    num_clients: Float[Array, " clusters"],
    num_samples: Float[Array, ""],
    noise: Float[Array, ""],
    open_models: Bool[Array, " models"],
) -> Float[Array, "clusters models"]:
    kappa = choice_kappa(offsets[:, 0], offsets[:, 1], noise)
    second = student_tail(kappa, num_samples)
    second = jnp.where(jnp.isnan(second), 0.0, second)
    second = jnp.where(open_models[0], second, 1.0)
    second = jnp.where(open_models[1], second, 0.0)
    chosen = binomial(key, num_clients, second)
    return jnp.stack([num_clients - chosen, chosen], axis=1)


def _among_many(
    key: PRNGKeyArray,
    offsets: Float[Array, "models frame"],
    num_clients: Float[Array, ""],
    num_samples: Float[Array, ""],
    noise: Float[Array, ""],
    open_models: Bool[Array, " models"],
    *,
    num_rows: int | None,
    block: int,
) -> Float[Array, " models"]:
    """One cluster: the nearest model's clients are those whom no other wins over."""
    models = offsets.shape[0]
    nearest = jnp.argmin(jnp.where(open_models, jnp.sum(offsets**2, axis=-1), jnp.inf))
    factors = pair_factors(offsets, nearest, noise)
    rival = open_models & (jnp.arange(models) != nearest)

    def everyone(drawn_key: PRNGKeyArray) -> Array:
        def choose(block_key: PRNGKeyArray, used: Array) -> Array:
            losses = free_losses(
                block_key, factors[0], num_samples, block=block, num_rows=num_rows
            )
            losses = jnp.where(open_models[None], losses, jnp.inf)
            return jnp.where(used, jnp.argmin(losses, axis=1), models)

        return _count(drawn_key, num_clients, choose, models, block)

    if num_rows is not None:
        return everyone(key)
    own = jnp.broadcast_to(offsets[nearest], offsets.shape)
    kappa = choice_kappa(own, offsets, noise)
    chances = jnp.where(rival, student_tail(kappa, num_samples), 0.0)
    chances = jnp.where(jnp.isnan(chances), 1.0, chances)

    rare = (jnp.sum(chances) <= 1) & (jnp.max(chances) <= _RARE)
    # In lockstep with other trials candidates are drawn here even if none is asked
    # for: no chance above 1 and no rejection that hardly ever ends.
    chances = jnp.where(rare, chances, 0.0)
    kappa = jnp.where(rare, kappa, 1.0)
    few = min(block, _CANDIDATES)

    def thinned(drawn_key: PRNGKeyArray) -> Array:
        count_key, loop_key = jax.random.split(drawn_key)
        candidates = binomial(count_key, num_clients, jnp.sum(chances))

        def choose(block_key: PRNGKeyArray, used: Array) -> Array:
            losses_key, accept_key = jax.random.split(block_key)
            losses = beaten_losses(
                losses_key, factors, kappa, chances, num_samples, block=few
            )
            losses = jnp.where(open_models[None], losses, jnp.inf)
            wins = (losses <= losses[:, nearest][:, None]) & rival[None]
            events = jnp.sum(wins.astype(float), axis=1)
            accepted = jax.random.uniform(accept_key, (few,)) * events < 1
            return jnp.where(used & accepted, jnp.argmin(losses, axis=1), models)

        counts = _count(loop_key, candidates, choose, models, few)
        # Whoever was no candidate, or was not accepted, stays with the nearest model.
        return counts.at[nearest].add(num_clients - jnp.sum(counts))

    return jax.lax.cond(rare, thinned, everyone, key)


def _count(
    key: PRNGKeyArray,
    drawn: Float[Array, ""],
    choose: Callable[[PRNGKeyArray, Bool[Array, " block"]], Int[Array, " block"]],
    models: int,
    block: int,
) -> Float[Array, " models"]:
    """Histogram of the choices of `drawn` clients, block by block."""

    def add(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        index, counts = carry
        place = index * block + jnp.arange(block)
        choice = choose(jax.random.fold_in(key, index), place.astype(float) < drawn)
        chosen = choice[:, None] == jnp.arange(models)[None]
        return index + 1, counts + jnp.sum(chosen.astype(float), axis=0)

    def unfinished(carry: tuple[Array, Array]) -> Array:
        return (carry[0] * block).astype(float) < drawn

    _, counts = jax.lax.while_loop(unfinished, add, (jnp.asarray(0), jnp.zeros(models)))
    return counts
