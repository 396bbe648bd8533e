"""Lemma A.1, last sentence: random unit models in place of orthonormal ones.

Pairwise nearly orthogonal is not nearly an isometry: d random unit vectors in d
dimensions have a least singular value of about 0.6/d, and two truths that differ along
its direction have almost the same losses on every model. The proof gives |c_i - c_j| >=
s_min(Theta) Delta/sqrt(4 + sigma^2) and no more. Truths that do not depend on the
models are another matter: sum <theta_j, t>^2 is then close to |t|^2.
"""

import functools

import numpy as np
from jaxtyping import Bool, Float

from theory.clove.loss_means import random_units, separation
from theory.judges import at_most, never_exceeds, tally
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = [
    "STATEMENTS",
    "adversarial_truths",
    "check_adversary",
    "check_independent",
    "independent_ratios",
]

RANDOM = "clove.lemA1.random"

_NOISE = 0.1
_DIMENSIONS = (10, 50, 100)
_LARGE_DIMENSIONS = (200, 400)


def adversarial_truths(
    models: Float[np.ndarray, "models features"], generator: np.random.Generator
) -> tuple[Float[np.ndarray, "2 features"], float]:
    """Unit truths 1 apart along the last singular direction, and s_min."""
    _, values, rows = np.linalg.svd(models)
    last = rows[-1]
    other = generator.standard_normal(models.shape[1])
    other -= (other @ last) * last
    other *= np.sqrt(0.75) / np.linalg.norm(other)
    return np.stack([other + last / 2, other - last / 2]), float(values[-1])


@functools.lru_cache(maxsize=1)
def _adversaries(preset: Preset) -> Float[np.ndarray, "points 2"]:
    """|c_1 - c_2| and s_min where the truths are chosen after the models, Delta = 1."""
    found = []
    dimensions = _DIMENSIONS + preset.choose(quick=(), full=_LARGE_DIMENSIONS)
    for num_features in dimensions:
        generator = preset.generator(RANDOM, num_features)
        for _ in range(preset.choose(quick=3, full=30)):
            models = random_units(generator, (num_features, num_features))
            truths, least = adversarial_truths(models, generator)
            found.append([separation(truths[0], truths[1], models, _NOISE), least])
    return np.array(found, float)


def check_adversary(
    preset: Preset, *, name: str, by_singular_value: bool, share: float = 1.0
) -> Verdict:
    """|c_1 - c_2| >= `share` Delta/sqrt(4 + sigma^2), or s_min times that."""
    found, least = _adversaries(preset).T
    claimed = share / np.sqrt(4 + _NOISE**2) * (least if by_singular_value else 1.0)
    claimed = np.broadcast_to(claimed, found.shape)
    return never_exceeds(
        name,
        claimed,
        found,
        rounding=1e-11,
        detail=f"truths along the last singular direction, {len(found)} sets of "
        f"models: |c_1 - c_2| over the claim from {np.min(found / claimed):.2g} to "
        f"{np.max(found / claimed):.2g}",
    )


def independent_ratios(
    generator: np.random.Generator, num_features: int, trials: int
) -> Float[np.ndarray, " trials"]:
    """|c_1 - c_2| sqrt(4 + sigma^2) / Delta, truths at 60 degrees, Delta = 1.

    A random unit vector enters by its part in the truths' plane alone: two normals over
    the root of their squares and a chi-square variable, d - 2 degrees of freedom.
    """
    plane = generator.standard_normal((trials, num_features, 2))
    rest = generator.chisquare(num_features - 2, (trials, num_features))
    plane /= np.sqrt(np.sum(plane**2, axis=-1) + rest)[..., None]
    truths = np.array([[np.sqrt(0.75), 0.5], [np.sqrt(0.75), -0.5]])
    level = 2 + _NOISE**2  # |theta|^2 + |theta*|^2 + sigma^2
    one, two = (np.sqrt(level - 2 * plane @ truth) for truth in truths)
    return np.linalg.norm(one - two, axis=-1) * np.sqrt(4 + _NOISE**2)


@functools.lru_cache(maxsize=4)
def _failures(
    preset: Preset, dimensions: tuple[int, ...]
) -> Bool[np.ndarray, "points trials"]:
    trials = preset.choose(quick=6000, full=60_000)
    found = []
    for num_features in dimensions:
        generator = preset.generator(RANDOM, num_features, 1)
        parts = [
            independent_ratios(generator, num_features, 500) < 1
            for _ in range(trials // 500)
        ]
        found.append(np.concatenate(parts))
    return np.array(found)


def check_independent(
    preset: Preset, *, dimensions: tuple[int, ...] = (50, 100, 200)
) -> Verdict:
    """P(|c_1 - c_2| < Delta/sqrt(4 + sigma^2)) <= 1/100 for truths fixed beforehand."""
    events = _failures(preset, dimensions)
    return at_most(
        f"{RANDOM}.independent",
        tally(events),
        np.full(len(events), 0.01),
        detail=f"share below the claim at d = {', '.join(map(str, dimensions))}: "
        f"{', '.join(f'{share:.2g}' for share in np.mean(events, axis=1))}",
    )


def _rows() -> tuple[Statement, ...]:
    row = functools.partial(Statement, paper="clove", place="Lemma A.1, last sentence")
    printed = functools.partial(check_adversary, name=RANDOM, by_singular_value=False)
    corrected = functools.partial(
        check_adversary, name=f"{RANDOM}.corrected", by_singular_value=True
    )
    models = "N = d independent models, uniform on the unit sphere"
    return (
        row(
            id=RANDOM,
            text="for large d Lemma A.1 holds for d random unit models as well, for "
            "all truths",
            preconditions=(
                models,
                "theta_k* any unit vectors, chosen after the models",
            ),
            claimed="since they are nearly orthogonal, for large d",
            expected=Status.VIOLATED,
            check=printed,
            control=functools.partial(printed, share=0.5),
            note="Read as its proof and Theorem A.9 have it, for all truths. Nearly "
            "orthogonal in pairs is not nearly isometric: |Theta' Theta - I| tends to "
            "3. The control claims half as much.",
        ),
        row(
            id=f"{RANDOM}.corrected",
            text="|c_i - c_j| >= s_min(Theta) Delta/sqrt(4 + sigma^2)",
            preconditions=("N models of length 1", "|theta_k*| = 1"),
            check=corrected,
            control=functools.partial(corrected, share=1.6),
            note="What the proof gives for any models. The control has 1.6 times it.",
        ),
        row(
            id=f"{RANDOM}.independent",
            text="P(|c_i - c_j| < Delta/sqrt(4 + sigma^2)) <= 1/100 for d >= 50",
            preconditions=(models, "theta_k* fixed before the models are drawn"),
            constants={"d at least": 50.0, "probability": 0.01},
            claimed="for large d",
            check=check_independent,
            control=functools.partial(check_independent, dimensions=(5, 10)),
            note="The algorithm's own use of it: models are drawn after the truths. "
            "The control has d = 5 and 10.",
        ),
    )


STATEMENTS = _rows()
