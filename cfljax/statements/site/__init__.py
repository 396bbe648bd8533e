"""Statements and their verdicts as files: JSON, pages with plots, whole sites.

All names stand in `__init__.pyi`; each is imported when it is first asked for, because
pages bring Matplotlib.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
