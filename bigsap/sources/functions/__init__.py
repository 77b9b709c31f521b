"""Costs from a user's Python function."""
