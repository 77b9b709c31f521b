"""Searches on complete lists: every allowed pair of a row is at hand."""
