"""Figure 1's example, and the adjusted Rand index of footnote 1.

The footnote's words, the share of pairs on which two clusterings agree, adjusted for
chance, are Hubert and Arabie's (R - E R) / (1 - E R), where R is that share and E R its
mean over all renamings of the clients. All of them are gone through here.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Int

from cfljax import metrics
from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "agreement", "check_example", "check_index"]

EXAMPLE, INDEX = "clove.fig1", "clove.ARIdef"

_PARTITIONS = (
    ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]),
    ([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]),
    ([0, 1, 2, 2, 2, 0], [0, 1, 1, 2, 2, 0]),
    ([0, 0, 1, 1, 2, 2], [2, 2, 0, 0, 1, 1]),
    ([0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]),
)


def check_example(preset: Preset, *, other_loss: float = 5.1) -> Verdict:
    """Both clusters' losses are least at model 1; the cheapest matching is right.

    Args:
      preset: unused.
      other_loss: loss of cluster 1 on model 2.
    """
    del preset
    losses = np.array([[1.0, other_loss], [2.1, 3.5]])
    _, matched = scipy.optimize.linear_sum_assignment(losses)
    kept = float(losses[0, 0] + losses[1, 1])
    swapped = float(losses[0, 1] + losses[1, 0])
    return never_exceeds(
        EXAMPLE,
        np.array([*losses[:, 0], kept, *np.abs(matched - np.arange(2))]),
        np.array([*losses[:, 1], swapped, 0, 0]),
        rounding=1e-14,
        detail=f"least loss of both clusters at model 1; matching {kept:.1f} against "
        f"{swapped:.1f}",
    )


def agreement(
    first: Int[np.ndarray, " clients"], second: Int[np.ndarray, " clients"]
) -> float:
    """Share of the pairs that both clusterings join or both separate."""
    pairs = np.array(list(itertools.combinations(range(len(first)), 2)))
    joined = [part[pairs[:, 0]] == part[pairs[:, 1]] for part in (first, second)]
    return float(np.mean(joined[0] == joined[1]))


@functools.lru_cache(maxsize=1)
def _agreements() -> tuple[list[float], list[float], list[float]]:
    """Share of agreement, its mean over all renamings, and the library's index."""
    shares, means, indices = [], [], []
    for pair in _PARTITIONS:
        first, second = map(np.array, pair)
        shares.append(agreement(first, second))
        orders = itertools.permutations(range(len(first)))
        means.append(
            float(np.mean([agreement(first, second[list(one)]) for one in orders]))
        )
        both = jnp.asarray(first), jnp.asarray(second)
        indices.append(float(metrics.adjusted_rand_index(*both, 3)))
    return shares, means, indices


def check_index(preset: Preset, *, adjusted: bool = True) -> Verdict:
    """The library's index is (R - E R)/(1 - E R), or R where not `adjusted`."""
    del preset
    share, mean, index = map(np.array, _agreements())
    claimed = (share - mean) / (1 - mean) if adjusted else share
    return never_exceeds(
        INDEX,
        np.abs(index - claimed),
        np.zeros(len(claimed)),
        rounding=4 * float(np.finfo(np.float32).eps),
        detail=f"{len(index)} pairs of clusterings of 6 clients, all 720 renamings; "
        f"indices {', '.join(f'{one:.3f}' for one in index)}",
    )


STATEMENTS = (
    Statement(
        id=EXAMPLE,
        paper="clove",
        place="Figure 1",
        text="with losses (1.0, 5.1) and (2.1, 3.5) IFCA sends all clients to model 1, "
        "while the cheapest matching gives each cluster its model, 4.5 against 7.2",
        preconditions=("the losses of the figure",),
        check=check_example,
        control=functools.partial(check_example, other_loss=2.0),
        note="The control lowers the loss of cluster 1 on model 2 to 2.0.",
    ),
    Statement(
        id=INDEX,
        paper="clove",
        place="Section 1, footnote 1",
        text="the adjusted Rand index is the share of pairs on which two clusterings "
        "agree, adjusted for chance",
        preconditions=("chance: a uniformly random renaming of the clients",),
        check=check_index,
        control=functools.partial(check_index, adjusted=False),
        note="Informal, as the adjustment is not said; with Hubert and Arabie's it is "
        "the usual index. The control does not adjust.",
    ),
)
