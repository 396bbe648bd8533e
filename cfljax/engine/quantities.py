"""Quantities: what the names of fields and outcomes mean, declared once for all.

    quantity("noise")  # Quantity("standard deviation of the noise", "σ")

One name means one thing in every experiment, so it says the same on each axis, in each
table and in each file. A trial with names of its own hands them to its `Grid`.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import xarray


class Quantity(NamedTuple):
    """What a name stands for.

    long_name: in words, without symbol and unit.
    symbol: of the papers; "" if they have none.
    units: in the form of UDUNITS; "" for what has none: counts, ratios and names.
    """

    long_name: str
    symbol: str = ""
    units: str = ""

    @property
    def label(self) -> str:
        """As an axis says it: words and symbol."""
        return f"{self.long_name} {self.symbol}".strip()


# Settings. Names without `num_` are those of tables.
_SETTINGS = {
    "algorithm": Quantity("algorithm"),
    "arm": Quantity("method"),
    "attack": Quantity("attack"),
    "batch_size": Quantity("batch size", "B"),
    "choice": Quantity("what is chosen"),
    "convention": Quantity("scale of the true models"),
    "dataset": Quantity("data set"),
    "deviation": Quantity("standard deviation of the points"),
    "example": Quantity("example"),
    "factor": Quantity("radius in units of the usual one"),
    "images": Quantity("images"),
    "init_scale": Quantity("scale of the start"),
    "kind": Quantity("part of the study"),
    "label": Quantity("method"),
    "margin": Quantity("margin of the start", "α₀"),
    "members": Quantity("members of a cluster", "nᵢ"),
    "method": Quantity("method"),
    "models": Quantity("models", "k"),
    "network": Quantity("network"),
    "noise": Quantity("standard deviation of the noise", "σ"),
    "num_clients": Quantity("clients", "m"),
    "num_clusters": Quantity("clusters", "k"),
    "num_epochs": Quantity("local epochs", "τ"),
    "num_features": Quantity("features", "d"),
    "num_members": Quantity("members of a cluster", "nᵢ"),
    "num_models": Quantity("models", "k"),
    "num_participants": Quantity("clients of a round"),
    "num_restarts": Quantity("random starts"),
    "num_rounds": Quantity("rounds", "T"),
    "num_samples": Quantity("samples of a client", "n"),
    "num_steps": Quantity("local steps", "τ"),
    "partition": Quantity("partition"),
    "radii": Quantity("radii"),
    "radius": Quantity("clipping radius", "τ"),
    "repetition": Quantity("repetition"),
    "rho": Quantity("squared signal to noise", "ρ"),
    "rule": Quantity("rule"),
    "scene": Quantity("scene"),
    "seed": Quantity("seed"),
    "separation": Quantity("separation", "R"),
    "setting": Quantity("setting"),
    "start": Quantity("start"),
    "step_size": Quantity("step size", "γ"),
    "task": Quantity("task"),
    "variant": Quantity("variant"),
}

# Where outcomes are measured, and what they are.
_OUTCOMES = {
    "accuracy": Quantity("accuracy on test samples"),
    "alpha": Quantity("margin of the start", "α₀"),
    "best_accuracy": Quantity("best accuracy on test samples"),
    "client": Quantity("client"),
    "client_accuracy": Quantity("mean accuracy of a client"),
    "cluster": Quantity("cluster"),
    "cluster_sizes": Quantity("clients of a cluster"),
    "code": Quantity("digests of the code that computed a cell"),
    "company": Quantity("others of the own cluster in the last balls"),
    "cross_entropy": Quantity("cross-entropy", units="nat"),
    "distance": Quantity("mean distance from the true models"),
    "error": Quantity("error"),
    "exact": Quantity("share of data sets with all clients right"),
    "failed": Quantity("whether a cell could not be computed"),
    "first_loss": Quantity("training loss of the start"),
    "floor": Quantity("error floor"),
    "followed": Quantity("whether a run was followed to its end"),
    "gap": Quantity("least distance of two true models", "Δ"),
    "high": Quantity("upper end of the interval of the success probability"),
    "held_out": Quantity("accuracy, chosen and judged on different samples"),
    "least_distance": Quantity("least distance of two true models"),
    "loss": Quantity("loss"),
    "low": Quantity("lower end of the interval of the success probability"),
    "matched_accuracy": Quantity("share of clients in their true cluster"),
    "nearest_distance": Quantity("mean distance from the nearest true models"),
    "oracle": Quantity("error of least squares with the true clusters"),
    "position": Quantity("model of a client", "xᵢ"),
    "purity": Quantity("share of the own cluster in the last balls"),
    "rand_index": Quantity("adjusted Rand index", "ARI"),
    "received": Quantity("from the centre to all clients", units="MiB"),
    "received_mib": Quantity("from the centre to all clients", units="MiB"),
    "recovered": Quantity("whether the final partition is the true one"),
    "restart": Quantity("random start"),
    "round": Quantity("round", "t"),
    "score": Quantity("accuracy or reconstruction loss"),
    "seen_rand_index": Quantity("adjusted Rand index of all who took part", "ARI"),
    "sent": Quantity("from all clients to the centre", units="MiB"),
    "sent_mib": Quantity("from all clients to the centre", units="MiB"),
    "share": Quantity("share"),
    "squared": Quantity("mean squared distance from the optimum"),
    "success": Quantity("success"),
    "successes": Quantity("trials that succeed"),
    "tested": Quantity("test"),
    "threshold": Quantity("largest distance of a success"),
    "trial": Quantity("trial"),
    "trials": Quantity("trials"),
    "used_clusters": Quantity("models that some client prefers"),
    "used_models": Quantity("models that some client trained"),
}

QUANTITIES: Mapping[str, Quantity] = _SETTINGS | _OUTCOMES

# What tables of results append to a name.
_ENDINGS = {
    "_low": "lower end of the interval: ",
    "_high": "upper end of the interval: ",
    "_mean": "mean: ",
    "_std": "standard deviation: ",
}


def quantity(name: str, own: Mapping[str, Quantity] | None = None) -> Quantity:
    """What a name means: the grid's own meaning, the common one, or, of a name that
    nobody has declared, its words.

    Args:
      name: of a field or an outcome; `clients` is `num_clients`, and endings as `_low`
        keep symbol and unit of what they belong to.
      own: of one grid, before the common ones.
    """
    known = {**QUANTITIES, **(own or {})}
    for found in (name, f"num_{name}"):
        if found in known:
            return Quantity(*known[found])
    for ending, words in _ENDINGS.items():
        if name.endswith(ending) and name.removesuffix(ending):
            inner = quantity(name.removesuffix(ending), own)
            return inner._replace(long_name=words + inner.long_name)
    return Quantity(re.sub(r"_+", " ", name).strip() or name)


def is_setting(name: str) -> bool:
    """Whether a name is known as one of what is set, not measured."""
    return name in _SETTINGS or f"num_{name}" in _SETTINGS


def explain(
    dataset: xarray.Dataset, own: Mapping[str, Quantity] | None = None
) -> xarray.Dataset:
    """The dataset with `long_name`, `symbol` and `units` of every variable, which
    xarray's own plots write on their axes. What a variable says already stays.

    The long name ends in the symbol, as axes show nothing else.
    """
    for name in dataset.variables:
        found = quantity(str(name), own)
        said = {
            "long_name": found.label,
            "symbol": found.symbol,
            "units": found.units,
        }
        mine = {key: text for key, text in said.items() if text}
        dataset[name].attrs = mine | dataset[name].attrs
    return dataset
