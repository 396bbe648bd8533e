"""Strongly convex losses at their worst: how large the parts of an error can be.

Each is attained, or approached, by a problem that Assumptions 3 to 5 admit, so that no
bound for all of them can be smaller.
"""

import numpy as np

from cfljax.base import Numbers
from theory.ifca.common.checks import Broadcast
from theory.ifca.common.convex import ConvexSetting
from theory.ifca.common.heavy_tails import flipping_jump, jump_tail


def noise_quantile(failure: Numbers, num_samples: Numbers = np.inf) -> Broadcast:
    """What a mean of noise, over its root mean square, exceeds with chance `failure`.

    For some law. A rare jump with that chance of one or more among the samples, u of
    them expected, lifts the sum to (1 - u)/sqrt(u (1 - q)), q the chance of each; and
    waves in many dimensions have the length 1, whatever the chance.
    """
    log = np.log1p(-np.asarray(failure, float))
    finite = np.isfinite(num_samples)
    total = np.where(finite, num_samples, 1.0)
    each = np.where(finite, -np.expm1(log / total), 0.0)
    expected = np.where(finite, total * each, -log)
    jump = (1 - expected) / np.sqrt(expected * (1 - each))
    return np.asarray(np.maximum(jump, 1.0))


def step_noise(setting: ConvexSetting, members: Numbers) -> Broadcast:
    """Length of the noise in a step of 1/L that is exceeded with chance delta. The
    share `members` of the clients is the model's cluster, and all of them are assigned
    to it: the root mean square is (v/L) sqrt(members / (m n'))."""
    s = setting
    spread = np.sqrt(s.gradient_variance * members / (s.num_clients * s.num_samples))
    samples = members * s.num_clients * s.num_samples
    return np.asarray(spread / s.smoothness * noise_quantile(s.failure, samples))


def jump_chance(setting: ConvexSetting) -> Broadcast:
    """P(a client chooses wrongly) for rare jumps, lambda = L, and both models as near
    to each other as alpha allows: the gap is alpha lambda Delta^2."""
    s = setting
    gap = s.alpha * s.strong_convexity * np.square(s.separation)
    jump = flipping_jump(s.loss_variance / gap**2 / s.num_samples, s.num_samples)
    return jump_tail(jump, s.num_samples, s.num_samples / 2)


def jump_shift(setting: ConvexSetting) -> Broadcast:
    """By how much a step of many clients moves theta_1 away from its truth on account
    of rare jumps: towards the other truth, at (1/2 + alpha) Delta, by the misassigned
    of the other cluster, 1 - p of all, less what its own p clients pull back."""
    s, chance = setting, jump_chance(setting)
    away = (1 - s.share) * chance * (0.5 + s.alpha)
    back = s.share * (1 - chance) * (0.5 - s.alpha)
    return np.asarray((away - back) * s.separation)


def stationary_noise(setting: ConvexSetting, members: Numbers) -> Broadcast:
    """Where the error of a cluster with the share `members` settles, nobody misassigned
    and every curvature lambda: a step keeps 1 - members lambda / L of it and adds noise
    whose length, in many dimensions, is its root mean square."""
    s = setting
    pull = members * s.strong_convexity / s.smoothness
    spread = np.sqrt(s.gradient_variance * members / s.num_clients / s.num_samples)
    return np.asarray(spread / s.smoothness / np.sqrt(pull * (2 - pull)))


def stationary_shift(setting: ConvexSetting, *, margin: float = 1e-3) -> Broadcast:
    """Where two models settle, from their truths towards each other, on account of rare
    jumps, with many clients, lambda = L and the gap lambda Delta^2 / 2 between the
    truths: own clients pull a model back as the misassigned pull it on. The jump is
    higher than needed by the `margin`, for models that are that near to their truths.
    """
    s = setting
    gap = s.strong_convexity * np.square(s.separation) / 2
    scale = s.loss_variance / gap / gap / s.num_samples
    jump = flipping_jump(scale, s.num_samples, margin=margin)
    chance = jump_tail(jump, s.num_samples, s.num_samples / 2)
    away = (1 - s.share) * chance
    return np.asarray(s.separation * away / (away + s.share * (1 - chance)))
