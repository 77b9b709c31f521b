"""Cost specs: validation, estimates, and construction of sources."""
