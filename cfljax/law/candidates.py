"""Losses of single clients on many models, free or given that a rival wins.

For the nearest model r and a rival j take the residuals' differences and sums,
D = v_r - v_j and P = v_r + v_j, first: with the covariance of (D, P, others) factored
as L L' and T Bartlett's factor, the residuals' cross products are those of L T. The
rival wins iff L_21 T_11 + L_22 T_21 >= 0, that is T_21 >= kappa T_11: an event of one
chi and one normal variable only. Given it, T_21^2 + T_11^2 ~ chi2_{n+1} and
Y = T_11^2 / (T_11^2 + T_21^2) ~ Beta(n/2, 1/2) on [0, 1 / (1 + kappa^2)] are
independent, and everything else keeps its law.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.law.draws import chi_square

__all__ = ["beaten_losses", "free_losses", "pair_factors"]


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
        padding = max(0, models - mixed.shape[1])
        wide = jnp.pad(mixed, ((0, 0), (0, padding)))
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
    """T_11 and T_21 over their common length, given T_21 >= kappa T_11, kappa > 0.

    Y has density in proportion to y^(n/2 - 1) (1 - y)^(-1/2) up to its edge: proposed
    by its first factor, accepted by its second relative to the edge.
    """
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
