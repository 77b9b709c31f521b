"""Costs by the user's CUDA C++: ``cuda_kernel``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsap.errors import DtypeError, OptionError, ShapeError
from bigsap.sources.base import SCANNABLE
from bigsap.sources.convert import cost_shape
from bigsap.sources.cuda.code import C_TYPES, PairCode
from bigsap.sources.cuda.placed import ComputedOnDevice
from bigsap.types import Array, Ids


class CudaKernelSource:
    """Costs by the user's CUDA C++. See ``cuda_kernel``.

    Rows can be read only on a machine with a device.
    """

    def __init__(self, shape: tuple[int, int], pair: PairCode) -> None:
        self.shape = shape
        self.pair = pair
        self.dtype = pair.dtype
        self._placed: ComputedOnDevice | None = None

    def __repr__(self) -> str:
        return f"cuda_kernel({self.shape[0]} x {self.shape[1]}, {self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return CudaKernelSource, (self.shape, self.pair)

    def on_device(self, device: int) -> ComputedOnDevice:
        if self._placed is None or self._placed.device != device:
            self._placed = ComputedOnDevice(self.shape, device, self.pair)
        return self._placed

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``, computed on a device."""
        placed = self._placed or self.on_device(0)
        placed.read(rows, columns, out)

    def transposed(self) -> CudaKernelSource:
        """Return the same function by columns."""
        return CudaKernelSource((self.shape[1], self.shape[0]), self.pair.turned())

    def fingerprint(self) -> str:
        from bigsap.sources.metrics import digest

        code = self.pair.code()
        arrays = tuple(np.asarray(a) for a in code.words)
        return digest(repr((self.shape, code.text, str(self.dtype))), arrays)


def cuda_kernel(
    code: str,
    shape: Sequence[int],
    args: Sequence[Any] = (),
    *,
    dtype: Any = np.float64,
    options: Sequence[str] = (),
) -> CudaKernelSource:
    """Return costs ``cost[i, j]`` by CUDA C++, compiled into the device kernels.

    code: text that defines ``__device__ T cost(long long i, long long j, ...)``, T the
        C type of ``dtype``; the further parameters take ``args`` in order.
    shape: (n_rows, n_columns). args: numpy or CuPy arrays, passed as ``const E*`` to their
        items in C order (E as numpy's dtype: double, float, long long, int, unsigned
        short, unsigned char), and numbers, passed as ``double`` or ``long long``.
    dtype: of the costs, a scannable one. options: for the compiler (``-I...``, ``-D...``);
        contraction is off unless ``-fmad=true`` is among them.

    The function must be pure: it is called any number of times, in any order. +inf forbids a pair.
    Needs ``device="cuda"``; nothing is compiled here. Raises OptionError, DtypeError, ShapeError;
    compile errors are ``KernelError``, with the line marked.
    """
    if not isinstance(code, str) or not re.search(r"\bcost\s*\(", code):
        raise OptionError("code must be CUDA C++ that defines __device__ ... cost(i, j, ...)")
    sizes = cost_shape(shape, "shape=")
    number = np.dtype(dtype)
    if number not in SCANNABLE:
        raise DtypeError(f"dtype must be one of {[str(d) for d in SCANNABLE]}, got {number}")
    kinds: list[str] = []
    words: list[Any] = []
    for k, value in enumerate(args):
        kind, word = _argument(k, value)
        kinds.append(kind)
        words.append(word)
    text = f'#line 1 "cuda_kernel"\n{code}\n#line 1 "bigsap"\n'
    pair = PairCode(text, C_TYPES[number.name], tuple(kinds), tuple(words), number, options=tuple(options))
    return CudaKernelSource(sizes, pair)


def _argument(k: int, value: Any) -> tuple[str, Any]:
    """Return C type and word of the k-th argument."""
    if isinstance(value, (bool, np.bool_)):
        raise DtypeError(f"args[{k}] is a bool; pass 0 or 1")
    if isinstance(value, (int, np.integer)):
        if not -(2**63) <= int(value) < 2**63:
            raise OptionError(f"args[{k}] = {value} does not fit a long long")
        return "long long", int(value)
    if isinstance(value, (float, np.floating)):
        return "double", float(value)
    dtype = getattr(value, "dtype", None)
    if dtype is None or np.dtype(dtype).name not in C_TYPES:
        raise DtypeError(f"args[{k}] must be a number or an array of {sorted(C_TYPES)}")
    if not hasattr(value, "__cuda_array_interface__"):
        value = np.ascontiguousarray(value)
    elif not value.flags.c_contiguous:
        raise ShapeError(f"args[{k}] must be C-contiguous")
    return f"const {C_TYPES[np.dtype(dtype).name]}*", value
