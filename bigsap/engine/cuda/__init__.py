"""Both engines on devices; the kernels are CUDA C++ files beside."""
