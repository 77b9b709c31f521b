"""Build the kernels that a package contains, for levels of processors.

    python -m bigsap.building FOLDER LEVEL[,LEVEL...] [--kinds TEXT] [--processes N]

The kinds of ``bigsap warmup`` are run once, which records the compiled functions and types. The
same functions are then compiled for the other levels, whether or not this processor could run them.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bigsap.compile import cpu_levels, digest, kernel_cache, kernel_files
from bigsap.compile.decorator import compile_record
from bigsap.engine.core.team import available_threads
from bigsap.errors import OptionError
from bigsap.warmup import warm


def build(folder: Path, names: Sequence[str], *, kinds: str = "", processes: int | None = None) -> None:
    """Write the kernels of the levels ``names`` to ``folder``, one subfolder for each.

    kinds: only the kinds of ``warmup`` whose name contains this text. processes: number of
    compiling processes; by default one a core.
    """
    known = cpu_levels.known_levels()
    names = [cpu_levels.own_level() if name == "own" else name for name in names]
    for name in names:
        if name not in known:
            raise OptionError(f"unknown level {name!r}: there are {', '.join(known)}")
    workers = processes or available_threads()
    usable = [level for level in cpu_levels.usable_levels() if level in names]
    with tempfile.TemporaryDirectory() as scratch:
        # The best level that this processor supports is compiled by running it, the others without.
        first = usable[0] if usable else cpu_levels.own_level()
        kept = folder if usable else Path(scratch) / "unused"
        _call(first, "run", kept, first, scratch, kinds, workers)
        records = sorted({record for file in Path(scratch).glob("*.records") for record in _read(file)})
        for module in sorted({record[0] for record in records}):
            digest.content(module)
        digest.write_summaries(folder)
        # Sorted, so that functions that call the same others are compiled in one process.
        size = max(1, -(-len(records) // (2 * workers)))
        parts = []
        for k in range(0, len(records), size):
            parts.append(Path(scratch) / f"{k}.part")
            parts[-1].write_bytes(pickle.dumps(records[k : k + size]))
        with ThreadPoolExecutor(workers) as pool:
            done = [
                pool.submit(_call, name, "compile", folder, name, part)
                for name in names
                if name != first
                for part in parts
            ]
            for one in done:
                one.result()


def _call(level: str, *arguments: object) -> None:
    """Run one of the roles of ``main`` in a new process whose numba compiles for a level."""
    chosen = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""} if level in cpu_levels.X86 else {}
    environment = {
        **os.environ,
        **chosen,
        "NUMBA_DISABLE_INTEL_SVML": "1",  # users of the package may not have it
        "PYTHONPATH": os.pathsep.join([str(kernel_files.PACKAGE.parent), *sys.path]),
    }
    command = [sys.executable, "-m", "bigsap.building", *map(str, arguments)]
    subprocess.run(command, env=environment, check=True)


def _read(file: Path) -> list[tuple[str, str, bytes]]:
    found = []
    with file.open("rb") as stream:
        while True:
            try:
                found.append(pickle.load(stream))
            except EOFError:
                return found


def _begin(folder: Path, level: str, records: Path | None) -> None:
    digest.keeps = False  # write nothing outside the folder while a wheel is built
    kernel_cache.target = kernel_cache.Target(folder / kernel_files.folder_of(level), level)
    if records is not None:
        kernel_cache.records = records / f"{os.getpid()}.records"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line of this module."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:
        folder, level, scratch, kinds, workers = given[1:]
        begin = (Path(folder), level, Path(scratch))
        warm(kinds=kinds, processes=int(workers), begin=_begin, given=begin)
        return
    if given[:1] == ["compile"]:
        folder, level, part = given[1:]
        _begin(Path(folder), level, None)
        for record in pickle.loads(Path(part).read_bytes()):
            compile_record(record)
        return
    parser = argparse.ArgumentParser(prog="python -m bigsap.building", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("levels", help="such as x86-64-v2,x86-64-v3; own: this processor")
    parser.add_argument("--kinds", default="", help="only those that contain this text")
    parser.add_argument("--processes", type=int)
    options = parser.parse_args(given)
    build(options.folder, options.levels.split(","), kinds=options.kinds, processes=options.processes)


if __name__ == "__main__":
    main()
