"""What Figure 3 leaves open: the law of the minimisers, and where models start."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.kernels.draws import flat_normal
from cfljax.types import ClientData, Truth
from experiments.werner.fig3_methods import METHODS, Method, number_of_models
from experiments.werner.synthetic import Minimisers, shifted_linear

__all__ = ["SCENES", "Scene", "SceneName", "draw", "first_models", "traced"]

SceneName = Literal[
    "zero", "normal", "near", "reference_zero", "reference_normal", "reference_near"
]


class Scene(NamedTuple):
    """Minimisers and start: models start from `anchor` x* plus `spread` N(0, I).

    label: for people.
    minimisers: their law, see `synthetic.Minimisers`.
    anchor: 1 where starts know the own cluster's minimiser, else 0.
    spread: standard deviation of each coordinate.
    """

    label: str
    minimisers: Minimisers
    anchor: float
    spread: float


_SIZE = 100 / 2**0.5  # Root mean square of a released minimiser's coordinate.
SCENES: Mapping[str, Scene] = MappingProxyType(
    {
        "zero": Scene("x* from N(0, I), start at 0", "normal", 0, 0),
        "normal": Scene("x* and start from N(0, I)", "normal", 0, 1),
        "near": Scene("x* from N(0, I), start within .1", "normal", 1, 0.1),
        "reference_zero": Scene("x* of 0 and 100, start at 0", "reference", 0, 0),
        "reference_normal": Scene(
            "x* of 0 and 100, start as large", "reference", 0, _SIZE
        ),
        "reference_near": Scene(
            "as released: x* of 0 and 100, start within .1", "reference", 1, 0.1
        ),
    }
)
assert tuple(SCENES) == get_args(SceneName)


class Traced(NamedTuple):
    """A scene whose place among `SCENES` is traced, so that one program serves all.

    released: whether minimisers are of the law "reference".
    anchor, spread: as in `Scene`.
    """

    released: Array
    anchor: Array
    spread: Array


def traced(place: float | Array) -> Traced:
    """The scene at a place of `SCENES`."""
    index = jnp.asarray(place).astype(int)
    scenes = SCENES.values()
    return Traced(
        released=jnp.array([own.minimisers == "reference" for own in scenes])[index],
        anchor=jnp.array([float(own.anchor) for own in scenes])[index],
        spread=jnp.array([float(own.spread) for own in scenes])[index],
    )


def draw(scene: Traced, key: PRNGKeyArray, **sizes: Any) -> tuple[ClientData, Truth]:
    """Clients with the scene's minimisers; all scenes share the inputs of a key.

    Args:
      scene: whose law of minimisers counts.
      key: of the data set.
      **sizes: of `shifted_linear`, and its `first_mean`.
    """
    both = [
        shifted_linear(key, minimisers=law, **sizes) for law in get_args(Minimisers)
    ]
    (data, truth), (other, other_truth) = both
    choose = lambda normal, released: jnp.where(scene.released, released, normal)
    targets = choose(data.targets, other.targets)
    models = choose(truth.models, other_truth.models)
    return data._replace(targets=targets), truth._replace(models=models)


def first_models(
    method: Method, scene: Traced, truth: Truth, key: PRNGKeyArray
) -> Float[Array, "models features"]:
    """Models to start from, drawn independently.

    Equal models of IFCA would stay equal: where all others start at 0, IFCA's start as
    large as the minimisers. The global model starts at the mean of clients' models,
    and the released IFCA at those of every K-th client, whosever clusters these are.

    Args:
      method: which has `number_of_models` of them.
      scene: where they start.
      truth: minimisers, which starts may know.
      key: of the start; methods with as many models share their starts.
    """
    clients, (clusters, features) = truth.clusters.shape[0], truth.models.shape
    kind, spread = METHODS[method].kind, scene.spread
    models = number_of_models(method, clusters, clients // clusters)
    own = jnp.arange(models) if kind == "several" else truth.clusters
    if method == "ifca_released":
        own = truth.clusters[::clusters]
    if method.startswith("ifca"):
        as_large = jnp.where(scene.released, _SIZE, 1.0)
        blind = (scene.anchor == 0) & (spread == 0)
        spread = jnp.where(blind, as_large, spread)
    noise = flat_normal(jax.random.fold_in(key, 0), (own.shape[0], features))
    start = scene.anchor * truth.models[own] + spread * noise
    return jnp.mean(start, axis=0)[None] if kind == "one" else start
