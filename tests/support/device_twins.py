"""What the device kernels compute, said once more in numpy: for tests on the CPU.

Index arithmetic and the choice of groups follow ``kernels_dense.cu`` and
``kernels_rows.cu``, ``kernels_lists.cu`` line by line; tests compare them with brute force,
and the suite for a real device compares the kernels with them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bigsap.engine.cuda.batch import SIDE
from host_compiler import compile_shared, host_compiler

INFINITE_BITS = 0xFF800000


def column_of(t: int, e: int, group: int, threads: int, width: int) -> int:
    """kernels_dense.cu: the column in place e of the group's thread t."""
    return (e // width) * (group * threads * width) + t * width + e % width


def bits_of(values: np.ndarray) -> np.ndarray:
    """kernels_rows.cu: order-preserving bits of floats, whose two zeros are one."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits ^ np.uint32(0x80000000))


def float_of(bits: int) -> float:
    """The float with these bits."""
    raw = bits ^ 0x80000000 if bits >> 31 else bits ^ 0xFFFFFFFF
    return float(np.array([raw], np.uint32).view(np.float32)[0])


def rounded_down(values: np.ndarray) -> np.ndarray:
    """float64 to the largest float32 not above."""
    near = values.astype(np.float32)
    return np.where(near > values, np.nextafter(near, np.float32(-np.inf)), near)


def limit_bits(lows: np.ndarray, wanted: int) -> int:
    """bigsap_select: bits below which ``wanted`` group minima lie, not many more."""
    bits = bits_of(lows)
    if bits.size < wanted:
        return 0xFFFFFFFF
    prefix = below = 0
    limit = 0xFFFFFFFF
    for shift in (24, 16, 8, 0):
        mask = 0 if shift == 24 else (0xFFFFFFFF << (shift + 8)) & 0xFFFFFFFF
        here = bits[(bits & np.uint32(mask)) == prefix]
        counts = np.bincount((here >> np.uint32(shift)) & np.uint32(255), minlength=256)
        upto = below + np.cumsum(counts)
        digit = int(np.argmax(upto >= wanted))
        before = int(upto[digit] - counts[digit])
        prefix |= digit << shift
        below = before
        limit = prefix | ((1 << shift) - 1)
        if before + counts[digit] <= wanted + 32:
            break
    return limit + 1 if limit < INFINITE_BITS else limit


def group_of(column: np.ndarray, size: int) -> np.ndarray:
    """The group that holds a column; see bigsap_tiles."""
    return column // (SIDE * size) * SIDE + column % SIDE


def columns_of(group: np.ndarray, size: int) -> np.ndarray:
    """The columns of a group, (..., size), including those beyond the matrix."""
    first = group // SIDE * (SIDE * size) + group % SIDE
    return np.asarray(first)[..., None] + np.arange(size) * SIDE


def select(tau: np.ndarray, k: int, size: int) -> tuple[np.ndarray, float, int]:
    """The list of one row by groups: columns by rising tau, theta, pairs opened."""
    m = tau.size
    n_groups = -(-m // (SIDE * size)) * SIDE
    columns = columns_of(np.arange(n_groups), size)
    padded = np.append(tau, np.inf)
    lows = rounded_down(padded[np.minimum(columns, m)].min(axis=1))
    limit = limit_bits(lows, k + 1)
    cap = float_of(limit) if limit < INFINITE_BITS else np.inf
    opened = np.flatnonzero((bits_of(lows) <= limit) & (bits_of(lows) < INFINITE_BITS))
    inside = columns[opened].ravel()
    inside = inside[inside < m]
    inside = inside[(tau[inside] <= cap) & (tau[inside] < np.inf)]
    inside = inside[np.lexsort((inside, tau[inside]))]
    theta = float(tau[inside[k]]) if inside.size > k else np.inf
    return inside[:k], theta, opened.size * size


def on_host(text: str, folder: Path, row: int, n: int, words: list[int]) -> np.ndarray | None:
    """Costs of one row by the device text of a source, compiled for the host as C++.

    None without a compiler.
    """
    if host_compiler() is None:
        return None
    shim = """
#include <math.h>
#include <string.h>
#define __device__
#define __forceinline__ inline
template <class T> static T __ldg(const T* p) { return *p; }
static double __longlong_as_double(long long b) { double x; memcpy(&x, &b, 8); return x; }
static double __dsqrt_rn(double x) { return sqrt(x); }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }
#define WIDTH 1
"""
    end = """
extern "C" void fill(const long long* words, int row, int n, COST_T* out) {
    Costs costs = load_costs(words);
    Row opened = open_row(costs, row);
    for (int j = 0; j < n; j++) out[j] = cost_at(costs, opened, j);
}
"""
    import ctypes

    source, library = folder / "costs.cpp", folder / "costs.so"
    source.write_text(shim + text + end)
    assert not compile_shared(source, library)
    fill = ctypes.CDLL(str(library)).fill
    out = np.empty(n)
    packed = np.array(words, np.int64)
    fill(ctypes.c_void_p(packed.ctypes.data), row, n, ctypes.c_void_p(out.ctypes.data))
    return out
