"""Matchings on listed pairs of at most a certain cost."""
