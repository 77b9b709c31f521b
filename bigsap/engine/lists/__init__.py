"""Engine for compressed rows: lists of each row's best columns."""
