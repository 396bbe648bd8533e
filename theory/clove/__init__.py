"""Anonymous: CLoVE: Personalized Federated Learning through Clustering of Loss Vector
Embeddings (CLoVE). One module for each group of claims."""

__all__: list[str] = []
