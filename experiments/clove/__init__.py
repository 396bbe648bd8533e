"""Experiments of CLoVE: its tables, the figures that differ from them, unknown K."""
