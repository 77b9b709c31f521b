"""A result, and a solve under way, as a person sees them: text, a figure, a progress bar."""
