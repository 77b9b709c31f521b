"""Engine that scans whole rows."""
