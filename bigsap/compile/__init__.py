"""Compiled kernels: what numba makes of them, where they are kept, who may use them.

kernel: the decorator. cache: kernels found on the disk by what they were made of.
kernel_files: reading and writing them. content: what they are made of. processors: what a
processor can do. ahead: a second process.
"""
