"""Marfoq et al.: Federated Multi-Task Learning under a Mixture of Distributions
(FedEM). NeurIPS 2021. Abstract, introduction and released code could be read, theorems
and proofs could not: a row is what the code computes, or a theorem of our own."""

__all__: list[str] = []
