"""Jothimurugesan et al.: Federated Learning under Distributed Concept Drift (FedDrift).
AISTATS 2023. Abstract, introduction and released code could be read: a row is a rule of
the code, or a theorem of our own on it."""

__all__: list[str] = []
