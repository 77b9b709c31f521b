"""The engine that scans whole rows."""
