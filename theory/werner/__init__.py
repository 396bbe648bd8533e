"""Werner et al.: Provably Personalized and Robust Federated Learning. Statements by
theorem and by figure; what several of them need is in `common`."""

__all__: list[str] = []
