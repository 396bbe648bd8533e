"""Last layers that clients train alone, on what a body makes of their inputs."""

import dataclasses

from jaxtyping import Array, Float, PRNGKeyArray, PyTree, ScalarLike

from cfljax.base.types import ClientData, Task
from cfljax.federated.local_update import LocalUpdate, client_update
from cfljax.federated.prototypes import layers_of
from cfljax.federated.sharing import merge_shared, split


def train_head(
    task: Task,
    update: LocalUpdate,
    num_steps: int,
    key: PRNGKeyArray,
    step_size: ScalarLike,
    model: PyTree,
    features: Float[Array, "samples features"],
    data: ClientData,
) -> PyTree:
    """The last layer of one client's model after training from a fresh optimiser, the
    body fixed and without a proximal term; None in place of the body's leaves.

    `features` are the body's of all samples, as evaluation sees them: the body runs no
    more than that once, and without its dropout.
    """
    layers = layers_of(task)
    body, head = split(model, layers.is_head)
    update = dataclasses.replace(update, proximal=0.0, keep_optimizer=False)
    answer = lambda head, some: layers.answer(merge_shared(body, head), some)
    losses = lambda head, some, targets: layers.losses(answer(head, some), targets)
    learn = client_update(Task(task.init, losses, answer), update, num_steps)
    return learn(key, step_size, head, (), data._replace(inputs=features))[0]
