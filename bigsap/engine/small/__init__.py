"""Small arrays: one call of a kernel on one thread."""
