"""Costs in zarr stores."""
