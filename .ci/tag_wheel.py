"""Give a wheel with compiled kernels the platform tag that it deserves.

    python .ci/tag_wheel.py bigsap-0.1.0-cp312-cp312-linux_x86_64.whl --to dist

auditwheel cannot judge such a wheel: it holds no shared library, only machine code that numba loads.
The question is the same, though: which functions of the C library does the code call, and since when
has glibc had them? Each undefined symbol of each kernel must be one that numba or Python brings, or
one of glibc of some version. The tag is the latest of those versions, and not below that of the numba
by which the kernels were compiled, since no other numba uses them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import pickle
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile

MARK = b"bigsap kernel 1\n"
#: Where glibc lies, by machine; its parts that a process of Python has loaded.
LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2")
FOLDERS = ("/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib")
#: Prefixes of what numba and Python bring.
BROUGHT = ("numba_", "NRT_", "Py", "_Py", "_ZN", ".numba.", "_ZN08NumbaEnv")

Version = tuple[int, ...]


def objects_of(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the machine code of each kernel in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".kernel"):
                data = archive.read(name)
                if not data.startswith(MARK):
                    raise SystemExit(f"{name} is not a kernel of this format")
                yield name, pickle.loads(zlib.decompress(data[len(MARK) + 32 :]))[1]


def undefined(code: bytes) -> set[str]:
    """Return the symbols that an object file needs from elsewhere."""
    table = ELFFile(io.BytesIO(code)).get_section_by_name(".symtab")
    symbols = table.iter_symbols() if table is not None else ()
    return {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name}


def glibc_symbols() -> dict[str, Version]:
    """Return each symbol of this machine's glibc with the earliest version that had it."""
    found: dict[str, Version] = {}
    for name in LIBRARIES:
        for folder in FOLDERS:
            path = Path(folder) / name
            if path.exists():
                with path.open("rb") as file:
                    for symbol, version in _versions(ELFFile(file)):
                        found[symbol] = min(version, found.get(symbol, version))
                break
    if not found:
        raise SystemExit("this system has no glibc in " + ", ".join(FOLDERS))
    return found


def _versions(library: ELFFile) -> Iterator[tuple[str, Version]]:
    defined = library.get_section_by_name(".gnu.version_d")
    indices = library.get_section_by_name(".gnu.version")
    names = {version["vd_ndx"]: next(iter(parts)).name for version, parts in defined.iter_versions()}
    for k, symbol in enumerate(library.get_section_by_name(".dynsym").iter_symbols()):
        if symbol["st_shndx"] == "SHN_UNDEF":
            continue
        index = indices.get_symbol(k)["ndx"]
        version = re.fullmatch(r"GLIBC_([\d.]+)", names.get(index if isinstance(index, int) else -1, ""))
        if version is None and isinstance(index, int):  # hidden: not the default version
            version = re.fullmatch(r"GLIBC_([\d.]+)", names.get(index & 0x7FFF, ""))
        if version is not None:
            yield symbol.name, tuple(int(part) for part in version.group(1).split("."))


def numba_tag() -> Version:
    """Return the lowest glibc that the installed numba's wheel is made for."""
    text = importlib.metadata.distribution("numba").read_text("WHEEL") or ""
    found = [tuple(map(int, pair)) for pair in re.findall(r"manylinux_(\d+)_(\d+)_", text)]
    found += [(2, 17)] * ("manylinux2014" in text)
    if not found:
        raise SystemExit("numba does not come from a manylinux wheel: nothing is known of its glibc")
    return min(found)


def needed(wheel: Path) -> tuple[Version, int, dict[str, Version]]:
    """Return the glibc that a wheel's kernels need, their number, and the symbols with versions."""
    known, asked, count = glibc_symbols(), dict[str, Version](), 0
    for name, code in objects_of(wheel):
        count += 1
        for symbol in undefined(code):
            if symbol.startswith(BROUGHT):
                continue
            if symbol not in known:
                raise SystemExit(f"{name} calls {symbol!r}, which neither numba nor glibc has")
            asked[symbol] = known[symbol]
    if not count:
        raise SystemExit(f"{wheel.name} has no kernels: it is a pure wheel")
    return max([(2, 5), *(version[:2] for version in asked.values())]), count, asked


def main() -> None:
    """Check a wheel, tag it, and write it to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--to", type=Path, help="folder of the tagged wheel; without it, only check")
    given = parser.parse_args()
    glibc, count, asked = needed(given.wheel)
    major, minor = max(glibc, numba_tag())
    tag = f"manylinux_{major}_{minor}_x86_64"
    calls = ", ".join(sorted(asked)) or "nothing"
    print(f"{count} kernels call of glibc: {calls}; all in {glibc[0]}.{glibc[1]} or before")
    print(f"numba {importlib.metadata.version('numba')} needs {numba_tag()[0]}.{numba_tag()[1]}: {tag}")
    if given.to is None:
        return
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, str(given.wheel)]
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    given.to.mkdir(parents=True, exist_ok=True)
    made = given.wheel.with_name(done)
    print(made.replace(given.to / done))


if __name__ == "__main__":
    main()
