"""cfljax: theory validation for clustered federated learning, on stacked clients."""

__all__ = ["__version__"]

__version__ = "0.1.0"
