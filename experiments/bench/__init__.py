"""Benchmarks: side by side with a reference in one run, never against a stored time."""
