"""Memory of the machine, and of this process."""

from __future__ import annotations

import os
import re
import sys


def system_file(path: str) -> str:
    """Return the text of a small system file; OSError if there is none.

    Takes half the time of ``Path.read_text``; every solve reads a dozen such files.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16).decode()
    finally:
        os.close(file)


def memory_bytes(field: str) -> int | None:
    """Return a field of /proc/meminfo in bytes; None if there is none."""
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB$", system_file("/proc/meminfo"), re.M)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def memory_limit_bytes() -> int | None:
    """Return the cgroup's memory limit (v2, then v1); None without a limit."""
    return _cgroup("memory.max", "memory/memory.limit_in_bytes")


def free_memory() -> int:
    """Return the bytes that this process may still take: free memory, or less under a cgroup limit."""
    free = memory_bytes("MemAvailable")
    if free is None:
        try:
            free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, AttributeError):
            free = 4 << 30
    limit = memory_limit_bytes()
    used = _cgroup("memory.current", "memory/memory.usage_in_bytes")
    if limit is not None and used is not None:
        free = min(free, limit - used)
    return max(free, 64 << 20)


def peak_bytes() -> int:
    """Return the largest resident size of this process so far, in bytes (0 if unknown)."""
    try:
        # Not ru_maxrss: that survives exec, so a child would report its parent's peak.
        for line in system_file("/proc/self/status").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        import resource
    except ImportError:
        return 0
    scale = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * scale


def _cgroup(*names: str) -> int | None:
    """Return the number in the first of these files that exists; None for "no limit"."""
    for name in names:
        try:
            text = system_file(f"/sys/fs/cgroup/{name}").strip()
        except OSError:
            continue
        # v1 writes "no limit" as a number near 2**63.
        return int(text) if text.isdigit() and int(text) < 2**60 else None
    return None
