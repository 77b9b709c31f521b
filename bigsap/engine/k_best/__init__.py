"""The k best assignments: Murty's partition on lists of allowed pairs, in exact integers."""
