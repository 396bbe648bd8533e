"""What two or more of Werner's modules share."""

__all__: list[str] = []
