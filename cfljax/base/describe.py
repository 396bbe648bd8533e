"""What data, states and algorithms print: what a person wants to know of them."""

from typing import Any


def summary(self: Any) -> str:
    """A NamedTuple with its type's name, and shapes in place of arrays.

    A tree of arrays is its leaves' types and shapes, as `{weights: float32[2,200]}`;
    fields that are None are left out.
    """
    fields = self._asdict().items()
    pairs = (f"{name}={short(one)}" for name, one in fields if one is not None)
    return f"{type(self).__name__}({', '.join(pairs)})"


def short(value: Any) -> str:
    """Types and shapes in place of the arrays of a tree."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, dict):
        pairs = (f"{name}: {short(entry)}" for name, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return summary(value)
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(short, value))})"
    return repr(value)
