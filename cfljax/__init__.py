"""cfljax: theory validation for clustered federated learning, on stacked clients."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("cfljax")
