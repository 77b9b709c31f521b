"""Files of compiled kernels: one for each kernel, types and processor, named by its content.

A name stands for one content, so there is nothing to invalidate, and processes that write the
same file at once write the same. A damaged file has another checksum, and counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import zlib
from functools import cache
from pathlib import Path

SUFFIX = ".kernel"
_MARK = b"bigsap kernel 1\n"
PACKAGE = Path(__file__).resolve().parents[1]
#: Kernels that came with the package; read-only.
BUILT = PACKAGE / "compile" / "built"
# Versions kept of each function, for each of its types: other checkouts use them too.
_VERSIONS = 4


def folder_of(level: str) -> str:
    """Return the name of a level's folder in ``BUILT``."""
    return level if re.fullmatch(r"[\w.-]+", level) else "own"


def built() -> dict[str, int]:
    """Return the levels that came with the package, and the number of kernels of each."""
    return {
        folder.name: sum(1 for _ in folder.glob(f"*{SUFFIX}"))
        for folder in sorted(BUILT.glob("*"))
        if folder.is_dir()
    }


def kept_in() -> Path | None:
    """Return the folder of kernels compiled here; None if none is writable.

    ``NUMBA_CACHE_DIR`` if set, else in the package, else the user's cache folder. The path is
    absolute: a later change of the working folder does not move it.
    """
    return _writable(os.environ.get("NUMBA_CACHE_DIR", ""))


@cache
def _writable(chosen: str) -> Path | None:
    if chosen:
        places = [Path(chosen) / "bigsap"]
    else:
        # Where no home is known "~" stays as it is, and a relative XDG_CACHE_HOME is void by its standard.
        owned = os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser(os.path.join("~", ".cache"))
        own = [Path(folder) / "bigsap" for folder in owned if os.path.isabs(folder)]
        places = [PACKAGE / "__pycache__", *own[:1]]
    for place in places:
        with contextlib.suppress(OSError):
            folder = place.absolute()
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
    return None


def read(folder: Path, name: str) -> bytes | None:
    """Return the content of a kernel's file; None if it is missing, unreadable or damaged."""
    try:
        data = (folder / (name + SUFFIX)).read_bytes()
    except OSError:
        return None
    head = len(_MARK) + 32
    if not data.startswith(_MARK) or hashlib.sha256(data[head:]).digest() != data[len(_MARK) : head]:
        return None
    return zlib.decompress(data[head:])


def write(folder: Path, name: str, content: bytes) -> None:
    """Save a kernel; if the folder is full or missing it is not saved, which only costs time."""
    packed = zlib.compress(content)
    data = _MARK + hashlib.sha256(packed).digest() + packed
    if write_file(folder / (name + SUFFIX), data):
        _tidy(folder, name)


def write_file(path: Path, data: bytes) -> bool:
    """Replace a file atomically; return whether that succeeded.

    On Windows it fails while another process reads the file, whose content is then the same.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        with open(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True


def _tidy(folder: Path, name: str) -> None:
    """Remove the oldest versions of a kernel, by time of writing."""
    group = name.rpartition("-")[0]
    found: list[tuple[float, Path]] = []
    for path in folder.glob(f"{group}-*{SUFFIX}"):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime, path))
    for _, path in sorted(found)[:-_VERSIONS]:
        with contextlib.suppress(OSError):
            path.unlink()
