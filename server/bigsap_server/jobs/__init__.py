"""Jobs: their table, supervisor and workers, and the files by which these communicate."""
