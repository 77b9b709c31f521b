"""First prices."""
