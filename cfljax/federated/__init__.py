"""What a round is made of: evaluation, local updates, messages, means, traffic."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
