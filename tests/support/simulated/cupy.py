"""A stand-in for CuPy on machines without a GPU: device code is compiled for the host and run.

Only what BigSAP uses. Devices have numbers and nothing else: all memory is the host's. A block
is a thread of the host, its threads take turns (``device.h``); thread block clusters do not
exist, so kernels are run in the form for older devices. Slow, but it is the kernels' own text
that runs, and the host's own code that launches it.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import stat
import tempfile
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from host_compiler import OPTIONS, compile_shared, host_compiler

N_DEVICES = 3
#: Whether devices can reach each other's memory.
peers = True
float32, float64, int32, int64, uint64 = np.float32, np.float64, np.int32, np.int64, np.uint64
_HERE = Path(__file__).parent
_GROUPS = (
    "bigsap_search",
    "bigsap_picks",
    "bigsap_undercut",
    "bigsap_forest",
    "bigsap_bids",
    "bigsap_classical",
)
_local = threading.local()


def _device() -> int:
    return getattr(_local, "device", 0)


class Stream:
    def __init__(self, non_blocking: bool = False) -> None:
        self.running: list[threading.Thread] = []
        self.copies: list[tuple[Any, Any]] = []  # from and to pinned memory, not yet made
        self._outer: list[Any] = []

    def __enter__(self) -> Stream:
        self._outer.append(getattr(_local, "stream", None))
        _local.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.stream = self._outer.pop()

    def synchronize(self) -> None:
        for thread in self.running:
            thread.join()
        self.running = []
        self.copy()

    def copy(self) -> None:
        """As late as a device may: before what comes after them in the stream."""
        for there, values in self.copies:
            there[...] = values
        self.copies = []


_usual = Stream()


def _stream() -> Stream:
    return getattr(_local, "stream", None) or _usual


class ndarray(np.ndarray):
    """A device array."""

    def __new__(cls, shape: Any, dtype: Any = float, room: Any = None) -> ndarray:
        if room is None:
            made = np.ndarray.__new__(cls, shape, dtype)
        else:
            made = np.ndarray.__new__(cls, shape, dtype, buffer=room.memory)
        made._number = _device()
        return made

    def __array_finalize__(self, parent: Any) -> None:
        self._number = getattr(parent, "_number", _device())

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)

    @property
    def device(self) -> Any:
        return SimpleNamespace(id=self._number)

    def get(self, out: Any = None, blocking: bool = True) -> np.ndarray:
        if not blocking:
            assert _is_pinned(out)
            _stream().copies.append((out, np.array(self)))
            return out
        _stream().synchronize()
        if out is None:
            return np.array(self)
        assert out.dtype == self.dtype
        assert out.flags.c_contiguous
        out[...] = self
        return out

    def set(self, values: Any) -> None:
        assert not isinstance(values, ndarray)
        if _is_pinned(values):
            _stream().copies.append((self, values))
        else:
            _stream().copy()
            self[...] = values


def _made(values: Any) -> ndarray:
    _room_for(np.asarray(values))
    found = np.array(values, copy=True, order="K").view(ndarray)
    found._number = _device()
    return found


def asarray(values: Any, dtype: Any = None) -> ndarray:
    if isinstance(values, ndarray) and values._number == _device():
        return values
    return _made(np.asarray(values, dtype))


def ascontiguousarray(values: ndarray) -> ndarray:
    return values if values.flags.c_contiguous else _made(np.ascontiguousarray(values))


def empty(shape: Any, dtype: Any = float) -> ndarray:
    made = ndarray(shape, dtype)
    _room_for(made)
    made.view(np.uint8)[...] = 0xA5  # whoever reads it before writing will notice
    return made


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    return _made(np.zeros(shape, dtype))


def full(shape: Any, value: Any, dtype: Any = float) -> ndarray:
    return _made(np.full(shape, value, dtype))


def arange(*bounds: int, dtype: Any = None) -> ndarray:
    return _made(np.arange(*bounds, dtype=dtype))


def ix_(*ids: Any) -> Any:
    return np.ix_(*map(np.asarray, ids))


def flatnonzero(values: ndarray) -> ndarray:
    return _made(np.flatnonzero(values))


def abs(values: ndarray) -> ndarray:
    return np.abs(values).view(ndarray)


def maximum(a: Any, b: Any) -> ndarray:
    return np.maximum(a, b).view(ndarray)


def take(values: ndarray, places: ndarray, axis: int) -> ndarray:
    _stream().synchronize()  # the places may be on their way from pinned memory
    return _made(np.take(values, places, axis))


def dot(a: ndarray, b: ndarray, out: ndarray) -> None:
    np.dot(np.asarray(a), np.asarray(b), out=np.asarray(out))


def isfinite(values: Any) -> Any:
    return np.isfinite(values)


class _OutOfMemoryError(MemoryError):
    pass


#: Bytes of the largest array that the devices have room for.
largest = 1 << 40


def _room_for(values: np.ndarray) -> None:
    if values.nbytes > largest:
        raise _OutOfMemoryError(
            f"Out of memory allocating {values.nbytes:,} bytes (allocated so far: 0 bytes)."
        )


class _CompileError(Exception):
    pass


class _RuntimeError(RuntimeError):
    status = 1


class Device:
    compute_capability = "80"
    mem_info = (8 << 30, 16 << 30)

    def __init__(self, number: int) -> None:
        self.id = number
        self.attributes = {"ClockRate": 1_000_000}  # the clock counts nanoseconds
        self._outer: list[int] = []

    def __enter__(self) -> Device:
        self._outer.append(_device())
        _local.device = self.id
        return self

    def __exit__(self, *_: object) -> None:
        _local.device = self._outer.pop()

    def synchronize(self) -> None:
        _usual.synchronize()


class Event:
    def __init__(self, disable_timing: bool = False) -> None:
        self._running: list[threading.Thread] = []
        self._copies: list[tuple[Any, Any]] = []

    def record(self) -> None:
        self._stream = _stream()
        self._running = list(self._stream.running)
        self._copies = list(self._stream.copies)

    @property
    def done(self) -> bool:
        if any(thread.is_alive() for thread in self._running):
            return False
        for copy in self._copies:
            left = [other for other in self._stream.copies if other is not copy]
            if len(left) < len(self._stream.copies):  # not made by what came after it
                copy[0][...] = copy[1]
            self._stream.copies = left
        self._copies = []
        return True


class _Pinned(np.ndarray):
    @property
    def ptr(self) -> int:
        return int(self.ctypes.data)


_pinned_at: set[tuple[int, int]] = set()


def _pinned(nbytes: int) -> _Pinned:
    memory = np.zeros(nbytes, np.uint8)
    made = memory.view(_Pinned)
    there = (made.ptr, made.ptr + nbytes)
    _pinned_at.add(there)
    # All views of it have the memory as their base, not the view returned here.
    weakref.finalize(memory, _pinned_at.discard, there)
    return made


def _is_pinned(values: Any) -> bool:
    at = np.asarray(values).ctypes.data
    return any(first <= at < last for first, last in _pinned_at)


def _gemm_ex(*given: Any) -> None:
    """Multiply as cuBLAS does float16 into float32: matrices are stored by columns, the first is turned."""
    _, turned, plain, m, n, k, one, a, half, lda, b, other, ldb, none, c, single, ldc, arithmetic, _ = given
    assert (turned, plain, half, other, single, arithmetic) == (1, 0, 2, 2, 0, 68)
    assert (lda, ldb, ldc) == (k, k, m)

    def at(address: int, kind: Any, shape: Any) -> np.ndarray:
        size = math.prod(shape) * np.dtype(kind).itemsize
        return np.frombuffer((ctypes.c_char * size).from_address(address), kind).reshape(shape)

    assert at(none, "f4", (1,))[0] == 0
    columns, rows = at(a, "f2", (m, k)).astype("f4"), at(b, "f2", (n, k)).astype("f4")
    at(c, "f4", (n, m))[...] = at(one, "f4", (1,)) * (rows @ columns.T)


cuda = SimpleNamespace(
    cublas=SimpleNamespace(gemmEx=_gemm_ex),
    device=SimpleNamespace(get_cublas_handle=lambda: 1),
    Device=Device,
    Event=Event,
    Stream=Stream,
    get_current_stream=_stream,
    Memory=lambda nbytes: np.zeros(nbytes, np.uint8),
    MemoryPointer=lambda memory, at: SimpleNamespace(memory=memory, ptr=memory.ctypes.data + at),
    alloc_pinned_memory=_pinned,
    memory=SimpleNamespace(OutOfMemoryError=_OutOfMemoryError),
    compiler=SimpleNamespace(CompileException=_CompileError),
    driver=SimpleNamespace(funcSetAttribute=lambda *_: None),
    runtime=SimpleNamespace(
        getDeviceCount=lambda: N_DEVICES,
        CUDARuntimeError=_RuntimeError,
        deviceCanAccessPeer=lambda a, b: peers,
        deviceEnablePeerAccess=lambda b: None,
    ),
)


def get_default_memory_pool() -> Any:
    return SimpleNamespace(free_bytes=lambda: 0, free_all_blocks=lambda: None)


#: Barriers at which threads of a block waited for others that were at another one.
diverged: list[str] = []

_SIZES = {
    "double": 8,
    "int": 4,
    "u32": 4,
    "unsigned": 4,
    "i64": 8,
    "u64": 8,
    "float": 4,
    "PRICE": 8,
    "NUMBER": 8,
}


def _kept() -> Path:
    """Where compiled modules are kept: this user's alone, since what is there is loaded."""
    user = getattr(os, "getuid", int)()
    folder = Path(tempfile.gettempdir()) / f"bigsap-simulated-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if os.name != "nt" and (found.st_uid, stat.S_IFMT(found.st_mode)) != (user, stat.S_IFDIR):
        raise PermissionError(f"{folder} is not a folder of this user")
    return folder


class RawModule:
    """A module compiled by the host's compiler."""

    def __init__(self, code: str, options: Any, enable_cooperative_groups: bool = False) -> None:
        for asm, other in (
            (
                r'asm volatile\("st\.relaxed[^;]*;[^;]*;',
                "__atomic_store_n((u64*)place, word, __ATOMIC_RELEASE);",
            ),
            (
                r'asm volatile\("ld\.relaxed[^;]*;[^;]*;',
                "give_way(); word = __atomic_load_n((u64*)place, __ATOMIC_ACQUIRE);",
            ),
            (r"extern __shared__ (\w+) (\w+)\[\];", r"static thread_local \1 \2[65536];"),
        ):
            code = re.sub(asm, other, code)
        self.signatures: dict[str, list[str]] = {}
        wrappers = ""
        for name, given in re.findall(r'extern "C" __global__[^{]*?(bigsap_\w+)\(([^)]*)\)', code):
            kinds = [re.sub(r"\w+$", "", one.strip()).strip() for one in given.split(",")]
            self.signatures[name] = kinds
            values = ", ".join(f"*({kind}*)args[{k}]" for k, kind in enumerate(kinds))
            guard = "#if DEVICES > 1\n" if name == "bigsap_greet" else "#if 1\n"
            wrappers += guard + (
                f"static void body_{name}(void** args) {{ {name}({values}); }}\n"
                f'extern "C" void run_{name}(void** args, unsigned x, unsigned y, int threads, int'
                f" together) {{ run_grid(body_{name}, args, x, y, threads, together); }}\n#endif\n"
            )
        self.text = '#include "device.h"\n' + code + "\n" + wrappers
        self.library: Any = None

    def compile(self) -> None:
        header, folder = (_HERE / "device.h").read_text(), _kept()
        made_by = " ".join((str(host_compiler()), *OPTIONS))
        key = hashlib.sha256((made_by + header + self.text).encode()).hexdigest()[:24]
        target = folder / f"{key}.so"
        if not target.exists():
            # In a folder of its own: other processes of tests may make the same one now.
            with tempfile.TemporaryDirectory(dir=folder) as own:
                source, made = Path(own) / "kernel.cpp", Path(own) / "kernel.so"
                source.write_text(self.text)
                complaint = compile_shared(source, made, _HERE)
                if complaint:
                    raise _CompileError(complaint)
                made.replace(target)
        self.library = ctypes.CDLL(str(target))

    def get_function(self, name: str) -> Any:
        lines = (ctypes.c_int * 2).in_dll(self.library, "diverged")
        run = getattr(self.library, f"run_{name}")
        return _Kernel(name, run, self.signatures[name], lines)


class _Kernel:
    num_regs = 32
    max_dynamic_shared_size_bytes = 47 << 10  # the rest for the kernel's own variables

    def __init__(self, name: str, run: Any, kinds: list[str], lines: Any) -> None:
        self.name, self._run, self._kinds = name, run, kinds
        self._diverged = lines
        self.kernel = SimpleNamespace(ptr=0)

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        assert len(args) == len(self._kinds), (self.name, len(args), self._kinds)
        assert shared_mem <= self.max_dynamic_shared_size_bytes, (self.name, shared_mem)
        words = np.zeros(len(args), np.uint64)
        for k, (value, kind) in enumerate(zip(args, self._kinds, strict=True)):
            if kind.endswith("*"):
                assert isinstance(value, (ndarray, np.int64, np.intp)), (self.name, k, kind)
                if isinstance(value, ndarray):
                    assert value.flags.c_contiguous, (self.name, k)
                    assert value._number == _device(), (self.name, k, kind)
                words[k] = value.ctypes.data if isinstance(value, ndarray) else value
            else:
                assert value.dtype.itemsize == _SIZES[kind], (self.name, k, kind, value.dtype)
                words[k : k + 1].view(np.uint8)[: value.dtype.itemsize] = np.frombuffer(
                    value.tobytes(), np.uint8
                )
        pointers = (ctypes.c_void_p * len(args))(*[words.ctypes.data + 8 * k for k in range(len(args))])
        x, y = grid[0], grid[1] if len(grid) > 1 else 1
        stream = _stream()
        stream.synchronize()
        together = self.name in _GROUPS

        def go() -> None:
            kept = (args, words)
            self._run(pointers, ctypes.c_uint(x), ctypes.c_uint(y), block[0], int(together))
            del kept
            if any(self._diverged):
                one, other = self._diverged
                diverged.append(f"{self.name}: threads wait at lines {one} and {other} of the text")
                self._diverged[:] = [0, 0]

        if not together:
            go()
            return
        thread = threading.Thread(target=go)
        stream.running.append(thread)
        thread.start()
