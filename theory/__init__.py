"""Statements of published theorems, each with a check that can prove it wrong."""
