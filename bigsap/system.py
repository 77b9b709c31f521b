"""Differences between operating systems: cores, processes, files that are open elsewhere.

Linux tells in ``/proc`` what a solve asks for, faster than any package does. On other systems psutil,
a dependency there, tells it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds for which a file that is open elsewhere is waited for.
PATIENCE_S = 2.0
_PAUSE_S = 0.02
_CGROUPS = "/sys/fs/cgroup"
# ERROR_ACCESS_DENIED, which also means an open file in a folder, and ERROR_SHARING_VIOLATION.
_IN_USE = (5, 32)


def system_file(path: str) -> str:
    """Return the text of a small system file; OSError if there is none.

    Takes half the time of ``Path.read_text``; every solve reads a dozen such files.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16).decode()
    finally:
        os.close(file)


def cgroup_folders(controller: str) -> list[str]:
    """Return the folders of this process's cgroup and of those above it: v2, then v1; own first.

    Limits of all of them hold. A container sees its own cgroup as the root; a job of Slurm or systemd
    does not. controller: of v1, where each has a tree.
    """
    try:
        return _cgroup_folders(system_file("/proc/self/cgroup"), controller)
    except OSError:
        return _cgroup_folders("", controller)


@cache
def _cgroup_folders(lines: str, controller: str) -> list[str]:
    own: dict[str, str] = {}
    for line in lines.splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    found: list[str] = []
    for tree, below in ((_CGROUPS, own.get("", "")), (f"{_CGROUPS}/{controller}", own.get(controller, ""))):
        folder = os.path.normpath(f"{tree}/{below}")
        while folder.startswith(f"{tree}/"):  # not where a container's process was moved out of its root
            found.append(folder)
            folder = os.path.dirname(folder)
        found.append(tree)
    return [folder for folder in found if os.path.isdir(folder)]


def psutil_or_none() -> Any:
    """Return the module psutil; None if it is not installed."""
    try:
        import psutil
    except ImportError:
        return None
    return psutil


def usable_cores() -> int:
    """Return the number of cores that this process may use, by its affinity; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    # Windows has affinities too; macOS has none.
    affinity = getattr(getattr(psutil_or_none(), "Process", None), "cpu_affinity", None)
    if affinity is not None:
        return len(psutil_or_none().Process().cpu_affinity()) or 1
    return os.cpu_count() or 1


def patiently(action: Callable[[], T]) -> T:
    """Return ``action()``, repeated while Windows refuses since another program has the file open.

    Other systems replace, move and delete open files, so nothing is repeated there. Raises the last
    PermissionError after ``PATIENCE_S`` seconds.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return action()
        except PermissionError as error:
            if getattr(error, "winerror", None) not in _IN_USE or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename a file over ``target``, or a folder to a name that is free.

    Raises PermissionError naming both if another program keeps one of them open, and OSError if the target
    is a device, pipe or socket: programs that use it would find a file there.
    """
    if os.path.exists(target) and not (os.path.isfile(target) or os.path.isdir(target)):
        raise OSError(errno.EINVAL, "it is a device, pipe or socket: name a file", os.fspath(target))
    try:
        patiently(partial(os.replace, source, target))
    except PermissionError as error:
        if getattr(error, "winerror", None) not in _IN_USE:
            raise
        error.strerror = "it, or a file in it, is open in another program: close it there"
        raise
