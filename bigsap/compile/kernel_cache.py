"""Disk cache of kernels by content, instead of numba's own cache.

numba's index uses the text of one file, so a caller keeps the code of callees that have changed.
Here the key is the content of the kernel (``digest``), the versions of the tools, the types, and
the processor.
"""

from __future__ import annotations

import hashlib
import pickle
import platform
import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import caching as numba_caching
from numba.core import compiler as numba_compiler
from numba.core import config as numba_config
from numba.core import serialize as numba_serialize

from bigsap.compile import cpu_levels, kernel_files
from bigsap.compile.digest import content

caching: Any = numba_caching
compiler: Any = numba_compiler
config: Any = numba_config
serialize: Any = numba_serialize


@dataclass
class CompileCounts:
    """Counts of this process: kernels compiled, and kernels loaded from disk."""

    compiled: int = 0
    loaded: int = 0


COUNTS = CompileCounts()


@dataclass(frozen=True)
class Target:
    """Destination folder and level of kernels compiled by this process."""

    folder: Path
    level: str


#: Set by a process that builds kernels for distribution.
target: Target | None = None
#: File in which a process records the kernels it compiles or loads: see ``_record``.
records: Path | None = None
_lock = threading.Lock()


# Of numba, which its own cache forgets: checks made to find a mistake would stay, and cost time.
_SETTINGS = ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")


def made_with() -> tuple[str, ...]:
    """Return all versions and settings that affect a kernel, except its text and the processor."""
    return (
        numba.__version__,
        llvmlite.__version__,
        # numba's types follow numpy's promotion rules, which depend on its major version.
        np.__version__.partition(".")[0],
        sys.implementation.cache_tag or "",
        platform.system(),
        platform.machine(),
        *(str(getattr(config, name)) for name in _SETTINGS),
        "svml" if config.USING_SVML else "",
    )


def name_of(function: Any, signature: Any, level: str) -> str | None:
    """Return the name of a kernel's file; None if it cannot be saved.

    signature: numba's, or a tuple of types. The names of types identify them, which is numba's rule.
    """
    digest = content(function.__module__)
    kinds = str(signature)
    # The names of types that are Python objects contain an address.
    if digest is None or re.search(r"\bat 0x[0-9a-f]{4}", kinds):
        return None
    where = f"{function.__module__}.{function.__qualname__}"
    group = hashlib.sha256(f"{where} {kinds} {level}".encode()).hexdigest()[:16]
    key = "\n".join((where, kinds, level, digest, *made_with()))
    short = re.sub(r"[^\w.]", "", where.partition(".")[2])
    return f"{short}-{group}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


class KernelCache(caching._Cache):  # type: ignore[misc]
    """Kernel cache with the interface of numba's dispatchers.

    level: that of kernels compiled here; None for exactly this processor.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        folder = kernel_files.kept_in()
        return None if folder is None else str(folder)

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Do nothing: content never becomes stale."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel of this signature; None if it must be compiled."""
        target_context.refresh()
        if not self._enabled:
            return None
        if records is not None:
            self._record(records, sig)
        found = self._find(sig, target_context)
        with _lock:
            if found is None:
                COUNTS.compiled += 1
            else:
                COUNTS.loaded += 1
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a kernel that was just compiled."""
        if not self._enabled or data.library.has_dynamic_globals:
            return
        folder, level = _destination()
        name = name_of(self._function, sig, level)
        if folder is not None and name is not None:
            kernel_files.write(folder, name, pack(data))

    def _record(self, file: Path, sig: Any) -> None:
        kind = self._function.__module__, self._function.__qualname__, serialize.dumps(sig)
        if content(kind[0]) is not None:
            with _lock, file.open("ab") as stream:
                pickle.dump(kind, stream)

    def _find(self, sig: Any, target_context: Any) -> Any:
        if target is None:
            for level in cpu_levels.usable_levels():
                folder = kernel_files.BUILT / kernel_files.folder_of(level)
                found = self._load(folder, sig, level, target_context)
                if found is not None:
                    return found
        kept, level = _destination()
        return None if kept is None else self._load(kept, sig, level, target_context)

    def _load(self, folder: Path, sig: Any, level: str, target_context: Any) -> Any:
        name = name_of(self._function, sig, level)
        packed = None if name is None else kernel_files.read(folder, name)
        return None if packed is None else unpack(packed, target_context)


def _destination() -> tuple[Path | None, str]:
    if target is not None:
        return target.folder, target.level
    return kernel_files.kept_in(), cpu_levels.own_level()


def pack(result: Any) -> bytes:
    """Serialise a compiled kernel. Machine code only: callers that link it compile it again."""
    library, described = result.library, result.fndesc
    symbols = [
        value.name
        for values in (library._final_module.functions, library._final_module.global_variables)
        for value in values
        if not value.is_declaration
    ]
    # They hold types of every variable, and are no longer needed.
    described.typemap = described.calltypes = None
    parts = (
        library.name,
        library._get_compiled_object(),
        symbols,
        described,
        result.environment,
        result.signature,
        result.reload_init,
        tuple(result._find_referenced_environments()),
    )
    packed: bytes = serialize.dumps(parts)
    return packed


def unpack(packed: bytes, target_context: Any) -> Any:
    """Restore a kernel from ``pack``, in the form that numba's compiler returns."""
    name, code, symbols, described, environment, signature, reload, others = pickle.loads(packed)
    for function in reload:
        function()
    codegen = target_context.codegen()
    library = codegen.create_library(name)
    library.enable_object_caching()
    library._set_compiled_object(code)
    library._finalize_final_module()
    codegen._engine._defined_symbols.update(symbols)
    entry = None
    if environment is not None:
        entry = target_context.get_executable(library, described, environment)
    for other in others:
        codegen.set_env(other.env_name, other)
    return compiler.compile_result(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=environment,
        entry_point=entry,
        fndesc=described,
        signature=signature,
        objectmode=False,
        lifted=(),
        reload_init=reload,
        referenced_envs=others,
        type_annotation="",
    )
