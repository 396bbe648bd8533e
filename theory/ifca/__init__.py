"""Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated
Learning (NeurIPS 2020; the statements follow the journal version's appendix)."""
