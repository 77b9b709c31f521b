"""Compiled kernels: compilation by numba, storage on disk, and reuse.

decorator: the ``kernel`` decorator. kernel_cache: looks kernels up on disk by content. kernel_files:
reads and writes them. digest: the content of a kernel. cpu_levels: features of processors.
"""
