"""Attacks that play over rounds."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, ScalarLike

from cfljax.attacks.checks import check_not_negative
from cfljax.attacks.directions import random_unit
from cfljax.attacks.scene import Attack, Context, Scene, attack_from
from cfljax.kernels.draws import flat_normal
from cfljax.types import Stacked

__all__ = ["sleeper", "time_coupled"]


def time_coupled(
    *, strength: ScalarLike = 1.0, alternating: bool = False, seed: int = 0
) -> Attack:
    """The same small push in every round, hidden in noise like the honest one.

    b = m + s N(0, I) + strength |s| u, with noise drawn by each client and round, and
    one random direction u for the whole run. One round shows little: |s| is about the
    distance of an honest message from the mean. Over t rounds noise adds up like
    sqrt(t), the push like t, unless the server remembers.

    Source: after Karimireddy, He and Jaggi, "Learning from History for Byzantine
    Robust Optimization", ICML 2021; the formula is this module's.

    Args:
      strength: in deviations |s|, not negative. May be traced.
      alternating: turn the push round in every other round, which undoes it: the
        control of the accumulation.
      seed: decides u, whatever the round's key.

    Raises:
      ValueError: if the strength is negative.

    Cost: two passes over the messages, and one draw for each number in them.
    """
    check_not_negative(strength=strength)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, "clients features"]:
        points, spread = scene.points, scene.deviation
        u = random_unit(jax.random.key(seed), points.shape[1], points.dtype)
        if alternating:
            u = jnp.where(jnp.asarray(scene.context.round) % 2 == 0, u, -u)
        noise = flat_normal(key, points.shape).astype(points.dtype)
        push = scene.number(strength) * jnp.linalg.norm(spread) * u
        return (scene.mean + push)[None] + spread[None] * noise

    return attack_from(lie)


def sleeper(attack: Attack, *, wake: ScalarLike) -> Attack:
    """Byzantine clients that are honest until a round, then attack.

    Args:
      attack: what they do once awake.
      wake: rounds that they let pass, not negative; half of them in the usual test of
        defences that trust. May be traced.

    Raises:
      ValueError: if `wake` is negative; in a round, if the context is missing.

    Cost: that of the attack, asleep as well.
    """
    check_not_negative(wake=wake)

    def asleep(
        key: PRNGKeyArray,
        messages: Stacked,
        byzantine: Bool[Array, " clients"],
        context: Context | None = None,
    ) -> Stacked:
        if context is None:
            raise ValueError("`context` must tell a sleeper the round, got None.")
        awake = jnp.asarray(context.round) >= wake
        return attack(key, messages, byzantine & awake, context)

    return asleep
