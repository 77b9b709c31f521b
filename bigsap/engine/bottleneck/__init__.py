"""Matchings of largest size on listed pairs of at most a certain cost."""
