"""Costs that device kernels read."""
