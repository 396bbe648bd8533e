"""Threshold-Clustering under the library's attacks: what they do to one centre.

Four clusters with noise of total variance 1 are Delta = 200 apart and tau = sqrt(delta
sigma Delta). All scenes of a batch have equally many points: where the target has fewer
attackers, the others have more clients. If all honest points of the target end within
the ball, (4) is at rest only where

    n_i (m - v) + sum of (b - v) over the attackers in the ball = 0,

so that |v - m| <= (n_b/n_i) tau = (beta/delta) tau, m the target's honest mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from cfljax import attacks
from cfljax.kernels.threshold import threshold_clustering
from theory.statement import Preset

__all__ = ["RADIUS", "Attacked", "Scenes", "attacked", "draw_scenes"]

_SIGMA, _SEPARATION = 1.0, 200.0
_OWN, _ALL, _FEATURES, _ROUNDS = 25, 125, 10, 60
_DELTA = _OWN / _ALL
RADIUS = float(np.sqrt(_DELTA * _SIGMA * _SEPARATION))
ATTACKERS = (2, 6, 12, 18)  # beta/delta up to 0.72, below every breakdown
MEANS = (3.0, 30.0)  # of the target: within the ball around 0, and far outside


class Scenes(NamedTuple):
    """A batch of them.

    points: `[batch, clients, features]`, the target's honest clients first.
    byzantine: `[batch, clients]`.
    clusters: `[clients]`, 0 the target.
    share: `[batch]`, beta/delta.
    mean: `[batch]`, |mu|, along the first axis.
    seed: of what attackers draw.
    """

    points: Float[np.ndarray, "batch clients features"]
    byzantine: Bool[np.ndarray, "batch clients"]
    clusters: np.ndarray
    share: Float[np.ndarray, " batch"]
    mean: Float[np.ndarray, " batch"]
    seed: int


class Attacked(NamedTuple):
    """What became of the target's centre, in float32.

    shift: `[batch]`, |v - m| for m the target's honest mean.
    excess: `[batch]`, |v - mu|^2 - |m - mu|^2 for mu its expectation.
    unprotected: `[batch]`, |w - m| for w the mean of target and attackers.
    """

    shift: Float[np.ndarray, " batch"]
    excess: Float[np.ndarray, " batch"]
    unprotected: Float[np.ndarray, " batch"]


def draw_scenes(preset: Preset, name: str) -> Scenes:
    """One scene for each number of attackers, mean of the target, and replicate."""
    repeats = preset.choose(quick=5, full=100)
    number, mean = (
        grid.ravel()
        for grid in np.meshgrid(
            np.repeat(ATTACKERS, repeats), np.array(MEANS), indexing="ij"
        )
    )
    others = np.arange(_ALL) >= _OWN
    clusters = np.where(others, 1 + np.arange(_ALL) % 3, 0)
    axes = _SEPARATION * np.eye(4, _FEATURES)
    axes[0] = 0.0
    generator = preset.generator(name)
    noise = generator.standard_normal((len(number), _ALL, _FEATURES))
    points = axes[clusters] + _SIGMA / np.sqrt(_FEATURES) * noise
    points[..., 0] += mean[:, None]
    order = np.arange(_ALL) - _OWN
    byzantine = (order >= 0) & (order < number[:, None])
    return Scenes(
        points.astype(np.float32),
        byzantine,
        clusters.astype(np.int32),
        number / _OWN,
        mean,
        int(generator.integers(2**31)),
    )


def attacked(scenes: Scenes, name: str, **options: float | str) -> Attacked:
    """Run rule (4) for 60 rounds from the target's first client, under an attack.

    Args:
      scenes: of `draw_scenes`.
      name: of the attack, in `cfljax.attacks.ATTACKS`.
      options: of the attack.
    """
    attack = attacks.build(name, **options)
    clusters = jnp.asarray(scenes.clusters)

    def one(key: Array, points: Array, byzantine: Array) -> tuple[Array, Array]:
        start = points[0]

        def lie(centre: Array) -> Array:
            context = attacks.Context(
                clusters=clusters, start=start, centre=centre, radius=RADIUS
            )
            return attack(key, points, byzantine, context)

        if name != "edge_adaptive":
            sent = lie(start)
            found = threshold_clustering(
                sent, start[None], num_rounds=_ROUNDS, radius=RADIUS
            )
            return found.centres[0], sent

        def follow(centre: Array, _: None) -> tuple[Array, None]:
            found = threshold_clustering(
                lie(centre), centre[None], num_rounds=1, radius=RADIUS
            )
            return found.centres[0], None

        centre, _ = jax.lax.scan(follow, start, length=_ROUNDS)
        return centre, lie(centre)

    keys = jax.random.split(jax.random.key(scenes.seed), len(scenes.points))
    centres, sent = jax.vmap(one)(
        keys, jnp.asarray(scenes.points), jnp.asarray(scenes.byzantine)
    )
    return _measured(scenes, np.asarray(centres, float), np.asarray(sent, float))


def _measured(
    scenes: Scenes,
    centres: Float[np.ndarray, "batch features"],
    sent: Float[np.ndarray, "batch clients features"],
) -> Attacked:
    honest = np.mean(scenes.points[:, :_OWN].astype(float), axis=1)
    expected = np.zeros_like(honest)
    expected[:, 0] = scenes.mean
    joined = scenes.byzantine | (scenes.clusters == 0)
    total = np.sum(np.where(joined[..., None], sent, 0), axis=1)
    mean = total / np.sum(joined, axis=1)[:, None]
    square = lambda apart: np.sum(apart**2, axis=-1)
    return Attacked(
        shift=np.sqrt(square(centres - honest)),
        excess=square(centres - expected) - square(honest - expected),
        unprotected=np.sqrt(square(mean - honest)),
    )
