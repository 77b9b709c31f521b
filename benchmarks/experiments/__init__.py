"""What is measured: one experiment a module."""
