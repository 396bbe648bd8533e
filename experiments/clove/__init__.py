"""Experiments of CLoVE, one file per table or figure."""
