"""Costs from a formula in a small safe language."""
