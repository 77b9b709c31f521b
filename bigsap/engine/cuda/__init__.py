"""Both engines on CUDA devices; the kernels are the CUDA C++ files in this folder."""
