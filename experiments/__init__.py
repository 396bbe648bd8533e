"""Tables and figures of the papers, and benchmarks: `python -m experiments`."""
