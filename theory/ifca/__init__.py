"""Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated
Learning (IFCA). One module per family of statements."""

__all__: list[str] = []
