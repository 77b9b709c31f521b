"""Methods of the literature, for comparison of answers and times."""
