"""A task of any flax module, of linen or of nnx: `cfljax.task`."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen, nnx
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from cfljax.base.types import ClientData, Layers, Task, Variables
from cfljax.federated.sharing import paths
from cfljax.losses import cross_entropy, squared_error

Loss = Callable[[Any, Any], Float[Array, " samples"]]
NamedLoss = Literal["cross_entropy", "squared_error"]
_LOSSES: Mapping[str, Loss] = {
    "cross_entropy": cross_entropy,
    "squared_error": squared_error,
}


def task(
    module: linen.Module | Callable[..., nnx.Module],
    *,
    loss: NamedLoss | Loss,
    example: ClientData | Any,
    head: str | None = None,
) -> Task:
    """A learning problem of a flax module.

    Called with inputs `[samples, ...]`, the module gives outputs `[samples, ...]`. An
    argument `train`, `training` or `is_training` of its `__call__` is true while it
    trains and false while it is judged, `deterministic` or `use_running_average` the
    other way round; nnx modules are also put into `train()` and `eval()`. Dropout draws
    from the key of a training step. Batch normalisation must know which samples are
    real: `__call__` then has an argument `mask`, booleans `[samples]` while it trains,
    and None while it is judged by running statistics, to be handed on to its layers,
    such as `norm(x, mask=None if mask is None else mask[:, None])`.

    Args:
      module: a module of linen, such as `Net()`; or what makes one of nnx from
        `nnx.Rngs`, such as a class whose only argument is `rngs`, or
        `lambda rngs: Net(10, rngs=rngs)`, since every start draws one anew.
      loss: "cross_entropy" of logits and integer labels; "squared_error", averaged
        over the entries of a target; or a function of outputs and targets that gives
        one loss for each sample, not their mean.
      example: the clients' data, or inputs `[samples, ...]`; only their shapes and
        types are used.
      head: name of the last layer, such as "Dense_1" (linen) or "layers/1" (nnx), which
        `fedpac`, `fedproto`, `fedrep` and `fesem(compared="head")` ask for; none if
        None. What it receives, `[samples, features]`, is a sample's features.

    Returns:
      A task whose params are nested dicts of arrays, `Variables` where the module
      measures statistics. `fit` is None where training sees what judging sees; options
      that average gradients need that.

    Raises:
      ValueError: if the module cannot be called so, holds variables of other kinds than
        weights, batch statistics and random streams, or normalises batches without a
        `mask`; if outputs do not fit the loss; if there is no layer `head`, it is not
        the last one, or gets other than `[samples, features]`.

    Cost: traces the module a few times; nothing is computed.
    """
    if not callable(loss) and loss not in _LOSSES:
        raise ValueError(
            f"`loss` must be one of {', '.join(_LOSSES)}, or a function of outputs and "
            f"targets that gives one loss for each sample, got {loss!r}."
        )
    losses_of: Loss = loss if callable(loss) else _LOSSES[loss]
    inputs, targets = _shapes(example)
    pure = _pure(module, inputs)
    params = _traced("start", pure.init, jax.random.key(0))
    called = _traced("judge", functools.partial(pure.call, head=None), params, inputs)
    _check_loss(loss, losses_of, called.outputs, targets)

    def predict(params: PyTree, inputs: Float[Array, "samples ..."]) -> PyTree:
        return pure.call(params, inputs).outputs

    def losses(params: PyTree, inputs: Array, targets: Array) -> Array:
        return losses_of(predict(params, inputs), targets)

    def fit(
        key: PRNGKeyArray,
        params: PyTree,
        inputs: Array,
        targets: Array,
        mask: Bool[Array, " samples"],
    ) -> tuple[Float[Array, " samples"], PyTree]:
        made = pure.call(params, inputs, training=(key, mask))
        return losses_of(made.outputs, targets), made.params

    training = jax.random.key(0), jax.ShapeDtypeStruct(inputs.shape[:1], jnp.bool_)
    if pure.trains_otherwise:
        train = lambda *given: pure.call(*given[:2], training=given[2])
        _traced("train", train, params, inputs, training)
    layers = None if head is None else _layers(pure, head, params, inputs, losses_of)
    own_fit = fit if pure.trains_otherwise else None
    return Task(pure.init, losses, predict, own_fit, layers)


class _Called(NamedTuple):
    """What a call gave: outputs, params with their statistics moved, what the layer
    asked for received, and whether its outputs are the module's."""

    outputs: Any
    params: PyTree
    features: Any = None
    is_last: Any = None


class _Pure(NamedTuple):
    """A module as pure functions.

    init: `key -> params`.
    call: `(params, inputs, *, training=None, head=None) -> _Called`, `training` a key
      and a mask.
    answer: `(head, params, features) -> outputs`, of a layer alone.
    trains_otherwise: whether training sees other outputs.
    """

    init: Callable[[PRNGKeyArray], PyTree]
    call: Callable[..., _Called]
    answer: Callable[[str, PyTree, Array], Any]
    trains_otherwise: bool


_Training = tuple[PRNGKeyArray, Bool[Array, " samples"]] | None
_Shape = jax.ShapeDtypeStruct


def _shapes(example: Any) -> tuple[_Shape, _Shape | None]:
    """Shapes of two samples' inputs, and of their targets where there are any."""
    two = lambda leaf, axes: _Shape((2, *leaf.shape[axes:]), leaf.dtype)
    if isinstance(example, ClientData):
        axes = example.mask.ndim
        return two(example.inputs, axes), two(example.targets, axes)
    if not hasattr(example, "shape") or not hasattr(example, "dtype"):
        raise ValueError(
            "`example` must be the clients' data or an array of inputs, [samples, "
            f"...], got {type(example).__name__}."
        )
    return two(example, 1), None


def _traced(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Shapes of what a function of the module gives; ValueError if it cannot."""
    try:
        return jax.eval_shape(function, *arguments)
    except ValueError as error:
        if str(error).startswith("`"):  # One of ours.
            raise
        failed = error
    except Exception as error:  # Whatever the user's own code raises.
        failed = error
    reason = " ".join(str(failed).split())[:200]
    raise ValueError(
        f"`module` cannot {what} on inputs of the shape of `example`: "
        f"{type(failed).__name__}: {reason}"
    ) from failed


def _check_loss(
    loss: Any, losses_of: Loss, outputs: Any, targets: _Shape | None
) -> None:
    """Raise ValueError unless outputs and targets give one loss for each sample."""
    if loss == "cross_entropy" and getattr(outputs, "ndim", 0) != 2:
        raise ValueError(
            "`module` must give logits [samples, classes] for `loss='cross_entropy'`, "
            f"got {outputs}."
        )
    if targets is None:
        return
    if loss == "squared_error" and outputs.shape != targets.shape:
        raise ValueError(
            "`module` must give outputs of the shape of targets for "
            f"`loss='squared_error'`, got {outputs.shape} and {targets.shape} for two "
            "samples."
        )
    if loss == "cross_entropy" and (
        targets.ndim != 1 or not jnp.issubdtype(targets.dtype, jnp.integer)
    ):
        raise ValueError(
            "`example` must have one integer label for each sample for "
            f"`loss='cross_entropy'`, got {targets.dtype} of shape {targets.shape} for "
            "two samples."
        )
    found = _traced("lose", losses_of, outputs, targets)
    if getattr(found, "shape", None) != (2,):
        raise ValueError(
            "`loss` must give one loss for each sample, [samples], and not their mean; "
            f"got {found} for two samples."
        )


def _layers(
    pure: _Pure, head: str, params: PyTree, inputs: _Shape, losses_of: Loss
) -> Layers:
    """The module as a body and its last layer; ValueError if it is none."""
    start, names = head + "/", paths(params)
    if not any(name.startswith(start) for name in names):
        known = dict.fromkeys(name.rpartition("/")[0] for name in names)
        raise ValueError(
            f"`head` must be the name of a layer with weights, one of "
            f"{', '.join(filter(None, known)) or 'none'}, got {head!r}."
        )
    seen: list[bool] = []

    def look(params: PyTree, inputs: Array) -> Any:
        called = pure.call(params, inputs, head=head)
        seen.append(called.is_last is True)
        return called.features

    features = _traced("judge", look, params, inputs)
    if not seen[-1]:
        raise ValueError(
            f"`head` must be called once and last, its outputs being the module's, got "
            f"{head!r}, after which the module goes on; make the rest part of the loss."
        )
    if getattr(features, "ndim", 0) != 2:
        raise ValueError(
            f"`head` must receive features [samples, features], got {features}."
        )
    return Layers(
        embed=lambda params, inputs: pure.call(params, inputs, head=head).features,
        answer=functools.partial(pure.answer, head),
        losses=losses_of,
        is_head=lambda name: name.startswith(start),
        fit=_embedding(pure, head) if pure.trains_otherwise else None,
    )


def _embedding(pure: _Pure, head: str) -> Callable[..., tuple[Array, PyTree]]:
    """Features as training sees them, and the params with their statistics moved."""

    def fit(
        key: PRNGKeyArray, params: PyTree, inputs: Array, mask: Array
    ) -> tuple[Array, PyTree]:
        called = pure.call(params, inputs, training=(key, mask), head=head)
        return called.features, called.params

    return fit


def _pure(module: Any, inputs: _Shape) -> _Pure:
    """The module's functions, whichever of flax's two kinds it is."""
    if isinstance(module, linen.Module):
        return _of_linen(module, inputs)
    if isinstance(module, nnx.Module):
        raise ValueError(
            "`module` must make a module of nnx from `nnx.Rngs`, as `lambda rngs: "
            f"{type(module).__name__}(..., rngs=rngs)` does, since every start draws "
            "one anew; got one that is made."
        )
    if isinstance(module, type) and issubclass(module, linen.Module):
        raise ValueError(
            f"`module` must be made, as in `{module.__name__}(...)`, got the class."
        )
    if not callable(module):
        raise ValueError(
            "`module` must be a module of flax.linen, or make one of flax.nnx from "
            f"`nnx.Rngs`, got {type(module).__name__}."
        )
    return _of_nnx(module)


# Arguments of `__call__` by which flax's modules know whether they train.
_TRUE_IN_TRAINING = ("train", "training", "is_training")
_FALSE_IN_TRAINING = ("deterministic", "use_running_average")


def _arguments(call: Callable[..., Any], training: _Training) -> dict[str, Any]:
    """What a module's `__call__` is told beside the inputs, as far as it asks."""
    asked = inspect.signature(call).parameters
    told: dict[str, Any] = dict.fromkeys(_TRUE_IN_TRAINING, training is not None)
    told |= dict.fromkeys(_FALSE_IN_TRAINING, training is None)
    told["mask"] = None if training is None else training[1]
    return {name: value for name, value in told.items() if name in asked}


def _is_told(call: Callable[..., Any]) -> bool:
    """Whether a module's `__call__` asks if it trains."""
    return bool(_arguments(call, None).keys() - {"mask"})


def _check_statistics(call: Callable[..., Any]) -> None:
    """Raise ValueError where statistics of a batch would count its padding."""
    if "mask" not in inspect.signature(call).parameters:
        raise ValueError(
            "`module` normalises batches, whose padding must not count: give its "
            "`__call__` an argument `mask` ([samples], None while it is judged) and "
            "hand `mask[:, None]` to the normalisation, or use LayerNorm or GroupNorm."
        )


# Modules of linen.


def _of_linen(module: linen.Module, inputs: _Shape) -> _Pure:
    told = functools.partial(_arguments, module.__call__)

    def start(key: PRNGKeyArray) -> Any:
        nothing = jnp.zeros(inputs.shape, inputs.dtype)
        return module.init(key, nothing, **told(None))

    kinds = set(_traced("start", start, jax.random.key(0)))
    if kinds - {"params", "batch_stats"} or "params" not in kinds:
        raise ValueError(
            "`module` must have the collection `params`, and `batch_stats` at most "
            f"beside it, got {', '.join(sorted(kinds)) or 'none'}."
        )
    has_statistics = "batch_stats" in kinds
    if has_statistics:
        _check_statistics(module.__call__)

    def of(params: PyTree) -> dict[str, PyTree]:
        if not has_statistics:
            return {"params": params}
        return {"params": params.weights, "batch_stats": params.statistics}

    def init(key: PRNGKeyArray) -> PyTree:
        found = start(key)
        if not has_statistics:
            return found["params"]
        return Variables(found["params"], found["batch_stats"])

    # The layer of each name that was asked for, with what it is told.
    heads: dict[str, tuple[linen.Module, tuple, dict]] = {}

    def call(
        params: PyTree,
        inputs: Array,
        *,
        training: _Training = None,
        head: str | None = None,
    ) -> _Called:
        calls: list[tuple[Any, Any]] = []

        def listen(inner: Callable, args: tuple, kwargs: dict, context: Any) -> Any:
            outputs = inner(*args, **kwargs)
            is_call = context.method_name == "__call__"
            path = "/".join(context.module.path)
            if is_call and head is not None and path == head:
                calls.append((args[0], outputs))
                alone = context.module.clone(parent=None, name=None)
                heads.setdefault(head, (alone, args[1:], kwargs))
            return outputs

        settings: dict[str, Any] = told(training)
        if training is not None:
            settings["rngs"] = {"dropout": training[0], "params": training[0]}
            settings["mutable"] = ["batch_stats"] if has_statistics else False
        with linen.intercept_methods(listen):
            outputs = module.apply(of(params), inputs, **settings)
        if training is not None and has_statistics:
            outputs, moved = outputs
            params = Variables(params.weights, moved["batch_stats"])
        if not calls:
            return _Called(outputs, params)
        features, answered = calls[-1]
        is_last = len(calls) == 1 and answered is outputs
        return _Called(outputs, params, features, is_last)

    def answer(head: str, params: PyTree, features: Array) -> Any:
        alone, args, kwargs = heads[head]
        kept = {}
        for kind, tree in of(params).items():
            for name in head.split("/"):
                tree = tree.get(name, {})
            kept[kind] = tree
        return alone.apply(kept, features, *args, **kwargs)

    return _Pure(init, call, answer, has_statistics or _is_told(module.__call__))


# Modules of nnx.


class _Heard:
    """A layer that remembers its calls."""

    def __init__(self, layer: Callable[..., Any]):
        self.layer, self.calls = layer, []

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = self.layer(inputs, *args, **kwargs)
        self.calls.append((inputs, outputs))
        return outputs


def _inner(model: Any, name: str) -> Any:
    """An attribute of a module, or an entry of a list or dict of them."""
    if isinstance(model, nnx.List):
        return model[int(name)]
    return model[name] if isinstance(model, nnx.Dict) else getattr(model, name)


def _of_nnx(make: Callable[..., Any]) -> _Pure:
    def build(rngs: nnx.Rngs) -> nnx.Module:
        maker = make.__init__ if isinstance(make, type) else make
        named = "rngs" in inspect.signature(maker).parameters
        return make(rngs=rngs) if named else make(rngs)

    kinds = (nnx.Param, nnx.BatchStat, nnx.RngState, ...)
    try:
        model = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
        __call__ = model.__call__
        model.train()
        train_graph, _, measured, streams, others = nnx.split(model, *kinds)
        model.eval()
        eval_graph, *_ = nnx.split(model, *kinds)
    except Exception as error:  # Whatever the user's own code raises.
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            "`module` must make a module of nnx from `nnx.Rngs`: "
            f"{type(error).__name__}: {reason}"
        ) from error
    strange = {type(leaf).__name__ for _, leaf in nnx.to_flat_state(others)}
    if strange:
        raise ValueError(
            "`module` must hold variables of the kinds Param, BatchStat and random "
            f"streams only, got {', '.join(sorted(strange))}."
        )
    has_statistics = bool(jax.tree.leaves(measured))
    if has_statistics:
        _check_statistics(__call__)
    number, form = len(jax.tree.leaves(streams)), jax.tree.structure(streams)
    shapes = jax.tree.leaves(streams)

    def init(key: PRNGKeyArray) -> PyTree:
        _, *states = nnx.split(build(nnx.Rngs(key)), *kinds)
        weights, statistics = (nnx.to_pure_dict(state) for state in states[:2])
        return Variables(weights, statistics) if has_statistics else weights

    def whole(params: PyTree, key: PRNGKeyArray | None) -> Any:
        """The module of these params; its random streams begin with the key."""

        def begun(index: int) -> Array:
            shape = shapes[index]
            if not jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
                return jnp.zeros(shape.shape, shape.dtype)
            own = jax.random.fold_in(jax.random.key(0) if key is None else key, index)
            return jax.random.split(own, shape.shape) if shape.shape else own

        graph = eval_graph if key is None else train_graph
        parts = [params, {}]
        if has_statistics:
            parts = [params.weights, params.statistics]
        fresh = jax.tree.unflatten(form, map(begun, range(number)))
        return nnx.merge(graph, *parts, fresh)

    def call(
        params: PyTree,
        inputs: Array,
        *,
        training: _Training = None,
        head: str | None = None,
    ) -> _Called:
        model, heard = whole(params, training and training[0]), None
        if head is not None:
            *above, name = head.split("/")
            parent = functools.reduce(_inner, above, model)
            heard = _Heard(_inner(parent, name))
            if isinstance(parent, nnx.List):
                parent[int(name)] = heard
            elif isinstance(parent, nnx.Dict):
                parent[name] = heard
            else:
                setattr(parent, name, heard)
        outputs = model(inputs, **_arguments(model.__call__, training))
        if training is not None and has_statistics:
            statistics = nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))
            params = Variables(params.weights, statistics)
        if heard is None or not heard.calls:
            return _Called(outputs, params)
        features, answered = heard.calls[-1]
        is_last = len(heard.calls) == 1 and answered is outputs
        return _Called(outputs, params, features, is_last)

    def answer(head: str, params: PyTree, features: Array) -> Any:
        return functools.reduce(_inner, head.split("/"), whole(params, None))(features)

    random = bool(number)
    return _Pure(init, call, answer, has_statistics or random or _is_told(__call__))
