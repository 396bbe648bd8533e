"""FedRep: a common body below a last layer of every client's own.

Collins, Hassani, Mokhtari, Shakkottai. "Exploiting Shared Representations for
Personalized Federated Learning". ICML 2021, Algorithm 1. Of the paper its abstract and
introduction were at hand; the rules below are Algorithm 1 as it is widely quoted. The
authors' released code (lgcollins/FedRep: main_fedrep.py and models/Update.py) was read
and not copied; where it differs, the card says how.
"""

import dataclasses

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cfljax.base.constructor import constructor
from cfljax.base.types import Algorithm, ClientData, StepSize, Task, Threat
from cfljax.federated.evaluate import masked_mean
from cfljax.federated.heads import train_head
from cfljax.federated.local_update import LocalUpdate, client_update, step_size_at
from cfljax.federated.partial import leaves_of, partly_averaged
from cfljax.federated.prototypes import layers_of
from cfljax.federated.sharing import merge_shared, paths, split, with_common
from cfljax.federated.training import Training, Weights, averaging


@constructor
def fedrep(
    task: Task,
    *,
    step_size: StepSize,
    personal_step_size: StepSize | None = None,
    num_steps: int = 1,
    num_personal_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    personal_update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """An averaged body, and last layers that never leave their clients.

    A participant first trains its last layer, the body fixed as received, then the
    body, its new last layer fixed:

        h <- h - step grad_h F_i(h, body),  then  body <- body - step grad_body F_i.

    It sends the body.

    Args:
      task: the learning problem, with `layers`.
      step_size: of the body; may be traced.
      personal_step_size: of last layers, the paper's is the same one; `step_size` if
        None. May be traced.
      num_steps: of the body in each round; the paper's is 1.
      num_personal_steps: tau, of the last layer in each round, many in the paper.
      weights: of the clients in the body; the paper's are equal, the released code
        counts samples.
      participation: fraction of the clients drawn each round; the others keep their
        last layers.
      update: how clients train the body.
      personal_update: how they train last layers, from a fresh optimiser every time;
        as `update` if None, without its proximal term and its number of epochs.
      threat: what Byzantine clients do to the bodies they send.

    Raises:
      ValueError: where an argument is out of its range, or the task has no `layers` or
        no body below the last one.

    Last layers see features as evaluation does, without dropout. For the rest see
    `federated.partial.partly_averaged`.

    Cost of a round: `num_steps` passes forward and backward and a forward pass for
    each participant; training last layers reuses the features of that one. Memory: a
    last layer of every client.
    """
    layers = layers_of(task)
    if all(map(layers.is_head, paths(leaves_of(task)))):
        raise ValueError("`task` must have a body below its last layer, got none.")
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    if personal_update is None:
        personal_update = dataclasses.replace(
            training.update, num_epochs=None, proximal=0.0, keep_optimizer=False
        )
    elif personal_update.proximal or personal_update.keep_optimizer:
        raise ValueError(
            "`personal_update` must have no proximal term and keep no optimiser, got "
            f"{personal_update}."
        )
    own = Training(
        step_size=step_size if personal_step_size is None else personal_step_size,
        num_steps=num_personal_steps,
        update=personal_update,
    )

    def told(round_index: Int[Array, ""]) -> tuple[Array, Array]:
        """Step sizes of body and last layers."""
        size = lambda of: step_size_at(of.update, of.step_size, round_index)
        return size(training), size(own)

    def train(
        shared: tuple,
        key: PRNGKeyArray,
        model: PyTree,
        moments: PyTree,
        data: ClientData,
    ) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        size, head_size = shared
        head_key, body_key = jax.random.split(key)
        features = layers.embed(model, data.inputs)
        losses = layers.losses(layers.answer(model, features), data.targets)
        head = train_head(
            task,
            own.update,
            own.num_steps,
            head_key,
            head_size,
            model,
            features,
            data,
        )
        body, _ = split(model, layers.is_head)
        fixed = with_common(task, head, layers.is_head)
        learn = client_update(fixed, training.update, num_steps)
        body, moments = learn(body_key, size, body, moments, data)
        return merge_shared(body, head), moments, masked_mean(losses, data.mask)

    return partly_averaged(
        task,
        training,
        layers.is_head,
        train,
        told=told,
        optimised=lambda model: split(model, layers.is_head)[0],
    )
