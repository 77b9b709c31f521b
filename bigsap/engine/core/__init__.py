"""What all engines share: state, the team of threads, rows, scans, arithmetic."""
