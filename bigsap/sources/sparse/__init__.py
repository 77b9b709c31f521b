"""Sparse costs: only listed pairs are allowed."""
