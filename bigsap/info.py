"""The facts that ``bigsap info`` prints: versions, machine, caches, optional parts."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

from bigsap.compile import kernel_files
from bigsap.engine.core.team import available_threads
from bigsap.memory import available_memory, memory_limit_bytes, total_memory


def collect() -> dict[str, Any]:
    """Return the facts for a bug report, in JSON types. Starts nothing, compiles nothing."""
    kept = kernel_files.kept_in()
    return {
        "bigsap": version("bigsap"),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": available_threads(),
        "memory_bytes": total_memory(),
        "memory_available_bytes": available_memory(),
        "memory_limit_bytes": memory_limit_bytes(),
        "kernel_cache": None if kept is None else str(kept),
        "built_kernels": kernel_files.built(),
        "extras": extras(),
    }


def version(distribution: str) -> str | None:
    """Return the installed version; None if absent (or run from an uninstalled folder)."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    """Return the processor's name as the system reports it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:  # no Linux, or no /proc
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


# One distribution that shows whether an extra is installed.
_EXTRAS = {
    "zarr": ("zarr",),
    "http": ("httpx",),
    "server": ("fastapi", "uvicorn", "distributed"),
    "gpu12": ("cupy-cuda12x",),
    "gpu13": ("cupy-cuda13x",),
    "cluster": ("distributed",),
    "demo": ("scikit-learn", "pillow"),
}


def extras() -> dict[str, dict[str, str | None]]:
    """Return for each extra its main distributions and their versions, None if absent."""
    return {
        extra: {name: version(name) for name in distributions} for extra, distributions in _EXTRAS.items()
    }


def text_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return ``collect()`` as (label, value) pairs for display."""
    from bigsap.display.text import bytes_text

    def size(key: str) -> str:
        return "unknown" if facts[key] is None else bytes_text(facts[key])

    limit = "" if facts["memory_limit_bytes"] is None else f", limit {size('memory_limit_bytes')}"
    kept = facts["kernel_cache"] or "nothing can be written: kernels compile every time"
    built = ", ".join(f"{count} for {level}" for level, count in facts["built_kernels"].items())
    lines = [
        ("bigsap", facts["bigsap"] or "not installed, run from a folder"),
        ("python", facts["python"]),
        ("numpy", facts["numpy"] or "unknown"),
        ("numba", facts["numba"] or "unknown"),
        ("platform", facts["platform"]),
        ("cpu", facts["cpu"]),
        ("threads", f"{facts['threads']} of {facts['cores']} cores"),
        ("memory", f"{size('memory_bytes')}, available {size('memory_available_bytes')}{limit}"),
        ("built kernels", built or "none"),
        ("kernel cache", kept),
    ]
    for extra, parts in facts["extras"].items():
        have = ", ".join(f"{name} {v}" for name, v in parts.items() if v is not None)
        missing = [name for name, v in parts.items() if v is None]
        hint = f'no: pip install "bigsap[{extra}]"'
        lines.append((f"extra {extra}", hint if missing else have))
    return lines
