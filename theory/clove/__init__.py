"""Anonymous: CLoVE: Personalized Federated Learning through Clustering of Loss Vector
Embeddings (CLoVE). One module per family of statements."""

__all__: list[str] = []
