"""One solve: from rows to a result, whatever stops it, and what it tells of its work."""
