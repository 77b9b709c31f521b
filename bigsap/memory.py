"""Memory of the machine, and of this process."""

from __future__ import annotations

import re
import sys

from bigsap.system import cgroup_folders, psutil_or_none, system_file

#: Free memory of a machine that does not say how much it has.
_ASSUMED_FREE = 4 << 30


def total_memory() -> int | None:
    """Return the bytes of memory that the machine has; None if unknown."""
    return _machine_bytes("MemTotal", "total")


def available_memory() -> int | None:
    """Return the bytes that programs can still take without swapping; None if unknown."""
    return _machine_bytes("MemAvailable", "available")


def _machine_bytes(field: str, attribute: str) -> int | None:
    """Return a field of /proc/meminfo, or the attribute by which psutil names it elsewhere."""
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB$", system_file("/proc/meminfo"), re.M)
    except OSError:
        found = None
    if found:
        return int(found.group(1)) * 1024
    psutil = psutil_or_none()
    try:
        return None if psutil is None else int(getattr(psutil.virtual_memory(), attribute))
    except OSError:  # Linux without /proc
        return None


def memory_limit_bytes() -> int | None:
    """Return the least memory limit of this process's cgroups; None without a limit."""
    return min((limit for _, limit in _cgroup_limits()), default=None)


def free_memory() -> int:
    """Return the bytes that this process may still take: free memory, or less under a cgroup limit."""
    known = available_memory()
    free = _ASSUMED_FREE if known is None else known
    for folder, limit in _cgroup_limits():
        used = _cgroup_bytes(folder, "memory.current", "memory.usage_in_bytes")
        if used is not None and limit - used < free:
            free = min(free, limit - used + _reclaimable(folder))
    return max(free, 64 << 20)


def usable_memory() -> int:
    """Return the memory of the machine, or of the container if that has less.

    Default budgets are shares of it, so that a solve's choices do not depend on other programs.
    """
    known = total_memory()
    total = _ASSUMED_FREE if known is None else known
    limit = memory_limit_bytes()
    return max(total if limit is None else min(total, limit), 64 << 20)


def peak_bytes() -> int:
    """Return the largest resident size of this process so far, in bytes (0 if unknown)."""
    try:
        # Not ru_maxrss: that survives exec, so a child would report its parent's peak.
        for line in system_file("/proc/self/status").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return _peak_by_system()


if sys.platform == "win32":

    def _peak_by_system() -> int:
        psutil = psutil_or_none()
        return 0 if psutil is None else int(psutil.Process().memory_info().peak_wset)

else:

    def _peak_by_system() -> int:
        try:
            import resource
        except ImportError:  # a Python built without it
            return 0
        scale = 1 if sys.platform == "darwin" else 1024
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * scale


def _cgroup_limits() -> list[tuple[str, int]]:
    """Return the cgroups that limit this process's memory: folder and bytes."""
    limits = []
    for folder in cgroup_folders("memory"):
        limit = _cgroup_bytes(folder, "memory.max", "memory.limit_in_bytes")
        if limit is not None:
            limits.append((folder, limit))
    return limits


def _cgroup_bytes(folder: str, *names: str) -> int | None:
    """Return the number in the first of these files that exists; None for "no limit"."""
    for name in names:
        try:
            text = system_file(f"{folder}/{name}").strip()
        except OSError:
            continue
        # v1 writes "no limit" as a number near 2**63.
        return int(text) if text.isdigit() and int(text) < 2**60 else None
    return None


def _reclaimable(folder: str) -> int:
    """Return the bytes of files read that a cgroup holds and that the system drops when asked for more."""
    try:
        stat = system_file(f"{folder}/memory.stat")
    except OSError:
        return 0
    # v1 counts the group alone, and with those below as "total_".
    found = re.search(r"^total_inactive_file (\d+)$", stat, re.M) or re.search(
        r"^inactive_file (\d+)$", stat, re.M
    )
    return int(found.group(1)) if found else 0
