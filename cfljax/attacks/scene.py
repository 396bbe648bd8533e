"""What an attacker sees, and how a lie becomes the messages of Byzantine clients."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.tree import flat, length, like, select
from cfljax.base.types import Stacked

Points = Float[Array, "clients features"]


class Context(NamedTuple):
    """What an attacker knows besides the messages. All of it may be traced.

    clusters: `[clients]`, the cluster of each client; one cluster if None.
    target: the cluster that is attacked.
    origin: what the target's messages start from, leaves `[...]`: the received model
      where messages are models; 0, as for gradients, if None.
    start: centre v_0 of the target before the first clipping round, leaves `[...]`;
      its honest mean if None.
    centre: centre v_{l-1} of the clipping round that is attacked, leaves `[...]`; its
      honest mean if None.
    radius: tau of the target's ball.
    round: communication rounds that are over.
    """

    clusters: Int[Array, " clients"] | None = None
    target: ScalarLike = 0
    origin: PyTree = None
    start: PyTree = None
    centre: PyTree = None
    radius: ScalarLike | None = None
    round: ScalarLike = 0


class Scene(NamedTuple):
    """All messages as points, and who sent them.

    points: `[clients, features]`, a message's leaves in the order of the tree.
      Byzantine rows have what the client would have sent.
    honest: who tells the truth.
    byzantine: who does not.
    known: honest clients of the target; all honest clients where it has none, and
      everybody where nobody is honest.
    context: what else is known.
    """

    points: Points
    honest: Bool[Array, " clients"]
    byzantine: Bool[Array, " clients"]
    known: Bool[Array, " clients"]
    context: Context

    @property
    def mean(self) -> Float[Array, " features"]:
        """m: mean of the known points."""
        return mean_of(self.points, self.known)

    @property
    def deviation(self) -> Float[Array, " features"]:
        """s: standard deviation of the known points in each coordinate, about m and
        divided by their number; 0 for a single one."""
        return jnp.sqrt(mean_of(jnp.square(self.points - self.mean[None]), self.known))

    @property
    def origin(self) -> Float[Array, " features"]:
        """The context's origin; 0 if there is none."""
        return one_point(self.context.origin, jnp.zeros_like(self.points[0]))

    def number(self, value: ScalarLike) -> Float[Array, ""]:
        """A scalar in the precision of the points."""
        return jnp.asarray(value, self.points.dtype)


Lie = Callable[[PRNGKeyArray, Scene], Float[Array, "..."]]
Attack = Callable[..., Stacked]


def attack_from(lie: Lie) -> Attack:
    """An attack whose Byzantine clients send what `lie` returns.

    Args:
      lie: `(key, scene)` to one point `[features]` that all of them send, or one for
        each client, `[clients, features]`, of which their rows are used.

    Returns:
      `(key, messages, byzantine, context=None) -> messages`, pure: messages have
      leaves `[clients, ...]` (gradients, momenta or models), `byzantine` is a mask
      `[clients]`, and the context is a `Context` or None for an empty one. Honest rows
      come back bit for bit, and so does everything if nobody is Byzantine.
      Byzantine clients are omniscient: the lie sees all honest messages, and what is
      not finite in them reaches it. It raises a ValueError if the messages are not
      floating of one type, or the mask is not one for each client.

    Cost: a copy of the messages as one matrix, and that of the lie.
    """

    def attack(
        key: PRNGKeyArray,
        messages: Stacked,
        byzantine: Bool[Array, " clients"],
        context: Context | None = None,
    ) -> Stacked:
        _check(messages, byzantine)
        context = Context() if context is None else context
        points = flat(messages)
        honest = ~byzantine
        known = _known(honest, context)
        lies = lie(key, Scene(points, honest, byzantine, known, context))
        lies = jnp.broadcast_to(lies.astype(points.dtype), points.shape)
        return select(byzantine, like(lies, messages), messages)

    return attack


def mean_of(points: Points, members: Bool[Array, " clients"]) -> Array:
    """Mean `[features]` of the members' points, whatever the others hold."""
    total = jnp.sum(jnp.where(members[:, None], points, 0), axis=0)
    return total / jnp.sum(members, dtype=points.dtype)


def one_point(tree: PyTree, default: Float[Array, " features"]) -> Array:
    """A tree with leaves `[...]` as a point `[features]`; the default for None."""
    if tree is None:
        return default
    return flat(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree))[0]


def _known(honest: Bool[Array, " clients"], context: Context) -> Array:
    """Whom the attacker takes for the target."""
    known = honest
    if context.clusters is not None:
        members = honest & (context.clusters == context.target)
        known = jnp.where(jnp.any(members), members, honest)
    return jnp.where(jnp.any(known), known, jnp.ones_like(known))


def _check(messages: Stacked, byzantine: Array) -> None:
    """Raises ValueError unless messages and mask fit."""
    leaves = jax.tree.leaves(messages)
    types = {str(leaf.dtype) for leaf in leaves}
    if len(types) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        raise ValueError(
            f"`messages` must have floating leaves of one type, got {sorted(types)}."
        )
    number = length(messages)
    if byzantine.shape != (number,) or byzantine.dtype != bool:
        raise ValueError(
            f"`byzantine` must be boolean with one entry for each of {number} clients, "
            f"got {byzantine.dtype} of shape {byzantine.shape}."
        )
