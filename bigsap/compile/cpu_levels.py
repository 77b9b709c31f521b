"""Processor levels that kernels are built for, and those of this processor."""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

from numba.core import codegen as numba_codegen
from numba.core import config as numba_config

codegen: Any = numba_codegen
config: Any = numba_config

#: Levels of the x86-64 psABI, with LLVM's feature names; each includes those before it.
X86 = {
    "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def known_levels() -> list[str]:
    """Return the levels that kernels of this architecture may be built for, the lowest first.

    If none are defined, the only level is the machine's own processor.
    """
    return list(X86) if platform.machine().lower() in ("x86_64", "amd64") else [own_level()]


def own_level() -> str:
    """Return the level of exactly this processor, with all its features."""
    name, features = _processor()
    return f"{name} {features}"


def usable_levels() -> list[str]:
    """Return the levels whose code runs here, best first; empty if numba's CPU is set explicitly."""
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        return []
    return _usable(platform.machine().lower(), _processor()[1]) or [own_level()]


def _usable(machine: str, features: str) -> list[str]:
    """Return the levels for a processor with these features, in LLVM's notation: ``+avx,...``"""
    found: list[str] = []
    if machine in ("x86_64", "amd64"):
        has = {word[1:] for word in features.split(",") if word.startswith("+")}
        for level, needed in X86.items():
            if not has.issuperset(needed):
                break
            found.insert(0, level)
    return found


@cache
def _processor() -> tuple[str, str]:
    from llvmlite import binding

    # numba's list and not LLVM's: it omits features disabled by the environment.
    name = config.CPU_NAME
    features = config.CPU_FEATURES
    return (
        binding.get_host_cpu_name() if name is None else name,
        codegen.get_host_cpu_features() if features is None else features,
    )
