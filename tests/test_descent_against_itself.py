"""Local updates are the same in both orders of computing the clients."""

import jax
import jax.numpy as jnp
import numpy as np

from cfljax.data import mixed_linear
from cfljax.federated.local_update import LocalUpdate, local_descent
from cfljax.models import linear


def test_sequential_against_batched():
    data, _ = mixed_linear(
        jax.random.key(0),
        num_clients=6,
        num_clusters=2,
        num_samples=8,
        num_features=5,
        separation=1.0,
        noise=0.1,
    )
    start = jax.random.normal(jax.random.key(1), (6, 5))

    def trained(order, step_size):
        return local_descent(
            linear(5),
            start,
            data,
            key=jax.random.key(2),
            step_size=step_size,
            num_steps=4,
            update=LocalUpdate(order=order),
        )[0]

    sequential = trained("sequential", 0.1)
    np.testing.assert_allclose(sequential, trained("batched", 0.1), rtol=1e-5)
    assert not jnp.allclose(sequential, trained("batched", 0.101), rtol=1e-5)

    swept = jax.vmap(lambda step: trained("sequential", step))(jnp.array([0.05, 0.1]))
    np.testing.assert_allclose(swept[1], sequential, rtol=1e-5)
