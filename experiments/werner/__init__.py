"""Experiments of Werner et al. (TMLR 2023), one file per table or figure."""
