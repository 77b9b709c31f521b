"""First prices, warm starts and samples."""
