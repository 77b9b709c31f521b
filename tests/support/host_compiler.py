"""Device code compiled for the host, as C++."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

#: The headers of C are read as C's: those that C++ puts around them take as long as all the rest.
OPTIONS = (
    *("-O0", "-shared", "-fPIC", "-std=c++17", "-ffp-contract=off", "-w", "-pthread"),
    "-D_GLIBCXX_INCLUDE_NEXT_C_HEADERS",
)


def host_compiler() -> str | None:
    """None where there is none."""
    return shutil.which("g++") or shutil.which("clang++")


def compile_shared(source: Path, target: Path, *include: Path) -> str:
    """Make a shared library of a file; what the compiler complains of, which is nothing if it is made."""
    compiler = host_compiler()
    assert compiler is not None
    options = [*OPTIONS, *(f"-I{folder}" for folder in include)]
    done = subprocess.run(
        [compiler, *options, "-o", str(target), str(source)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.stderr[:3000] if done.returncode else ""
