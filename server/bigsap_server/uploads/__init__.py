"""Uploaded arrays."""
