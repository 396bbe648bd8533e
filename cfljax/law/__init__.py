"""Exact laws: probabilities and simulations that need no raw data."""

from cfljax.law.misassignment import (
    error_exponent,
    log_misassignment_probability,
    misassignment_kappa,
    misassignment_probability,
    worst_kappa,
)

__all__ = [
    "error_exponent",
    "log_misassignment_probability",
    "misassignment_kappa",
    "misassignment_probability",
    "worst_kappa",
]
