"""Attacks on one call of Threshold-Clustering: none moves the centre by more than
(beta/delta) tau below breakdown, the adaptive edge by just that.

The influence ratio I = (Err - Err(0))/((beta/delta)^2 tau^2) is the square of the shift
|v - m| over (beta/delta) tau, up to a term with mean 0 where the attack does not depend
on the honest noise. The shift is judged, in every replicate: it is not random.
"""

import functools
from collections.abc import Mapping

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict
from theory.werner.byzantine_scene import RADIUS, Attacked, attacked, draw_scenes

__all__ = ["STATEMENTS", "check_attack", "check_edge"]

PREFIX = "werner.byz"

# Of centres in float32: 16 units in the last place of the largest coordinate, 260.
_ROUNDING = 16 * float(np.finfo(np.float32).eps) * 260
_Options = tuple[Mapping[str, float], ...]


@functools.lru_cache(maxsize=32)
def _found(preset: Preset, name: str, index: int) -> tuple[Attacked, np.ndarray]:
    """What an attack with its options of that index does, and beta/delta."""
    scenes = draw_scenes(preset, PREFIX)
    return attacked(scenes, name, **_ATTACKS[name][1][index]), scenes.share


def check_attack(
    preset: Preset, *, name: str, factor: float = 1.0, protected: bool = True
) -> Verdict:
    """|v - m| <= `factor` (beta/delta) tau; or the mean of target and attackers is."""
    label, options, _ = _ATTACKS[name]
    runs = [_found(preset, name, index) for index in range(len(options))]
    reach = [share * RADIUS for _, share in runs]
    shift = [run.shift if protected else run.unprotected for run, _ in runs]
    influence = [
        np.mean(run.excess / far**2) for (run, _), far in zip(runs, reach, strict=True)
    ]
    ratio = [np.max(moved / far) for moved, far in zip(shift, reach, strict=True)]
    return never_exceeds(
        f"{PREFIX}.{label}",
        np.concatenate(shift),
        factor * np.concatenate(reach),
        rounding=_ROUNDING,
        detail=f"{sum(map(len, shift))} scenes, beta/delta 0.08 to 0.72: |v - m| over "
        f"(beta/delta) tau at most {', '.join(f'{r:.2g}' for r in ratio)}; mean I "
        f"{', '.join(f'{i:.2g}' for i in influence)}",
    )


def check_edge(preset: Preset, *, share: float = 0.999) -> Verdict:
    """|v - m| = `share` (beta/delta) tau for the adaptive edge."""
    run, relative = _found(preset, "edge_adaptive", 0)
    reach = relative * RADIUS
    ratio = run.shift / reach
    return never_exceeds(
        f"{PREFIX}.edge_adaptive",
        np.abs(run.shift - share * reach),
        np.zeros(len(reach)),
        rounding=_ROUNDING,
        detail=f"{len(reach)} scenes, beta/delta 0.08 to 0.72: |v - m| over "
        f"(beta/delta) tau from {np.min(ratio):.4f} to {np.max(ratio):.4f}; mean I "
        f"{np.mean(run.excess / reach**2):.3f}",
    )


_NONE: _Options = ({},)
# Name in the library: the registry's, options, and what is sent.
_ATTACKS: dict[str, tuple[str, _Options, str]] = {
    "edge_adaptive": ("edge_adaptive", _NONE, "v_{l-1} + 0.999 tau u in each round"),
    "edge_static": ("edge_static", _NONE, "v_0 + 0.999 tau u"),
    "staged": ("staged", _NONE, "v_0 + 0.999 tau (1 + q/n_i) u, q = 0 .. n_b - 1"),
    "sign_flip": ("signflip", _NONE, "-m"),
    "ipm": (
        "ipm",
        tuple({"epsilon": epsilon} for epsilon in (0.1, 0.5, 1.0, 5.0)),
        "-eps m, eps = 0.1, 0.5, 1, 5",
    ),
    "alie": (
        "alie",
        ({}, {"z": 1.0}, {"z": 2.0}),
        "m - z s, z by the formula, 1 and 2",
    ),
    "gaussian": ("gauss", _NONE, "m + 10 s N(0, I)"),
    "mimic": ("mimic", _NONE, "copies of the honest point farthest along u"),
    "other_mean": ("othermean", _NONE, "the mean of the other clusters"),
    "bit_flip": ("bitflip", _NONE, "an honest point, bit 30 of each number flipped"),
    "zero": ("zero", _NONE, "0"),
}

# How the control is slightly wrong: a share of the bound, or None for no clipping.
_CONTROLS = {
    "edge_static": 0.9,
    "staged": 0.8,
    "sign_flip": 0.8,
    "ipm": 0.8,
    "alie": 0.2,
    "gaussian": 0.05,
    "mimic": 0.1,
    "other_mean": None,
    "bit_flip": None,
    "zero": 0.3,
}

_row = functools.partial(
    Statement,
    paper="werner",
    place="Section 3.1.1, threat model; Lemma 5",
    preconditions=(
        "all honest points of the target end within the ball: below breakdown",
        "K = 4, n_i = 25, N = 125, d = 10, sigma = 1, Delta = 200, tau = sqrt(delta_i "
        "sigma Delta), |m| about 3 and 30",
    ),
    claimed="extra squared error of order beta_i sigma Delta",
)


def _attack_row(name: str, factor: float | None) -> Statement:
    label, _, sent = _ATTACKS[name]
    check = functools.partial(check_attack, name=name)
    if factor is None:
        control = functools.partial(check, protected=False)
        how = "takes the mean of the target's clients and the attackers"
    else:
        control = functools.partial(check, factor=factor)
        how = f"claims {factor:g} of the bound"
    return _row(
        id=f"{PREFIX}.{label}",
        text=f"attackers that send {sent} move the centre by at most (beta_i/delta_i) "
        "tau: I <= 1",
        check=check,
        control=control,
        note=f"Quadratic in beta_i. The control {how}.",
    )


STATEMENTS = (
    _row(
        id=f"{PREFIX}.edge_adaptive",
        text="attackers that send v_{l-1} + 0.999 tau u in each round move the centre "
        "by 0.999 (beta_i/delta_i) tau: I = 1, the most of all",
        check=check_edge,
        control=functools.partial(check_edge, share=1.0),
        note="The squared error is beta_i^2 sigma Delta/delta_i. Clients that send "
        "once cannot do this. The control claims all of the bound.",
    ),
    *(_attack_row(name, factor) for name, factor in _CONTROLS.items()),
)
