"""How rows are written whose control is their check with other arguments, and lists."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped

from cfljax.statements import Statement, Step, Verdict


def row(
    *,
    id: str,
    check: Callable[..., Verdict],
    control: Mapping[str, Any],
    proof: Callable[..., Sequence[Step]] | None = None,
    proof_control: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> Statement:
    """A statement whose control is its check with the other arguments `control`, and
    that of its proof the proof with `proof_control`, or each of several. The check gets
    `id`, dotted with the paper first, as `name`."""
    named = functools.partial(check, name=id)
    if proof is not None:
        fields |= {"proof": proof, "proof_control": falsified(proof, proof_control)}
    return Statement(
        id=id,
        paper=id.split(".")[0],
        check=named,
        control=functools.partial(named, **control),
        **fields,
    )


def columns(
    names: str, points: Iterable[Sequence[Any] | Shaped[np.ndarray, " names"]]
) -> dict[str, Shaped[np.ndarray, " points"]]:
    """Coordinates of points that say theirs one after the other, in the order of
    `names`, such as "share separation"."""
    every = zip(*points, strict=True)
    return {
        name: np.array(values)
        for name, values in zip(names.split(), every, strict=True)
    }


def falsified(
    proof: Callable[..., Sequence[Step]],
    arguments: Mapping[str, Any] | Sequence[Mapping[str, Any]],
) -> list[Callable[[], Sequence[Step]]]:
    """The proof with the arguments of a false claim, or of each of several."""
    several = [arguments] if isinstance(arguments, Mapping) else arguments
    return [functools.partial(proof, **each) for each in several]


def listed(values: Iterable[Any], form: str = "") -> str:
    """Values in one line, each in the given form, such as ".3g"."""
    return ", ".join(format(value, form) for value in values)
