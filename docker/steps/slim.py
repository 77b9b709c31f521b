#!/usr/bin/env python3
"""Leave out of a virtual environment what nothing needs that runs.

slim.py VENV      prints what went, in MB

* pip, setuptools: nothing is installed into an image that runs
* folders named tests: the libraries' own tests
* .pyi and .a: for type checkers and linkers
* of shared libraries what follows their last loaded segment: symbol tables and debugging
  information, which numcodecs, uvloop and llvmlite ship; the loader reads none of it. Not of
  CUDA's libraries, which are NVIDIA's to change.
"""

from __future__ import annotations

import shutil
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
#: Packages whose libraries stay as they are.
UNTOUCHED = ("nvidia", "cupy", "cupy_backends", "cupyx", "cuda", "bigsap")
_HEADER, _LOAD = 64, 1
_TABLE_AT, _TABLE_SHAPE, _SECTIONS_AT, _SECTIONS_SHAPE = 32, 54, 40, 58


def loaded_end(file: Path) -> int | None:
    """Where the part of a 64-bit ELF library ends that is ever loaded; None of other files."""
    with file.open("rb") as opened:
        head = opened.read(_HEADER)
        if len(head) < _HEADER or head[:6] != b"\x7fELF\x02\x01":
            return None
        (at,) = struct.unpack_from("<Q", head, _TABLE_AT)
        size, count = struct.unpack_from("<HH", head, _TABLE_SHAPE)
        opened.seek(at)
        table = opened.read(size * count)
    segments = [struct.unpack_from("<IIQQQQ", table, k * size) for k in range(count)]
    if not any(kind == _LOAD for kind, *_ in segments):
        return None
    ends = [offset + length for _, _, offset, _, _, length in segments]
    return max(_HEADER, at + size * count, *ends)


def strip(file: Path) -> int:
    """Cut a library after what is loaded, and its table of sections; the bytes that went."""
    end = loaded_end(file)
    before = file.stat().st_size
    if end is None or end >= before:
        return 0
    with file.open("r+b") as opened:
        opened.truncate(end)
        opened.seek(_SECTIONS_AT)
        opened.write(struct.pack("<Q", 0))
        opened.seek(_SECTIONS_SHAPE + 2)  # the size of an entry stays
        opened.write(struct.pack("<HH", 0, 0))
    return before - end


def weight(path: Path) -> int:
    """Bytes of a file, or of all in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def unneeded(site: Path) -> Iterator[tuple[str, Path]]:
    """(what it is, file or folder), each to be removed."""
    for name in INSTALLERS:
        for pattern in (name, f"{name}.pth", f"{name}-[0-9]*.dist-info"):
            yield from (("installers", path) for path in site.glob(pattern))
    yield from (("tests", path) for path in site.rglob("tests") if path.is_dir())
    for pattern in ("*.pyi", "*.a"):
        yield from (("for compilers", path) for path in site.rglob(pattern))


def slim(venv: Path) -> Counter[str]:
    """Remove it all; bytes by what they were."""
    (site,) = venv.glob("lib/python3*/site-packages")
    gone: Counter[str] = Counter()
    for what, path in list(unneeded(site)):
        if path.exists():  # not within a folder that has gone
            gone[what] += weight(path)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for script in venv.glob("bin/pip*"):
        script.unlink()
    for file in site.rglob("*.so*"):
        package = file.relative_to(site).parts[0]
        if not file.is_symlink() and not package.startswith(UNTOUCHED):
            gone["symbols"] += strip(file)
    return gone


if __name__ == "__main__":
    for what, size in slim(Path(sys.argv[1])).most_common():
        sys.stdout.write(f"{what}: {size / 1e6:.0f} MB\n")
