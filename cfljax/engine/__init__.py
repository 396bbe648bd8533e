"""What runs algorithms: one run, and grids of trials that lose nothing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
