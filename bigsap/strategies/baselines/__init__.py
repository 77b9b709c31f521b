"""Methods of the literature that answers and times are compared with."""
