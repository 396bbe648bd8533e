"""The findings."""

from collections.abc import Mapping


def sources(report: bool) -> Mapping[str, str]:
    """The page."""
    return {}
