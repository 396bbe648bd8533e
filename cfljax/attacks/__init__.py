"""Byzantine clients: what they send in place of their messages, and the registry.

`attack(key, messages, byzantine, context) -> messages` works on gradients, momenta and
models alike, so that any algorithm can be run under any attack, once told the radius
of its balls or the clusters that it may need. What is known to an attacker beyond all
honest messages is the `Context`.
"""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from cfljax.attacks.labels import flip_labels
from cfljax.attacks.scene import Attack, Context
from cfljax.attacks.sent import (
    alie,
    bit_flip,
    boosting,
    edge_adaptive,
    edge_static,
    gaussian,
    ipm,
    mimic,
    noise,
    not_finite,
    other_mean,
    sign_flip,
    sleeper,
    staged,
    time_coupled,
    zero,
)
from cfljax.attacks.threat import draw_byzantine, threat

__all__ = [
    "ATTACKS",
    "Attack",
    "Context",
    "build",
    "draw_byzantine",
    "flip_labels",
    "sleeper",
    "threat",
]


ATTACKS: Mapping[str, Callable[..., Attack]] = MappingProxyType(
    {
        "alie": alie,
        "bit_flip": bit_flip,
        "boosting": boosting,
        "edge_adaptive": edge_adaptive,
        "edge_static": edge_static,
        "gaussian": gaussian,
        "ipm": ipm,
        "mimic": mimic,
        "nan": not_finite,
        "noise": noise,
        "other_mean": other_mean,
        "sign_flip": sign_flip,
        "staged": staged,
        "time_coupled": time_coupled,
        "zero": zero,
    }
)


def build(name: str, **options: Any) -> Attack:
    """The attack of that name.

    Args:
      name: in `ATTACKS`.
      **options: of its builder, which names their defaults and units.

    Raises:
      ValueError: if the name or an option is unknown, or an option out of its range.
    """
    if name not in ATTACKS:
        raise ValueError(f"`name` must be in {tuple(ATTACKS)}, got {name!r}.")
    builder = ATTACKS[name]
    known = tuple(inspect.signature(builder).parameters)
    for option in options:
        if option not in known:
            raise ValueError(f"options of `{name}` must be in {known}, got {option!r}.")
    return builder(**options)
