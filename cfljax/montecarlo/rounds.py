"""Rounds: the products of one round, for the models of many runs at once."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cfljax.federated.evaluate import choose_cluster
from cfljax.montecarlo.samples import EXACT


@functools.partial(jax.jit, static_argnames="num_clients")
def forward(
    design: Float[Array, "features_and_problems rows"],
    models: Float[Array, "columns features"],
    problems: Int[Array, " columns"],
    num_clients: int,
) -> tuple[Float[Array, "columns rows"], Float[Array, "columns clients"]]:
    """Errors `X theta - y` of every model on its problem, and the clients' losses."""
    number = design.shape[0] - models.shape[1]
    targets = -jax.nn.one_hot(problems, number, dtype=models.dtype)
    errors = jnp.matmul(jnp.concatenate([models, targets], axis=1), design, **EXACT)
    squares = jnp.square(errors).reshape(errors.shape[0], num_clients, -1)
    return errors, jnp.mean(squares, axis=2)


@jax.jit
def backward(
    design: Float[Array, "features_and_problems rows"],
    errors: Float[Array, "columns rows"],
    which: Int[Array, " some"],
    weights: Float[Array, "some clients"],
) -> Float[Array, "features_and_problems some"]:
    """`sum_i w_i (2 / n) X_i^T e_i` of some columns, and the same of the targets.

    The products with the targets are of no use; to cut them off here would copy X. To
    transpose the result here would be a product of the other kind, half as fast.
    """
    chosen = errors[which].reshape(*weights.shape, -1)
    scale = weights[:, :, None] * (2 / chosen.shape[2])
    chosen = scale * jnp.where(weights[:, :, None] == 0, 0, chosen)
    return jnp.matmul(design, chosen.reshape(which.shape[0], -1).T, **EXACT)


def pays_by_client(num_runs: int, num_columns: int, platform: str) -> bool:
    """Whether `backward_by_client` is faster than `backward`.

    Measured on an AMD EPYC at m n = 40000 and d = 1000, in milliseconds: `.4 S + 7`
    against `.37 C + 2` on one core, `.3 S + 7` against `.23 C + 1` on two, and alike
    where m n is 2500. An accelerator would wait for one small product after the other.

    Args:
      num_runs: S.
      num_columns: their models with clients, C.
      platform: of the samples' device, "cpu" or another.
    """
    return platform == "cpu" and num_columns >= 1.5 * num_runs + 24


@functools.partial(jax.jit, static_argnames="num_models")
def backward_by_client(
    inputs: Float[Array, "rows features"],
    errors: tuple[Float[Array, "_ rows"], ...],
    places: Int[Array, "runs clients"],
    choices: Int[Array, "runs clients"],
    num_models: int,
    ends: tuple[Int[Array, ""], Int[Array, ""]],
) -> Float[Array, "runs models features"]:
    """`sum_i (2 / n) X_i^T e_i` over each model's clients, for whole runs.

    A client has one model of a run, so its samples meet one column for each run, and
    not one for each model as in `backward`.

    Args:
      inputs: X.
      errors: of `forward`, one or several times.
      places: column with the errors of a client's model, numbered through all of
        `errors`; -1 for a client without one.
      choices: that model, negative as well for none.
      num_models: k.
      ends: the first client of the sum, and the one after its last.
    """
    num_runs, num_clients = places.shape
    by_client = [part.reshape(part.shape[0], num_clients, -1) for part in errors]
    blocks = inputs.reshape(num_clients, -1, inputs.shape[1])
    runs = jnp.arange(num_runs)

    def add(client: Array, summed: Array) -> Array:
        place = places[:, client]
        own, first = jnp.zeros((num_runs, blocks.shape[1]), inputs.dtype), 0
        for part in by_client:
            is_here = (place >= first) & (place < first + len(part))
            here = jnp.where(is_here, place - first, 0)
            own = jnp.where(is_here[:, None], part[here, client], own)
            first += len(part)
        gradient = jnp.matmul(own, blocks[client], **EXACT)
        to = jnp.maximum(choices[:, client], 0)
        return summed.at[runs, to].add(gradient, unique_indices=True)

    zero = jnp.zeros((num_runs, num_models, inputs.shape[1]), inputs.dtype)
    return (2 / blocks.shape[1]) * jax.lax.fori_loop(*ends, add, zero)


@functools.partial(jax.jit, static_argnames=("num_clients", "by_client"))
def sample_rounds(
    design: Float[Array, "features_and_problems rows"],
    inputs: Float[Array, "rows features"],
    models: Float[Array, "runs models features"],
    problems: Int[Array, " runs"],
    step_sizes: Float[Array, " runs"],
    left: Int[Array, " runs"],
    divisor: Float[Array, ""],
    num_clients: int,
    number: Int[Array, ""],
    *,
    by_client: bool,
) -> Float[Array, "runs models features"]:
    """Rounds of whole runs on the samples: all models evaluated, all chosen ones moved.

    Args:
      design: as of `forward`.
      inputs: X.
      models: now.
      problems: of the runs.
      step_sizes: gamma.
      left: rounds that a run still has to go; it makes no more.
      divisor: as of `step_rates`.
      num_clients: m.
      number: of rounds.
      by_client: whether gradients are those of `backward_by_client`.
    """
    num_runs, num_models, num_features = models.shape
    index = jnp.arange(num_models)[None, :, None]
    columns = jnp.repeat(problems, num_models)
    ends = (jnp.int32(0), jnp.int32(num_clients))

    def one_round(turn: Array, models: Array) -> Array:
        flat = models.reshape(-1, num_features)
        errors, losses = forward(design, flat, columns, num_clients)
        losses = losses.reshape(num_runs, num_models, num_clients)
        best = jax.vmap(choose_cluster)(jnp.swapaxes(losses, 1, 2))
        chosen = best[:, None] == index
        if by_client:
            first = num_models * jnp.arange(num_runs)[:, None]
            places = jnp.where(best < 0, -1, first + best)
            gradient = backward_by_client(
                inputs, (errors,), places, best, num_models, ends
            )
        else:
            weights = chosen.reshape(-1, num_clients).astype(models.dtype)
            which = jnp.arange(num_runs * num_models)
            gradient = backward(design, errors, which, weights)[:num_features].T
        members = jnp.sum(chosen, axis=2).astype(models.dtype)
        rates = step_rates(step_sizes, members, divisor)
        moved = models - rates[:, :, None] * gradient.reshape(models.shape)
        return jnp.where((turn < left)[:, None, None], moved, models)

    return jax.lax.fori_loop(0, number, one_round, models)


def step_rates(
    step_sizes: Float[Array, " runs"],
    members: Float[Array, "runs models"],
    divisor: Float[Array, ""],
) -> Float[Array, "runs models"]:
    """Step sizes over the divisor of the summed gradients.

    Args:
      step_sizes: gamma.
      members: number of each model's clients.
      divisor: 0 for that number.
    """
    own = jnp.maximum(members, 1)  # A model without clients has no gradient.
    return step_sizes[:, None] / jnp.where(divisor == 0, own, divisor)


@jax.jit
def frozen_rounds(
    grams: tuple[Float[Array, "features features"], ...],
    moments: Float[Array, "runs used features"],
    rates: Float[Array, "runs used"],
    models: Float[Array, "runs used features"],
    anchors: Float[Array, "runs used features"],
    radii: Float[Array, "runs used used"],
    left: Int[Array, " runs"],
    most: Int[Array, ""],
    fresh: Bool[Array, " runs"],
) -> tuple[Float[Array, "runs used features"], Int[Array, " runs"], Array]:
    """Rounds of runs whose partition is that of the Gram matrices, while it holds.

    Args:
      grams: `(2 / n) X_S^T X_S` of every used model's clients S.
      moments: `(2 / n) X_S^T y`.
      rates: step size over the divisor of the summed gradients.
      models: now.
      anchors: where losses were evaluated.
      radii: the partition is the one at the anchors while two models a and b together
        are less than `radii[a, b]` away from them; on the diagonal, for model a alone
        against the models that nobody uses.
      left: rounds that a run still has to go.
      most: rounds to make in this call.
      fresh: whether a run is at its anchor, whose partition is known whatever the
        radii.

    Returns:
      Models, rounds made, and which runs are to be evaluated anew.
    """
    alone = jnp.eye(len(grams), dtype=bool)

    def can_step(models: Array, made: Array) -> Array:
        moved = jnp.sqrt(jnp.sum(jnp.square(models - anchors), axis=2))
        pairs = moved[:, :, None] + jnp.where(alone[None], 0, moved[:, None, :])
        holds = jnp.all(pairs < radii, axis=(1, 2))
        return (made < left) & (holds | (fresh & (made == 0)))

    def unfinished(carry: tuple) -> Array:
        _, _, can, turn = carry
        return jnp.any(can) & (turn < most)

    def one_round(carry: tuple) -> tuple:
        models, made, can, turn = carry
        own = [jnp.matmul(models[:, i], gram, **EXACT) for i, gram in enumerate(grams)]
        gradient = jnp.stack(own, axis=1) - moments
        moved = models - rates[:, :, None] * gradient
        models = jnp.where(can[:, None, None], moved, models)
        made = made + can.astype(made.dtype)
        return models, made, can & can_step(models, made), turn + 1

    made = jnp.zeros_like(left)
    carry = (models, made, can_step(models, made), jnp.zeros_like(most))
    models, made, can, _ = jax.lax.while_loop(unfinished, one_round, carry)
    return models, made, ~can & (made < left)
