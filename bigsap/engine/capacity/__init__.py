"""Kernels for columns that take many rows: searches from column to column."""
