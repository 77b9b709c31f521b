"""Jobs: their table, their workers, and how the two agree."""
