"""Compilation and launch of kernels with the code of costs; the only user of CuPy's compiler.

Kernels are CUDA C++ files, compiled at run time (NVRTC; nvcc is not
needed) for the device at hand, once for each combination of costs and settings; CuPy
keeps the machine code on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from bigsap.errors import KernelError, OptionError
from bigsap.sources.cuda.code import PRELUDE, DeviceCode

#: Macros and their values.
Settings = tuple[tuple[str, int], ...]


class KernelFiles(NamedTuple):
    """CUDA files of one package that are compiled together, in this order."""

    package: str
    names: tuple[str, ...]


PAIRS = KernelFiles(__package__, ("kernels_pairs",))
TILES = KernelFiles(__package__, ("kernels_tiles",))
PROOF = KernelFiles(__package__, ("kernels_minimum", "kernels_proof"))
PRODUCT_PROOF = KernelFiles(__package__, ("kernels_minimum", "kernels_product_proof"))
# Dynamic shared memory that a kernel may take unasked: of 48 KB, less its own shared variables.
_USUAL = 40 << 10
_NON_PORTABLE_CLUSTER = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
#: With contraction, equal formulas would differ from the CPU in the last bit.
OPTIONS = ("-std=c++17", "-fmad=false")


def load_cupy() -> Any:
    """Return the CuPy module; raise OptionError with the install command if it is missing."""
    try:
        import cupy
    except ImportError as error:
        raise OptionError(
            'device="cuda" needs CuPy: pip install "bigsap[gpu13]" (or "bigsap[gpu12]" for CUDA 12)'
        ) from error
    return cupy


def require(device: int) -> None:
    """Raise OptionError if the device does not exist. Nothing is started on it."""
    cupy = load_cupy()
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise OptionError(f"no CUDA device can be used here: {error}") from error
    if device >= count:
        raise OptionError(f"device 'cuda:{device}' does not exist: {count} device(s) are present")


@contextmanager
def on(device: int) -> Iterator[None]:
    """Make this device CuPy's current one within the context. OptionError if there is none such."""
    require(device)
    with load_cupy().cuda.Device(device):
        yield


@cache
def attributes_of(device: int) -> dict[str, int]:
    """Return CuPy's attributes of a device, cached: CuPy makes a hundred driver calls for them."""
    return dict(load_cupy().cuda.Device(device).attributes)


@cache
def _kernel_text(files: KernelFiles) -> str:
    folder = resources.files(files.package)
    return "".join(
        f'#line 1 "{name}.cu"\n{folder.joinpath(f"{name}.cu").read_text(encoding="utf-8")}'
        for name in files.names
    )


def full_text(files: KernelFiles, costs: str, settings: Settings) -> str:
    """Return the whole text of a module: macros, the costs' code, the kernels."""
    macros = dict(settings)
    macros.setdefault("WIDTH", 1)
    macros.setdefault("SIGN", 1)
    macros.setdefault("DEVICES", 1)
    macros.setdefault("PHI", 0)
    defines = "".join(f"#define {key} ({value})\n" for key, value in macros.items())
    return f"{defines}{PRELUDE}{costs}\n{_kernel_text(files)}"


class Kernels:
    """The compiled kernels of one text on one device."""

    def __init__(self, device: int, text: str, options: tuple[str, ...], cooperative: bool) -> None:
        cupy = load_cupy()
        self._kernels: dict[str, Any] = {}
        self._allowed: dict[str, int] = {}  # bytes of shared memory
        with on(device):
            self._module = cupy.RawModule(code=text, options=options, enable_cooperative_groups=cooperative)
            try:
                self._module.compile()
            except cupy.cuda.compiler.CompileException as error:
                raise compile_error(str(error), text) from error

    def get(self, name: str, shared_bytes: int = 0, *, wide_cluster: bool = False) -> Any:
        """Return a kernel with that much dynamic shared memory allowed, and clusters of 16 blocks."""
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = self._module.get_function(name)
            # Load the kernel now: loading must not wait for kernels that wait for this one.
            kernel.num_regs  # noqa: B018
            if wide_cluster:
                driver = load_cupy().cuda.driver
                driver.funcSetAttribute(kernel.kernel.ptr, _NON_PORTABLE_CLUSTER, 1)
        if shared_bytes > self._allowed.get(name, _USUAL):
            self._allowed[name] = kernel.max_dynamic_shared_size_bytes = shared_bytes
        return kernel


@cache
def _compiled(
    device: int,
    text: str,
    files: KernelFiles,
    settings: Settings,
    options: tuple[str, ...],
    cooperative: bool,
) -> Kernels:
    # By what the text is made of: the whole one has tens of thousands of characters to hash.
    return Kernels(device, full_text(files, text, settings), options, cooperative)


def compiled(
    device: int, code: DeviceCode, files: KernelFiles, settings: Settings, *, cooperative: bool = False
) -> Kernels:
    """Return the kernels of ``file`` with these costs. KernelError if the costs' code is wrong."""
    # The last of two contradicting options counts.
    options = (*OPTIONS, *code.options)
    return _compiled(device, code.text, files, settings, options, cooperative)


def compile_error(log: str, text: str) -> KernelError:
    """Return the compiler's error about the user's code, with each line shown and marked."""
    lines = text.split("\n")
    start = next((k for k, x in enumerate(lines) if x.startswith('#line 1 "cuda_kernel"')), None)
    found = re.findall(r"cuda_kernel\((\d+)\): (error.*)", log)
    if start is None or not found:
        return KernelError(f"the device kernels do not compile:\n{log}", None)
    shown = []
    for number, complaint in found:
        at = start + int(number)
        source = lines[at].strip() if at < len(lines) else ""
        shown.append(f"line {number}: {complaint}\n  {number} | {source}")
    return KernelError("cuda_kernel does not compile:\n" + "\n".join(shown), int(found[0][0]))
