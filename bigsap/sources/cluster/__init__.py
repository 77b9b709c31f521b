"""Costs evaluated by the workers of a Dask cluster (docs/cluster.md)."""
