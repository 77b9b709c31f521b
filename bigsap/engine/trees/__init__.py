"""The Hungarian method: alternating trees under a clock, and rows' zeros as bits."""
