"""Small matrices: one kernel call on one thread."""
