"""Random draws that the exact laws are made of. All in float64."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

__all__ = ["bartlett", "binomial", "chi_square"]


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
    small = freedom < 2  # below a shape of 1: draw one higher, then shrink
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

    def shrink() -> Array:
        uniform = jax.random.uniform(boost_key, freedom.shape)
        power = 2 / jnp.where(freedom > 0, freedom, 1.0)
        return jnp.where(small, uniform**power, 1.0)

    # Powers take a quarter of the time, and few draws need one.
    share = jax.lax.cond(jnp.any(small), shrink, lambda: jnp.ones_like(drawn))
    return jnp.where(freedom == 0, 0.0, drawn * share)


def binomial(
    key: PRNGKeyArray, trials: Float[Array, "*shape"], chance: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Independent binomial variables, as float64; exact for counts up to 2^53.

    The smaller of the two outcomes is drawn, so that a chance close to 1 loses no
    digits.
    """
    few = jnp.minimum(chance, 1 - chance)
    drawn = jax.random.binomial(key, trials, few)
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
