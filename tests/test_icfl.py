"""ICFL: rounds in NumPy, its limits, what connectivity is, and three repaired rules."""

import functools
import itertools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, close, compiled, differ, misuse

from cfljax.algorithms import fedavg, icfl
from cfljax.algorithms.icfl import RATE, _bisected, _numbered
from cfljax.models import linear

CLIENTS, FEATURES, ROOM, STEP, STEPS = 8, 4, 4, 0.05, 2
GROUPS = np.array([0, 1, 0, 2, 1, 0, 2, 1])
KEPT = np.array([8, 6, 5, 8, 7, 8, 6, 5])  # Real samples of each client.
TASK = linear(FEATURES)
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "max_clusters": ROOM,
    "num_steps": STEPS,
}
START = np.array([0.1, -0.2, 0.1, 0.2], "f4")
PACE = 0.5  # Of alpha, and its limit, in most tests.
LIMIT = 0.9


def draw():
    """Clients of a group have one model, and nearly the same gradient anywhere."""
    data = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
    truths = 2 * np.eye(FEATURES, dtype="f4")[:3]
    inputs = np.sqrt(FEATURES) * np.eye(FEATURES, dtype="f4")
    inputs = inputs[np.arange(8) % FEATURES] + 0.1 * np.asarray(data.inputs)
    targets = np.einsum("csf,cf->cs", inputs, truths[GROUPS])
    return by_hand.padded(inputs, targets, KEPT)


DATA = draw()


def build(**changes):
    return icfl(TASK, **(SETTINGS | changes))


@functools.partial(jax.jit, static_argnames="participation")
def traced_step(rate, limit, key, state, data, participation):
    """A round of any rate and limit, compiled once for each participation."""
    algorithm = build(rate=rate, limit=limit, participation=participation)
    return algorithm.step(key, state, data)


def at(rate=PACE, limit=LIMIT, participation=1.0):
    step = functools.partial(traced_step, rate, limit, participation=participation)
    return build()._replace(step=step)


FULL, HALF = at(), at(participation=0.5)


def begin(data=DATA):
    state = build().init(jax.random.key(0), data)
    return state._replace(models=jnp.asarray(np.tile(START, (1 + ROOM, 1))))


def cosine(a, b):
    return a @ b / np.sqrt(a @ a * (b @ b))


def two_means(points):
    """Who is apart from the first point, in the best of all bipartitions."""
    spread = lambda part: np.sum((part - part.mean(axis=0)) ** 2)
    found = []
    for rest in itertools.product((False, True), repeat=len(points) - 1):
        second = np.array([False, *rest])
        if second.any():
            found.append((spread(points[second]) + spread(points[~second]), rest))
    return np.array([False, *min(found)[1]])


class ByHand:
    """The server with lists; `wrong` names the rule that is not ours."""

    def __init__(self, wrong="", rate=PACE, limit=LIMIT):
        self.wrong, self.rate, self.limit, self.time = wrong, rate, limit, 0
        self.models = [START.astype(float)]
        self.clusters = np.zeros(CLIENTS, int)
        self.updates, self.lost = {}, set()

    def parts(self, members):
        """Connectivity, and who leaves."""
        updates = [self.updates[i] for i in members]
        similar = np.array([[cosine(a, b) for a in updates] for b in updates])
        values, vectors = np.linalg.eigh(similar)
        points = vectors[:, -2:]
        if self.wrong == "rows":
            points = np.linalg.svd(similar)[2].T[:2].T
        second = two_means(points) if len(members) > 1 else np.array([False])
        return values[-1] / len(members), np.array(members)[second]

    def round(self, asked):
        asked = sorted(set(asked) - self.lost)
        steps = {"step_size": STEP, "num_steps": STEPS}
        trained = {}
        for i in asked:
            received = self.models[self.clusters[i]]
            trained[i] = by_hand.trained(DATA, i, received, **steps)
            self.updates[i] = trained[i] - received
        self.join(asked)
        self.cut(asked)
        self.average(asked, trained)
        self.time += 1

    def join(self, asked):
        if len(self.models) == 1:
            return
        for i in asked:
            if self.clusters[i] == 0:
                moved = [theta - self.models[0] for theta in self.models[1:]]
                towards = [cosine(self.updates[i], own) for own in moved]
                best = 1 + int(np.argmax(towards))
                last = len(self.models) - 1
                self.clusters[i] = last if self.wrong == "last" else best

    def cut(self, asked):
        number, self.told = len(self.models) - 1, {}
        alpha = self.limit * (1 - np.exp(-self.rate * self.time))
        for k in range(1, number + 1) if number else [0]:
            members = np.flatnonzero(self.clusters == k) if k else np.array(asked)
            if not len(members):
                continue
            self.told[k], second = self.parts(members)
            more = 1 if k else 2
            room = len(self.models) - 1 + more <= ROOM
            if self.told[k] < alpha and len(members) > 1 and room:
                if not k:
                    self.models.append(self.models[0])
                    self.clusters[members] = 1
                self.clusters[second] = len(self.models)
                self.models.append(self.models[k])
            elif not k and self.wrong == "lost":
                self.lost |= set(range(CLIENTS)) - set(asked)

    def average(self, asked, trained):
        mean = lambda members: np.average(
            [trained[i] for i in members], axis=0, weights=KEPT[list(members)]
        )
        if len(self.models) == 1:
            self.models[0] = mean(asked)
            return
        counted = np.zeros(CLIENTS, bool)
        counted[asked if self.wrong == "asked" else range(CLIENTS)] = True
        sizes = []
        for k in range(1, len(self.models)):
            here = [i for i in asked if self.clusters[i] == k]
            if here:
                self.models[k] = mean(here)
            sizes.append(KEPT[(self.clusters == k) & counted].sum())
        self.models[0] = np.average(self.models[1:], axis=0, weights=sizes)


def follow(algorithm, hand, num_rounds) -> tuple[Any, list[Any]]:
    """Rounds of both; the last state and all information."""
    state, seen = begin(), []
    for seed in range(num_rounds):
        state, info = algorithm.step(jax.random.key(seed), state, DATA)
        hand.round(np.flatnonzero(np.isfinite(info.losses)).tolist())
        seen.append(info)
    return state, seen
