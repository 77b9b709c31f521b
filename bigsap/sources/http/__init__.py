"""Costs from a provider of rows over HTTP."""
