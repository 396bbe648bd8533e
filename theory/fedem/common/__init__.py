"""What several rows of FedEM share."""

__all__: list[str] = []
