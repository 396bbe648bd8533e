"""Helpers of two or more modules of statements."""
