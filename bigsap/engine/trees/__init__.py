"""Hungarian method: alternating trees with a clock for dual updates, and zeros as bits."""
