"""Shortcuts where clients lose all models, for any number of runs, on any device."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.montecarlo import prepare, rounds, run_ifca, state
from cfljax.montecarlo.state import Runs

SAMPLES, FEATURES = 3, 2


def two_clients():
    """One client of large inputs, one of small ones, and a step too long for either."""
    draws = np.random.default_rng(0)
    scales = np.array([1e4, 1e-1])[:, None, None]
    inputs = (draws.normal(size=(2, SAMPLES, FEATURES)) * scales).astype(np.float32)
    targets = draws.normal(size=(1, 2, SAMPLES)).astype(np.float32)
    start = draws.normal(size=(1, 1, FEATURES)).astype(np.float32)
    largest = np.linalg.norm(inputs[0].astype(float), 2) ** 2 / SAMPLES
    return inputs, targets, start, np.float32(4.4 / largest)


def plain(inputs, targets, model, step, number):
    """Rounds of one model; a client whose loss overflows takes no part."""
    dropped = None
    for turn in range(number):
        with np.errstate(over="ignore"):
            errors = np.einsum("csf,f->cs", inputs, model) - targets
            takes_part = np.isfinite(np.mean(np.square(errors), axis=1))
        if dropped is None and not np.all(takes_part):
            dropped = turn
        own = np.flatnonzero(takes_part)
        gradient = 2 / SAMPLES * np.einsum("csf,cs->f", inputs[own], errors[own])
        model = model - np.float32(step / len(inputs)) * gradient.astype(np.float32)
    return model, dropped


@pytest.mark.parametrize("number", [20, 60, 300])
def test_a_client_that_loses_the_only_model_moves_it_no_more(number):
    inputs, targets, start, step = two_clients()
    samples = prepare(jnp.asarray(inputs), jnp.asarray(targets), np.array([0, 1]))
    steps, which = np.array([step]), np.zeros(1, int)
    ends = run_ifca(samples, start, which, steps, num_rounds=number)
    expected, dropped = plain(inputs, targets[0], start[0, 0], step, number)
    assert (dropped is not None) == (number > 20)
    np.testing.assert_allclose(ends.models[0, 0], expected, rtol=1e-3)


def test_many_numbers_of_runs_need_few_programs(monkeypatch):
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(6, SAMPLES, FEATURES)).astype(np.float32)
    targets = draws.normal(size=(1, 6, SAMPLES)).astype(np.float32)
    samples = prepare(jnp.asarray(inputs), jnp.asarray(targets), np.arange(6) // 3)
    number = 192
    runs = Runs(
        samples,
        draws.normal(size=(number, 1, FEATURES)).astype(np.float32),
        np.zeros(number, int),
        np.full(number, 0.1),
        num_rounds=number,
        per_cluster=False,
    )
    seen = set()  # One is compiled for each.

    def told(*arguments, **options):
        seen.add(tuple(np.shape(each) for each in arguments))
        return rounds.sample_rounds(*arguments, **options)

    monkeypatch.setattr(state, "sample_rounds", told)
    for some in (186, 187, 188, 189, 190, 191, 192):
        runs.rounds(np.arange(some), 1)
    assert len(seen) == 1
    runs.rounds(np.arange(5), 1)  # Control: programs are counted.
    assert len(seen) == 2


def test_threads_compute_where_the_samples_are(monkeypatch):
    """JAX's settings of a thread are its own: each must be told of the device."""
    seen = []

    def told(device):
        seen.append((threading.get_ident(), device))
        return default_device(device)

    default_device = jax.default_device
    monkeypatch.setattr(jax, "default_device", told)
    monkeypatch.setattr(state, "pays_by_client", lambda *_: True)
    inputs, targets, start, step = two_clients()
    samples = prepare(jnp.asarray(inputs), jnp.asarray(targets), np.array([0, 1]))
    which, steps = np.zeros(1, int), np.array([step])
    runs = Runs(samples, start, which, steps, num_rounds=1, per_cluster=False)
    errors, _ = runs.evaluate(which, start[0])
    runs.descend(which, which, np.ones((1, 2), bool), (errors,), which)
    assert [device for _, device in seen] == [samples.device] * 2
    assert threading.get_ident() not in dict(seen)
    moved, _ = plain(inputs, targets[0], start[0, 0], step, 1)
    np.testing.assert_allclose(runs.models[0, 0], moved, rtol=1e-5)
