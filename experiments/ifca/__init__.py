"""Experiments of IFCA (Ghosh et al., NeurIPS 2020), one file per table or figure."""
