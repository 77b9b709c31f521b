"""Costs that exist as arrays: in memory, in mapped files, behind ``__getitem__``."""
