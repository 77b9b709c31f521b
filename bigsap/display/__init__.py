"""Display of a result, and of a running solve: text, a figure, a progress bar."""
