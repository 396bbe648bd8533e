"""The law of an aggregated gradient, and the exact mean-square error of one round.

Setting: Ghosh et al., Section 5.1, fresh data. For N rows with w = X e - noise,
e = model - truth and tau^2 = |e|^2 + sigma^2, the pairs (x, w) are jointly normal, so
x given w is N(e w / tau^2, I - e e' / tau^2), and with |w|^2 = tau^2 chi2_N

    X'w  =  chi2_N e + sqrt(tau^2 chi2_N) zeta,    zeta ~ N(0, I - e e' / tau^2),

one and the same chi2_N in both places. (n'/2) times the sum of the gradients of
clients of one cluster at one model has this law, N = n' times their number.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from cfljax.base.checks import check_positive
from cfljax.base.types import Numbers


@jax.jit
def aggregated_gradient(
    key: PRNGKeyArray,
    errors: Float[Array, "*groups frame"],
    num_rows: Float[Array, "*groups"],
    noise: Float[Array, ""],
) -> tuple[Float[Array, "*groups frame"], Float[Array, "*groups"]]:
    """Draw X'(X e - noise) for independent groups of rows.

    Args:
      key: of this draw.
      errors: `[..., frame]`, e of each group in orthonormal coordinates that may
        leave dimensions out, as long as e has no part there.
      num_rows: `[...]`, N of each group; 0 gives 0.
      noise: sigma.

    Returns:
      `[..., frame]`, the coordinates within the frame, and `[...]`, the standard
      deviation of every coordinate outside of it, given what was drawn: those are
      independent, normal and centred. Compiled once for every shape.
    """
    energy_key, direction_key = jax.random.split(key)
    energy = chi_square(energy_key, num_rows)
    square = jnp.sum(errors**2, axis=-1)
    variance = square + noise**2
    spread = jnp.sqrt(variance * energy)
    normal = jax.random.normal(direction_key, errors.shape)
    # 1 - sqrt(1 - |e|^2 / tau^2) over |e|^2, without a difference of close numbers.
    ratio = jnp.where(variance > 0, square / variance, 0.0)
    remaining = jnp.sqrt(jnp.maximum(1 - ratio, 0.0))
    shrink = jnp.where(variance > 0, 1 / variance, 0.0) / (1 + remaining)
    zeta = normal - (shrink * jnp.sum(normal * errors, axis=-1))[..., None] * errors
    return energy[..., None] * errors + spread[..., None] * zeta, spread


def expected_square_error(
    truths: Float[np.ndarray, "clusters frame"],
    models: Float[np.ndarray, "models frame"],
    counts: Float[np.ndarray, "clusters models"],
    *,
    num_samples: Numbers,
    num_features: Numbers,
    noise: Numbers,
    step_size: Numbers,
    total: Numbers,
) -> Float[np.ndarray, "clusters models"]:
    """Exact E|theta_j+ - truths[l]|^2 after one step, given the assignment.

    With beta = 2 step_size / (total n'), N_lj = n' counts[l, j], e_lj = models[j] -
    truths[l]: |e_lj - beta sum_h N_hj e_hj|^2 + beta^2 sum_h N_hj [(d+1) |e_hj|^2 +
    d sigma^2], by the mean and covariance of the law above.

    Args:
      truths: `[clusters, frame]`.
      models: `[models, frame]`.
      counts: `[clusters, models]`, clients of each cluster that chose each model.
      num_samples: n'.
      num_features: d.
      noise: sigma.
      step_size: gamma.
      total: divisor of the summed gradients: m, the participants, or `[models]`, the
        members of each model.

    Returns:
      `[clusters, models]`; its diagonal belongs to Theorem 1 (Ghosh et al.).
    """
    errors = models[None] - truths[:, None]
    beta = np.asarray(2 * step_size / (np.asarray(total, float) * num_samples))
    rows = num_samples * counts
    drift = np.einsum("hj,hjf->jf", rows, errors)
    mean = np.sum((errors - beta[..., None] * drift) ** 2, axis=-1)
    energy = (num_features + 1) * np.sum(errors**2, axis=-1) + num_features * noise**2
    return mean + beta**2 * np.sum(rows * energy, axis=0)


def contraction(
    num_features: Numbers, num_rows: Numbers, step_size: Numbers
) -> Float[np.ndarray, "..."]:
    """r = (1 - 2 eta)^2 + 4 eta^2 (d + 1)/N in E|e+|^2 = r |e|^2 + 4 eta^2 sigma^2 d/N.

    Exact, by E (H'H)^2 = N (N + d + 1) I.

    Args:
      num_features: d.
      num_rows: N.
      step_size: eta.

    Returns:
      Of the broadcast shape.
    """
    step = np.asarray(step_size, float)
    noise = 4 * step**2 * (np.asarray(num_features, float) + 1)
    return np.asarray((1 - 2 * step) ** 2 + noise / np.asarray(num_rows, float))


def error_floor(
    num_features: Numbers, num_rows: Numbers, step_size: Numbers, noise: Numbers
) -> Float[np.ndarray, "..."]:
    """phi = 2 eta sigma sqrt(d/N) / sqrt(1 - r), where E|e|^2 comes to rest.

    Args:
      num_features: d.
      num_rows: N.
      step_size: eta.
      noise: sigma.

    Returns:
      Of the broadcast shape; infinite or NaN where r >= 1 and nothing comes to rest.
    """
    rest = 1 - contraction(num_features, num_rows, step_size)
    scale = 2 * np.asarray(step_size, float) * np.asarray(noise, float)
    share = np.asarray(num_features, float) / np.asarray(num_rows, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(scale * np.sqrt(share / rest))


def gradient_steps(
    seed: int,
    lengths: Float[np.ndarray, " trials"],
    *,
    num_features: int,
    num_rows: int,
    noise: float,
    step_size: float,
    num_rounds: int = 1,
) -> Float[np.ndarray, "rounds_1 trials"]:
    """Draw |e_0|, |e_1|, ... with fresh data in every round, exactly in law.

    Args:
      seed: of the draws.
      lengths: `[trials]`, |e_0| of independent trials.
      num_features: d, at least 1.
      num_rows: N, all samples of the cluster in a round, at least 1.
      noise: sigma, at least 0.
      step_size: eta.
      num_rounds: T, at least 1.

    Returns:
      `[rounds + 1, trials]`, the given lengths first. Compiled once for every number of
      trials; cost: one normal and two chi-square variables a step, whatever d and N.

    Raises:
      ValueError: if a count is below 1, or `noise` negative.
    """
    check_positive(num_features=num_features, num_rows=num_rows, num_rounds=num_rounds)
    if not noise >= 0:
        raise ValueError(f"`noise` must be at least 0, got {noise}.")
    found = [np.asarray(lengths, float)]
    with jax.enable_x64(True):
        given = (num_features, num_rows, noise, step_size)
        numbers = [jnp.asarray(number, float) for number in given]
        for key in jax.random.split(jax.random.key(seed), num_rounds):
            found.append(np.asarray(_step(key, jnp.asarray(found[-1]), *numbers)))
    return np.stack(found)


@jax.jit
def _step(
    key: PRNGKeyArray,
    lengths: Float[Array, " trials"],
    num_features: Float[Array, ""],
    num_rows: Float[Array, ""],
    noise: Float[Array, ""],
    step_size: Float[Array, ""],
) -> Float[Array, " trials"]:
    inside_key, across_key = jax.random.split(key)
    rows = jnp.full(lengths.shape, num_rows)
    inside, spread = aggregated_gradient(inside_key, lengths[:, None], rows, noise)
    across = chi_square(across_key, jnp.full(lengths.shape, num_features - 1))
    scale = 2 * step_size / num_rows
    return jnp.hypot(lengths - scale * inside[:, 0], scale * spread * jnp.sqrt(across))


def chi_square(
    key: PRNGKeyArray, freedom: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Independent chi-square variables; 0 degrees of freedom give 0, NaN gives NaN.

    Marsaglia and Tsang (2000), all entries at once until every one has accepted. On a
    CPU `jax.random.gamma` goes entry by entry, and takes several times as long both to
    run and to compile. Written with log1p, because at 1e12 degrees of freedom the
    printed test subtracts numbers of that size.
    """
    loop_key, boost_key = jax.random.split(key)
    small = (freedom > 0) & (freedom < 2)  # below a shape of 1: draw higher, shrink
    shape = jnp.where(small, freedom / 2 + 1, freedom / 2)
    centre = shape - 1 / 3
    width = 1 / (3 * jnp.sqrt(centre))

    def propose(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        index, kept, done = carry
        normal_key, uniform_key = jax.random.split(jax.random.fold_in(loop_key, index))
        normal = jax.random.normal(normal_key, freedom.shape)
        step = jnp.maximum(width * normal, -1.0)
        log_limit = normal**2 / 2 + centre * (
            3 * jnp.log1p(step) - step * (3 + 3 * step + step**2)
        )
        accept = jnp.log(jax.random.uniform(uniform_key, freedom.shape)) < log_limit
        kept = jnp.where(accept & ~done, step, kept)
        return index + 1, kept, done | accept

    start = (jnp.asarray(0), jnp.zeros_like(freedom), ~(freedom > 0))
    _, kept, _ = jax.lax.while_loop(lambda c: ~jnp.all(c[2]), propose, start)
    drawn = 2 * centre * (1 + kept) ** 3

    def shrink(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        uniform = jax.random.uniform(boost_key, freedom.shape)
        power = 2 / jnp.where(freedom > 0, freedom, 1.0)
        return jnp.asarray(False), jnp.where(small, uniform**power, 1.0)

    # Powers take a quarter of the time, and few draws need one. A loop of one turn, not
    # `cond`: over a batch that would take both ways.
    once = (jnp.any(small), jnp.ones_like(drawn))
    _, share = jax.lax.while_loop(lambda carry: carry[0], shrink, once)
    return jnp.where(freedom == 0, 0.0, drawn * share)


def binomial(
    key: PRNGKeyArray, trials: Float[Array, "*shape"], chance: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Independent binomial variables, as float64; exact for counts up to 2^53.

    The smaller of the two outcomes is drawn, so that a chance close to 1 loses no
    digits.
    """
    drawn = jax.random.binomial(key, trials, jnp.minimum(chance, 1 - chance))
    return jnp.where(chance <= 0.5, drawn, trials - drawn)


def bartlett(
    key: PRNGKeyArray, size: int, freedom: ScalarLike
) -> Float[Array, "size size"]:
    """Lower-triangular T with T T' ~ Wishart(identity, freedom) (Bartlett, 1933).

    Args:
      key: of this draw.
      size: rows.
      freedom: degrees of freedom, at least `size`; T then is also the triangular
        factor of `size` standard normal vectors in `freedom` dimensions.
    """
    diagonal_key, below_key = jax.random.split(key)
    rows = jnp.arange(size, dtype=float)
    diagonal = jnp.sqrt(chi_square(diagonal_key, jnp.asarray(freedom) - rows))
    below = jnp.tril(jax.random.normal(below_key, (size, size)), -1)
    return below + jnp.diag(diagonal)
