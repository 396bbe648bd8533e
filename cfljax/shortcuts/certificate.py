"""Certificates: how far models may move before a client can change its mind."""

import numpy as np
from jaxtyping import Float, Int

__all__ = ["choose", "pair_radii"]

# Share of two root losses that rounding may have added or taken in each.
_ROUNDING = 1e-5
# What stands for a root loss whose square overflows in float32, summed over no more
# than 3e8 samples: less than it is.
_HUGE = np.float32(1e15)


def choose(
    losses: Float[np.ndarray, "runs models clients"],
) -> Int[np.ndarray, "runs clients"]:
    """The model of lowest loss, -1 where none is finite: `choose_cluster`."""
    finite = np.isfinite(losses)
    best = np.argmin(np.where(finite, losses, np.inf), axis=1)
    return np.where(np.any(finite, axis=1), best, -1)


def pair_radii(
    losses: Float[np.ndarray, "runs models clients"],
    assignments: Int[np.ndarray, "runs clients"],
    lipschitz: Float[np.ndarray, " clients"],
) -> Float[np.ndarray, "runs models models"]:
    """Distances that keep an assignment.

    `sqrt(F_i(theta)) = |X_i theta - y_i| / sqrt(n)` is Lipschitz in theta with
    constant `L_i = |X_i|_op / sqrt(n)`. While models a and b are together less than

        min over i with choice a of (sqrt F_i(theta_b) - sqrt F_i(theta_a)) / L_i

    from where these losses were evaluated, no client of a prefers b. A client whose
    every loss overflows has no model any more: that is a model b which nobody chose
    and whose root losses are `_HUGE`. Root losses are taken to be wrong by 1e-5 of
    themselves.

    Args:
      losses: F_i of every model.
      assignments: the clients' choices, of finite losses.
      lipschitz: L_i.

    Returns:
      For used models a and b the smaller of the two clients' sides; on the diagonal
      for model a alone, against the models that nobody chose, which do not move.
      Infinite of unused models, and where no client's losses can change.
    """
    models = np.arange(losses.shape[1])
    known = np.where(np.isfinite(losses), losses, _HUGE**2)
    none = ((0, 0), (0, 1), (0, 0))  # The model of those without one, the last.
    roots = np.sqrt(np.pad(known, none, constant_values=_HUGE**2))
    own = np.take_along_axis(roots, assignments[:, None, :], axis=1)
    spare = (roots - own) - _ROUNDING * (roots + own)
    still = lipschitz == 0  # Such a client's losses never change.
    away = np.where(still, np.inf, np.maximum(spare, 0) / np.where(still, 1, lipschitz))
    chosen = assignments[:, None, :] == models[:, None]  # the same
    least = np.full((*losses.shape[:2], len(models) + 1), np.inf, np.float32)
    for model in models:
        mine = np.where(chosen[:, model, None, :], away, np.inf)
        least[:, model] = np.min(mine, axis=2)
    used = np.any(chosen, axis=2)
    unused = np.where(np.pad(used, none[:2])[:, None, :], np.inf, least)
    pairs = np.where(used[:, :, None] & used[:, None, :], least[:, :, :-1], np.inf)
    pairs = np.minimum(pairs, np.swapaxes(pairs, 1, 2))
    pairs[:, models, models] = np.min(unused, axis=2)
    return pairs
