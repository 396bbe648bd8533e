"""Werner et al.: Provably Personalized and Robust Federated Learning. One module per
family of statements."""

__all__: list[str] = []
