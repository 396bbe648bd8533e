"""Models as tasks: pure functions over plain pytrees of parameters.

Flax is imported with the first network that is asked for: linear models do without.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
