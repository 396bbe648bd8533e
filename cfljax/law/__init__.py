"""Exact laws: probabilities and simulations that need no raw data."""

from cfljax.law.chi import (
    chi_mean,
    chi_mean_ratio,
    chi_variance,
    choice_kappa,
    log_chi_square_tail,
    log_product_tail,
    student_tail,
)
from cfljax.law.gradients import (
    aggregated_gradient,
    contraction,
    error_floor,
    expected_square_error,
    gradient_steps,
)
from cfljax.law.loss_vectors import loss_factor, loss_vectors, root_loss_covariance
from cfljax.law.misassignment import (
    assign,
    error_exponent,
    log_misassignment_probability,
    misassignment_kappa,
    misassignment_probability,
    worst_kappa,
)
from cfljax.law.population import (
    Population,
    distances,
    place,
    population,
    random_starts,
)
from cfljax.law.risk import oracle_risk, pooled_risk, stationary_floor
from cfljax.law.simulate import Divisor, Trace, simulate

__all__ = [
    "Divisor",
    "Population",
    "Trace",
    "aggregated_gradient",
    "assign",
    "chi_mean",
    "chi_mean_ratio",
    "chi_variance",
    "choice_kappa",
    "contraction",
    "distances",
    "error_exponent",
    "error_floor",
    "expected_square_error",
    "gradient_steps",
    "log_chi_square_tail",
    "log_misassignment_probability",
    "log_product_tail",
    "loss_factor",
    "loss_vectors",
    "misassignment_kappa",
    "misassignment_probability",
    "oracle_risk",
    "place",
    "pooled_risk",
    "population",
    "random_starts",
    "root_loss_covariance",
    "simulate",
    "stationary_floor",
    "student_tail",
    "worst_kappa",
]
