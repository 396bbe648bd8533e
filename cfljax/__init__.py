"""cfljax: theory validation for clustered federated learning, on stacked clients.

    import cfljax as cfl

    data, truth = cfl.data.mixed_linear(key, ...)
    algorithm = cfl.ifca(cfl.models.linear(200), num_clusters=2, step_size=0.1)
    state, _ = cfl.run(algorithm, key, data, num_rounds=300)

All public names stand in `__init__.pyi`; each is imported when it is first asked for,
so that `import cfljax` takes no time. It offers JAX a device for each processor core;
where `JAX_NUM_CPU_DEVICES` says how many, or JAX has started, it leaves them alone.
With the first name that computes, compiled programs are kept for the next process, see
`engine.keep_programs`.
"""

import sys
from typing import Any

import lazy_loader

from cfljax.cores import offer_cores

offer_cores()

__version__ = "0.2.0"
_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """A public name, when it is first asked for."""
    found = _find(name)
    if "jax" in sys.modules:
        from cfljax.engine.cache import keep_programs

        keep_programs()
    return found
