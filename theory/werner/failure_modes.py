"""Section 2.1: where Myopic-Clustering, IFCA and Clustered FL fail, step by step.

Nothing is random: gradients, divisions in two and models are followed exactly.
"""

import functools

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict, combine
from theory.werner.three_clients import gradients_a, gradients_b, myopic_path

__all__ = [
    "STATEMENTS",
    "bipartition",
    "check_basin",
    "check_clustered",
    "check_conclusion",
    "check_gradients",
    "check_ifca",
    "check_myopic",
    "ifca_round",
]

MYOPIC, IFCA, CLUSTERED = "werner.ex1a", "werner.ex1b", "werner.ex1c"

_STEPS = (0.01, 0.1, 1.0)  # eta
_ROUNDS = 60
_ROUNDING = 1e-12  # Relative; numbers are of order 1 after multiplication with eta.


def check_gradients(preset: Preset, *, name: str, third: float) -> Verdict:
    """eta times the gradients at 1.5 are 1/2, 1/2 and `third`."""
    del preset
    found = np.concatenate([eta * gradients_a(np.array(1.5), eta) for eta in _STEPS])
    claimed = np.tile([0.5, 0.5, third], len(_STEPS))
    return never_exceeds(
        name,
        np.abs(found - claimed),
        np.zeros(len(found)),
        rounding=_ROUNDING,
        detail=f"gradients times eta: {', '.join(f'{g:g}' for g in found[:3])}",
    )


def check_myopic(preset: Preset, *, second: float = 1.0) -> Verdict:
    """Clusters {1,2},{3}, then {1},{2,3}; models (1,1,2), then to (0, `second`, 2)."""
    del preset
    values, bounds = [], []
    for eta in _STEPS:
        models, clusters = myopic_path(eta, _ROUNDS)
        wrong = [{0, 1} not in clusters[0]]
        wrong += [{1, 2} not in division for division in clusters[1:]]
        left = (2 / 3) ** (_ROUNDS - 1)
        final = eta * np.abs(np.diagonal(gradients_a(models[-1], eta)))
        parts = (
            (np.array(wrong, float), 0.0),
            (np.abs(models[1] - [1, 1, 2]), 0.0),
            (np.abs(models[-1] - [0, second, 2]), left),
            (final, left),
        )
        for found, bound in parts:
            values.append(found)
            bounds.append(np.full(len(found), bound))
    return never_exceeds(
        MYOPIC,
        np.concatenate(values),
        np.concatenate(bounds),
        rounding=_ROUNDING,
        detail=f"eta = {', '.join(map(str, _STEPS))}, {_ROUNDS} rounds: models end at "
        f"{', '.join(f'{x:.1g}' for x in models[-1])}",
    )


def ifca_round(
    models: np.ndarray, *, step_size: float, local_steps: int | None
) -> np.ndarray:
    """A round of IFCA on example (b), for models `[..., 2]`.

    Args:
      models: of the two clusters.
      step_size: eta, in (0, 1/2].
      local_steps: None for Option I, which averages gradients over both clients; else
        for Option II, which averages the models of those who chose it.
    """
    own = np.array([-0.5, 0.5])  # Minimisers of f_1 and f_2.
    choice = np.argmin((models[..., None, :] - own[:, None]) ** 2, axis=-1)
    chose = choice[..., None] == np.arange(2)
    if local_steps is None:
        pull = np.moveaxis(gradients_b(models), -1, -2)
        return models - step_size * np.sum(chose * pull, axis=-2) / 2
    shrink = (1 - 2 * step_size) ** local_steps
    trained = own[:, None] + shrink * (models[..., None, :] - own[:, None])
    number = np.sum(chose, axis=-2)
    mean = np.sum(chose * trained, axis=-2) / np.maximum(number, 1)
    return np.where(number > 0, mean, models)


def check_ifca(preset: Preset, *, first: float = -1.5) -> Verdict:
    """From (`first`, 0) no model ever moves and both clients choose the second."""
    del preset
    start = np.array([first, 0.0])
    values = []
    for local_steps in (None, 1, 5):
        for step_size in (0.01, 0.1, 0.5):
            models = start
            for _ in range(_ROUNDS):
                models = ifca_round(
                    models, step_size=step_size, local_steps=local_steps
                )
                loss = (models[None] - np.array([[-0.5], [0.5]])) ** 2
                wrong = np.mean(np.argmin(loss, axis=1) != 1)
                values.append(max(float(wrong), *np.abs(models - start)))
    losses = ", ".join(f"{(x + a) ** 2:g}" for x in start for a in (0.5, -0.5))
    return never_exceeds(
        IFCA,
        np.array(values),
        np.zeros(len(values)),
        rounding=_ROUNDING,
        detail=f"Options I and II, 3 step sizes: losses {losses}, models move by at "
        f"most {max(values):.1g}",
    )


def check_basin(preset: Preset, *, share: float = 0.5) -> Verdict:
    """From `share` of all starts in [-2, 2]^2 both clients end with one model."""
    cells = preset.choose(quick=60, full=400)
    middle = 4 * (np.arange(cells) + 0.5) / cells - 2
    models = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1)
    for _ in range(_ROUNDS):
        models = ifca_round(models, step_size=0.2, local_steps=None)
    loss = (models[..., None, :] - np.array([[-0.5], [0.5]])) ** 2
    choice = np.argmin(loss, axis=-1)
    found = np.mean(choice[..., 0] == choice[..., 1])
    return never_exceeds(
        f"{IFCA}.basin",
        np.array([abs(found - share)]),
        np.array([2 / cells]),
        rounding=_ROUNDING,
        detail=f"{cells}^2 starts: {100 * found:.2f} % end with one model for both",
    )


def bipartition(gradients: np.ndarray) -> frozenset[frozenset[int]]:
    """Sattler's division in two: the least largest cosine similarity between the parts.

    Args:
      gradients: `[3]`, of clients on the line, none 0.
    """
    cosine = np.sign(gradients[:, None] * gradients[None])
    cost = {}
    for alone in range(len(gradients)):
        rest = [other for other in range(len(gradients)) if other != alone]
        division = frozenset({frozenset({alone}), frozenset(rest)})
        cost[division] = np.max(cosine[alone, rest])
    return min(cost, key=lambda division: cost[division])


def check_clustered(
    preset: Preset, *, name: str, optimum: float, wrong: tuple[int, int], share: float
) -> Verdict:
    """FedAvg's optimum is `optimum`; its gradients join the two `wrong` w.p. `share`.

    Clients are numbered from 0; the third part of the claim is that 1 and 2, which
    belong together, are parted with probability 1/2.
    """
    del preset
    exact = np.mean([0.0, 0.5, 0.5])  # Mean gradient x - (0 + 1/2 + E g_3's zero)/3.
    joined, parted = 0.0, 0.0
    for zero in (0.0, 1.0):  # g_3 = x - zero, each with probability 1/2.
        division = bipartition(optimum - np.array([0.0, 0.5, zero]))
        joined += 0.5 * (frozenset(wrong) in division)
        parted += 0.5 * (frozenset({1, 2}) not in division)
    return never_exceeds(
        name,
        np.array([abs(optimum - exact), abs(joined - share), abs(parted - 0.5)]),
        np.zeros(3),
        rounding=_ROUNDING,
        detail=f"optimum {exact:.4f}; clients {wrong[0] + 1} and {wrong[1] + 1} are "
        f"joined with probability {joined:g}, 2 and 3 parted with {parted:g}",
    )


_row = functools.partial(Statement, paper="werner", place="Section 2.1, Figure 1")
_printed = functools.partial(
    check_clustered, name=CLUSTERED, optimum=0.25, wrong=(0, 1), share=0.5
)
_corrected = functools.partial(
    check_clustered,
    name=f"{CLUSTERED}.corrected",
    optimum=1 / 3,
    wrong=(0, 2),
    share=0.5,
)
_first = functools.partial(check_gradients, name=f"{MYOPIC}.gradients")
_second = functools.partial(check_gradients, name=f"{MYOPIC}.gradients.corrected")


def check_conclusion(preset: Preset, *, share: float = 0.5) -> Verdict:
    """The corrected numbers, and the other cluster {1} w.p. 1/2 when g_3 = x - 1."""
    right = functools.partial(
        check_clustered, name=CLUSTERED, optimum=1 / 3, wrong=(1, 2), share=share
    )
    return combine(
        f"{CLUSTERED}.corrected",
        [_corrected(preset), right(preset)],
        detail="at 1/3: {1,3} and {2}, or {1} and {2,3}, each with probability 1/2",
    )


STATEMENTS = (
    _row(
        id=MYOPIC,
        text="Algorithm 1 on example (a) from 1.5: {1,2} and {3} in the first round, "
        "models (1, 1, 2), then {1} and {2,3} for ever; models to (0, 1, 2), all "
        "gradients to 0, client 2 at an inflection",
        preconditions=("K = 2, exact 2-means, eta = 0.01, 0.1 and 1",),
        check=check_myopic,
        control=functools.partial(check_myopic, second=0.0),
        note="The control claims that client 2 reaches its minimum.",
    ),
    _row(
        id=f"{MYOPIC}.gradients",
        text="the gradients at 1.5 are 1/(2 eta), 1/(2 eta) and 1/(2 eta)",
        preconditions=("example (a)",),
        expected=Status.VIOLATED,
        check=functools.partial(_first, third=0.5),
        control=functools.partial(_first, third=0.0),
        note="A sign is missing, in print or in our copy. The control claims 0.",
    ),
    _row(
        id=f"{MYOPIC}.gradients.corrected",
        text="the gradients at 1.5 are 1/(2 eta), 1/(2 eta) and -1/(2 eta)",
        preconditions=("example (a)",),
        check=functools.partial(_second, third=-0.5),
        control=functools.partial(_second, third=-0.49),
        note="The control claims -0.49/eta.",
    ),
    _row(
        id=IFCA,
        text="IFCA on example (b) from -1.5 and 0: both clients choose the second "
        "model, and no model ever moves, with Option I or II",
        preconditions=("f_1 = (x + 1/2)^2, f_2 = (x - 1/2)^2, exact gradients",),
        check=check_ifca,
        control=functools.partial(check_ifca, first=-0.6),
        note="HypCluster is Option II. The control starts from -0.6 and 0.",
    ),
    _row(
        id=f"{IFCA}.basin",
        text="IFCA is sensitive to its start: from half of all starts in [-2, 2]^2 "
        "both clients end with one model",
        preconditions=("example (b), Option I, eta = 0.2, starts on a grid",),
        constants={"share": 0.5},
        claimed="brittle and sensitive to initialisation",
        check=check_basin,
        control=functools.partial(check_basin, share=0.45),
        note="Best of several starts is thus no luxury. The control claims 45 %.",
    ),
    _row(
        id=CLUSTERED,
        text="FedAvg's optimum is 1/4, and Clustered FL parts {1,2} and {3} there "
        "with probability 1/2",
        preconditions=("example (c), weights 1/N as in (1), cosine bipartition",),
        expected=Status.VIOLATED,
        check=_printed,
        control=functools.partial(_printed, share=0.0),
        note="1/4 is the mean of the clusters' optima. At 1/4 or 1/3, g_3 = x has "
        "the sign of g_1. The control claims that {1,2} never happens, at 1/4.",
    ),
    _row(
        id=f"{CLUSTERED}.corrected",
        text="FedAvg's optimum is 1/3; Clustered FL finds {1,3} and {2} with "
        "probability 1/2, else the truth {1} and {2,3}: 2 and 3 are parted with "
        "probability 1/2",
        preconditions=("example (c), weights 1/N as in (1), cosine bipartition",),
        check=check_conclusion,
        control=functools.partial(check_conclusion, share=0.4),
        note="The conclusion stands. The control claims the truth w.p. 0.4.",
    ),
)
