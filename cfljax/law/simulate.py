"""IFCA with fresh data in every round, exactly in law, at any size.

Ghosh et al., Section 5: the resampled IFCA with gradient averaging. The state is the
models' coordinates in a frame; a round costs O(k^3) for two models and O(m k^3) at
worst for more, and nothing in n' or d.
"""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax.base.types import Numbers
from cfljax.law.gradients import aggregated_gradient, bartlett
from cfljax.law.misassignment import assign
from cfljax.law.population import Population, is_plain

_LARGEST_BLOCK = 1024
_SMALL_BLOCK = 16  # Trials that draw so few at a time are batched.

# Divisor of a cluster's summed gradients: m; this round's participants; its members.
Divisor = Literal["all", "participants", "cluster"]


class Trace(NamedTuple):
    """What happened in every round of every trial.

    models: `[trials, rounds + 1, models, frame]`, the start first.
    counts: `[trials, rounds, clusters, models]`, clients of each cluster that chose
      each model.
    """

    models: Float[np.ndarray, "trials steps models frame"]
    counts: Float[np.ndarray, "trials rounds clusters models"]


def simulate(
    key: PRNGKeyArray,
    population: Population,
    models: Float[np.ndarray, "*trials models frame"],
    *,
    num_trials: int,
    num_rounds: int,
    step_size: Numbers,
    divisor: Divisor = "all",
    participants: Float[np.ndarray, "rounds clusters"] | None = None,
    fixed_counts: Float[np.ndarray, "*trials clusters models"] | None = None,
    identity_samples: float | None = None,
    first_trial: int = 0,
) -> Trace:
    """Run independent trials of the resampled IFCA, vmapped, in float64.

    Trial i uses `fold_in(key, i)`, so a trial's outcome does not depend on how many
    others are run, nor in how many calls. A new number of trials, rounds or models
    compiles anew; sizes, noise and step size do not.

    Args:
      key: of all trials.
      population: made by `population` for this number of models.
      models: `[models, frame]` for all trials or `[trials, models, frame]`, in the
        frame of `population` (see `place`, `random_starts`).
      num_trials: at least 1.
      num_rounds: at least 1.
      step_size: gamma, one for all or `[trials]`.
      divisor: of the sum of a model's gradients: "all" m, "participants" those of the
        round, "cluster" those who chose the model.
      participants: `[rounds, clusters]`, clients that take part; all if None.
      fixed_counts: `[clusters, models]` for all trials or `[trials, clusters, models]`,
        an assignment that no round changes, such as the true one (an oracle's run) or
        a frozen one; None to assign anew.
      identity_samples: b, samples by which a client chooses, a whole number of at
        least 1; n', as many as for the gradient, if None. Changes compile nothing anew.
      first_trial: number of the first of these trials, at least 0; the arrays by trial
        start with it.

    Returns:
      The trace; a diverged model is not finite from some round on, and chosen by
      nobody then.

    Raises:
      ValueError: if a shape does not fit, `divisor` is unknown, or
        `identity_samples` is out of its range.
    """
    _check(population, models, num_trials, num_rounds, divisor)
    if first_trial < 0:
        raise ValueError(f"`first_trial` must be at least 0, got {first_trial}.")
    num_models = models.shape[-2]
    if participants is None:
        participants = np.broadcast_to(
            population.num_clients, (num_rounds, len(population.num_clients))
        )
    plain = is_plain(len(population.truths), num_models, float(population.num_features))
    choosing = float(
        population.num_samples if identity_samples is None else identity_samples
    )
    if not (choosing >= 1 and choosing % 1 == 0):
        raise ValueError(
            f"`identity_samples` must be a whole number of at least 1, got {choosing}."
        )
    few_rows = num_models > 2 and choosing < num_models
    with jax.enable_x64(True):
        starts = np.broadcast_to(models, (num_trials, *models.shape[-2:]))
        steps = np.broadcast_to(np.asarray(step_size, float), (num_trials,))
        if fixed_counts is not None:
            sizes = (num_trials, len(population.truths), num_models)
            fixed_counts = np.broadcast_to(fixed_counts, sizes)
        models_after, counts = _run(
            key,
            jax.tree.map(lambda leaf: jnp.asarray(leaf, float), population),
            jnp.asarray(starts, float),
            jnp.asarray(steps),
            jnp.asarray(participants, float),
            None if fixed_counts is None else jnp.asarray(fixed_counts, float),
            jnp.asarray(choosing),
            first_trial + jnp.arange(num_trials),
            divisor=divisor,
            plain=plain,
            num_rows=int(choosing) if few_rows else None,
            block=_block(max(np.max(participants), np.max(population.num_clients)))
            if num_models > 2 and fixed_counts is None
            else _LARGEST_BLOCK,  # unused: one value, so that sizes compile nothing
        )
        return Trace(np.asarray(models_after), np.asarray(counts))


def _block(num_clients: float) -> int:
    """Clients drawn at a time: a power of two, so that few are compiled."""
    return int(2 ** np.ceil(np.log2(np.clip(num_clients, 8, _LARGEST_BLOCK))))


def _check(
    population: Population,
    models: Float[np.ndarray, "*trials models frame"],
    num_trials: int,
    num_rounds: int,
    divisor: str,
) -> None:
    if divisor not in ("all", "participants", "cluster"):
        raise ValueError(
            f'`divisor` must be "all", "participants" or "cluster", got {divisor!r}.'
        )
    if num_trials < 1 or num_rounds < 1:
        raise ValueError(
            "`num_trials` and `num_rounds` must be at least 1, got "
            f"{num_trials} and {num_rounds}."
        )
    clusters, frame = population.truths.shape
    plain = is_plain(clusters, models.shape[-2], float(population.num_features))
    expected = int(population.num_features) if plain else clusters + models.shape[-2]
    if models.shape[-1] != frame or frame != expected:
        raise ValueError(
            f"`models` must have the frame of `population`, {expected} coordinates for "
            f"{models.shape[-2]} models, got {models.shape[-1]} and {frame}."
        )
    if models.ndim == 3 and len(models) != num_trials:
        raise ValueError(
            f"`models` must hold {num_trials} trials' starts or one for all, got "
            f"{len(models)}."
        )


@functools.partial(jax.jit, static_argnames=("divisor", "plain", "num_rows", "block"))
def _run(
    key: PRNGKeyArray,
    population: Population,
    models: Float[Array, "trials models frame"],
    step_size: Float[Array, " trials"],
    participants: Float[Array, "rounds clusters"],
    fixed_counts: Float[Array, "trials clusters models"] | None,
    identity_samples: Float[Array, ""],
    indices: Int[Array, " trials"],
    *,
    divisor: Divisor,
    plain: bool,
    num_rows: int | None,
    block: int,
) -> tuple[Array, Array]:
    truths = jnp.asarray(population.truths)

    def trial(
        arguments: tuple[Array, Array, Array, Array | None],
    ) -> tuple[Array, Array]:
        index, start, step, fixed = arguments
        trial_key = jax.random.fold_in(key, index)

        def one_round(current: Array, inputs: tuple[Array, Array]):
            round_index, present = inputs
            assign_key, step_key = jax.random.split(
                jax.random.fold_in(trial_key, round_index)
            )
            offsets = truths[:, None] - current[None]
            counts = fixed
            if counts is None:
                counts = assign(
                    assign_key,
                    offsets,
                    present,
                    identity_samples,
                    jnp.asarray(population.noise),
                    num_rows=num_rows,
                    block=block,
                )
            after = _descend(
                step_key, population, current, counts, step, present, divisor, plain
            )
            return after, (after, counts)

        rounds = jnp.arange(len(participants))
        _, (later, counts) = jax.lax.scan(one_round, start, (rounds, participants))
        return jnp.concatenate([start[None], later]), counts

    arguments = (indices, models, step_size, fixed_counts)
    if models.shape[1] <= 2 or fixed_counts is not None:
        return jax.vmap(trial)(arguments)
    # More models draw as many clients as they must, which differs by orders of
    # magnitude: in lockstep all would pay for the slowest, and draw both the candidates
    # and everyone. Only where few are drawn does a step of a loop cost more than that.
    batch = _LARGEST_BLOCK // block // 4 if block <= _SMALL_BLOCK else None
    return jax.lax.map(trial, arguments, batch_size=batch)


def _descend(
    key: PRNGKeyArray,
    population: Population,
    models: Float[Array, "models frame"],
    counts: Float[Array, "clusters models"],
    step_size: Float[Array, ""],
    present: Float[Array, " clusters"],
    divisor: Divisor,
    plain: bool,
) -> Float[Array, "models frame"]:
    """theta_j+ = theta_j - (step / divisor) (2 / n') sum_l X'w of group (l, j)."""
    group_key, outside_key = jax.random.split(key)
    errors = models[None] - jnp.asarray(population.truths)[:, None]
    rows, noise = population.num_samples * counts, jnp.asarray(population.noise)
    inside, spread = aggregated_gradient(group_key, errors, rows, noise)
    inside = jnp.where((counts > 0)[..., None], inside, 0.0)
    spread = jnp.where(counts > 0, spread, 0.0)
    total = {
        "all": jnp.sum(jnp.asarray(population.num_clients)),
        "participants": jnp.sum(present),
        "cluster": jnp.sum(counts, axis=0),
    }[divisor]
    scale = jnp.where(total > 0, 2 * step_size / (total * population.num_samples), 0.0)
    scale = jnp.broadcast_to(scale, models.shape[:1])
    moved = models - scale[:, None] * jnp.sum(inside, axis=0)
    if plain:
        return moved
    clusters, num_models = len(population.truths), len(models)
    factor = bartlett(
        outside_key, num_models, population.num_features - clusters - num_models
    )
    width = scale * jnp.sqrt(jnp.sum(spread**2, axis=0))
    outside = jnp.concatenate([moved[:, clusters:], width[:, None] * factor], axis=1)
    return jnp.concatenate([moved[:, :clusters], _compress(outside)], axis=1)


def _compress(vectors: Float[Array, "models wide"]) -> Float[Array, "models models"]:
    """Lower-triangular rows with the same inner products; a model that is not finite
    stays so and spoils no other."""
    finite = jnp.all(jnp.isfinite(vectors), axis=1, keepdims=True)
    upper = jnp.linalg.qr(jnp.where(finite, vectors, 0.0).T, mode="r")
    return jnp.where(finite, upper.T, jnp.nan)
