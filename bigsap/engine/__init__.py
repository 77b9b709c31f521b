"""State and kernels of the solve; see ARCHITECTURE.md."""
