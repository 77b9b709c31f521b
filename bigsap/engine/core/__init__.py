"""Parts shared by all engines: state, thread team, row access, scans, arithmetic."""
